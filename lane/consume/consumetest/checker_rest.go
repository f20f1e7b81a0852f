package consumetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// truth is how things really are when all is quiet.
type truth struct {
	now    time.Duration
	lanes  map[lane.Name]consume.Lane
	groups []truthGroup
	alive  func(session string) bool
	actors []*actor   // that are up
	stuck  *lane.Name // whose consumers settle nothing at present
}

type truthGroup struct {
	members    []consume.Member
	partitions map[string]int32
	reset      *consume.Reset
}

// missing is what is not as it has to be.
type missing struct{ rule, what string }

func missed(rule, format string, args ...any) *missing {
	return &missing{rule, fmt.Sprintf(format, args...)}
}

// atRest checks what must hold some time after all has become quiet; nil: all is well.
func (k *checker) atRest(t *truth) *missing {
	k.judged, k.skipped = map[lane.Name]int{}, map[lane.Name]int{}
	for i, g := range k.groups {
		tg := &t.groups[i]
		for _, topic := range g.topics {
			for n := range tg.partitions[topic] {
				p := g.part(consume.Partition{Topic: topic, Index: n})
				m, judged := k.partAtRest(t, tg, p)
				if m != nil {
					return m
				}
				for _, f := range p.messages {
					if !judged {
						k.skipped[f.msg.Color]++
					}
				}
			}
		}
	}
	for i, g := range k.groups {
		if m := k.sharesAtRest(t, &t.groups[i], g); m != nil {
			return m
		}
	}
	return nil
}

func (t *truth) isStuck(l lane.Name) bool { return t.stuck != nil && *t.stuck == l }

// serves reports whether a lane has a live member for a topic that can run a cursor.
func (t *truth) serves(tg *truthGroup, l lane.Name, topic string) bool {
	return slices.ContainsFunc(tg.members, func(m consume.Member) bool {
		return m.Lane == l && m.Session != "" && t.alive(m.Session) && slices.Contains(m.Topics, topic) && t.present(&m)
	})
}

// actorOf finds who has a session.
func (t *truth) actorOf(group int, session string) *actor {
	for _, a := range t.actors {
		if a.group == group && len(a.sessions) > 0 && a.sessions[len(a.sessions)-1] == session {
			return a
		}
	}
	return nil
}

// partAtRest looks at one partition. It tells whether its messages were judged: not where
// nobody is there to read them, or the log is another one.
func (k *checker) partAtRest(t *truth, tg *truthGroup, p *checkPart) (m *missing, judged bool) {
	topic := p.g.origin[p.id.Topic]
	if !slices.ContainsFunc(tg.members, func(m consume.Member) bool {
		return m.Session != "" && t.alive(m.Session) && slices.Contains(m.Topics, topic) && t.serves(tg, m.Lane, topic)
	}) {
		return nil, false
	}
	if p.record == nil {
		return missed("I1", "%s has no record", p.name()), false
	}
	if m := k.mainAtRest(t, tg, p, topic); m != nil || p.broken {
		return m, false
	}
	for _, f := range p.messages {
		m, verdict := k.messageAtRest(t, tg, p, f, topic)
		if m != nil {
			return m, true
		}
		if verdict {
			k.judged[f.msg.Color]++
		} else {
			k.skipped[f.msg.Color]++
		}
	}
	return k.colorsAtRest(t, tg, p, topic), true
}

// mainAtRest checks that main is held by who should hold it.
func (k *checker) mainAtRest(t *truth, tg *truthGroup, p *checkPart, topic string) *missing {
	h := p.record.Main
	a := t.actorOf(slices.Index(k.groups, p.g), h.Session)
	switch {
	case p.broken:
		if !p.alarmed && t.serves(tg, lane.Baseline, topic) && !t.isStuck(lane.Baseline) {
			return missed("ALARM", "%s is another log, and nobody says so", p.name())
		}
		return nil
	case h.None() || !t.alive(h.Session) || a == nil:
		return missed("I1", "%s: main is held by %s", p.name(), h)
	case t.serves(tg, lane.Baseline, topic) && !a.reads(lane.Baseline, topic):
		return missed("I2", "%s: main is held by %s, which has no member in the baseline", p.name(), a.name)
	}
	if r := tg.reset; r != nil {
		if _, named := r.Offsets[p.id]; named && p.record.Reset != r.ID && !t.isStuck(lane.Baseline) {
			return missed("RESET", "%s was not reset", p.name())
		}
	}
	return nil
}

func (a *actor) reads(l lane.Name, topic string) bool {
	return slices.ContainsFunc(a.members, func(m consume.Member) bool {
		return m.Lane == l && slices.Contains(m.Topics, topic)
	})
}

// over reports whether a strict color's messages belong to the dead letters.
func (k *checker) over(t *truth, p *checkPart, color lane.Name) bool {
	if !strict(color) || !slices.ContainsFunc(p.g.cfg.Topics, func(c consume.Topic) bool {
		return c.Name == p.g.origin[p.id.Topic] && c.Dead != ""
	}) {
		return false
	}
	l, known := t.lanes[color]
	return known && l.Ended || !known && strict(color)
}

