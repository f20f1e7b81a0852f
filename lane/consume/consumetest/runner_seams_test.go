package consumetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

var (
	errAway  = errors.New("it is out of reach")
	errFetch = errors.New("the fetch fails")
)

// roleRegistry is a runner's way to the registry.
type roleRegistry struct{ *role }

func (g *roleRegistry) Session() (string, time.Duration) { return g.w.access.Session() }

// letter is a write on its way to the registry. It may arrive more than once, late, or never.
type letter struct {
	r        *role
	write    *consume.Write
	back     chan consume.Answer // has room for one
	over     bool                // it was answered, or is waited for no longer
	answered bool
}

// Move sends a write and waits for its answer.
func (g *roleRegistry) Move(ctx context.Context, w *consume.Write) (consume.Answer, error) {
	p := g.w.play
	l := &letter{r: g.role, write: w, back: make(chan consume.Answer, 1)}
	p.mu.Lock()
	if first, made := g.sent[w.ID]; (!made || !sameWrite(&first, w)) && !g.w.gone && !p.failed() {
		p.check.fail("DOUBT", "%s sends write %d, and that is not what was proposed", g.by.name, w.ID)
	}
	l.post()
	p.mu.Unlock()
	select {
	case a := <-l.back:
		return a, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		l.over = true
		return consume.Answer{}, consume.ErrDoubt
	}
}

func (l *letter) post() {
	p, net, rates := l.r.w.play, &l.r.w.net, l.r.w.play.rates()
	slow := rates.slow
	if p.now() < p.slowTill {
		slow = 500
	}
	switch {
	case l.r.w.gone:
		return
	case net.permille(rates.lostRequest):
		p.fault(FaultLostRequest)
	case net.permille(rates.late):
		p.hold(l, net.between(time.Second, 25*time.Second))
	default:
		d := p.delay(net, slow)
		if d >= time.Second {
			p.fault(FaultSlow)
		}
		p.after(d, l.arrive)
	}
	if net.permille(rates.copies) {
		p.hold(l, net.between(time.Millisecond, 10*time.Second))
	}
}

// hold lets a write, or a copy of one, arrive late: after a while, or right after another one
// of its partition.
func (p *play) hold(l *letter, d time.Duration) {
	p.held = append(p.held, l)
	p.after(d, func() {
		if i := slices.Index(p.held, l); i >= 0 {
			p.held = slices.Delete(p.held, i, i+1)
			l.arrive()
		}
	})
}

// arrive is when a write, or a copy, comes to the registry, with the lock held.
func (l *letter) arrive() {
	w := l.r.w
	p, net := w.play, &w.net
	if until := max(w.cutTill, p.downTill); until > p.now() {
		if net.n(2) == 0 {
			p.after(until-p.now()+p.delay(net, 0), l.arrive)
		}
		return
	}
	p.countLate(l)
	a, err := p.wire.Move(p.life, l.write)
	if err != nil {
		p.check.fail("REGISTRY", "%v", err)
		return
	}
	p.landed(l, &a)
	rates := p.rates()
	if net.permille(rates.lostReply) {
		p.fault(FaultLostReply)
		return
	}
	p.after(w.tick(p.delay(net, rates.slow/2)), func() {
		if max(w.cutTill, p.downTill) > p.now() || l.over {
			return
		}
		l.over, l.answered = true, true
		l.back <- a
	})
}

// countLate counts a write that arrives when nobody waits for it any more.
func (p *play) countLate(l *letter) {
	switch {
	case l.answered:
		p.fault(FaultLateCopy)
	case l.r.w.gone:
		p.fault(FaultDeadWriter)
	case l.over && len(l.write.Moves) > 0:
		p.fault(FaultLateWrite)
	case l.over:
		p.fault(FaultLateNote)
	}
}

