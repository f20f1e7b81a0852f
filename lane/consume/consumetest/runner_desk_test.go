package consumetest

import (
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// desk is what a runner was given for its consumers, and what became of it: a Core is told of
// a message what its consumer said and nothing else, and no consumer begins with what it is no
// longer to have.
type desk struct {
	out     map[runOffset]*handing
	waiting map[place][]*handing // that no consumer has begun with
	running map[uint64]int       // handlers, by run
	keys    map[runKey]int       // the same, by key
	back    map[runOffset]*back  // that consumers gave back
}

// back is a message that a consumer gave back, until one has it again.
type back struct {
	msg   *consume.Message
	at    time.Duration
	times int
	again bool // one has begun with it
}

// returnWaits is how long a message waits at least that was given back so often.
func returnWaits(times int) time.Duration {
	return min(20*time.Millisecond<<min(times-1, 10), 5*time.Second)
}

type runOffset struct {
	run    uint64
	offset int64
}

type runKey struct {
	run uint64
	key string
}

// handing is one message with one run.
type handing struct {
	run    uint64
	key    string
	began  bool
	said   said
	copied string        // the ID of the copy that is to be stored
	cut    time.Duration // when its run was given up; below 0: it was not
	told   bool          // the Core knows what became of it
	asked  time.Duration // when it was to be given back, if nobody had begun with it; below 0: it was not
}

// said is what a consumer says of a message.
type said uint8

const (
	saidNothing said = iota
	saidAck
	saidFail
	saidReturn
)

func (s said) String() string {
	return [...]string{"nothing", "that it is settled", "that it has failed", "that it is given back"}[s]
}

func newDesk() desk {
	return desk{
		out: map[runOffset]*handing{}, waiting: map[place][]*handing{}, running: map[uint64]int{}, keys: map[runKey]int{},
		back: map[runOffset]*back{},
	}
}

// add is told of a message for a consumer.
func (k *desk) add(a *consume.Dispatch) {
	h := &handing{run: a.Run, key: string(a.Key), cut: -1, asked: -1}
	k.out[runOffset{a.Run, a.Offset}] = h
	at := place{a.Partition, a.Offset}
	k.waiting[at] = append(k.waiting[at], h)
}

// cut is told that a run is given up.
func (k *desk) cut(run uint64, now time.Duration) {
	for at, h := range k.out {
		if at.run == run && h.cut < 0 {
			h.cut = now
		}
	}
}

// recall is told that what nobody has begun with of a run is asked for.
func (k *desk) recall(run uint64, now time.Duration) {
	for at, h := range k.out {
		if at.run == run && !h.began && !h.told {
			h.asked = now
		}
	}
	for at := range k.back {
		if at.run == run {
			delete(k.back, at)
		}
	}
}

// returned is told that a consumer gives a message back.
func (r *role) returned(h *handing, m *consume.Message) {
	at := runOffset{h.run, m.Offset}
	b := r.desk.back[at]
	if b == nil {
		b = &back{msg: m}
		r.desk.back[at] = b
	}
	b.at, b.again = r.w.play.now(), false
	b.times++
}

// waited checks that a message which was given back has waited, and that none has passed one of
// its line that waits, where messages are handled in their order.
func (r *role) waited(h *handing, d *consume.Delivery) {
	p := r.w.play
	own := r.desk.back[runOffset{h.run, d.Offset}]
	if own != nil {
		if wait := returnWaits(own.times); p.now() < own.at+wait {
			p.check.fail("HANDLER", "a consumer of %s begins with %s, which was given back at %v for the %d. time, before it has waited for %v",
				r.by.name, describe(d.Message), own.at, own.times, wait)
		}
		own.again = true
	}
	if !r.options.KeyOrder && r.options.Concurrency > 1 {
		return
	}
	for at, b := range r.desk.back {
		same := b.msg.Color == d.Color
		if r.options.KeyOrder {
			same = string(b.msg.Key) == string(d.Key)
		}
		if at.run == h.run && same && !b.again && at.offset < d.Offset && p.now() > b.at {
			p.check.fail("HANDLER", "a consumer of %s begins with %s before %s, which was given back at %v", r.by.name, describe(d.Message), describe(b.msg), b.at)
		}
	}
}

// store is told of a copy that is to be stored.
func (k *desk) store(run uint64, offset int64, id string) {
	h := k.out[runOffset{run, offset}]
	if h == nil { // no consumer was to have it
		h = &handing{run: run, cut: -1, asked: -1}
		k.out[runOffset{run, offset}] = h
	}
	h.copied, h.told = id, false
}

// begun is told that a consumer begins with a message.
func (r *role) begun(d *consume.Delivery) *handing {
	p, at := r.w.play, place{d.Partition, d.Offset}
	all := r.desk.waiting[at]
	i := -1
	for n, h := range all { // of those that are given up, one that was so just now
		if h.cut < 0 || h.cut == p.now() && i < 0 {
			i = n
		}
	}
	switch {
	case i < 0:
		p.check.fail("HANDLER", "a consumer of %s begins with %s, which it is not to have", r.by.name, describe(d.Message))
		return nil
	case r.by.lost && r.by.policy == consume.LossHold && p.now() > r.lostAt:
		p.check.fail("HANDLER", "a consumer of %s begins with %s, and the group holds still since %v", r.by.name, describe(d.Message), r.lostAt)
	}
	h := all[i]
	if h.asked >= 0 && p.now() > h.asked {
		p.check.fail("HANDLER", "a consumer of %s begins with %s, which was to be given back at %v", r.by.name, describe(d.Message), h.asked)
	}
	h.began = true
	r.waited(h, d)
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(r.desk.waiting, at)
	} else {
		r.desk.waiting[at] = all
	}
	return h
}

