package consume

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// leaseLook is how often the session's lease is looked at besides after each fetch.
const leaseLook = 100 * time.Millisecond

// keep looks at the lease now and then.
func (r *Runner) keep(ctx context.Context) {
	for {
		r.box.put(input{do: r.checkLease})
		if !pause.For(ctx, leaseLook) {
			return
		}
	}
}

// checkLease tells the Core of a session that is new, or that may have run out.
func (r *Runner) checkLease() {
	id, remaining := r.o.Registry.Session()
	switch {
	case r.opening:
	case r.session == "" && id == "":
	case r.session == "" && remaining > 0:
		r.session = id
		r.open(id)
	case id == r.session && remaining <= 0, id != r.session:
		if !r.lost {
			r.lost = true
			r.step(&LeaseLost{})
		}
		if id != r.session && remaining > 0 {
			r.opening = true
			r.spawn(func(ctx context.Context) { r.reopen(ctx, id) })
		}
	}
}

// reopen reads all records before the Core goes on under a new session.
func (r *Runner) reopen(ctx context.Context, id string) {
	for n := 0; ; n++ {
		records, err := r.o.Registry.Records(ctx, r.o.Config.Group)
		if err == nil {
			r.box.put(input{do: func() { r.reopened(id, records) }})
			return
		}
		if !pause.For(ctx, backoff(n)) {
			return
		}
		if now, _ := r.o.Registry.Session(); now != id { // lost again meanwhile
			r.box.put(input{do: func() { r.opening = false }})
			return
		}
	}
}

func (r *Runner) reopened(id string, records []Stored) {
	r.opening = false
	if now, remaining := r.o.Registry.Session(); now != id || remaining <= 0 {
		return // what was read may be old; the next look begins anew
	}
	for _, s := range records {
		r.step(&Recorded{Stored: s, Fresh: true})
	}
	r.session, r.lost = id, false
	r.open(id)
}

// open goes on under a session: the Core is told, and members join.
func (r *Runner) open(id string) {
	r.step(&Opened{id})
	if r.leaving {
		return
	}
	for _, m := range r.o.Members { // each by itself: one that is refused keeps no other out
		m.Session = id
		r.spawn(func(ctx context.Context) { r.join(ctx, m) })
	}
}

func (r *Runner) join(ctx context.Context, m Member) {
	for n := 0; ; n++ {
		if now, _ := r.o.Registry.Session(); now != m.Session {
			return
		}
		call, cancel := context.WithTimeout(ctx, moveTimeout)
		err := r.o.Registry.Join(call, r.o.Config.Group, m)
		cancel()
		if err == nil {
			r.box.put(input{do: func() { r.joined(m) }})
			return
		}
		if n == 0 {
			r.log.WarnContext(ctx, "member cannot join: it is tried again", "group", r.o.Config.Group, "member", m.ID, "error", err)
		}
		if r.o.told != nil && errors.Is(err, ErrRefused) {
			r.o.told(err)
		}
		if !pause.For(ctx, backoff(n)) {
			return
		}
	}
}

// joined tells the Core, unless the runner is leaving: then the member, which joined too late,
// goes with the session.
func (r *Runner) joined(m Member) {
	if r.leaving || m.Session != r.session {
		return
	}
	r.step(&Joined{m})
	if r.o.told != nil {
		r.o.told(nil)
	}
}