// landed is told of every write that came to the registry.
func (p *play) landed(l *letter, a *consume.Answer) {
	r, wr := l.r, l.write
	p.notef("registry", "%s: %s of %s: %s", a.Outcome, describeWrite(wr), r.by.name, describeAnswer(a))
	if a.Outcome == consume.Done {
		p.check.landed(p.landing(r, wr))
		p.cover.count(wr)
		p.moves += len(wr.Moves)
	}
	for i, held := range p.held { // a late one may come right behind
		if held != l && held.write.Partition == wr.Partition && r.w.net.n(3) == 0 {
			p.held = slices.Delete(p.held, i, i+1)
			p.after(0, held.arrive)
			break
		}
	}
}

// landing is what the registry holds after a write.
func (p *play) landing(r *role, wr *consume.Write) landing {
	l := landing{group: r.group, by: r.by, at: p.now(), write: wr, notes: map[lane.Name]*consume.Note{}}
	for _, s := range p.reg.Records(r.cfg.Group) {
		if s.Partition == wr.Partition {
			l.record, l.revision = s.Record, s.Revision
		}
	}
	note := func(c lane.Name) {
		if n := p.reg.Note(r.cfg.Group, wr.Partition, c); n.Note != nil {
			l.notes[c] = n.Note
		}
	}
	note(consume.Main)
	for c := range l.record.Colors {
		note(c)
	}
	for c := range p.check.groups[r.group].part(wr.Partition).notes { // also one that should be gone
		note(c)
	}
	l.alive = func(session string) bool { return p.reg.View(r.cfg.Group).Sessions[session] }
	return l
}

// call asks the registry for something else than a write. The answer may be lost.
func (g *roleRegistry) call(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p, net := g.w.play, &g.w.net
	p.mu.Lock()
	rates := p.rates()
	lost, mute := net.permille(rates.lostRequest), net.permille(rates.lostReply)
	there, back := p.delay(net, rates.slow), p.delay(net, rates.slow/2)
	p.mu.Unlock()
	if !pause.For(ctx, there) || lost {
		<-ctx.Done()
		return errAway
	}
	p.mu.Lock()
	if g.w.gone || max(g.w.cutTill, p.downTill) > p.now() {
		p.mu.Unlock()
		<-ctx.Done()
		return errAway
	}
	err := do()
	p.mu.Unlock()
	if mute || !pause.For(ctx, back) {
		<-ctx.Done()
		return errAway
	}
	return err
}

func (g *roleRegistry) Records(ctx context.Context, group string) (all []consume.Stored, err error) {
	err = g.call(ctx, func() (err error) {
		all, err = g.w.access.Records(ctx, group)
		return err
	})
	return all, err
}

func (g *roleRegistry) Join(ctx context.Context, group string, m consume.Member) error {
	return g.call(ctx, func() error {
		err := g.w.access.Join(ctx, group, m)
		if err == nil {
			g.generations[m.ID] = g.w.play.reg.View(group).Lanes[m.Lane].Generation
		}
		return err
	})
}

func (g *roleRegistry) Leave(ctx context.Context, group, member string, grace time.Duration) error {
	return g.call(ctx, func() error { return g.w.access.Leave(ctx, group, member, grace) })
}

