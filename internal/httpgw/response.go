package httpgw

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/laneway-dev/laneway/lane"
)

// pass passes an upstream's answer on and closes its body. The error says that the
// client has not got the whole.
func (c *call) pass(resp *http.Response, w *watch) error {
	defer resp.Body.Close()
	c.noMoreEarly()
	c.status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return c.switchProtocols(resp, w)
	}
	dropHops(resp.Header)
	h := c.w.Header()
	maps.Copy(h, resp.Header)
	if _, there := h["Content-Type"]; !there {
		h["Content-Type"] = nil // else the server would guess one
	}
	c.unfinished()
	trailersOnly := c.grpc && len(h["Grpc-Status"]) > 0
	c.routeLines(h, trailersOnly)
	for key := range resp.Trailer {
		h.Add("Trailer", key)
	}
	c.w.WriteHeader(resp.StatusCode)
	if trailersOnly {
		return nil
	}
	streams := resp.ContentLength < 0 && c.r.Method != http.MethodHead
	if streams {
		// The client may wait for the headers before it sends, or expects, a byte.
		_ = c.rc.Flush()
	}
	err := c.copyBody(resp.Body, streams, w)
	if err != nil && c.grpc && c.r.Context().Err() == nil && !errors.Is(err, errClient) {
		// A gRPC client understands a status better than a reset.
		c.cause = err
		code, message := grpcUnavailable, "instance "+c.target.Name+" of "+c.decision.Service+" broke off in the middle of its answer"
		if c.grpcDeadline() {
			code, message = grpcDeadline, "the call's deadline has passed"
		}
		h[http.TrailerPrefix+"Grpc-Status"] = []string{strconv.Itoa(code)}
		h[http.TrailerPrefix+"Grpc-Message"] = []string{grpcMessage(message)}
		return nil
	}
	if err == nil {
		c.trailers(h, resp)
	}
	return err
}

// routeLines puts our line before those of the upstream, or drops all where nobody
// asked. A gRPC call gets them as trailers (see [call.trailers]), unless its answer
// has only headers.
func (c *call) routeLines(h http.Header, trailersOnly bool) {
	lines := h[headerRoute]
	lines = lines[:min(len(lines), lane.MaxTrailHops-1)]
	switch {
	case !c.explain || c.decision.Service == "":
		delete(h, headerRoute)
	case c.grpc && !trailersOnly:
		if len(lines) > 0 { // of a server that writes them first; they are behind ours in the trailers
			h[http.TrailerPrefix+headerRoute] = append([]string{c.hop().String()}, lines...)
			delete(h, headerRoute)
		} else {
			h[http.TrailerPrefix+headerRoute] = []string{c.hop().String()}
		}
	default:
		h[headerRoute] = append([]string{c.hop().String()}, lines...)
	}
}

// trailers writes what came behind the body.
func (c *call) trailers(h http.Header, resp *http.Response) {
	for key, values := range resp.Trailer {
		switch {
		case len(values) == 0:
		case key == headerRoute:
			if c.explain {
				h[http.TrailerPrefix+key] = append(h[http.TrailerPrefix+key], values...)
			}
		default:
			// The prefix, and not the plain key, also where the key was announced: one
			// that stands in the headers as well is another field.
			h[http.TrailerPrefix+key] = values
		}
	}
}

// errClient wraps an error of writing to the client.
var errClient = errors.New("write to the client")

type buffer [copyBytes]byte

// copyBody copies until EOF, at once where the body streams.
func (c *call) copyBody(from io.Reader, flush bool, w *watch) error {
	buf, _ := c.g.buffers.Get().(*buffer)
	if buf == nil {
		buf = new(buffer)
	}
	defer c.g.buffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			w.touch()
			if _, werr := c.w.Write(buf[:n]); werr != nil {
				return errors.Join(errClient, werr)
			}
			if flush {
				if werr := c.rc.Flush(); werr != nil {
					return errors.Join(errClient, werr)
				}
			}
			w.touch()
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