// holdsBack reports whether an ordered group may not split a color off, since the baseline has
// to settle something of it first.
func (p *checkPart) holdsBack(color lane.Name) bool {
	return p.g.cfg.Ordered && slices.ContainsFunc(p.messages, func(f *fate) bool {
		return f.msg.Color == color && f.n > 0 && !f.gone && !p.noted(f) && owning(p.record, f.msg) == consume.Main
	})
}

// mainWaits reports whether main has something of its own before an offset that it may hand to
// nobody while the baseline has no member. It may have it still though it is deleted.
func (p *checkPart) mainWaits(offset int64) bool {
	return slices.ContainsFunc(p.messages, func(f *fate) bool {
		return f.msg.Offset < offset && !strict(f.msg.Color) && !f.foreign && !p.noted(f) && owning(p.record, f.msg) == consume.Main
	})
}

// messageAtRest checks that a message is settled, and that its cursor's note says so. It tells
// whether that is a verdict, and not an excuse.
func (k *checker) messageAtRest(t *truth, tg *truthGroup, p *checkPart, f *fate, topic string) (m *missing, verdict bool) {
	if f.unread && !f.settled && f.msg.Offset >= p.start && p.noted(f) && !f.told {
		return missed("ALARM", "%s: %s was deleted unread, and nobody says so", p.name(), describe(f.msg)), true
	}
	if f.gone || f.msg.Offset < p.start {
		return nil, true
	}
	color := f.msg.Color
	cursor := owning(p.record, f.msg)
	holder, _ := holderOf(p.record, cursor)
	owner, _ := rightfulOwner(t.lanes, tg.members, t.alive, topic, color)
	if t.isStuck(owner) || t.isStuck(lane.Baseline) && (cursor == consume.Main && (f.n > 0 || p.g.cfg.Ordered) || k.over(t, p, color)) {
		return nil, false // an ordered group waits at a split, too
	}
	if cursor == consume.Main && f.n == 0 && p.holdsBack(color) && !t.serves(tg, lane.Baseline, topic) {
		return nil, false
	}
	if !f.settled && !f.foreign {
		switch {
		case k.over(t, p, color):
			if !t.serves(tg, lane.Baseline, topic) && p.mainWaits(f.msg.Offset) {
				return nil, false
			}
		case cursor != consume.Main || f.n == 0 && owner != lane.Baseline:
			if !t.serves(tg, owner, topic) {
				return nil, false // it waits for a member of its owner
			}
		case strict(color):
		case !t.serves(tg, lane.Baseline, topic):
			return nil, false
		}
		return missed("I1", "%s: %s is not settled; the record is %s, its cursor's note %s; it is %q's (%s)", p.name(), describe(f.msg),
			describeRecord(p.record), describeNote(p.notes[cursor]), owner, describeHands(f)), true
	}
	if !p.noted(f) && !holder.None() && t.alive(holder.Session) && !f.foreign && t.stuck == nil && t.serves(tg, holder.Lane, topic) {
		return missed("NOTE", "%s: %s is settled, and the note of cursor %q does not say so: %s; the record is %s", p.name(),
			describe(f.msg), cursor, describeNote(p.notes[cursor]), describeRecord(p.record)), true
	}
	return nil, true
}

// colorsAtRest checks that every color is run by its owner, and that no color is split off
// that need not be.
func (k *checker) colorsAtRest(t *truth, tg *truthGroup, p *checkPart, topic string) *missing {
	group := slices.Index(k.groups, p.g)
	for c, l := range t.lanes {
		_, there := p.record.Colors[c]
		if !there && !l.Ended && t.serves(tg, c, topic) && (t.stuck == nil || !p.g.cfg.Ordered) &&
			(!p.holdsBack(c) || t.serves(tg, lane.Baseline, topic)) {
			return missed("I2", "%s: %s has a member, and the color is not split off", p.name(), c)
		}
	}
	for c, e := range p.record.Colors {
		owner, tomb := rightfulOwner(t.lanes, tg.members, t.alive, topic, c)
		if t.isStuck(owner) || tomb {
			continue
		}
		if owner == lane.Baseline || k.over(t, p, c) {
			if t.serves(tg, lane.Baseline, topic) && t.stuck == nil {
				return missed("I2", "%s: %s is split off, and it is the baseline's; the record is %s", p.name(), c, describeRecord(p.record))
			}
			continue
		}
		if !t.serves(tg, owner, topic) {
			continue
		}
		a := t.actorOf(group, e.Holder.Session)
		if e.Holder.Lane != owner || a == nil || !a.reads(owner, topic) {
			return missed("I2", "%s: %s is %q's, and it is held by %s", p.name(), c, owner, e.Holder)
		}
	}
	return nil
}

// finalCounts checks that the last look has judged every message of every color.
func (k *checker) finalCounts(appended map[lane.Name]int) {
	for _, c := range slices.Sorted(maps.Keys(appended)) {
		if n := k.judged[c] + k.skipped[c]; n != appended[c] {
			k.fail("COUNT", "the groups were to read %d messages of color %q, and the checker has judged %d", appended[c], c, n)
		}
	}
}
