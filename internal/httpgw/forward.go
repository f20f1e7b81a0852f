package httpgw

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// forwardOut sends a request in absolute form, for a host that is none of ours, out
// as it is. What concerns lanes stays here: third parties get no color.
func (c *call) forwardOut(ctx context.Context) {
	r := c.r
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		c.fail(&failure{Status: http.StatusBadRequest, Detail: "the proxy takes http:// addresses without user; for https use CONNECT"})
		return
	}
	lane.Strip(lanehttp.Carrier(r.Header), c.g.cfg.Aliases...)
	delete(r.Header, lanehttp.ExplainKey)
	addVia(r, c.g.viaOf(r))
	ctx, cancel := c.exchange(ctx)
	defer cancel(nil)
	wait, _, idle := c.timeouts()
	w := newWatch(c.rc, cancel, wait, 0)
	defer w.stop()
	c.duplex(0, w)
	out := c.outgoing(ctx)
	out.URL.Host = r.URL.Host
	resp, err := c.roundTrip(out)
	if err == nil {
		w.headers(idle)
		if c.cause = c.pass(resp, w); c.cause != nil {
			c.breakOff()
		}
		return
	}
	c.cause = err
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errRequestTimeout):
		c.fail(&failure{Status: http.StatusGatewayTimeout, Detail: fmt.Sprintf("%s sent no response in time", clip(r.URL.Host))})
	case c.clientFault(cause):
	case errors.Is(err, errUnasked):
		c.fail(&failure{Status: http.StatusBadGateway, Detail: fmt.Sprintf("%s switched to a protocol that was not asked for", clip(r.URL.Host))})
	case neverSent(err):
		c.fail(&failure{Status: http.StatusBadGateway, Detail: fmt.Sprintf(
			"%s cannot be reached, and is no service or route here: check the name", clip(r.URL.Host))})
	default:
		c.fail(&failure{Status: http.StatusBadGateway, Detail: fmt.Sprintf("%s broke off before it answered", clip(r.URL.Host))})
	}
}
