package lanehttp

import (
	"bufio"
	"net"
	"net/http"

	"github.com/laneway-dev/laneway/lane"
)

// Middleware wraps a handler so that its requests' contexts carry their color
// (lane.From). A request with lane.ExplainHeader "1" is answered with lane.RouteHeader
// lines for the calls that the handler made with its context before it sent headers,
// nearest first. The ResponseWriter that next then gets supports Flush and Hijack where
// the original does, and all else through http.NewResponseController.
func Middleware(next http.Handler, options ...Option) http.Handler {
	c := newConfig(options)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.trust != nil && !c.trust(r) {
			if c.tells(r.Header) {
				r = r.WithContext(r.Context()) // a copy
				r.Header = c.outgoing(r.Header, lane.Baseline)
			}
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if color := c.color(r); color != lane.Baseline {
			ctx = lane.With(ctx, color)
		}
		if !lane.WantsRoute(Carrier(r.Header)) {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		ctx, trail := lane.WithTrail(ctx)
		explained := &explainWriter{ResponseWriter: w, trail: trail}
		next.ServeHTTP(explained, r.WithContext(ctx))
		explained.explain() // for a handler that wrote nothing
	})
}

func (c *config) color(r *http.Request) lane.Name {
	if c.hostTags {
		if color, _ := SplitHost(r.Host); color != lane.Baseline {
			return color
		}
	}
	color, _ := lane.Extract(Carrier(r.Header), c.aliases...)
	return color
}

// explainWriter adds the trail to the headers just before they go out.
type explainWriter struct {
	http.ResponseWriter
	trail *lane.Trail
	done  bool
}

func (w *explainWriter) explain() {
	if w.done {
		return
	}
	w.done = true
	// What a handler that passes answers on has copied is in the trail, too.
	if lines := w.trail.Lines(); len(lines) > 0 {
		w.Header()[RouteKey] = lines
	}
}

// WriteHeader implements http.ResponseWriter. Informational answers (1xx, but for the
// switch of protocols) are not the last, so they carry no lines.
func (w *explainWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.explain()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *explainWriter) Write(b []byte) (int, error) {
	w.explain()
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher: many handlers ask for it by type.
func (w *explainWriter) Flush() {
	w.explain()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Flusher has no error to give
}

// Hijack implements http.Hijacker: WebSocket libraries ask for it by type.
func (w *explainWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap serves http.NewResponseController.
func (w *explainWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