// Views delivers what there is to see in its order, late.
func (g *roleRegistry) Views(ctx context.Context, group string) <-chan consume.Update {
	out := make(chan consume.Update)
	in := g.w.access.Views(ctx, group)
	go func() {
		defer close(out)
		for u := range in {
			if !pause.For(ctx, g.lag()) {
				return
			}
			select {
			case out <- u:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (g *roleRegistry) lag() time.Duration {
	p, net := g.w.play, &g.w.net
	p.mu.Lock()
	defer p.mu.Unlock()
	lag := p.delay(net, p.rates().stale)
	if g.w.lagTill > p.now() {
		lag += net.between(time.Second, 6*time.Second)
	}
	if lag >= time.Second {
		p.fault(FaultStale)
	}
	return g.w.tick(lag)
}

// tick is a delay, until something else comes from the registry, too.
func (w *player) tick(d time.Duration) time.Duration {
	const tick = 60 * time.Millisecond
	if now := w.play.now(); w.ticks {
		d = (now + d + tick).Truncate(tick) - now
	}
	return d
}

// roleSource is a runner's way to the engine. All that it says of a log is told to the checker
// before.
type roleSource struct {
	*consume.Memory
	r *role
}

func fetches(r *rates) int { return r.fetch }

func surely(*rates) int { return 0 }

// way draws how long a call takes to the engine and back, and whether it fails.
func (s *roleSource) way(fails func(*rates) int) (there, back time.Duration, fail bool) {
	p := s.r.w.play
	p.mu.Lock()
	defer p.mu.Unlock()
	rates := p.rates()
	fail = s.r.random.permille(fails(&rates))
	return p.delay(&s.r.random, 0), p.delay(&s.r.random, 0), fail
}

func (s *roleSource) Partitions(ctx context.Context, topic string) (int32, error) {
	there, _, fail := s.way(fetches)
	if pause.For(ctx, there); fail {
		return 0, errAway
	}
	return s.Memory.Partitions(ctx, topic)
}

func (s *roleSource) Bounds(ctx context.Context, id consume.Partition) (b consume.Bounds, err error) {
	there, back, _ := s.way(surely)
	pause.For(ctx, there)
	s.seen(id, func() { b, err = s.Memory.Bounds(ctx, id) })
	pause.For(ctx, back)
	return b, err
}

func (s *roleSource) At(ctx context.Context, id consume.Partition, t time.Time) (at int64, err error) {
	there, back, _ := s.way(surely)
	pause.For(ctx, there)
	s.seen(id, func() { at, err = s.Memory.At(ctx, id, t) })
	pause.For(ctx, back)
	return at, err
}

// seen does something that shows a log.
func (s *roleSource) seen(id consume.Partition, do func()) {
	p := s.r.w.play
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	p.look(id)
}

// Read is the engine's, which gives less than was asked for at times, fails, may not know of
// colors, and leaves bounds out where it may.
func (s *roleSource) Read(ctx context.Context, id consume.Partition, from int64, f consume.Filter, most int) (consume.Batch, error) {
	p := s.r.w.play
	there, back, fail := s.way(fetches)
	p.mu.Lock()
	if s.r.random.n(4) == 0 {
		most = 1 + s.r.random.n(most)
	}
	switch {
	case fail:
		p.fault(FaultFetch)
	case p.plan.filters && !f.All:
		p.feature(FeatureFilter)
	case !p.plan.filters:
		f = consume.Filter{All: true, Epoch: f.Epoch}
	}
	p.mu.Unlock()
	if pause.For(ctx, there); fail {
		return consume.Batch{}, errFetch
	}
	b, err := s.Memory.Read(ctx, id, from, f, most)
	s.seen(id, func() {
		if s.r.w.gone {
			err = errAway
		}
		if err == nil && f.Epoch == b.Bounds.Epoch && b.Bounds.First <= from && from <= b.Bounds.End && (from+b.Next)%2 == 0 {
			p.feature(FeatureNoBounds)
			b.Bounds = consume.Bounds{}
		}
	})
	pause.For(ctx, back)
	return b, err
}

// Append may fail after it has stored all.
func (s *roleSource) Append(ctx context.Context, ms ...*consume.Message) error {
	p := s.r.w.play
	there, back, fail := s.way(func(r *rates) int { return r.lostReply })
	pause.For(ctx, there)
	p.mu.Lock()
	if s.r.w.gone {
		p.mu.Unlock()
		return errAway
	}
	err := s.Memory.Append(ctx, ms...)
	if err == nil {
		for _, m := range ms {
			if p.stored[m.ID] {
				p.feature(FeatureKnownCopy)
			}
			p.stored[m.ID] = true
			p.look(m.Partition)
		}
	}
	p.mu.Unlock()
	if pause.For(ctx, back); fail {
		return errAway
	}
	return err
}

// Ensure makes topics.
func (s *roleSource) Ensure(ctx context.Context, t consume.TopicSpec) error {
	if there, _, fail := s.way(fetches); !pause.For(ctx, there) || fail {
		return errAway
	}
	return s.Memory.Ensure(ctx, t)
}
