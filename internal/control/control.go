// Package control is the control plane.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a replica of the control plane needs.
type Config struct {
	Store   store.Store          // required; the caller closes it, after Run has returned
	Node    string               // name of this replica in status and explain; default: host name and 4 hex digits
	Cluster string               // cluster label, for status and explain
	Domain  string               // domain of service hosts, for explain http
	Version string               // of the program, for status
	Log     *slog.Logger         // nil: discard
	Metrics *prometheus.Registry // served at /metrics; nil: one of its own
	Now     func() time.Time     // wall clock; nil: time.Now
}

// Control is one replica of the control plane. Its methods may be called at once.
type Control struct {
	cfg Config
}

// New checks the configuration. It does no I/O and starts nothing.
func New(cfg Config) (*Control, error) {
	if cfg.Store == nil {
		return nil, errors.New("control: Config.Store is nil: open a store first")
	}
	return &Control{cfg: cfg}, nil
}

// AddReadiness adds a role to /readyz: check returns nil, or why the role is not
// ready. Call it before the handler serves.
func (c *Control) AddReadiness(role string, check func(context.Context) error) {}

// Run keeps the replica in step with the store, and runs the life of lanes when
// it leads, until ctx ends.
func (c *Control) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Handler serves the API.
func (c *Control) Handler() http.Handler { return http.NotFoundHandler() }
