package consumetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// share is what cursors are spread over together: those of one topic for one lane.
type share struct {
	topic string
	lane  lane.Name
}

func (s share) compare(o share) int {
	return cmp.Or(cmp.Compare(s.topic, o.topic), cmp.Compare(s.lane, o.lane))
}

// held is a cursor with the session that holds it and those that could: of its partition's room,
// where that has any.
type held struct {
	p      *checkPart
	cursor lane.Name
	holder string
	able   []string
}

// sharesAtRest checks that a partition's cursors are held in its room, where anybody there can
// hold them, and that of those who can nobody holds two more than another.
func (k *checker) sharesAtRest(t *truth, tg *truthGroup, g *checkGroup) *missing {
	if t.stuck != nil {
		return nil
	}
	for _, topic := range g.topics {
		all := k.shares(t, tg, g, topic)
		for _, s := range slices.SortedFunc(maps.Keys(all), share.compare) {
			if m := even(all[s]); m != nil {
				return m
			}
		}
	}
	return nil
}

// shares are the cursors of a topic. There are none where the log of one is another one, of which
// nobody knows who is to hold it, or where a session is in two rooms.
func (k *checker) shares(t *truth, tg *truthGroup, g *checkGroup, topic string) map[share][]held {
	all := map[share][]held{}
	for n := range tg.partitions[topic] {
		p := g.part(consume.Partition{Topic: topic, Index: n})
		if p.record == nil || p.broken {
			return nil
		}
		for _, c := range p.cursors() {
			owner, _ := rightfulOwner(t.lanes, tg.members, t.alive, g.origin[topic], c)
			if c != consume.Main && (owner == lane.Baseline || k.over(t, p, c)) {
				continue // it goes with main
			}
			able, ok := t.able(tg, g.origin[topic], owner, p.room)
			if !ok {
				return nil
			}
			if h, _ := holderOf(p.record, c); len(able) > 0 {
				all[share{topic, owner}] = append(all[share{topic, owner}], held{p, c, h.Session, able})
			}
		}
	}
	return all
}

// able are the sessions that can hold a cursor for a lane, those of a room before others: all, where
// the baseline has no member. It fails where one is in two rooms, as by a member that is there twice.
func (t *truth) able(tg *truthGroup, topic string, l lane.Name, room string) (all []string, ok bool) {
	rooms := map[string]string{}
	anybody := l == lane.Baseline && !slices.ContainsFunc(tg.members, func(m consume.Member) bool {
		return m.Lane == lane.Baseline && slices.Contains(m.Topics, topic) && (m.Session == "" || t.alive(m.Session))
	})
	for i := range tg.members {
		m := &tg.members[i]
		if m.Lane != l && !anybody || m.Session == "" || !t.alive(m.Session) || !slices.Contains(m.Topics, topic) || !t.present(m) {
			continue
		}
		if is, there := rooms[m.Session]; there && is != m.Room {
			return nil, false
		}
		rooms[m.Session] = m.Room
	}
	all = slices.Sorted(maps.Keys(rooms))
	in := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return rooms[s] != room })
	if room == "" || len(in) == 0 {
		return all, true
	}
	return in, true
}

// present reports whether a member is one of its lane as it is now.
func (t *truth) present(m *consume.Member) bool {
	l, known := t.lanes[m.Lane]
	return m.Lane == lane.Baseline || known && !l.Ended && l.Generation == m.Generation
}

// even looks whether what is spread together is spread evenly.
func even(all []held) *missing {
	load := map[string]int{}
	for _, h := range all {
		load[h.holder]++
	}
	for _, h := range all {
		if !slices.Contains(h.able, h.holder) {
			return missed("BALANCE", "%s: cursor %q is held by %q, and to be held by one of %v", h.p.name(), h.cursor, h.holder, h.able)
		}
		least := slices.MinFunc(h.able, func(a, b string) int { return cmp.Compare(load[a], load[b]) })
		if load[h.holder]-load[least] >= 2 {
			return missed("BALANCE", "%s: cursor %q is held by %s, which holds %d, and %s holds %d", h.p.name(), h.cursor, h.holder,
				load[h.holder], least, load[least])
		}
	}
	return nil
}
