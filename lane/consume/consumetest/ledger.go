package consumetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// maxExamples is how many breaches of one kind a [Verdict] describes.
const maxExamples = 10

// Handling is one time that a consumer was handed a message.
type Handling struct {
	Partition consume.Partition
	Offset    int64
	// Life is the life of the process that had it, such as a name and a pid: a process that
	// was killed and started again lives twice.
	Life        string
	Lane        lane.Name // for whose member; zero: the baseline
	Redelivered bool      // the consumer was told that it may have been handed out before
	Begun       time.Time
	// Settled is when the consumer was done with it, by the clock of Begun; zero: it was not.
	Settled time.Time
	// Returned: the consumer gave it back, or lost it when its cursor was given up.
	Returned bool
}

// LedgerConfig says what a [Ledger] judges by.
type LedgerConfig struct {
	// Parents are those of the lanes that there were at any time; a lane under the baseline
	// has the zero parent. A color that is not in it belongs to the baseline alone.
	Parents map[lane.Name]lane.Name
	// NotesWithin is how soon what was settled is noted, with room for a busy machine: a
	// message that was settled so long before its consumer was disturbed comes to nobody
	// again. 0: not judged.
	NotesWithin time.Duration
}

// Ledger counts what became of every message, from outside: from the engine's own log, from
// what consumers wrote down, and from what was done to their processes. It is how tests of
// real processes and of a [consume.Runner] are judged; it knows nothing of cursors. Its
// methods are not to be called at once.
type Ledger struct {
	cfg       LedgerConfig
	colors    map[place]lane.Name
	handled   map[place][]Handling
	disturbed map[string][]span // by life
}

// span is a time in which a life was not to be relied on.
type span struct{ from, to time.Time }

type place struct {
	p      consume.Partition
	offset int64
}

func (at place) String() string { return fmt.Sprintf("%s@%d", at.p, at.offset) }

// NewLedger makes an empty ledger.
func NewLedger(cfg LedgerConfig) *Ledger {
	return &Ledger{cfg: cfg, colors: map[place]lane.Name{}, handled: map[place][]Handling{}, disturbed: map[string][]span{}}
}

// Logged notes that the engine's log has a message.
func (l *Ledger) Logged(m *consume.Message) {
	l.colors[place{m.Partition, m.Offset}] = m.Color
}

// Handled notes that a consumer was handed a message.
func (l *Ledger) Handled(h Handling) {
	at := place{h.Partition, h.Offset}
	l.handled[at] = append(l.handled[at], h)
}

// Disturbed notes that a life was killed, stopped, or cut off from the registry or the
// engine for so long that others may have taken over: what it had at from, and was handed
// until to, may be handed to others as well. to is from for one that was killed; for one
// that was stopped, it is when it is sure to know of it, and to have a new session.
func (l *Ledger) Disturbed(life string, from, to time.Time) {
	l.disturbed[life] = append(l.disturbed[life], span{from, to})
}

// Breach is a kind of broken promise.
type Breach string

// Breaches. The list is closed.
const (
	Lost      Breach = "lost"      // in the log, and settled by nobody
	Twice     Breach = "twice"     // handed out again though nothing had happened to who had it
	Unflagged Breach = "unflagged" // handed out again, as may be, but the consumer was not told
	Stale     Breach = "stale"     // handed out again though it was settled long before anything happened
	Misrouted Breach = "misrouted" // handed to a lane that its color does not lead to
	Unknown   Breach = "unknown"   // handed out, and not in the log
)

// Verdict is what a [Ledger] found.
type Verdict struct {
	Messages    int // in the log
	Colored     int // of these
	Handlings   int
	Redelivered int // messages that were handed out more than once, as the promises allow or not
	Breaches    map[Breach]int
	Examples    []string // at most 10 for each kind
}

// Err is nil where no promise was broken, else it names the breaches with examples.
func (v *Verdict) Err() error {
	if len(v.Breaches) == 0 {
		return nil
	}
	kinds := make([]string, 0, len(v.Breaches))
	for b, n := range v.Breaches {
		kinds = append(kinds, fmt.Sprintf("%s %d", b, n))
	}
	slices.Sort(kinds)
	return errors.New(strings.Join(kinds, ", ") + ":\n" + strings.Join(v.Examples, "\n"))
}

