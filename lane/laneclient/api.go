package laneclient

import (
	"context"
)

// API makes single calls to the control plane. Make one with [NewAPI].
type API struct{}

// NewAPI returns an API that uses Control, Transport and TokenFile of cfg. It does
// no I/O; a Control that is no URL is an error of each call.
func NewAPI(cfg Config) *API { return &API{} }

// CallOption changes one call.
type CallOption func(*call)

type call struct{}

// IfMatch makes a write conditional: the object must be at this revision, else the
// error is a [*Problem] with status 412.
func IfMatch(revision uint64) CallOption { return func(*call) {} }

// IfNoneMatch makes a write conditional: the object must not exist.
func IfNoneMatch() CallOption { return func(*call) {} }

// InSession makes the call on behalf of a session.
func InSession(id string) CallOption { return func(*call) {} }

// Do makes a call: in, if not nil, is sent as JSON; the answer is read into out, if
// not nil. An answer of status 400 and up is a [*Problem].
func (a *API) Do(ctx context.Context, method, path string, in, out any, opts ...CallOption) error {
	return ctx.Err()
}
