package lane

import (
	"context"
	"fmt"
)

// Reason says why [Pick] chose as it did. The list is closed; the same words
// stand in API, logs, metrics and headers.
type Reason string

// Reasons of a choice.
const (
	ReasonPlain    Reason = "plain"             // plain traffic: the baseline
	ReasonLane     Reason = "lane-instance"     // the color's own lane has an instance
	ReasonParent   Reason = "parent"            // a lane further up the chain has one
	ReasonBaseline Reason = "baseline-fallback" // no lane of the chain has one
	ReasonUnknown  Reason = "unknown-color"     // no such lane: routed as plain, color passed on
	ReasonEnded    Reason = "ended-lane"        // the lane is over: routed as plain, color passed on
	ReasonStrict   Reason = "strict-instance"   // the strict lane has an instance
	ReasonStrictNo Reason = "strict-none"       // the strict lane has none: an error
	ReasonNone     Reason = "none"              // nobody serves: an error
)

// Choice is what [Pick] decided. Targets belong to the snapshot and must not be
// changed.
type Choice struct {
	Service string
	Color   Name      // the color asked for; it is passed on whatever Lane is
	Lane    Name      // the lane whose instances Targets are; zero: the baseline
	Targets []*Target // own room first; empty when Reason is an error
	Local   int       // how many of Targets, from the first on, are of the own room
	Reason  Reason
}

// Observer is told of a choice that was made for a call with ctx, and which of its targets
// the call goes to; a retry is told again. Client transports take one, for tracing. It must
// not block, and may be called at once.
type Observer func(ctx context.Context, c Choice, t *Target)

// NoInstanceError is returned by [Choice.Err] when nobody can serve a request.
type NoInstanceError struct {
	Service string
	Color   Name   // the color of the request
	Reason  Reason // ReasonNone or ReasonStrictNo
}

// Error names the service and, for a strict lane, the lane.
func (e *NoInstanceError) Error() string {
	if e.Reason == ReasonStrictNo {
		return fmt.Sprintf("no instance of %s in strict lane %s", e.Service, e.Color)
	}
	return fmt.Sprintf("no instance of %s in the baseline", e.Service)
}

// Err is nil if the choice has targets, and a [*NoInstanceError] if not.
func (c Choice) Err() error {
	if len(c.Targets) > 0 {
		return nil
	}
	return &NoInstanceError{Service: c.Service, Color: c.Color, Reason: c.Reason}
}

// Pick decides which instances of service may serve a request of the given color
// by the given protocol. It is pure, does not allocate, and its cost depends on
// the length of the color's chain of parents only, not on how many lanes there
// are. A chain that runs in a circle is walked until it repeats; one that meets a strict
// lane ends before it, since such a lane is nobody's parent.
//
// The rules:
//
//  1. The color of an ordinary lane: the instances of that lane, if the service
//     has any; else of its parent, and so on; else of the baseline.
//  2. The color of a strict lane: the instances of that lane, or none. Never the
//     baseline, also where the lane is not known: its name says that it is strict.
//  3. Plain: the instances of the baseline.
//  4. The color is passed on whatever lane serves (Choice.Color).
//  5. An ordinary color that nobody knows, or whose lane has ended, is routed as
//     plain and passed on.
//
// An instance counts while it is ready, belongs to the lane's present generation
// and has an endpoint of the protocol; a lane counts until it drains. Pick knows
// nothing of health: which of Targets gets the request, and whether an ejected
// one is left out, is the balancer's matter, but it never leaves the set. A nil
// snapshot knows nothing.
func Pick(s *Snapshot, service string, color Name, protocol string) Choice {
	c := Choice{Service: service, Color: color}
	var p *pool
	var known *laneEntry
	if s != nil {
		p = s.pool(service, protocol)
		if color != Baseline {
			known = s.known(color)
		}
	}
	switch {
	case color == Baseline:
		c.baseline(p, ReasonPlain)
	case color.Strict():
		if !c.from(known, p, ReasonStrict) {
			c.Reason = ReasonStrictNo
		}
	case known == nil:
		c.baseline(p, ReasonUnknown)
	case known.State == Ended:
		c.baseline(p, ReasonEnded)
	default:
		c.walk(s, known, p)
	}
	return c
}

// walk looks for targets in a lane, its parents and the baseline. Parents that run in a
// circle are met again at a mark, which moves on after 1, 2, 4, … steps (Brent's algorithm).
func (c *Choice) walk(s *Snapshot, e *laneEntry, p *pool) {
	if c.from(e, p, ReasonLane) {
		return
	}
	if p != nil && p.lanes.Len() > 0 {
		mark, steps, most := e, 0, 1
		for e = s.parent(e); e != nil && e != mark; e = s.parent(e) {
			if c.from(e, p, ReasonParent) {
				return
			}
			if steps++; steps == most {
				mark, steps, most = e, 0, 2*most
			}
		}
	}
	c.baseline(p, ReasonBaseline)
}

// from takes the targets of a lane, if there are any.
func (c *Choice) from(e *laneEntry, p *pool, reason Reason) bool {
	if e == nil || p == nil {
		return false
	}
	set := setOf(e.sets, p.id)
	if set == nil {
		return false
	}
	c.Lane, c.Targets, c.Local, c.Reason = e.Name, set.targets, set.local, reason
	return true
}

// baseline takes the targets of the baseline.
func (c *Choice) baseline(p *pool, reason Reason) {
	if p == nil || len(p.baseline.targets) == 0 {
		c.Reason = ReasonNone
		return
	}
	c.Targets, c.Local, c.Reason = p.baseline.targets, p.baseline.local, reason
}
