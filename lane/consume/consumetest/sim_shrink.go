package consumetest

import (
	"slices"
)

// Shrink gives a Config whose history still breaks the same rule and has less in it: without
// the ops, processes, kinds of faults and single messages that it does not need. A Config
// whose history breaks nothing comes back as it is.
func Shrink(cfg Config) Config {
	cfg.Trace = false
	first := Simulate(cfg)
	if first.Violation == nil {
		return cfg
	}
	s := &shrinker{cfg: cfg, rule: first.Violation.Rule, plan: makePlan(cfg.Seed, !cfg.NoFaults)}
	if cfg.edit != nil {
		cfg.edit(s.plan)
	}
	for before := -1; before != s.kept && s.runs < shrinkRuns; {
		before = s.kept
		s.ops()
		s.rates()
		s.procs()
	}
	best := *s.plan
	cfg.edit = func(p *plan) { *p = clonePlan(&best) }
	return cfg
}

// shrinkRuns bounds how many histories a shrink tries.
const shrinkRuns = 3000

type shrinker struct {
	cfg  Config
	rule string
	plan *plan
	runs int
	kept int // changes that were kept
}

func clonePlan(p *plan) plan {
	c := *p
	c.ops = slices.Clone(p.ops)
	c.procs = slices.Clone(p.procs)
	for i := range c.procs {
		c.procs[i] = slices.Clone(c.procs[i])
	}
	c.groups = slices.Clone(p.groups)
	return c
}

// try keeps a change if the history still breaks the rule.
func (s *shrinker) try(change func(*plan)) bool {
	if s.runs >= shrinkRuns {
		return false
	}
	s.runs++
	c := clonePlan(s.plan)
	change(&c)
	cfg := s.cfg
	cfg.edit = func(p *plan) { *p = clonePlan(&c) }
	r := Simulate(cfg)
	if r.Violation == nil || r.Violation.Rule != s.rule {
		return false
	}
	s.plan = &c
	s.kept++
	return true
}

// ops leaves out runs of ops, long ones first.
func (s *shrinker) ops() {
	for size := len(s.plan.ops); size > 0; size /= 2 {
		for at := 0; at < len(s.plan.ops); {
			to := min(at+size, len(s.plan.ops))
			if !s.try(func(p *plan) { p.ops = slices.Delete(p.ops, at, to) }) {
				at = to
			}
		}
	}
}

// rates lets kinds of faults, and whole features, not occur.
func (s *shrinker) rates() {
	for _, rate := range []func(*plan) *int{
		func(p *plan) *int { return &p.rates.lostRequest },
		func(p *plan) *int { return &p.rates.lostReply },
		func(p *plan) *int { return &p.rates.late },
		func(p *plan) *int { return &p.rates.copies },
		func(p *plan) *int { return &p.rates.slow },
		func(p *plan) *int { return &p.rates.stale },
		func(p *plan) *int { return &p.rates.fetch },
		func(p *plan) *int { return &p.rates.mirror },
		func(p *plan) *int { return &p.rates.slowConsumer },
		func(p *plan) *int { return &p.rates.giveBack },
		func(p *plan) *int { return &p.rates.fail },
		func(p *plan) *int { return &p.gaps },
	} {
		if *rate(s.plan) != 0 {
			s.try(func(p *plan) { *rate(p) = 0 })
		}
	}
	if s.plan.stuck != nil {
		s.try(func(p *plan) { p.stuck = nil })
	}
	if len(s.plan.groups) > 1 {
		s.try(func(p *plan) {
			p.groups = p.groups[:1]
			for i, ms := range p.procs {
				p.procs[i] = slices.DeleteFunc(ms, func(m memberPlan) bool { return m.group > 0 })
			}
		})
	}
	for _, after := range []func(*plan){
		func(p *plan) { p.groups[0].Filter = nil },
		func(p *plan) { p.groups[0].Ordered = false },
	} {
		s.try(after)
	}
}

// procs leaves out processes, the last first, and members.
func (s *shrinker) procs() {
	for len(s.plan.procs) > 1 && s.try(func(p *plan) { p.procs = p.procs[:len(p.procs)-1] }) {
	}
	for i := range s.plan.procs {
		for j := range slices.Backward(s.plan.procs[i]) {
			s.try(func(p *plan) { p.procs[i] = slices.Delete(p.procs[i], j, j+1) })
		}
	}
}
