package lanetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// errWire is what a process is told whose wire is cut.
var errWire = errors.New("the wire is cut")

// Wire is one process's way to a control plane, for the Transport of its Config, which a test
// can cut. Control's own Stop is an outage for all. All methods may be called at once.
type Wire struct {
	to http.RoundTripper

	mu     sync.Mutex
	down   context.Context //nolint:containedctx // of what is under way: a cut ends it
	cut    context.CancelFunc
	broken bool
	losing int
}

// NewWire is a way through to, such as [Control.Transport].
func NewWire(to http.RoundTripper) *Wire {
	w := &Wire{to: to}
	w.down, w.cut = context.WithCancel(context.Background())
	return w
}

// Cut ends what is under way, watches among it, and lets nothing through until Mend.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = true
	w.cut()
}

// Mend ends a Cut.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.broken {
		return
	}
	w.broken = false
	w.down, w.cut = context.WithCancel(context.Background())
}

// LoseAnswers lets the next n requests that move cursors, or note how far they are, take place
// and stay without an answer.
func (w *Wire) LoseAnswers(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = n
}

// RoundTrip sends a request, unless the wire is cut.
func (w *Wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	broken, down := w.broken, w.down
	lose := !broken && w.losing > 0 && (strings.HasSuffix(req.URL.Path, ":batch") || strings.HasSuffix(req.URL.Path, "/notes"))
	if lose {
		w.losing--
	}
	w.mu.Unlock()
	if broken {
		return nil, errWire
	}
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(down, cancel)
	end := func() { stop(); cancel() }
	resp, err := w.to.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	if lose {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		end()
		return nil, errWire
	}
	resp.Body = &wireBody{ReadCloser: resp.Body, end: end}
	return resp, nil
}

// wireBody keeps the request's context until the answer was read.
type wireBody struct {
	io.ReadCloser
	end func()
}

func (b *wireBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
