package consumetest

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// fetchWait is how long a fetch waits for a message.
const fetchWait = time.Second

// engine is the logs of all topics.
type engine struct {
	w      *world
	topics map[string][]*journal
	known  map[string]bool              // IDs of appended messages
	counts map[string]map[lane.Name]int // of all that was appended to a topic's first logs
	random stream
	read   []*fetching // answers that are under way
	epochs map[reader]string
}

// reader is a run of a process.
type reader struct {
	cl  *client
	inc int
	run uint64
}

// journal is the log of one partition.
type journal struct {
	id         consume.Partition
	messages   []*consume.Message // ascending
	first, end int64
	epoch      string
	closed     bool // it was truncated: nothing is appended any more
	waiting    []*fetching
}

// fetching is a fetch that waits for a message.
type fetching struct {
	cl    *client
	inc   int
	f     consume.Fetch
	slow  int // in a thousand: it takes seconds, there and back
	ended bool
}

func (e *engine) ensure(topic string, parts int32) {
	for i := int32(len(e.topics[topic])); i < parts; i++ {
		first := int64(0)
		if e.random.n(3) == 0 {
			first = int64(e.random.n(5))
		}
		e.topics[topic] = append(e.topics[topic], &journal{
			id: consume.Partition{Topic: topic, Index: i}, first: first, end: first, epoch: "e1",
		})
	}
}

func (e *engine) journal(id consume.Partition) *journal {
	return e.topics[id.Topic][id.Index]
}

func (j *journal) bounds() consume.Bounds {
	return consume.Bounds{First: j.first, End: j.end, Epoch: j.epoch}
}

// search is the place of the first message at or above an offset.
func (j *journal) search(offset int64) int {
	return sort.Search(len(j.messages), func(i int) bool { return j.messages[i].Offset >= offset })
}

// append adds a message to a log, which gives it its offset.
func (e *engine) append(j *journal, m *consume.Message) {
	if j.closed {
		return
	}
	if e.w.plan.gaps > 0 && e.random.permille(e.w.plan.gaps) {
		j.end += int64(1 + e.random.n(3))
		e.w.feature(FeatureGap)
	}
	m.Partition, m.Offset = j.id, j.end
	m.Time = simTime(e.w.sched.now)
	j.end++
	j.messages = append(j.messages, m)
	e.w.result.Coverage.Messages++
	if e.w.tracing() {
		e.w.tracef("engine", "append %s", describe(m))
	}
	if j.epoch == "e1" {
		if e.counts[j.id.Topic] == nil {
			e.counts[j.id.Topic] = map[lane.Name]int{}
		}
		e.counts[j.id.Topic][m.Color]++
	}
	e.w.check.appended(m)
	waiting := j.waiting
	j.waiting = nil
	for _, f := range waiting {
		e.w.sched.after(e.w.sched.delay(&e.random, 0), func() { e.look(f) })
	}
}

func simTime(d time.Duration) time.Time { return time.Unix(1_700_000_000, 0).UTC().Add(d) }

// fetch answers a fetch later: with what there is, or when there is something.
func (e *engine) fetch(cl *client, f consume.Fetch) {
	w := e.w
	pending := &fetching{cl: cl, inc: cl.p.inc, f: f}
	if !w.quiet && w.plan.rates.fetch > 0 {
		pending.slow = 30
		if e.random.permille(w.plan.rates.fetch) {
			w.fault(FaultFetch)
			pending.ended = true
			w.sched.after(e.random.between(time.Millisecond, 2*time.Second), func() {
				cl.post(pending.inc, &consume.Fetched{Run: f.Run, Failed: true})
			})
			return
		}
	}
	w.sched.after(w.sched.delay(&e.random, pending.slow), func() { e.look(pending) })
	w.sched.after(fetchWait+w.sched.delay(&e.random, 0), func() { e.answer(pending) })
}

// look answers a fetch if there is something, and lets it wait else.
func (e *engine) look(f *fetching) {
	if f.ended || f.cl.p.inc != f.inc {
		return
	}
	j := e.journal(f.f.Partition)
	if j.search(f.f.From) < len(j.messages) || j.end < f.f.From {
		e.answer(f)
		return
	}
	if !slices.Contains(j.waiting, f) {
		j.waiting = append(j.waiting, f)
	}
}

