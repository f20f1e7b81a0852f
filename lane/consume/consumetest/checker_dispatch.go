package consumetest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// holderOf is who holds a cursor by a record.
func holderOf(r *consume.Record, cursor lane.Name) (consume.Holder, bool) {
	if r == nil {
		return consume.Holder{}, false
	}
	if cursor == consume.Main {
		return r.Main, true
	}
	e, ok := r.Colors[cursor]
	return e.Holder, ok
}

// fetches is told which partition a run reads.
func (k *checker) fetches(a *actor, f *consume.Fetch) {
	p := k.groups[a.group].part(f.Partition)
	r := a.run(f.Run, p, f.Cursor)
	switch {
	case r.fetching:
		k.fail("FETCH", "%s fetches %s for run %d while a fetch of it is under way", a.name, f.Partition, f.Run)
	case f.From < 0 || f.Max < 1 || f.Max > k.groups[a.group].cfg.Fetch:
		k.fail("FETCH", "%s fetches %d of %s from %d", a.name, f.Max, f.Partition, f.From)
	case a.halted[f.Partition]:
		k.fail("FETCH", "%s fetches from %s, whose log it said is another one", a.name, f.Partition)
	}
	r.fetching, r.from, r.asked = true, f.From, p.terms[f.Cursor]
}

// fetched is told what a fetch of a run gave: where the log ends, which a holder that follows on
// one that was lost asks for.
func (k *checker) fetched(a *actor, r *checkRun, e *consume.Fetched) {
	r.fetching = false
	if e.Failed || e.Cached {
		return
	}
	p := r.p
	for open := range p.open {
		p.doubtEnd[open] = max(p.doubtEnd[open], e.Bounds.End)
	}
	if t := r.asked; t != nil && t == p.terms[r.cursor] && slices.Contains(a.sessions, t.session) {
		delete(p.open, r.cursor)
	}
}

// proposed is told of every write before it is sent for the first time.
func (k *checker) proposed(a *actor, w *consume.Write) {
	a.wrote[w.ID] = w.Partition
	a.underWay[w.Partition]++
	a.noted(w)
	k.entitled(a, w)
	k.explained(a, w)
	k.ending(a, w)
	k.heedless(a, w)
	switch most := mostMoves(k.groups[a.group].cfg.MaxMoves); {
	case len(w.Moves) > most && !creates(w), len(w.Moves) == 0 && len(w.Notes) > most:
		k.fail("MOVE", "%s proposes %s, more than %d at once", a.name, describeWrite(w), most)
	case len(w.Notes) > most+1: // a merge, and a reset, write main's, too
		k.fail("MOVE", "%s proposes %s with %d notes, more than %d at once", a.name, describeWrite(w), len(w.Notes), most)
	}
	switch {
	case a.lost:
		k.fail("MOVE", "%s proposes %s though its lease may have run out", a.name, describeWrite(w))
	case a.halted[w.Partition]:
		k.fail("MOVE", "%s proposes %s of a log that it said is another one", a.name, describeWrite(w))
	case len(a.sessions) == 0 || w.Session != a.sessions[len(a.sessions)-1]:
		k.fail("MOVE", "%s proposes %s under session %s", a.name, describeWrite(w), w.Session)
	}
}

// entitled checks that an actor that takes a cursor has a member of its owner, and does not stop.
func (k *checker) entitled(a *actor, w *consume.Write) {
	p := k.groups[a.group].part(w.Partition)
	topic := p.g.origin[w.Partition.Topic]
	for _, c := range takenBy(p, w) {
		h, _ := holderOf(w.Record, c)
		serves := a.serves(h.Lane, topic)
		if h.Lane == lane.Baseline {
			switch {
			case c == consume.Main && a.view != nil && !baseline(a.view, topic): // a caretaker
				serves = slices.ContainsFunc(a.members, func(m consume.Member) bool { return slices.Contains(m.Topics, topic) })
			case strict(c): // on its way to the dead letters
				serves = true
			}
		}
		if a.stopping || !serves {
			k.fail("MOVE", "%s takes cursor %q of %s for %q; it has no member of it, or stops", a.name, c, p.name(), h.Lane)
			return
		}
	}
}

func mostMoves(most int) int {
	if most == 0 {
		return consume.DefaultMaxMoves
	}
	return most
}

func creates(w *consume.Write) bool { return w.Moves[0].Kind == consume.Create }

