package consumetest

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane/consume"
)

// Coverage says how much of what can happen did.
type Coverage struct {
	Messages, Steps, Dispatches int
	Moves                       map[consume.MoveKind]int // that took place
	Faults                      map[Fault]int
	Alarms                      map[consume.AlarmKind]int
	// TakesWithLeft are takes of a cursor whose note leaves something; MergesWithLeft are
	// merges that leave main something; InDoubt are moves whose answer was waited for in vain
	// at least once.
	TakesWithLeft, MergesWithLeft, InDoubt int
	// Meanwhile are messages that were dispatched while a write with moves of their partition
	// was under way.
	Meanwhile int
	Features  map[Feature]int
	Whys      map[string]int // moves by kind and reason
	Buries    map[consume.BuryReason]int
	Verdicts  map[string]int // messages that the last look has judged, by class of color
	// LossyTakes are takes from a session that was gone, Redelivered messages that were
	// dispatched again by a holder.
	LossyTakes, Redelivered int
}

func newCoverage() Coverage {
	return Coverage{
		Moves: map[consume.MoveKind]int{}, Faults: map[Fault]int{}, Alarms: map[consume.AlarmKind]int{},
		Features: map[Feature]int{}, Whys: map[string]int{}, Buries: map[consume.BuryReason]int{}, Verdicts: map[string]int{},
	}
}

// count takes in a write that took place.
func (c *Coverage) count(w *consume.Write) {
	for _, m := range w.Moves {
		c.Moves[m.Kind]++
		c.Whys[whyOf(m.Kind, m.Why)]++
	}
}

// finish takes in what the checker has counted.
func (c *Coverage) finish(k *checker) {
	c.Dispatches, c.Redelivered = k.counts.dispatches, k.counts.redelivered
	c.Faults[FaultZombie] = k.counts.zombies
	c.TakesWithLeft, c.MergesWithLeft = k.counts.takesWithLeft, k.counts.mergesWithLeft
	c.LossyTakes = k.counts.lossyTakes
	c.Features[FeatureForeign] = k.counts.foreign
	for color, n := range k.judged {
		c.Verdicts[classOf(color)] += n
	}
}

// Add adds another history's figures.
func (c *Coverage) Add(o *Coverage) {
	c.Messages += o.Messages
	c.Steps += o.Steps
	c.Dispatches += o.Dispatches
	add(c.Moves, o.Moves)
	add(c.Faults, o.Faults)
	add(c.Alarms, o.Alarms)
	c.TakesWithLeft += o.TakesWithLeft
	c.MergesWithLeft += o.MergesWithLeft
	c.InDoubt += o.InDoubt
	c.Meanwhile += o.Meanwhile
	add(c.Features, o.Features)
	add(c.Whys, o.Whys)
	add(c.Buries, o.Buries)
	add(c.Verdicts, o.Verdicts)
	c.LossyTakes += o.LossyTakes
	c.Redelivered += o.Redelivered
}

func add[K comparable](to, from map[K]int) {
	for k, n := range from {
		to[k] += n
	}
}

// moveKinds lists all kinds of moves that a simulation makes.
func moveKinds() []consume.MoveKind {
	return []consume.MoveKind{
		consume.Create, consume.Take, consume.Release, consume.Split, consume.Merge, consume.Rewind,
	}
}

// Thin says what occurred too seldom: a kind of move or fault less often than common times,
// or one of the rare meetings less often than rare times.
func (c *Coverage) Thin(common, rare int) []string {
	var thin []string
	want := func(what string, n, least int) {
		if n < least {
			thin = append(thin, fmt.Sprintf("%s: %d times, want at least %d", what, n, least))
		}
	}
	for _, k := range moveKinds() {
		want("move "+string(k), c.Moves[k], common)
	}
	for _, f := range Faults() {
		want("fault "+string(f), c.Faults[f], common)
	}
	want("take with left", c.TakesWithLeft, rare)
	want("merge with left", c.MergesWithLeft, rare)
	want("move in doubt", c.InDoubt, rare)
	want("dispatch during a move", c.Meanwhile, common)
	for _, f := range Features() {
		want(string(f), c.Features[f], rare)
	}
	for _, w := range slices.Sorted(slices.Values(whys())) {
		want("move "+w, c.Whys[w], rare)
	}
	for _, b := range buryReasons() {
		want("bury "+string(b), c.Buries[b], rare)
	}
	for _, class := range classes() {
		want("verdict on "+class, c.Verdicts[class], rare)
	}
	return thin
}

// Print writes a table.
func (c *Coverage) Print(w io.Writer) {
	row := func(what string, n int) { fmt.Fprintf(w, "%-40s %12d\n", what, n) }
	row("messages", c.Messages)
	row("dispatches", c.Dispatches)
	row("steps", c.Steps)
	for _, k := range moveKinds() {
		row("move "+string(k), c.Moves[k])
	}
	row("take with left", c.TakesWithLeft)
	row("merge with left", c.MergesWithLeft)
	row("move in doubt", c.InDoubt)
	row("dispatch during a move", c.Meanwhile)
	row("take from a lost holder", c.LossyTakes)
	row("message dispatched again", c.Redelivered)
	for _, f := range Faults() {
		row("fault "+string(f), c.Faults[f])
	}
	for _, k := range slices.Sorted(maps.Keys(c.Alarms)) {
		row("alarm "+string(k), c.Alarms[k])
	}
	for _, f := range Features() {
		row(string(f), c.Features[f])
	}
	for _, k := range slices.Sorted(maps.Keys(c.Whys)) {
		row("move "+k, c.Whys[k])
	}
	for _, b := range buryReasons() {
		row("bury "+string(b), c.Buries[b])
	}
	for _, class := range classes() {
		row("verdict on "+class, c.Verdicts[class])
	}
}
