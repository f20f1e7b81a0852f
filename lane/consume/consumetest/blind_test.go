package consumetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// blindSeeds is how many seeds show that a simulation sees nothing. Bounds of what is common are a
// fifth of CI's, in proportion to the seeds.
const (
	blindSeeds = 300
	blindFrom  = 601 // among them the rarest occur, such as a copy that the engine stores
)

// TestBlindSimulations: a simulation in which nothing goes wrong, and one whose scheduler
// never interleaves, are caught by the bounds of what has to occur; the real one is not.
func TestBlindSimulations(t *testing.T) {
	common, rare := max(ciCommon*blindSeeds/ciSeeds/5, 2), 1 // a fifth, since rare things come in crowds
	for _, c := range []struct {
		name  string
		cfg   Config
		blind bool
	}{
		{"the real one", Config{}, false},
		{"nothing goes wrong", Config{NoFaults: true}, true},
		{"nothing interleaves", Config{Sequential: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cover, bad := sweep(blindFrom, blindSeeds, c.cfg)
			if bad != nil {
				t.Fatalf("seed %d: %s", bad.Seed, bad.Violation)
			}
			thin := cover.Thin(common, rare)
			t.Logf("%d bounds are not met: %s", len(thin), strings.Join(thin, "; "))
			if c.blind != (len(thin) > 0) {
				t.Errorf("%d bounds are not met", len(thin))
			}
			if fault := func(s string) bool { return strings.HasPrefix(s, "fault ") }; c.cfg.NoFaults && !slices.ContainsFunc(thin, fault) {
				t.Error("no fault is missed")
			}
		})
	}
}

// TestCheckerForgetsNoColor: whatever its color, a message that a note settles before it is
// settled is seen, and one that nobody is given in the end.
func TestCheckerForgetsNoColor(t *testing.T) {
	for _, color := range append([]lane.Name{lane.Baseline, strictLane, strictNone}, ordinary...) {
		h := newHistory(nil)
		h.append(color)
		h.land(h.p, nil, map[lane.Name]*consume.Note{consume.Main: noteOf(1)})
		if v := h.k.violation; v == nil || v.Rule != "I1" {
			t.Errorf("%q: a note settles what is not settled, and the checker says %v", color, v)
		}
		if color.Strict() {
			continue // it waits for its lane
		}
		h = newHistory(nil)
		h.append(color)
		h.see(h.p, lane.Baseline)
		members := h.p.view.Members
		members[0].Generation = 0
		got := h.k.atRest(&truth{
			lanes:  h.p.view.Lanes,
			groups: []truthGroup{{partitions: map[string]int32{"orders": 1}, members: members}},
			alive:  func(s string) bool { return h.alive[s] }, actors: []*actor{h.p, h.q},
		})
		if got == nil || got.rule != "I1" {
			t.Errorf("%q: nobody is given a message, and the checker says %+v", color, got)
		}
	}
}

// featureSeeds are enough, since what is left out does not occur at all.
const featureSeeds = 40

