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
	// Probes are messages that were appended to see that a stuck lane delays no other.
	Probes int
	// LostProbes are messages that were appended to see that a process without the registry
	// goes on, Lost those that such processes handed out.
	LostProbes, Lost int
	// LossyTakes are takes from a session that was gone, Redelivered messages that were
	// dispatched again by a holder.
	LossyTakes, Redelivered int
}

func newCoverage() Coverage {
	return Coverage{Moves: map[consume.MoveKind]int{}, Faults: map[Fault]int{}, Alarms: map[consume.AlarmKind]int{}}
}

// count takes in a write that took place.
func (c *Coverage) count(w *consume.Write) {
	for _, m := range w.Moves {
		c.Moves[m.Kind]++
	}
}

// finish takes in what the checker has counted.
func (c *Coverage) finish(k *checker) {
	c.Dispatches, c.Redelivered = k.counts.dispatches, k.counts.redelivered
	c.Faults[FaultZombie] = k.counts.zombies
	c.TakesWithLeft, c.MergesWithLeft = k.counts.takesWithLeft, k.counts.mergesWithLeft
	c.LossyTakes, c.Lost = k.counts.lossyTakes, k.counts.lost
}

// Add adds another history's figures.
func (c *Coverage) Add(o *Coverage) {
	c.Messages += o.Messages
	c.Steps += o.Steps
	c.Dispatches += o.Dispatches
	for k, n := range o.Moves {
		c.Moves[k] += n
	}
	for k, n := range o.Faults {
		c.Faults[k] += n
	}
	for k, n := range o.Alarms {
		c.Alarms[k] += n
	}
	c.TakesWithLeft += o.TakesWithLeft
	c.MergesWithLeft += o.MergesWithLeft
	c.InDoubt += o.InDoubt
	c.Meanwhile += o.Meanwhile
	c.Probes += o.Probes
	c.LostProbes += o.LostProbes
	c.Lost += o.Lost
	c.LossyTakes += o.LossyTakes
	c.Redelivered += o.Redelivered
}

// Moves lists all kinds of moves that a simulation makes.
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
	want("probe beside a stuck lane", c.Probes, common)
	want("probe without the registry", c.LostProbes, rare)
	want("dispatch without the registry", c.Lost, common)
	return thin
}

// Print writes a table.
func (c *Coverage) Print(w io.Writer) {
	row := func(what string, n int) { fmt.Fprintf(w, "%-28s %12d\n", what, n) }
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
	row("probe beside a stuck lane", c.Probes)
	row("probe without the registry", c.LostProbes)
	row("dispatch without the registry", c.Lost)
	row("take from a lost holder", c.LossyTakes)
	row("message dispatched again", c.Redelivered)
	for _, f := range Faults() {
		row("fault "+string(f), c.Faults[f])
	}
	for _, k := range slices.Sorted(maps.Keys(c.Alarms)) {
		row("alarm "+string(k), c.Alarms[k])
	}
}
