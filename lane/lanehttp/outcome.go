package lanehttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// settle tells the balancer how the target did: now, or where it counts requests under
// way, when the body is at its end or closed.
func (c *call) settle(ctx context.Context, target *lane.Target, resp *http.Response) {
	outcome := outcomeOfStatus(resp.StatusCode)
	if c.t.policy != lane.LeastRequests || resp.Body == http.NoBody {
		c.t.balancer.Done(target, outcome, time.Now())
		return
	}
	b := &countedBody{ReadCloser: resp.Body, ctx: ctx, balancer: c.t.balancer, target: target, outcome: outcome}
	if w, ok := resp.Body.(io.Writer); ok { // after a switch of protocols
		resp.Body = countedStream{b, w}
		return
	}
	resp.Body = b
}

// outcomeOfStatus is what a response says of its instance's health: only that which
// stands for "not able to serve" counts against it; other errors are its answer.
func outcomeOfStatus(status int) lane.Outcome {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return lane.Failure
	}
	return lane.Success
}

// outcomeOf is what a failed exchange says of the instance's health. A deadline that passed
// counts against it, a caller that went away does not.
func outcomeOf(ctx context.Context, err error) lane.Outcome {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled):
		return lane.Neutral
	case refused(err) && ctx.Err() == nil:
		return lane.Refused
	default:
		return lane.Failure
	}
}

// countedBody is a response's body whose end is the end of the request.
type countedBody struct {
	io.ReadCloser
	ctx      context.Context //nolint:containedctx // the request's, as long as its body lasts
	balancer *lane.Balancer
	target   *lane.Target
	outcome  lane.Outcome // if nothing goes wrong from here on
	ended    atomic.Bool
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.end(b.outcome)
	case err != nil:
		b.end(outcomeOf(b.ctx, err))
	}
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end(b.outcome)
	return err
}

func (b *countedBody) end(o lane.Outcome) {
	if !b.ended.Swap(true) {
		b.balancer.Done(b.target, o, time.Now())
	}
}

// countedStream is the body of a connection that has switched protocols.
type countedStream struct {
	*countedBody
	io.Writer
}