// TestBlindToAFeature leaves one feature out of the simulation at a time, and demands that the
// bounds which stand for it are missed.
func TestBlindToAFeature(t *testing.T) {
	strict := func(p *plan) { p.without(lane.Name.Strict) }
	groups := func(change func(*consume.Config)) func(*plan) {
		return func(p *plan) {
			for i := range p.groups {
				change(&p.groups[i])
			}
		}
	}
	start := groups(func(c *consume.Config) { c.Start = consume.Start{} })
	type blindness struct {
		name   string
		edit   func(*plan)
		bounds []string
	}
	cases := []blindness{
		{"no strict lanes", strict, []string{
			string(FeatureStrict), "verdict on strict", "bury strict-lane-ended", "move take: strict-lane-is-over",
		}},
		{"no strict color without a lane", func(p *plan) { p.without(func(l lane.Name) bool { return l == strictNone }) }, []string{
			"verdict on strict without a lane",
		}},
		{"no color without a lane", func(p *plan) { p.without(func(l lane.Name) bool { return l == noLane }) }, []string{
			string(FeatureNoLane), "verdict on without a lane",
		}},
		{"no parents", func(p *plan) {
			for i := range p.parents {
				p.parents[i] = -1
			}
		}, []string{string(FeatureParent)}},
		{"no stuck lane", func(p *plan) { p.stuck = nil }, []string{string(FeatureProbe)}},
		{"no gaps", func(p *plan) { p.gaps = 0 }, []string{string(FeatureGap)}},
		{"no filter in the engine", func(p *plan) { p.filters = false }, []string{string(FeatureFilter)}},
		{"bounds with every batch", func(p *plan) { p.bounds = true }, []string{string(FeatureNoBounds)}},
		{"every engine knows copies", func(p *plan) { p.dedups = true }, []string{string(FeatureCopy)}},
		{"no engine knows copies", func(p *plan) { p.dedups = false }, []string{string(FeatureKnownCopy)}},
		{"always a baseline in the end", func(p *plan) { p.bareEnd = false }, []string{string(FeatureBareEnd)}},
		{"all are up in the end", func(p *plan) { p.downInEnd = false }, []string{string(FeatureDownInEnd)}},
		{"one group", func(p *plan) {
			p.groups = p.groups[:1]
			for i, ms := range p.procs {
				p.procs[i] = slices.DeleteFunc(ms, func(m memberPlan) bool { return m.group > 0 })
			}
		}, []string{string(FeatureSecondGroup)}},
		{"one topic", func(p *plan) {
			for i := range p.groups {
				p.groups[i].Topics = p.groups[i].Topics[:1]
			}
			for i := range p.procs {
				for j := range p.procs[i] {
					p.procs[i][j].topics = []int{0}
				}
			}
		}, []string{string(FeatureSecondTopic)}},
		{"all begin at the first offset", start, []string{string(FeatureLatest), string(FeatureTime), string(FeatureOffset)}},
		{"no window of few bytes", groups(func(c *consume.Config) { c.WindowBytes = 0 }), []string{string(FeatureBytes)}},
		{"no bursts", func(p *plan) { p.bursts = false }, []string{string(FeatureBurst)}},
		{"no color that is no name", func(p *plan) { p.without(func(l lane.Name) bool { return !l.Valid() }) }, []string{"verdict on that is no name"}},
		{"no rooms", func(p *plan) { p.rooms = false }, []string{string(FeatureRoom)}},
		{"no write is bounded", groups(func(c *consume.Config) { c.MaxMoves = 0 }), []string{string(FeatureFewMoves)}},
		{"no filter of a group", groups(func(c *consume.Config) { c.Filter = nil }), []string{string(FeatureForeign)}},
		{"no ordered group", groups(func(c *consume.Config) { c.Ordered = false }), []string{string(FeatureOrdered)}},
		{"no retries", groups(func(c *consume.Config) { c.RetryDelays = nil }), []string{string(FeatureRetry)}},
		{"all groups hold", groups(func(c *consume.Config) { c.OnLoss = consume.LossHold }), []string{
			string(FeatureLost), string(FeatureLostProbe), "fault lost-continue",
		}},
		{"nothing is given back", func(p *plan) { p.rates.giveBack = 0 }, []string{string(FeatureGivenBack)}},
		{"consumers begin with all that they get", func(p *plan) { p.eager = true }, []string{string(FeatureRecalled)}},
		{"nothing fails", func(p *plan) { p.rates.fail = 0 }, []string{
			string(FeatureFailed), string(FeatureRetry), "bury attempts-used-up",
		}},
		{"no pause", func(p *plan) {
			p.ops = slices.DeleteFunc(p.ops, func(o op) bool { return o.kind == opGroupPause })
		}, []string{string(FeaturePaused)}},
		{"no reset", func(p *plan) {
			p.apart = true
			p.ops = slices.DeleteFunc(p.ops, func(o op) bool { return o.kind == opReset })
		}, []string{"move reset: reset", "move release: reset", string(FeatureCalledOff)}},
		{"no news are told at once", func(p *plan) { p.alone = true }, []string{string(FeatureSeveral), string(FeatureAnswers)}},
		{"no grace", func(p *plan) { p.graceless = true }, []string{string(FeatureGrace)}},
		{"nothing is made to meet", func(p *plan) { p.apart = true }, []string{
			string(FeatureSqueezed), string(FeatureLateWord), string(FeatureRevived),
		}},
		{"nobody stops", func(p *plan) {
			p.ops = slices.DeleteFunc(p.ops, func(o op) bool { return o.kind == opStop })
		}, []string{"move release: stopping"}},
	}
	for _, f := range Features() {
		if !slices.ContainsFunc(cases, func(c blindness) bool { return slices.Contains(c.bounds, string(f)) }) {
			t.Errorf("nobody looks whether %q can be missed", f)
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cover, bad := sweep(1, featureSeeds, Config{edit: c.edit})
			if bad != nil {
				t.Fatalf("seed %d: %s", bad.Seed, bad.Violation)
			}
			thin := cover.Thin(1, 1)
			for _, b := range c.bounds {
				if !slices.ContainsFunc(thin, func(s string) bool { return strings.HasPrefix(s, b+": 0 times") }) {
					t.Errorf("%q is not missed, but %s", b, strings.Join(thin, "; "))
				}
			}
		})
	}
}

// without leaves out lanes and colors.
func (p *plan) without(is func(lane.Name) bool) {
	p.colors = slices.DeleteFunc(p.colors, is)
	for i, l := range slices.Backward(p.lanes) {
		if is(l) { // none is a parent
			p.lanes = slices.Delete(p.lanes, i, i+1)
			p.parents, p.up = slices.Delete(p.parents, i, i+1), slices.Delete(p.up, i, i+1)
		}
	}
	for i, ms := range p.procs {
		p.procs[i] = slices.DeleteFunc(ms, func(m memberPlan) bool { return is(m.lane) })
	}
	if p.stuck != nil && is(*p.stuck) {
		p.stuck = nil
	}
}
