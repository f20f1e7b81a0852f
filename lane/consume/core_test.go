package consume

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// rig drives one Core whose registry and engine answer at once.
type rig struct {
	t       testing.TB
	core    *Core
	view    View
	record  *Record
	rev     uint64
	notes   map[lane.Name]StoredNote
	log     []*Message
	pending []Event
	fetches map[uint64]*Fetch
	trace   []string
	moves   int // of one write, at most
	out     []*Dispatch
	hold    bool // writes wait to be proposed
	writes  []*Propose
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	cfg.Group = "billing"
	cfg.Topics = []Topic{{Name: "orders", Partitions: 1}}
	c, err := NewCore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, core: c, rev: 10, notes: map[lane.Name]StoredNote{}, fetches: map[uint64]*Fetch{}}
	r.view = View{Revision: 10, Lanes: map[lane.Name]Lane{}, Sessions: map[string]bool{"s1": true}}
	r.step(&Opened{"s1"})
	r.step(&Partitioned{Topic: "orders", Count: 1})
	return r
}

func (r *rig) join(id string, in lane.Name) {
	m := Member{ID: id, Session: "s1", Lane: in, Topics: []string{"orders"}}
	if in != lane.Baseline {
		r.view.Lanes[in] = Lane{}
	}
	r.view.Members = append(slices.Clone(r.view.Members), m)
	r.look()
	r.step(&Joined{m})
}

func (r *rig) leave(id string) {
	r.view.Members = slices.DeleteFunc(slices.Clone(r.view.Members), func(m Member) bool { return m.ID == id })
	r.look()
	r.step(&Left{id})
}

func (r *rig) look() {
	r.rev++
	v := r.view
	v.Revision = r.rev
	r.step(&Viewed{&v})
}

func (r *rig) append(colors ...lane.Name) {
	for _, c := range colors {
		r.log = append(r.log, &Message{Partition: Partition{"orders", 0}, Offset: int64(len(r.log)), Color: c})
	}
	r.poll()
}

func (r *rig) poll() {
	for _, id := range sortedKeys(r.fetches) {
		f := r.fetches[id]
		if f == nil {
			continue
		}
		b := Batch{Next: f.From, Bounds: Bounds{0, int64(len(r.log)), "e"}}
		for _, m := range r.log[min(f.From, int64(len(r.log))):] {
			if len(b.Messages) == f.Max {
				break
			}
			b.Next = m.Offset + 1
			if f.Filter.All || m.Color == f.Filter.Color {
				b.Messages = append(b.Messages, m)
			}
		}
		if b.Next > f.From {
			delete(r.fetches, id)
			r.step(&Fetched{Run: id, Batch: b})
		}
	}
}