// Verdict judges what was noted so far. The order in which things were noted is of no
// matter.
func (l *Ledger) Verdict() *Verdict {
	v := &Verdict{Messages: len(l.colors), Breaches: map[Breach]int{}}
	places := make([]place, 0, len(l.colors))
	for at, color := range l.colors {
		places = append(places, at)
		if color != lane.Baseline {
			v.Colored++
		}
	}
	for at := range l.handled {
		if _, ok := l.colors[at]; !ok {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(comparePartitions(a.p, b.p), cmp.Compare(a.offset, b.offset))
	})
	for _, at := range places {
		l.judge(v, at)
	}
	return v
}

func (v *Verdict) breach(b Breach, at place, format string, args ...any) {
	if v.Breaches[b]++; v.Breaches[b] <= maxExamples {
		v.Examples = append(v.Examples, fmt.Sprintf("%s %s: %s", b, at, fmt.Sprintf(format, args...)))
	}
}

func (l *Ledger) judge(v *Verdict, at place) {
	hs := l.handled[at]
	v.Handlings += len(hs)
	slices.SortStableFunc(hs, func(a, b Handling) int { return a.Begun.Compare(b.Begun) })
	color, logged := l.colors[at]
	if !logged {
		v.breach(Unknown, at, "%s was handed it", hs[0].Life)
		return
	}
	settled := false
	for n, h := range hs {
		settled = settled || !h.Settled.IsZero()
		if !l.leads(color, h.Lane) {
			v.breach(Misrouted, at, "color %q was handed to lane %q, %s", color, h.Lane, h.Life)
		}
		if n > 0 {
			l.again(v, at, hs[:n], h)
		}
	}
	if !settled {
		v.breach(Lost, at, "color %q, handed out %d times", color, len(hs))
	}
	if len(hs) > 1 {
		v.Redelivered++
	}
}

// leads says whether a color's messages may go to a lane at some time: to its own, to those
// above it, and to the baseline, unless it is strict.
func (l *Ledger) leads(color, to lane.Name) bool {
	if strict(color) {
		return to == color
	}
	for at, n := color, 0; at != lane.Baseline && n <= len(l.cfg.Parents); at, n = l.cfg.Parents[at], n+1 {
		if at == to {
			return true
		}
	}
	return to == lane.Baseline
}

// again judges a handling by those before it.
func (l *Ledger) again(v *Verdict, at place, before []Handling, h Handling) {
	late := l.unreliable(h)
	for _, b := range before {
		stale, allowed := l.excused(b, h)
		// Who was cut off and went on is the holder no longer: whoever is cannot know of what
		// was handed out there meanwhile, and need not tell of it.
		told := h.Redelivered || l.unreliable(b)
		switch {
		case b.Returned && b.Settled.IsZero(), late:
		case !allowed:
			v.breach(Twice, at, "%s had it at %s, and %s at %s", b.Life, clock(b.Begun), h.Life, clock(h.Begun))
			return
		case !told:
			v.breach(Unflagged, at, "%s was not told that %s had had it", h.Life, b.Life)
			return
		case l.cfg.NotesWithin > 0 && stale > l.cfg.NotesWithin:
			v.breach(Stale, at, "%s was handed it, which %s had settled %s before it was disturbed", h.Life, b.Life, stale)
			return
		}
	}
}

// unreliable reports whether a handling began while its life was not to be relied on.
func (l *Ledger) unreliable(h Handling) bool {
	return slices.ContainsFunc(l.disturbed[h.Life], func(s span) bool {
		return !h.Begun.Before(s.from) && !h.Begun.After(s.to)
	})
}

// excused says whether what befell the life of b lets its message be handed out once more,
// to h, and how long before that b had been settled.
func (l *Ledger) excused(b, h Handling) (stale time.Duration, ok bool) {
	for _, s := range l.disturbed[b.Life] {
		if b.Begun.After(s.to) || s.from.After(h.Begun) {
			continue
		}
		since := time.Duration(0)
		if !b.Settled.IsZero() {
			since = max(0, s.from.Sub(b.Settled))
		}
		if !ok || since < stale {
			stale, ok = since, true
		}
	}
	return stale, ok
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }
