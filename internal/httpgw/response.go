package httpgw

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
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
	t := tail{connection: resp.Header["Connection"]}
	dropHops(resp.Header)
	h := c.w.Header()
	maps.Copy(h, resp.Header)
	if _, there := h["Content-Type"]; !there {
		h["Content-Type"] = nil // else the server would guess one
	}
	c.unfinished()
	trailersOnly := c.grpc && len(h["Grpc-Status"]) > 0
	t.further = c.routeLines(h, trailersOnly)
	c.announce(h, resp, t)
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
		c.routeTrailer(h, t, nil)
		return nil
	}
	if err == nil {
		c.trailers(h, resp, t)
	}
	return err
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