func sortedKeys(m map[uint64]*Fetch) []uint64 {
	var ids []uint64
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (r *rig) step(e Event) {
	for _, a := range r.core.Step(e) {
		switch a := a.(type) {
		case *Propose:
			if r.hold {
				r.writes = append(r.writes, a)
			} else {
				r.propose(a)
			}
		case *Fetch:
			f := *a
			r.fetches[a.Run] = &f
		case *Dispatch:
			d := *a
			r.out = append(r.out, &d)
			r.trace = append(r.trace, fmt.Sprintf("%d%s>%s", d.Offset, d.Color, d.Lane))
		case *Resolve:
			r.pending = append(r.pending, &Resolved{Partition: a.Partition, Epoch: "e"})
		}
	}
	r.answers()
}

func (r *rig) answers() {
	for len(r.pending) > 0 {
		e := r.pending[0]
		r.pending = r.pending[1:]
		r.step(e)
	}
}

func (r *rig) propose(a *Propose) {
	var rev uint64
	if r.record != nil {
		rev = r.recordRev()
	}
	if rev != a.IfRevision {
		r.t.Fatalf("write at %d, record at %d", a.IfRevision, rev)
	}
	r.rev++
	r.moves = max(r.moves, len(a.Moves))
	ans := Answer{Revision: rev}
	if a.Record != nil {
		r.record = a.Record
		ans.Revision = r.rev
		r.notes[" record"] = StoredNote{Revision: r.rev}
	}
	for _, n := range a.Notes {
		if n.Note == nil {
			delete(r.notes, n.Cursor)
			continue
		}
		if n.Compare && r.notes[n.Cursor].Revision != n.IfRevision {
			r.t.Fatalf("note of %q at %d, is at %d", n.Cursor, n.IfRevision, r.notes[n.Cursor].Revision)
		}
		s := StoredNote{Cursor: n.Cursor, Note: n.Note, Revision: r.rev}
		r.notes[n.Cursor] = s
		ans.Notes = append(ans.Notes, s)
	}
	for _, c := range a.Read {
		ans.Notes = append(ans.Notes, r.notes[c])
	}
	for _, m := range a.Moves {
		r.trace = append(r.trace, "["+m.String()+"]")
	}
	r.pending = append(r.pending, &Answered{Write: a.ID, Answer: ans})
}

func (r *rig) recordRev() uint64 { return r.notes[" record"].Revision }

// settleAll settles everything that is out, in order.
func (r *rig) settleAll() {
	for len(r.out) > 0 {
		d := r.out[0]
		r.out = r.out[1:]
		r.step(&Settled{Run: d.Run, Offset: d.Offset})
		r.poll()
	}
}

func (r *rig) want(want string) {
	r.t.Helper()
	if got := strings.Join(r.trace, " "); got != want {
		r.t.Errorf("trace\n got %s\nwant %s", got, want)
	}
	r.trace = nil
}

// TestCoreLaneComesAndGoes: a lane starts, reads some of its messages, and stops.
func TestCoreLaneComesAndGoes(t *testing.T) {
	r := newRig(t, Config{Window: 2})
	r.join("e1", lane.Baseline)
	r.want("[create main: new-group] [take main for the baseline: nobody-holds-it]")
	r.append("", "green", "")
	r.want("0> 1green>")
	r.settleAll()
	r.want("2>")
	r.join("e2", "green")
	r.want("[split green from 3: lane-has-a-member] [take green for green: nobody-holds-it]")
	r.append("", "green", "", "green", "green")
	r.want("3> 5> 4green>green 6green>green")
	r.step(&Settled{Run: r.out[len(r.out)-1].Run, Offset: 6}) // out of order: 4 stays
	r.poll()
	r.want("7green>green")
	r.step(&Returned{Run: r.out[len(r.out)-1].Run, Offset: 4})
	r.want("4green>green")
	r.leave("e2")
	r.want("")
	green := r.out[len(r.out)-1]
	r.step(&Returned{Run: green.Run, Offset: 4})
	r.step(&Returned{Run: green.Run, Offset: 7})
	r.poll()
	r.want("[release green: owner-changed] [take green for the baseline: nobody-holds-it] 4green> 7green>")
	r.settleAll()
	r.want("[merge green: positions-met]")
	if len(r.record.Colors) != 0 {
		t.Errorf("record %+v", r.record)
	}
	r.append("green")
	r.want("8green>")
}

// TestCoreDecidesWithoutAllocation: a message that changes nothing costs no memory.
func TestCoreDecidesWithoutAllocation(t *testing.T) {
	d := newDrive(t, 64)
	if n := testing.AllocsPerRun(200, d.round); n != 0 {
		t.Errorf("%v allocations for %d messages", n, len(d.batch.Messages))
	}
}

// BenchmarkCore gives the time for a message that is fetched, dispatched and settled.
func BenchmarkCore(b *testing.B) {
	for _, colors := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("colors=%d", colors), func(b *testing.B) {
			d := newDrive(b, 256)
			for i := range colors {
				d.r.join(fmt.Sprintf("m%d", i), lane.Name(fmt.Sprintf("lane%d", i)))
			}
			d.r.trace = nil
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += len(d.batch.Messages) {
				d.round()
			}
		})
	}
}

// drive feeds a Core batch after batch and settles what it dispatches.
type drive struct {
	r       *rig
	batch   Batch
	run     uint64
	fetched Fetched
	settled Settled
	out     []int64
}

func newDrive(t testing.TB, n int) *drive {
	t.Helper()
	r := newRig(t, Config{})
	r.join("e1", lane.Baseline)
	d := &drive{r: r, out: make([]int64, 0, n)}
	d.run = r.core.parts[0].main.id
	for range n {
		d.batch.Messages = append(d.batch.Messages, &Message{Partition: Partition{"orders", 0}, Value: make([]byte, 100)})
	}
	for range 10 { // until what is used again is there
		d.round()
	}
	return d
}

func (d *drive) round() {
	at := d.batch.Next
	for i, m := range d.batch.Messages {
		m.Offset = at + int64(i)
	}
	d.batch.Next = at + int64(len(d.batch.Messages))
	d.batch.Bounds = Bounds{0, d.batch.Next, "e"}
	d.fetched = Fetched{Run: d.run, Batch: d.batch}
	d.out = d.out[:0]
	for _, a := range d.r.core.Step(&d.fetched) {
		if a, ok := a.(*Dispatch); ok {
			d.out = append(d.out, a.Offset)
		}
	}
	if len(d.out) != len(d.batch.Messages) {
		d.r.t.Fatalf("%d of %d dispatched", len(d.out), len(d.batch.Messages))
	}
	for _, o := range d.out {
		d.settled = Settled{Run: d.run, Offset: o}
		d.r.core.Step(&d.settled)
	}
}

// TestWindowIsBounded: a note names what a window holds, and a registry takes only so much.
func TestWindowIsBounded(t *testing.T) {
	t.Parallel()
	cfg := Config{Group: "g", Topics: []Topic{{Name: "t"}}, Window: MaxWindow}
	if err := cfg.Validate(); err != nil {
		t.Errorf("the widest window: %v", err)
	}
	cfg.Window++
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "window") {
		t.Errorf("a wider one: %v", err)
	}
}
