package lane

import "fmt"

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
// are.
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
	c := Choice{Service: service, Color: color, Reason: ReasonPlain}
	var p *pool
	if s != nil {
		p = s.pools[poolKey{service, protocol}]
	}
	if color == Baseline {
		return c.fromBaseline(p, ReasonPlain)
	}
	var known *laneEntry
	if s != nil {
		known = s.lanes[color]
	}
	if color.Strict() {
		if c.from(p, known) {
			c.Reason = ReasonStrict
		} else {
			c.Reason = ReasonStrictNo
		}
		return c
	}
	switch {
	case known == nil:
		return c.fromBaseline(p, ReasonUnknown)
	case known.State == Ended:
		return c.fromBaseline(p, ReasonEnded)
	case p == nil || len(p.lanes) == 0:
		return c.fromBaseline(p, ReasonBaseline)
	}
	if c.from(p, known) {
		c.Reason = ReasonLane
		return c
	}
	for e, left := known.parent, known.steps-1; left > 0; e, left = e.parent, left-1 {
		if c.from(p, e) {
			c.Reason = ReasonParent
			return c
		}
	}
	return c.fromBaseline(p, ReasonBaseline)
}

// from fills in the targets of a lane, if there are any.
func (c *Choice) from(p *pool, e *laneEntry) bool {
	if p == nil || e == nil {
		return false
	}
	set, ok := p.lanes[e]
	if !ok {
		return false
	}
	c.Lane, c.Targets, c.Local = e.Name, set.targets, set.local
	return true
}

func (c Choice) fromBaseline(p *pool, reason Reason) Choice {
	if p == nil || len(p.baseline.targets) == 0 {
		c.Reason = ReasonNone
		return c
	}
	c.Targets, c.Local, c.Reason = p.baseline.targets, p.baseline.local, reason
	return c
}