// answer reads what there is now.
func (e *engine) answer(f *fetching) {
	if f.ended || f.cl.p.inc != f.inc {
		return
	}
	f.ended = true
	j := e.journal(f.f.Partition)
	b := consume.Batch{Next: max(f.f.From, j.end), Bounds: j.bounds()}
	most := f.f.Max
	if e.random.n(4) == 0 {
		most = 1 + e.random.n(most)
	}
	for _, m := range j.messages[j.search(f.f.From):] {
		if e.w.plan.filters && !f.f.Filter.All && m.Color != f.f.Filter.Color {
			e.w.feature(FeatureFilter)
			continue
		}
		if len(b.Messages) == most {
			b.Next = b.Messages[most-1].Offset + 1
			break
		}
		b.Messages = append(b.Messages, m)
	}
	cached := e.leavesOut(f, j, &b)
	e.read = append(e.read, f)
	e.w.sched.after(e.w.sched.delay(&e.random, f.slow), func() {
		e.read = slices.DeleteFunc(e.read, func(o *fetching) bool { return o == f })
		f.cl.post(f.inc, &consume.Fetched{Run: f.f.Run, Cached: cached, Batch: b})
	})
}

// leavesOut takes the bounds from every second batch of those that may do without: its run
// has read from this log before, and nothing is gone from where the batch begins.
func (e *engine) leavesOut(f *fetching, j *journal, b *consume.Batch) bool {
	key := reader{f.cl, f.inc, f.f.Run}
	if e.w.plan.bounds || f.f.Bounds || e.epochs[key] != j.epoch {
		e.epochs[key] = j.epoch
		return false
	}
	if j.first > f.f.From || j.end < f.f.From || (f.f.From+b.Next)%2 == 1 {
		return false
	}
	b.Bounds = consume.Bounds{}
	e.w.feature(FeatureNoBounds)
	return true
}

// resolve turns a start into an offset.
func (e *engine) resolve(id consume.Partition, s consume.Start) (int64, string) {
	j := e.journal(id)
	switch s.Kind {
	case consume.StartLatest:
		return j.end, j.epoch
	case consume.StartTime:
		for _, m := range j.messages {
			if !m.Time.Before(s.Time) {
				return m.Offset, j.epoch
			}
		}
		return j.end, j.epoch
	case consume.StartOffset:
		return min(max(s.Offset, j.first), j.end), j.epoch
	case consume.StartEarliest:
	}
	return j.first, j.epoch
}

// store keeps a message that failed, for a retry or for good.
func (e *engine) store(m *consume.Message) {
	if m.ID != "" && e.known[m.ID] {
		if e.w.plan.dedups {
			e.w.feature(FeatureKnownCopy)
			return
		}
		e.w.feature(FeatureCopy)
	}
	e.known[m.ID] = true
	e.w.sched.after(m.Delay, func() {
		logs := e.topics[m.Partition.Topic]
		i := m.Partition.Index
		if i < 0 {
			i = int32(e.random.n(len(logs)))
		}
		c := *m
		e.append(logs[i], &c)
	})
}

// retain deletes the oldest messages of a log, read or not.
func (e *engine) retain(j *journal, n int) {
	n = min(n, len(j.messages))
	if n == 0 {
		return
	}
	j.first = j.messages[n-1].Offset + 1
	j.messages = slices.Clone(j.messages[n:])
	e.w.tracef("engine", "retention: %s begins at %d", j.id, j.first)
	e.w.check.deleted(j.id, 0, j.first, true)
}

// truncate takes the newest messages of a log away.
func (e *engine) truncate(j *journal, end int64) {
	j.messages = slices.Clone(j.messages[:j.search(end)])
	was := j.end
	j.end, j.closed = end, true
	e.w.tracef("engine", "truncated: %s ends at %d, not %d", j.id, end, was)
	e.w.check.deleted(j.id, end, was, false)
	e.w.check.broke(j.id)
	e.wake(j)
}

// recreate begins a log again.
func (e *engine) recreate(j *journal) {
	e.w.check.deleted(j.id, 0, j.end, false)
	e.w.check.broke(j.id)
	j.messages, j.first, j.end = nil, 0, 0
	j.epoch = fmt.Sprintf("%s'", j.epoch)
	e.w.tracef("engine", "created again: %s", j.id)
	e.wake(j)
}

func (e *engine) wake(j *journal) {
	waiting := j.waiting
	j.waiting = nil
	for _, f := range waiting {
		e.w.sched.after(e.w.sched.delay(&e.random, 0), func() { e.look(f) })
	}
}
