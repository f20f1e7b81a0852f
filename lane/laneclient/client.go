package laneclient

import (
	"context"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

var _ lane.Directory = (*Client)(nil)

// ClientStatus is how a client stands with the control plane.
type ClientStatus struct {
	Connected  bool      // a watch is open and in step
	Registered bool      // the instance is in the registry, as far as the client knows
	Session    string    // id; empty: none
	Control    string    // URL of the replica that is used
	Revision   uint64    // that the view has reached
	StaleSince time.Time // zero: the view is fresh
	FromFile   bool      // the view comes from the snapshot file
	LastError  string    // the last thing that went wrong; kept until something else does
	LastErrAt  time.Time
}

// Client is this process's connection to the control plane. It is a
// [lane.Directory].
type Client struct{ *API }

// Dial opens a session, registers the instance if there is one to register, and
// reads the registry.
func Dial(ctx context.Context, cfg Config) (*Client, error) { return nil, ctx.Err() }

// View returns the present view. It takes no lock and is never nil.
func (c *Client) View() *View { return nil }

// Snapshot returns View().Snapshot.
func (c *Client) Snapshot() *lane.Snapshot { return c.View().Snapshot }

// Need implements [lane.Directory].
func (c *Client) Need(ctx context.Context, service string) error { return ctx.Err() }

// Subscribe implements [lane.Directory].
func (c *Client) Subscribe(changed func()) (cancel func()) { return func() {} }

// Process implements [lane.Directory].
func (c *Client) Process() lane.Name { return "" }

// Used implements [lane.Directory].
func (c *Client) Used(color lane.Name) {}

// SetState writes the state of the registered instance, lane.Ready or
// lane.Draining.
func (c *Client) SetState(ctx context.Context, state lane.State) error { return ctx.Err() }

// Drain asks for no new traffic: SetState(lane.Draining), for at most two seconds.
func (c *Client) Drain() {}

// Session is the id of the present session, empty while there is none.
func (c *Client) Session() string { return "" }

// Status says how the client stands with the control plane.
func (c *Client) Status() ClientStatus { return ClientStatus{} }

// AdminHandler serves GET /v1/explain and GET /healthz on this process's own view.
func (c *Client) AdminHandler() http.Handler { return http.NotFoundHandler() }

// Close leaves: it deletes the instance, ends the session and waits for all
// goroutines, in at most three seconds.
func (c *Client) Close() error { return nil }