// takenBy are the cursors that a write gives to its writer. What it says of itself is believed
// where nobody knows what was before.
func takenBy(p *checkPart, w *consume.Write) []lane.Name {
	var all []lane.Name
	if w.Record == nil {
		return nil
	}
	cursors := append([]lane.Name{consume.Main}, slices.Sorted(maps.Keys(w.Record.Colors))...)
	for _, c := range cursors {
		h, _ := holderOf(w.Record, c)
		old, _ := holderOf(p.record, c)
		says := slices.ContainsFunc(w.Moves, func(m consume.Move) bool { return m.Kind == consume.Take && m.Cursor == c })
		if h.Session == w.Session && (says || p.revision == w.IfRevision && h != old) {
			all = append(all, c)
		}
	}
	return all
}

// serves reports whether an actor has a member of a lane as it is by its own picture.
func (a *actor) serves(l lane.Name, topic string) bool {
	return slices.ContainsFunc(a.members, func(m consume.Member) bool {
		if m.Lane != l || !slices.Contains(m.Topics, topic) {
			return false
		}
		return l == lane.Baseline || a.view == nil || a.view.Lanes[l].Generation <= m.Generation && !a.view.Lanes[l].Ended
	})
}

// baseline reports whether the baseline has a member for a topic by a picture.
func baseline(v *consume.View, topic string) bool {
	return slices.ContainsFunc(v.Members, func(m consume.Member) bool {
		return m.Lane == lane.Baseline && slices.Contains(m.Topics, topic) && (m.Session == "" || v.Sessions[m.Session])
	})
}

// dispatched is told of every message that is handed to a consumer. It returns how often
// this one was before.
func (k *checker) dispatched(a *actor, now time.Duration, d *consume.Dispatch) int {
	g := k.groups[a.group]
	p, m := g.part(d.Partition), d.Message
	f := p.find(m.Offset)
	k.counts.dispatches++
	switch {
	case f == nil || f.msg != m:
		k.fail("LOG", "%s dispatches %s, and the log that it speaks of has no such message", a.name, describe(m))
	case f.foreign:
		k.fail("I1", "%s dispatches %s, which the group's filter does not want", a.name, describe(m))
	case a.halted[p.id]:
		k.fail("LOG", "%s dispatches %s of a log that it said is another one", a.name, describe(m))
	default:
		a.run(d.Run, p, d.Cursor).recalled = false
		k.allowed(a, p, f, d)
		k.counted(a, p, f, now, d)
	}
	if f == nil {
		return 0
	}
	return len(f.hands)
}

// allowed checks what an actor itself knows: whether it may dispatch at all, and to whom.
func (k *checker) allowed(a *actor, p *checkPart, f *fate, d *consume.Dispatch) {
	color, topic := d.Color, p.g.origin[p.id.Topic]
	switch {
	case a.lost && a.policy == consume.LossHold:
		k.fail("I3", "%s dispatches %s though its lease may have run out and the group holds", a.name, describe(d.Message))
	case a.view == nil || a.view.Group.Paused:
		k.fail("I2", "%s dispatches %s though the group is paused", a.name, describe(d.Message))
	case strict(color) && d.Lane != color:
		k.fail("I2", "%s dispatches %s, of a strict lane, to %q", a.name, describe(d.Message), d.Lane)
	case !a.serves(d.Lane, topic) && (!a.lost || !a.reads(d.Lane, topic)):
		k.fail("I2", "%s dispatches %s to %q, where it has no member for %s", a.name, describe(d.Message), d.Lane, topic)
	case d.Cursor != consume.Main && d.Cursor != color:
		k.fail("I2", "%s dispatches %s with the cursor of %s", a.name, describe(d.Message), d.Cursor)
	case d.Cursor == consume.Main && d.Lane != lane.Baseline:
		k.fail("I2", "%s dispatches %s with main to %q", a.name, describe(d.Message), d.Lane)
	}
	if color == lane.Baseline {
		return
	}
	if d.Cursor == consume.Main {
		if _, there := p.record.Colors[color]; there {
			return // below from
		}
		if t := p.termOf(a, consume.Main); t != nil && (f.msg.Offset < t.from || f.handedIn(t)) {
			return // main had it before and has it still, whoever owns the color now
		}
	}
	if a.lost && d.Cursor == consume.Main {
		if _, known := a.view.Lanes[color]; !known {
			k.fail("I2", "%s, without the registry, dispatches %s, whose lane may be a new one", a.name, describe(d.Message))
			return
		}
	} else if d.Cursor != consume.Main && (a.lost || len(a.sessions) == 0 || !a.view.Sessions[a.sessions[len(a.sessions)-1]]) {
		return // without a session it goes on as before
	}
	if o, _ := rightfulOwner(a.view.Lanes, a.view.Members, func(s string) bool { return a.view.Sessions[s] }, topic, color); o != d.Lane {
		k.fail("I2", "%s dispatches %s to %q, and by its own picture it is %q's", a.name, describe(d.Message), d.Lane, o)
	}
}

