package control_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// wire is a process's way to the control plane, which can be cut, and can lose answers.
type wire struct {
	http.RoundTripper

	mu     sync.Mutex
	down   context.Context // of what is under way: a cut ends it
	cut    context.CancelFunc
	broken bool
	losing int
}

var errWire = errors.New("the wire is cut")

func newWire(to http.RoundTripper) *wire {
	w := &wire{RoundTripper: to}
	w.down, w.cut = context.WithCancel(context.Background())
	return w
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	broken, down := w.broken, w.down
	lose := w.losing > 0 && (strings.HasSuffix(r.URL.Path, ":batch") || strings.HasSuffix(r.URL.Path, "/notes"))
	if lose {
		w.losing--
	}
	w.mu.Unlock()
	if broken {
		return nil, errWire
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(down, cancel)
	resp, err := w.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err == nil && lose {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errWire
	}
	return resp, err
}

func (w *wire) set(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken = broken; broken {
		w.cut()
		return
	}
	w.down, w.cut = context.WithCancel(context.Background())
}

func (w *wire) lose(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = n
}

// TestConsumeRegistry holds the control plane, through the client that everybody uses, against
// what consuming rests on.
func TestConsumeRegistry(t *testing.T) {
	t.Parallel()
	consumetest.RunRegistry(t, func(t *testing.T) consumetest.Registry {
		t.Helper()
		r := start(t)
		return consumeRegistry(t, r.c.Handler())
	})
}

// consumeRegistry is a control plane as the suite wants it.
func consumeRegistry(t *testing.T, h http.Handler) consumetest.Registry {
	t.Helper()
	api := laneclient.NewAPI(laneclient.Config{Transport: laneclient.InMemory(h)})
	var mu sync.Mutex
	wires := map[consume.Connection]*wire{}
	of := func(c consume.Connection) *wire {
		mu.Lock()
		defer mu.Unlock()
		return wires[c]
	}
	connect := func(ctx context.Context, in lane.Name, ttl time.Duration) (consume.Connection, error) {
		w := newWire(laneclient.InMemory(h))
		c, err := laneclient.Dial(ctx, laneclient.Config{Transport: w, Lane: string(in), TTL: ttl})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			_ = c.Close() // the session may be gone
			w.set(true)
		})
		mu.Lock()
		defer mu.Unlock()
		wires[c] = w
		return c, nil
	}
	return consumetest.Registry{
		Connect: func(ctx context.Context, in lane.Name) (consume.Connection, error) {
			return connect(ctx, in, time.Minute)
		},
		Brief: func(ctx context.Context) (consume.Connection, error) {
			return connect(ctx, lane.Baseline, laneclient.DefaultTTL)
		},
		CreateLane: func(ctx context.Context, name, parent lane.Name) error {
			_, err := laneclient.CreateLane(ctx, api, &laneclient.Lane{Meta: laneclient.Meta{Name: string(name)}, Parent: string(parent)})
			return err
		},
		EndLane: func(ctx context.Context, name lane.Name) error {
			return laneclient.Delete[laneclient.Lane](ctx, api, string(name))
		},
		SetGroup: func(ctx context.Context, name string, to consume.Group) error {
			g, err := laneclient.Get[laneclient.Group](ctx, api, name)
			if err != nil {
				return err
			}
			g.Paused, g.Reset = to.Paused, nil
			if to.Reset != nil {
				g.Reset = &laneclient.GroupReset{ID: to.Reset.ID, Offsets: map[string]int64{}}
				for p, offset := range to.Reset.Offsets {
					g.Reset.Offsets[p.String()] = offset
				}
			}
			_, err = laneclient.Put(ctx, api, g, laneclient.IfMatch(g.Revision))
			return err
		},
		End: func(ctx context.Context, session string) error {
			return laneclient.Delete[laneclient.Session](ctx, api, session)
		},
		Cut:         func(c consume.Connection) { of(c).set(true) },
		Mend:        func(c consume.Connection) { of(c).set(false) },
		LoseAnswers: func(c consume.Connection, n int) { of(c).lose(n) },
	}
}
