// Package turns compares what kinds of call cost: processor time of client and server, which
// are both this process. The kinds take turns, so that what else the machine does falls on all
// of them alike, and the median turn counts.
package turns

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Callers is how many goroutines make calls at once.
const Callers = 8

// callTimeout is the deadline of one call.
const callTimeout = 10 * time.Second

// Kind is one kind of call.
type Kind struct {
	Name     string
	Ctx      context.Context //nolint:containedctx // its color makes the kind
	Call     func(ctx context.Context, caller int) error
	Promised float64 // ratio to the kind that it is compared with; 0: none

	took []float64 // nanoseconds of processor time for a call, turn by turn
}

// Take has each kind make its calls, in as many rounds.
func Take(kinds []*Kind, rounds, calls int) error {
	return Rounds(rounds, kinds, func(k *Kind, counts bool) error {
		took, err := k.turn(calls)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		if counts {
			k.took = append(k.took, took)
		}
		return nil
	})
}

// Rounds has kinds take turns: one round that does not count, since everything is new in it,
// and then as many as are asked for.
func Rounds[K any](rounds int, kinds []K, turn func(k K, counts bool) error) error {
	for round := range rounds + 1 {
		for i := range kinds {
			runtime.GC()
			if err := turn(kinds[(round+i)%len(kinds)], round > 0); err != nil { // nobody always comes after the same one
				return err
			}
		}
	}
	return nil
}

// turn makes calls and returns the processor time of one in nanoseconds.
func (k *Kind) turn(calls int) (float64, error) {
	before, err := ProcessorTime()
	if err != nil {
		return 0, err
	}
	var group sync.WaitGroup
	errs := make(chan error, Callers)
	for i := range Callers {
		group.Go(func() {
			for range calls / Callers {
				ctx, cancel := context.WithTimeout(k.Ctx, callTimeout)
				err := k.Call(ctx, i)
				cancel()
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	after, err := ProcessorTime()
	return float64(after-before) / float64(calls/Callers*Callers), err
}

// ProcessorTime is what the process has used so far.
func ProcessorTime() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// Compare writes what each kind cost, beside the peer, and whether all promises are kept.
func Compare(w io.Writer, kinds []*Kind, peer *Kind) (kept bool) {
	fmt.Fprintf(w, "%-36s %12s %18s %10s\n", "processor time, client and server", "us per call", "to "+peer.Name, "promised")
	kept = true
	for _, k := range kinds {
		ratio, promise := Median(Ratios(k.took, peer.took)), ""
		if k.Promised > 0 {
			promise = fmt.Sprintf("%10.2f  kept", k.Promised)
			if ratio > k.Promised {
				promise, kept = fmt.Sprintf("%10.2f  broken", k.Promised), false
			}
		}
		fmt.Fprintf(w, "%-36s %12.2f %18.3f %s\n", k.Name, Median(k.took)/1000, ratio, promise)
	}
	return kept
}

// Ratios compares turns that were beside each other.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// Median is that of values, of which there is one at least.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Quantile is that of values, of which there is one at least.
func Quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