// rightfulOwner is the owner of a color by the words of the protocol. tomb is whether only
// tombstones make it so.
func rightfulOwner(lanes map[lane.Name]consume.Lane, members []consume.Member, alive func(string) bool,
	topic string, color lane.Name,
) (owner lane.Name, tomb bool) {
	if strict(color) || color == lane.Baseline {
		return color, false
	}
	at := color
	for range len(lanes) + 1 {
		l, known := lanes[at]
		if !known {
			return lane.Baseline, false
		}
		found, real := false, false
		for _, m := range members {
			if m.Lane == at && !l.Ended && m.Generation == l.Generation && slices.Contains(m.Topics, topic) &&
				(m.Session == "" || alive(m.Session)) {
				found, real = true, real || m.Session != ""
			}
		}
		if found {
			return at, !real
		}
		if at = l.Parent; at == lane.Baseline {
			break
		}
	}
	return lane.Baseline, false
}

// counted checks a dispatch against the whole history, and makes it part of it.
func (k *checker) counted(a *actor, p *checkPart, f *fate, now time.Duration, d *consume.Dispatch) {
	if k.violation != nil {
		return
	}
	m := d.Message
	if h, there := holderOf(p.record, d.Cursor); there && slices.Contains(a.sessions, h.Session) && h.Lane == d.Lane {
		k.asHolder(a, p, f, d)
		if n := p.notes[d.Cursor]; n == nil || m.Offset >= n.Pos {
			a.moved(p, d.Cursor, now)
		}
	} else {
		k.beyond(a, p, f, d)
	}
	f.hands = append(f.hands, handed{by: a, run: d.Run, lane: d.Lane, term: p.termOf(a, d.Cursor), at: now})
}

// termOf is the last time that an actor held a cursor, or nil.
func (p *checkPart) termOf(a *actor, cursor lane.Name) *term {
	if t := p.terms[cursor]; t != nil && slices.Contains(a.sessions, t.session) {
		return t
	}
	for _, t := range slices.Backward(p.past[cursor]) {
		if slices.Contains(a.sessions, t.session) {
			return t
		}
	}
	return nil
}

// outlived is the term that was taken from a process with the cursor that has a message by the
// record that it knew, whatever was split and merged since; nil: there is none.
func (p *checkPart) outlived(a *actor, m *consume.Message) *term {
	for _, cursor := range []lane.Name{consume.Main, m.Color} {
		if t := p.termOf(a, cursor); t != nil && t.taken > 0 && owning(t.record, m) == cursor {
			return t
		}
	}
	return nil
}

// beyond checks what a process does with a cursor that is not its own by the record: only
// one that was cut off may, with what was taken from it, until it learns of the take.
func (k *checker) beyond(a *actor, p *checkPart, f *fate, d *consume.Dispatch) {
	t := p.termOf(a, d.Cursor)
	switch {
	case t == nil || t.taken == 0 || t.lane != d.Lane:
		k.fail("I2", "%s dispatches %s with cursor %q for %q; the record names %s", a.name, describe(d.Message), d.Cursor, d.Lane, describeRecord(p.record))
		return
	case a.learned[p.id] >= t.taken:
		k.fail("I3", "%s dispatches %s, and it knows that the cursor was taken", a.name, describe(d.Message))
		return
	case !a.lost && !k.forced[t.session]:
		k.fail("FENCE", "%s dispatches %s under a session that is gone, and by its clock it is not", a.name, describe(d.Message))
		return
	case owning(t.record, f.msg) != d.Cursor:
		k.fail("STRUCT", "%s dispatches %s with cursor %q, and by the record that it knew it belongs to another one", a.name, describe(d.Message), d.Cursor)
		return
	case f.keeps(a, d.Run, t):
		k.fail("I3", "%s, cut off, dispatches %s a second time", a.name, describe(d.Message))
		return
	}
	k.counts.zombies++
}

