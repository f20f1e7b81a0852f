package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/bench/turns"
)

// meter measures time and processor time between its begin and its end.
type meter struct {
	began time.Time
	used  time.Duration
	// failed is why begin could not measure.
	failed error
	// settled waits for what goes on when all have been counted; nil: nothing does.
	settled func() error
	cost
}

// cost is what a message took.
type cost struct {
	rate float64 // messages a second
	cpu  float64 // microseconds of processor time for a message
}

// begin starts the clock; an error of it is told by end.
func (m *meter) begin() {
	m.began = time.Now()
	m.used, m.failed = turns.ProcessorTime()
}

func (m *meter) end(messages int64) error {
	if m.settled != nil {
		if err := m.settled(); err != nil {
			return err
		}
	}
	m.rate = float64(messages) / time.Since(m.began).Seconds()
	used, err := turns.ProcessorTime()
	m.cpu = float64(used-m.used) / 1000 / float64(messages)
	return errors.Join(m.failed, err)
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
	return turns.Rounds(rounds, kinds, func(k *kind, counts bool) error {
		c, err := k.turn(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if counts {
			k.costs = append(k.costs, c)
		}
		return nil
	})
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
	return turns.Median(turns.Ratios(k.values(of), peer.values(of)))
}

// table prints the kinds, then the promises, and reports whether they are kept.
func table(title string, kinds []*kind, promises []promise) (kept bool) {
	fmt.Printf("\n%-50s %12s %12s\n", title, "messages/s", "CPU us/msg")
	for _, k := range kinds {
		fmt.Printf("%-50s %12.0f %12.2f\n", k.name, turns.Median(k.values(rate)), turns.Median(k.values(cpu)))
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