// calls is told that a handler is called, and returns that it returns: so many at once as
// there may be.
func (r *role) calls(h *handing) {
	if h == nil {
		return
	}
	p, key := r.w.play, runKey{h.run, h.key}
	r.desk.running[h.run]++
	r.desk.keys[key]++
	switch {
	case r.desk.running[h.run] > r.options.Concurrency:
		p.check.fail("HANDLER", "%d handlers of %s run at once for run %d", r.desk.running[h.run], r.by.name, h.run)
	case r.options.KeyOrder && r.desk.keys[key] > 1:
		p.check.fail("HANDLER", "two handlers of %s run at once for key %q of run %d", r.by.name, h.key, h.run)
	}
}

func (r *role) returns(h *handing) {
	if h == nil {
		return
	}
	r.w.play.mu.Lock()
	defer r.w.play.mu.Unlock()
	r.desk.running[h.run]--
	r.desk.keys[runKey{h.run, h.key}]--
}

// reported is told what a Core is told of a message.
func (r *role) reported(run uint64, offset int64, s said) {
	p, h := r.w.play, r.desk.out[runOffset{run, offset}]
	switch {
	case h == nil || h.told:
		p.check.fail("HANDLER", "%s is told %s of offset %d of run %d, which is with nobody", r.by.name, s, offset, run)
		return
	case h.copied != "":
		if s != saidAck || !p.stored[h.copied] {
			p.check.fail("STORE", "%s is told %s of offset %d of run %d, and there is no copy %s", r.by.name, s, offset, run, h.copied)
		}
	case !h.began && s == saidReturn:
		p.feature(FeatureRecalled)
		for at, all := range r.desk.waiting {
			if i := slices.Index(all, h); i >= 0 {
				r.desk.waiting[at] = slices.Delete(all, i, i+1)
			}
		}
	case h.said != s:
		p.check.fail("HANDLER", "%s is told %s of offset %d of run %d, and its consumer said %s", r.by.name, s, offset, run, h.said)
	}
	h.told = true
}

// unheard is a message of which a consumer has said something that the Core was not told.
func (k *desk) unheard() (at runOffset, is bool) {
	for at, h := range k.out {
		if h.said != saidNothing && !h.told && h.cut < 0 {
			return at, true
		}
	}
	return runOffset{}, false
}
