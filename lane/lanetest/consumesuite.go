package lanetest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// RunConsume checks a control plane, through the client that programs have, against what
// consuming rests on: [consumetest.RunRegistry]. start is as that of [RunAPI], but its parts
// run at once. Real time passes, some ten seconds.
func RunConsume(t *testing.T, start func(t *testing.T) (url string, transport http.RoundTripper)) {
	consumetest.RunRegistry(t, func(t *testing.T) consumetest.Registry {
		t.Helper()
		url, transport := start(t)
		if transport == nil {
			own := &http.Transport{}
			t.Cleanup(own.CloseIdleConnections)
			transport = own
		}
		r := &consumeRegistry{t: t, cfg: laneclient.Config{Control: []string{url}, Transport: transport}, wires: map[consume.Connection]*Wire{}}
		r.api = laneclient.NewAPI(r.cfg)
		t.Cleanup(func() { _ = r.api.Close() })
		return consumetest.Registry{
			Connect: func(ctx context.Context, in lane.Name) (consume.Connection, error) {
				return r.connect(ctx, in, time.Minute)
			},
			Brief: func(ctx context.Context) (consume.Connection, error) {
				return r.connect(ctx, lane.Baseline, laneclient.DefaultTTL)
			},
			CreateLane: func(ctx context.Context, name, parent lane.Name) error {
				_, err := laneclient.CreateLane(ctx, r.api, &laneclient.Lane{Meta: named(string(name)), Parent: string(parent)})
				return err
			},
			EndLane: func(ctx context.Context, name lane.Name) error {
				return laneclient.Delete[laneclient.Lane](ctx, r.api, string(name))
			},
			SetGroup: r.setGroup,
			End: func(ctx context.Context, session string) error {
				return laneclient.Delete[laneclient.Session](ctx, r.api, session)
			},
			Cut:         func(c consume.Connection) { r.wire(c).Cut() },
			Mend:        func(c consume.Connection) { r.wire(c).Mend() },
			LoseAnswers: func(c consume.Connection, n int) { r.wire(c).LoseAnswers(n) },
		}
	})
}

// consumeRegistry is a control plane as consumetest wants it.
type consumeRegistry struct {
	t   *testing.T
	cfg laneclient.Config
	api *laneclient.API

	mu    sync.Mutex
	wires map[consume.Connection]*Wire
}

func (r *consumeRegistry) wire(c consume.Connection) *Wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wires[c]
}

func (r *consumeRegistry) connect(ctx context.Context, in lane.Name, ttl time.Duration) (consume.Connection, error) {
	cfg, w := r.cfg, NewWire(r.cfg.Transport)
	cfg.Transport, cfg.Lane, cfg.TTL = w, string(in), ttl
	c, err := laneclient.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() {
		_ = c.Close() // the session may be gone
		w.Cut()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wires[c] = w
	return c, nil
}

func (r *consumeRegistry) setGroup(ctx context.Context, name string, to consume.Group) error {
	g, err := laneclient.Get[laneclient.Group](ctx, r.api, name)
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
	_, err = laneclient.Put(ctx, r.api, g, laneclient.IfMatch(g.Revision))
	return err
}