// asHolder checks what a holder does.
func (k *checker) asHolder(a *actor, p *checkPart, f *fate, d *consume.Dispatch) {
	m := d.Message
	t := p.terms[d.Cursor]
	if own := owning(p.record, m); own != d.Cursor {
		k.fail("STRUCT", "%s dispatches %s with cursor %q, and it belongs to %q", a.name, describe(m), d.Cursor, own)
		return
	}
	if m.Offset < p.start {
		k.fail("I1", "%s dispatches %s, below the group's start %d", a.name, describe(m), p.start)
		return
	}
	if !f.permit {
		k.fail("I3", "%s dispatches %s again (%s)", a.name, describe(m), describeHands(f))
		return
	}
	switch again := f.n > 0; {
	case again && !d.Redelivered:
		k.fail("I3", "%s dispatches %s again and does not say so (%s)", a.name, describe(m), describeHands(f))
		return
	case !again && d.Redelivered && !p.open[d.Cursor] && m.Offset >= p.doubtEnd[d.Cursor]:
		k.fail("I3", "%s says that %s may have been dispatched before, and it was not in the log when a holder was lost", a.name, describe(m))
		return
	case !again && f.doubt && !d.Redelivered:
		k.fail("I3", "%s dispatches %s, which was in the log when a holder was lost, and does not say so (%s)", a.name, describe(m), describeHands(f))
		return
	case again:
		k.counts.redelivered++
	}
	k.reason(a, d)
	k.window(a, p, d)
	k.order(a, p, f, d, t)
	if p.g.cfg.Ordered {
		k.alone(a, p, f, d)
	}
	f.n++
	f.permit, f.loose = false, false
}

// reason checks that what a dispatch says of itself is so.
func (k *checker) reason(a *actor, d *consume.Dispatch) {
	want := []lane.Reason{lane.ReasonParent}
	switch {
	case d.Color == lane.Baseline:
		want = []lane.Reason{lane.ReasonPlain}
	case d.Lane == lane.Baseline:
		want = []lane.Reason{a.baselines(d.Color, k.groups[a.group].origin[d.Partition.Topic])}
	case strict(d.Lane):
		want = []lane.Reason{lane.ReasonStrict}
	case d.Lane == d.Color:
		want = []lane.Reason{lane.ReasonLane}
	}
	if !slices.Contains(want, d.Reason) {
		k.fail("REASON", "%s dispatches %s to %q: %s", a.name, describe(d.Message), d.Lane, d.Reason)
	}
}

// baselines is why a color's message is the baseline's, by an actor's picture.
func (a *actor) baselines(color lane.Name, topic string) lane.Reason {
	l, known := a.view.Lanes[color]
	alive := func(s string) bool { return a.view.Sessions[s] }
	switch o, _ := rightfulOwner(a.view.Lanes, a.view.Members, alive, topic, color); {
	case !color.Valid() || !known:
		return lane.ReasonUnknown
	case o == lane.Baseline && l.Ended:
		return lane.ReasonEnded
	}
	return lane.ReasonBaseline // also where it is another's by now, and the baseline had it before
}

// window checks that a cursor has no more in flight than its window takes.
func (k *checker) window(a *actor, p *checkPart, d *consume.Dispatch) {
	n, bytes := 0, int64(0)
	for _, f := range p.messages {
		for i := range f.hands {
			if h := &f.hands[i]; h.by == a && h.run == d.Run && h.live() {
				n++
				bytes += f.msg.Bytes()
			}
		}
	}
	most := p.g.cfg.WindowBytes
	if n >= p.g.cfg.Window || n > 0 && most > 0 && bytes >= most {
		k.fail("I5", "%s dispatches %s with %d messages of %d bytes in flight, and the window is %d of %d", a.name, describe(d.Message), n, bytes,
			p.g.cfg.Window, most)
	}
}

