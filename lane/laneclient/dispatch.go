package laneclient

import (
	"context"
	"slices"
	"sync"
)

// dispatcher calls subscribers, one after the other, from a goroutine of its own,
// so that none of them holds the viewer up.
type dispatcher struct {
	wake chan struct{}
	mu   sync.Mutex
	subs []*subscriber
}

type subscriber struct {
	turn    chan struct{} // holds a token during a call, so that cancel waits for it
	gone    bool          // guarded by turn
	changed func()
}

func (d *dispatcher) subscribe(changed func()) (cancel func()) {
	s := &subscriber{turn: make(chan struct{}, 1), changed: changed}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subs = append(slices.Clip(d.subs), s)
	return func() {
		d.mu.Lock()
		d.subs = slices.DeleteFunc(slices.Clone(d.subs), func(o *subscriber) bool { return o == s })
		d.mu.Unlock()
		s.turn <- struct{}{}
		s.gone = true
		<-s.turn
	}
}

func (d *dispatcher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		d.mu.Lock()
		subs := d.subs
		d.mu.Unlock()
		for _, s := range subs {
			s.call()
		}
	}
}

func (s *subscriber) call() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if !s.gone {
		s.changed()
	}
}
