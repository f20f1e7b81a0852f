package consume

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// assignment says which session is to run a cursor of a partition; empty: nobody can.
type assignment struct {
	cursor  lane.Name
	session string
}

// to is the session that is to run a cursor, or empty.
func (p *partition) to(cursor lane.Name) string {
	i, ok := slices.BinarySearchFunc(p.assigned, cursor, func(a assignment, c lane.Name) int { return cmp.Compare(a.cursor, c) })
	if !ok {
		return ""
	}
	return p.assigned[i].session
}

// fair is what cursors are spread over together: those of one topic for one lane. Processes
// that read other topics, too, come to the same result for this one.
type fair struct {
	topic string
	lane  lane.Name
}

// salt spreads topics of few partitions over the sessions.
func (f fair) salt() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(f.topic + "\x00" + string(f.lane)))
	return h.Sum32()
}

// spread is the cursors that are spread over together.
type spread struct {
	fair
	claims []claim
	at     []int // in all assignments
}

// assigner collects who claims which cursor. It runs at each change of a record, of which a
// hand-over makes many: so it has no map for each partition.
type assigner struct {
	byFair  map[fair]int // in spreads
	spreads []spread
	all     []assignment // by partition; those of one ascending by cursor
	colors  []lane.Name  // of the partition that is looked at
}

func (a *assigner) add(p *partition, cursor lane.Name, o Owner, h Holder) {
	f := fair{p.id.Topic, o.Lane}
	i, ok := a.byFair[f]
	if !ok {
		i = len(a.spreads)
		a.byFair[f] = i
		most := int(p.topic.Partitions)
		a.spreads = append(a.spreads, spread{fair: f, claims: make([]claim, 0, most), at: make([]int, 0, most)})
	}
	s := &a.spreads[i]
	s.claims = append(s.claims, claim{holder: h.Session, room: p.room, able: p.aud.able(cursor, o)})
	s.at = append(s.at, len(a.all))
	a.all = append(a.all, assignment{cursor: cursor})
}

// settle says who gets what.
func (a *assigner) settle() {
	for i := range a.spreads {
		s := &a.spreads[i]
		for n, session := range balance(s.claims, s.salt()) {
			a.all[s.at[n]].session = session
		}
	}
}

// assign decides which session is to run which cursor.
func (c *Core) assign() {
	a := assigner{byFair: map[fair]int{}, all: make([]assignment, 0, 2*len(c.parts))}
	ends := make([]int, len(c.parts))
	strangers := map[lane.Name]bool{}
	for i, p := range c.parts {
		if p.aud != nil {
			c.claim(&a, p, strangers)
		}
		ends[i] = len(a.all)
	}
	a.settle()
	from := 0
	for i, p := range c.parts {
		if to := a.all[from:ends[i]]; !slices.Equal(to, p.assigned) {
			p.assigned = slices.Clone(to)
			p.look = true
		}
		from = ends[i]
	}
	c.countStrangers(strangers)
}

// claim adds the cursors of a partition, and notes the strict colors whose lane nobody knows.
func (c *Core) claim(a *assigner, p *partition, strangers map[lane.Name]bool) {
	if p.record == nil {
		a.add(p, Main, Owner{}, Holder{})
		return
	}
	a.add(p, Main, Owner{}, p.record.Main)
	a.colors = slices.AppendSeq(a.colors[:0], maps.Keys(p.record.Colors))
	slices.Sort(a.colors)
	for _, color := range a.colors {
		if strict(color) && !c.view.known(color) && p.main != nil {
			strangers[color] = true
		}
		if o := p.aud.owner(color); o.Lane != lane.Baseline {
			a.add(p, color, o, p.record.Colors[color].Holder)
		}
	}
}