// order checks that offsets go up: the first dispatches of a color over all holders, and all
// within one holder's time.
func (k *checker) order(a *actor, p *checkPart, f *fate, d *consume.Dispatch, t *term) {
	color, offset := f.msg.Color, f.msg.Offset
	back := f.handedIn(t) // and has come back, else it might not be handed out
	if top, any := p.first[color]; f.n == 0 {
		if any && offset < top {
			k.fail("I4", "%s dispatches %s for the first time, after %d of that color", a.name, describe(f.msg), top)
		}
		p.first[color] = max(top, offset)
	}
	if d.Cursor != consume.Main && d.Lane == lane.Baseline { // it goes on where main stood
		if main := p.terms[consume.Main]; main != nil && slices.Contains(a.sessions, main.session) {
			t = main
		}
	}
	last, any := t.last[color]
	if any && offset <= last && !back {
		k.fail("I4", "%s dispatches %s after %d of that color", a.name, describe(f.msg), last)
	}
	if !any || offset > last {
		t.last[color] = offset
	}
}

// alone checks an ordered group: nothing of a color goes to one lane while something lower
// of it is in flight with another. What a loss made come again is another matter.
func (k *checker) alone(a *actor, p *checkPart, f *fate, d *consume.Dispatch) {
	for _, o := range p.messages {
		if o.msg.Offset >= f.msg.Offset {
			return
		}
		if o.msg.Color != f.msg.Color || o.n > 1 && p.losses > 0 {
			continue
		}
		for i := range o.hands {
			if h := &o.hands[i]; h.state == inFlight && p.holds(h) && (h.by != a || h.lane != d.Lane) {
				k.fail("I4+", "%s dispatches %s to %q while %d is in flight with %s for %q", a.name, describe(f.msg), d.Lane,
					o.msg.Offset, h.by.name, h.lane)
				return
			}
		}
	}
}

// requeued is told of a message that is to be retried.
func (k *checker) requeued(a *actor, run uint64, offset int64, m *consume.Message) {
	r := a.runs[run]
	if r == nil || r.p.find(offset) == nil {
		k.fail("RETRY", "%s retries offset %d of run %d, which it has not", a.name, offset, run)
		return
	}
	p := r.p
	was := p.find(offset).msg
	delays := p.g.cfg.RetryDelays
	switch origin := p.g.origin[p.id.Topic]; {
	case m.Color != was.Color || m.Attempt != was.Attempt+1 || m.ID == "" || m.Origin == nil || m.Error == "":
		k.fail("RETRY", "%s retries %s as %s", a.name, describe(was), describe(m))
	case p.g.origin[m.Partition.Topic] != origin || m.Partition.Topic == origin:
		k.fail("RETRY", "%s retries %s in topic %s", a.name, describe(was), m.Partition.Topic)
	case was.Attempt >= len(delays) || m.Delay != delays[was.Attempt]:
		k.fail("RETRY", "%s retries %s after %v", a.name, describe(was), m.Delay)
	case !k.follows(a, p, run, was, m) || m.Error != "no":
		k.fail("RETRY", "%s retries %s with another content, origin or ID: %+v %+v", a.name, describe(was), m, m.Origin)
	case !k.isStoring(a, p, run, offset):
		k.fail("RETRY", "%s retries %s, which did not fail", a.name, describe(was))
	}
}

// follows checks a copy against what it is a copy of, and that there is one.
func (k *checker) follows(a *actor, p *checkPart, run uint64, was, m *consume.Message) bool {
	want := consume.Origin{Partition: was.Partition, Offset: was.Offset}
	if was.Origin != nil {
		want = *was.Origin
	}
	want.Group, want.Lane = p.g.cfg.Group, lane.Baseline // who buries what no lane may have is main's or behind it
	of := fmt.Sprintf("%s %s %d %d", want.Group, was.Partition, was.Offset, was.Attempt)
	if k.ids[m.ID] == "" {
		k.ids[m.ID] = of
	}
	f := p.find(was.Offset)
	for i := range f.hands {
		h := &f.hands[i]
		if h.by == a && h.run == run && h.state == storing {
			want.Lane = h.lane
			if h.stored {
				return false
			}
			h.stored = true
			break
		}
	}
	return string(m.Value) == string(was.Value) && string(m.Key) == string(was.Key) && reflect.DeepEqual(m.Headers, was.Headers) &&
		*m.Origin == want && m.ID != "" && k.ids[m.ID] == of
}

func (k *checker) isStoring(a *actor, p *checkPart, run uint64, offset int64) bool {
	return slices.ContainsFunc(p.find(offset).hands, func(h handed) bool {
		return h.by == a && h.run == run && h.state == storing
	})
}

