package cow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/laneway-dev/laneway/lane/internal/cow"
)

// check compares a Map with what it should hold.
func check(t *testing.T, m *cow.Map[string, int], want map[string]int) {
	t.Helper()
	if m.Len() != len(want) {
		t.Fatalf("%d values, want %d", m.Len(), len(want))
	}
	for k, v := range want {
		if got := m.Get(k); got == nil || *got != v {
			t.Fatalf("%s: got %v, want %d", k, got, v)
		}
	}
	seen := map[string]int{}
	for k, v := range m.All() {
		if _, twice := seen[k]; twice {
			t.Fatalf("%s is there twice", k)
		}
		seen[k] = *v
	}
	if !maps.Equal(seen, want) {
		t.Fatalf("all are %v, want %v", seen, want)
	}
}

// TestMapModel writes at random to a Map and to clones of it, which live on beside each
// other, and compares each with a plain map: no write shows anywhere else.
func TestMapModel(t *testing.T) {
	t.Parallel()
	type pair struct {
		m    cow.Map[string, int]
		want map[string]int
	}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		names := 1 + r.IntN(1500)
		growing := 1 + r.IntN(4) // of five writes
		pairs := []*pair{{want: map[string]int{}}}
		for step := range 4000 {
			p := pairs[r.IntN(len(pairs))]
			k := fmt.Sprintf("lane-%d", r.IntN(names))
			switch n := r.IntN(100); {
			case n == 0 && len(pairs) < 6:
				pairs = append(pairs, &pair{p.m.Clone(), maps.Clone(p.want)})
			case n == 1 && len(pairs) == 6:
				check(t, &pairs[0].m, pairs[0].want)
				pairs = pairs[1:]
			case n == 2:
				p.m.Seal()
			case n%5 < growing:
				v := step
				p.m.Put(k, &v)
				p.want[k] = v
			default:
				p.m.Delete(k)
				delete(p.want, k)
			}
		}
		for _, p := range pairs {
			check(t, &p.m, p.want)
			for n := range names {
				k := fmt.Sprintf("lane-%d", n)
				if _, there := p.want[k]; !there && p.m.Get(k) != nil {
					t.Fatalf("%s is there", k)
				}
			}
		}
	}
}

// TestMapSizes grows one Map value by value, and lets it shrink again.
func TestMapSizes(t *testing.T) {
	t.Parallel()
	var m cow.Map[string, int]
	want := map[string]int{}
	check(t, &m, want)
	name := func(n int) string { return fmt.Sprintf("lane-%d", n) }
	for n := range 1000 {
		m.Put(name(n), &n)
		want[name(n)] = n
		if n < 70 || n%100 == 0 {
			check(t, &m, want)
		}
	}
	for n := range 1000 {
		m.Delete(name(n))
		delete(want, name(n))
		if n > 930 || n%100 == 0 {
			check(t, &m, want)
		}
	}
	m.Delete("lane-1")
	check(t, &m, want)
}

func TestAllStops(t *testing.T) {
	t.Parallel()
	var m cow.Map[string, int]
	for n := range 10 {
		m.Put(fmt.Sprint(n), &n)
	}
	seen := 0
	for range m.All() {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d were seen", seen)
	}
}

// BenchmarkPut is one write to a map that is shared.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("values=%d", size), func(b *testing.B) {
			var m cow.Map[string, int]
			for n := range size {
				m.Put(fmt.Sprint(n), &n)
			}
			v := 1
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				c := m.Clone()
				c.Put("7", &v)
			}
		})
	}
}
