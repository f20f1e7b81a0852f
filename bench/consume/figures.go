package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// meter measures time and processor time between its begin and its end.
type meter struct {
	began time.Time
	used  int64
	// settled waits for what goes on when all have been counted; nil: nothing does.
	settled func() error
	cost
}

// cost is what a message took.
type cost struct {
	rate float64 // messages a second
	cpu  float64 // microseconds of processor time for a message
}

func (m *meter) begin() { m.began, m.used = time.Now(), processorTime() }

func (m *meter) end(messages int64) error {
	if m.settled != nil {
		if err := m.settled(); err != nil {
			return err
		}
	}
	m.rate = float64(messages) / time.Since(m.began).Seconds()
	m.cpu = float64(processorTime()-m.used) / 1000 / float64(messages)
	return nil
}

// processorTime is what the process has used so far, in nanoseconds.
func processorTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// kind is one line of a table: what takes turns with the others.
type kind struct {
	name  string
	turn  func(context.Context) (cost, error)
	costs []cost
}

// promise binds a kind to another one: rate at least so many times as high, processor time at
// most so many times; 0: nothing.
type promise struct {
	kind, peer *kind
	rate, cpu  float64
}

// takeTurns measures kinds in turns.
func takeTurns(ctx context.Context, rounds int, kinds ...*kind) error {
	for round := range rounds + 1 {
		for i := range kinds {
			k := kinds[(round+i)%len(kinds)] // nobody always comes after the same one
			runtime.GC()
			c, err := k.turn(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if round > 0 { // in the first one everything is new
				k.costs = append(k.costs, c)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round, rounds)
	}
	return nil
}

func (k *kind) values(of func(cost) float64) []float64 {
	out := make([]float64, len(k.costs))
	for i, c := range k.costs {
		out[i] = of(c)
	}
	return out
}

func rate(c cost) float64 { return c.rate }
func cpu(c cost) float64  { return c.cpu }

// against compares turns that were beside each other.
func (k *kind) against(peer *kind, of func(cost) float64) float64 {
	a, b := k.values(of), peer.values(of)
	for i := range a {
		a[i] /= b[i]
	}
	return median(a)
}

// table prints the kinds, then the promises, and reports whether they are kept.
func table(title string, kinds []*kind, promises []promise) (kept bool) {
	fmt.Printf("\n%-50s %12s %12s\n", title, "messages/s", "CPU us/msg")
	for _, k := range kinds {
		fmt.Printf("%-50s %12.0f %12.2f\n", k.name, median(k.values(rate)), median(k.values(cpu)))
	}
	kept = true
	for _, p := range promises {
		r, c := p.kind.against(p.peer, rate), p.kind.against(p.peer, cpu)
		note := ""
		if p.rate > 0 {
			note += fmt.Sprintf(", promised: messages/s at least %.2f", p.rate)
		}
		if p.cpu > 0 {
			note += fmt.Sprintf(", promised: CPU at most %.2f", p.cpu)
		}
		if p.rate > 0 && r < p.rate || p.cpu > 0 && c > p.cpu {
			note, kept = note+": BROKEN", false
		}
		fmt.Printf("%s ÷ %s: messages/s %.2f, CPU %.2f%s\n", p.kind.name, p.peer.name, r, c, note)
	}
	return kept
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// quantile of what was measured.
func quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