// partOf is the partition of a run. One that goes on after a reset was called off has not
// fetched under its new number yet: what it stores says where that is from.
func (k *checker) partOf(a *actor, run uint64, id string) *checkPart {
	if r := a.runs[run]; r != nil {
		return r.p
	}
	for _, p := range k.groups[a.group].order {
		if strings.HasPrefix(id, p.g.cfg.Group+"/"+p.id.String()+"/") {
			return a.run(run, p, consume.Main).p
		}
	}
	return nil
}

// buried is told of a message that goes to the dead letters.
func (k *checker) buried(a *actor, now time.Duration, b *consume.Bury) {
	p := k.partOf(a, b.Run, b.ID)
	if p == nil || p.find(b.Offset) == nil {
		k.fail("RETRY", "%s buries offset %d of run %d, which it has not", a.name, b.Offset, b.Run)
		return
	}
	f := p.find(b.Offset)
	if b.Color != f.msg.Color || b.Origin == nil || !p.g.dead[b.Partition.Topic] {
		k.fail("RETRY", "%s buries %s as %s", a.name, describe(f.msg), describe(b.Message))
		return
	}
	if b.Delay != 0 {
		k.fail("RETRY", "%s buries %s in %v", a.name, describe(f.msg), b.Delay)
		return
	}
	if a.lost && b.Why != consume.BuryAttempts {
		k.fail("I2", "%s, without the registry, buries %s", a.name, describe(f.msg))
		return
	}
	color := f.msg.Color
	lanes := map[lane.Name]consume.Lane{}
	if a.view != nil {
		lanes = a.view.Lanes
	}
	l, known := lanes[color]
	since, unknown := a.unknown[color]
	switch {
	case b.Why == consume.BuryAttempts:
		if f.msg.Attempt < len(p.g.cfg.RetryDelays) || !k.isStoring(a, p, b.Run, b.Offset) {
			k.fail("RETRY", "%s buries %s, which has attempts left", a.name, describe(f.msg))
		}
		if !k.follows(a, p, b.Run, f.msg, b.Message) || b.Error == "" || b.Attempt != f.msg.Attempt+1 {
			k.fail("RETRY", "%s buries %s with another content, origin or ID", a.name, describe(f.msg))
		}
		return
	case a.lost && !p.overs[color]:
		k.fail("I2", "%s, without the registry, buries %s", a.name, describe(f.msg))
		return
	case !strict(color):
		k.fail("I2", "%s buries %s, which is of no strict lane", a.name, describe(f.msg))
		return
	case known && l.Ended, unknown && now-since >= p.g.cfg.UnknownStrict:
		p.overs[color] = true
	case !p.overs[color] || f.n == 0: // else it was on its way to the dead letters already
		k.fail("I1", "%s buries %s, whose lane is not over", a.name, describe(f.msg))
		return
	}
	if ended := known && l.Ended; f.n == 0 && ended != (b.Why == consume.BuryStrictEnded) {
		k.fail("REASON", "%s buries %s: %s", a.name, describe(f.msg), b.Why)
		return
	}
	if !k.follows(a, p, b.Run, f.msg, b.Message) || b.Attempt != f.msg.Attempt {
		k.fail("RETRY", "%s buries %s with another content, origin or ID", a.name, describe(f.msg))
		return
	}
	t := p.terms[owning(p.record, f.msg)]
	switch holds := t != nil && slices.Contains(a.sessions, t.session); {
	case !holds:
		if t = p.outlived(a, f.msg); t == nil || a.learned[p.id] >= t.taken || !a.lost && !k.forced[t.session] {
			k.fail("I2", "%s buries %s; the record names %s", a.name, describe(f.msg), describeRecord(p.record))
			return
		}
		if f.keeps(a, b.Run, t) {
			k.fail("I3", "%s, cut off, buries %s a second time", a.name, describe(f.msg))
			return
		}
	case !f.permit:
		k.fail("I3", "%s buries %s, which is with somebody already (%s)", a.name, describe(f.msg), describeHands(f))
		return
	default:
		f.permit, f.loose = false, false
		f.n++
		p.first[color] = max(p.first[color], f.msg.Offset)
	}
	f.hands = append(f.hands, handed{by: a, run: b.Run, term: t, at: now, state: storing})
}
