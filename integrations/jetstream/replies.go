package jetstream

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// replies hands what comes to one subscription to whoever waits for it: a subscription for
// each request would cost more than the request.
type replies struct {
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *nats.Msg
}

func newReplies(nc *nats.Conn) (*replies, error) {
	r := &replies{prefix: nc.NewInbox() + ".", waiting: map[uint64]chan *nats.Msg{}}
	sub, err := nc.Subscribe(r.prefix+">", r.take)
	if err != nil {
		return nil, err
	}
	// What is on its way is bounded by maxReads and maxAppends, not here.
	r.sub = sub
	return r, sub.SetPendingLimits(-1, -1)
}

// expect gives the subject that up to n answers may come to, with anything after it, and
// where they arrive, until forget is called.
func (r *replies) expect(n int) (subject string, ch <-chan *nats.Msg, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	id, c := r.next, make(chan *nats.Msg, n)
	r.waiting[id] = c
	return r.prefix + strconv.FormatUint(id, 10), c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, id)
	}
}

func (r *replies) take(m *nats.Msg) {
	text, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, r.prefix), ".")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	ch := r.waiting[id]
	r.mu.Unlock()
	select {
	case ch <- m:
	default: // nobody waits, or for no more: a late answer
	}
}
