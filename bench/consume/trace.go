package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// trace notes when each step of a hand-over was first seen, in any partition. A nil one notes
// nothing.
type trace struct {
	mu     sync.Mutex
	began  time.Time
	marks  map[string]time.Duration // of the present hand-over
	starts map[string][]time.Duration
	stops  map[string][]time.Duration
}

func newTrace() *trace {
	return &trace{starts: map[string][]time.Duration{}, stops: map[string][]time.Duration{}}
}

func (t *trace) begin(at time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.marks = at, map[string]time.Duration{}
}

// end keeps what was noted as that of a start, or of a stop.
func (t *trace) end(start bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	to := t.stops
	if start {
		to = t.starts
	}
	for step, took := range t.marks {
		to[step] = append(to[step], took)
	}
	t.marks = nil
}

func (t *trace) mark(by lane.Name, step string) {
	if t == nil {
		return
	}
	at := time.Now()
	who := "baseline: "
	if by != lane.Baseline {
		who = "lane: "
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, seen := t.marks[who+step]; !seen && t.marks != nil {
		t.marks[who+step] = at.Sub(t.began)
	}
}

// observe notes moves of the lane's color, and when a side saw the lane's member come and go.
func (t *trace) observe(by lane.Name, e consume.Event, actions []consume.Action) {
	if t == nil {
		return
	}
	switch e := e.(type) {
	case *consume.Joined:
		t.mark(by, "joined")
	case *consume.Viewed:
		t.viewed(by, e.View)
	case *consume.Several:
		for _, one := range e.Events {
			if v, ok := one.(*consume.Viewed); ok {
				t.viewed(by, v.View)
			}
		}
	}
	for _, a := range actions {
		switch a := a.(type) {
		case *consume.Propose:
			t.moves(by, a.Write, "asked for")
		case *consume.Moved:
			t.moves(by, a.Write, "done")
		case *consume.Fetch:
			if a.Cursor == green {
				t.mark(by, "first fetch begins")
			}
		}
	}
}

func (t *trace) viewed(by lane.Name, v *consume.View) {
	if slices.ContainsFunc(v.Members, func(m consume.Member) bool { return m.Lane == green }) {
		t.mark(by, "a view with the lane's member")
	} else {
		t.mark(by, "a view without the lane's member")
	}
}

func (t *trace) moves(by lane.Name, w *consume.Write, what string) {
	for _, m := range w.Moves {
		if m.Cursor == green {
			t.mark(by, string(m.Kind)+" "+what)
		}
	}
}

// table writes the steps of starts and stops in the order of their medians.
func (t *trace) table() {
	if t == nil {
		return
	}
	for _, of := range []struct {
		name  string
		steps map[string][]time.Duration
	}{{"start", t.starts}, {"stop", t.stops}} {
		var names []string
		for step := range of.steps {
			names = append(names, step)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Compare(turns.Quantile(of.steps[a], 0.5), turns.Quantile(of.steps[b], 0.5))
		})
		for _, step := range names {
			took := of.steps[step]
			fmt.Printf("    %-46s %9s %9s   %d\n", of.name+", "+step, round(turns.Quantile(took, 0.5)), round(turns.Quantile(took, 0.99)), len(took))
		}
	}
}
