package lane

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAssignmentIsNextAndDone runs two balancers through the same random requests, one by
// assignments and one by targets: they give the same targets all along.
func TestAssignmentIsNextAndDone(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		policy := Policy(r.IntN(2))
		a, b := steady(policy), steady(policy)
		members := []Instance{{Weight: 2}, {Room: "far"}, {}, {}}
		c := choiceOf(t, "", members...)
		type request struct {
			a Assignment
			b *Target
		}
		var under []request
		now := t0
		clock := func() time.Time { return now }
		for range 300 {
			switch n := r.IntN(10); {
			case n < 5:
				var avoid func(*Target) bool
				if n == 0 {
					avoid = func(t *Target) bool { return t.Name == "i1" }
				}
				next := request{a.Assign(c, now, avoid), b.Next(c, now, avoid)}
				if next.a.Target != next.b {
					t.Fatalf("seed %d: assigned to %v, next is %v", seed, next.a.Target, next.b)
				}
				under = append(under, next)
			case n < 8 && len(under) > 0:
				i := r.IntN(len(under))
				o := []Outcome{Success, Success, Failure, Failure, Refused, Neutral}[r.IntN(6)]
				under[i].a.Done(o, clock)
				b.Done(under[i].b, o, now)
				under = append(under[:i], under[i+1:]...)
			case n == 8:
				now = now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
			default:
				c = choiceOf(t, "", members...) // the next snapshot
			}
		}
	}
}

func TestAssignmentOfNobody(t *testing.T) {
	b := steady(RoundRobin)
	a := b.Assign(choiceOf(t, "", Instance{}), t0, func(*Target) bool { return true })
	if a.Target != nil {
		t.Errorf("got %v of none", a.Target)
	}
	a.Done(Failure, time.Now)
	b.Assign(Choice{}, t0, nil).Done(Failure, time.Now)
}

// TestAssignmentAsksForTimeInTroubleOnly is what an assignment is for.
func TestAssignmentAsksForTimeInTroubleOnly(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	asked := 0
	clock := func() time.Time { asked++; return t0 }
	done := func(o Outcome) { b.Assign(c, t0, nil).Done(o, clock) }
	done(Success)
	done(Neutral)
	if asked != 0 {
		t.Errorf("asked for the time %d times where all is well", asked)
	}
	done(Failure) // of i0
	done(Success) // of i1
	done(Success) // of i0, which is in trouble
	if asked != 2 {
		t.Errorf("asked for the time %d times, want 2", asked)
	}
	done(Success)
	done(Success)
	if asked != 2 {
		t.Error("a target that is well again is still looked up")
	}
}
