package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// TestMemoryApply: a write takes place only if everything that it compares is as it says,
// and then whole.
func TestMemoryApply(t *testing.T) {
	r := NewMemoryRegistry(MemoryRegistryConfig{})
	mine, other := r.Open(), r.Open()
	p := orders(0)
	do := func(w Write) Answer {
		w.Group, w.Partition, w.Session = "billing", p, mine
		return r.Apply(&w)
	}
	rec := func(h string) *Record { return &Record{Main: Holder{Session: h}} }
	note := func(pos int64, ifRev uint64) NoteWrite {
		return NoteWrite{Cursor: Main, Note: &Note{Pos: pos}, Compare: true, IfRevision: ifRev}
	}
	create := Write{Record: rec(mine), Notes: []NoteWrite{note(4, 0)}, Read: []lane.Name{Main}}
	a := do(create)
	if a.Outcome != Done || len(a.Notes) != 1 || a.Notes[0].Note.Pos != 4 || a.Revision != a.Notes[0].Revision {
		t.Fatalf("create: %+v", a)
	}
	rev, n := a.Revision, a.Notes[0].Revision
	for _, c := range []struct {
		name string
		w    Write
	}{
		{"a second create", create},
		{"another record's revision", Write{IfRevision: rev - 1, Record: rec(other)}},
		{"another note's revision", Write{IfRevision: rev, Record: rec(other), Notes: []NoteWrite{note(9, n-1)}}},
		{"a note that is said not to be there", Write{IfRevision: rev, Notes: []NoteWrite{note(9, 0)}}},
		{"the second note only", Write{IfRevision: rev, Notes: []NoteWrite{{Cursor: "green", Note: &Note{}, Compare: true}, note(9, 0)}}},
		{"a session that lives", Write{IfRevision: rev, Record: rec(mine), Gone: []string{other}}},
	} {
		a := do(c.w)
		if a.Outcome != Conflict || a.Revision != rev || a.Record == nil || a.Record.Main.Session != mine {
			t.Errorf("%s: %+v", c.name, a)
		}
		for _, s := range a.Notes {
			if s.Cursor == Main && (s.Revision != n || s.Note.Pos != 4) || s.Cursor == "green" && s.Note != nil {
				t.Errorf("%s: note %+v", c.name, s)
			}
		}
	}
	a = do(Write{IfRevision: rev, Notes: []NoteWrite{note(5, n)}})
	if a.Outcome != Done || a.Revision != rev || a.Notes[0].Revision <= n {
		t.Fatalf("a note: %+v: want the record's revision as it was", a)
	}
	if late := do(Write{IfRevision: rev, Notes: []NoteWrite{note(5, n)}}); late.Outcome != Conflict {
		t.Errorf("a copy of an answered note: %+v", late)
	}
	r.End(other)
	a = do(Write{
		IfRevision: rev, Record: rec(mine), Gone: []string{other}, Read: []lane.Name{"green", Main},
		Notes: []NoteWrite{{Cursor: "green", Note: &Note{Pos: 7}}},
	})
	if a.Outcome != Done || a.Revision <= rev || len(a.Notes) != 2 || a.Notes[0].Note.Pos != 7 || a.Notes[1].Note.Pos != 5 {
		t.Fatalf("a take with a split: %+v", a)
	}
	green := a.Notes[0].Revision
	a = do(Write{IfRevision: a.Revision, Record: rec(mine), Notes: []NoteWrite{{Cursor: "green"}}})
	if s := r.Note("billing", p, "green"); a.Outcome != Done || s.Note != nil || s.Revision != 0 {
		t.Fatalf("a merge: %+v leaves %+v", a, s)
	}
	a = do(Write{IfRevision: a.Revision, Record: rec(mine), Notes: []NoteWrite{{Cursor: "green", Note: &Note{Pos: 8}}}})
	if a.Outcome != Done || a.Notes[0].Revision <= green {
		t.Errorf("a note that is made anew has revision %d after %d", a.Notes[0].Revision, green)
	}
	if other := r.Apply(&Write{Group: "stock", Partition: p, Record: rec(mine)}); other.Outcome != Done {
		t.Errorf("another group's record is in the way: %+v", other)
	}
}

// picture is a view in short, as in "s1 s2 | e1@- e2@green/s2".
func picture(v *View) string {
	var sessions, members []string
	for s := range v.Sessions {
		sessions = append(sessions, s)
	}
	slices.Sort(sessions)
	for _, m := range v.Members {
		members = append(members, fmt.Sprintf("%s@%s/%s%v", m.ID, m.Lane, m.Session, m.Topics))
	}
	return strings.Join(sessions, " ") + " | " + strings.Join(members, " ")
}

func TestMemoryMembers(t *testing.T) {
	now := time.Unix(1000, 0)
	r := NewMemoryRegistry(MemoryRegistryConfig{Now: func() time.Time { return now }})
	want := func(want string) {
		t.Helper()
		if got := picture(r.View("billing")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s1, s2 := r.Open(), r.Open()
	join := func(id, session string, in lane.Name, topics ...string) error {
		return r.Join("billing", Member{ID: id, Session: session, Lane: in, Topics: topics})
	}
	if err := join("e1", s1, "green", "orders"); err == nil {
		t.Error("a lane that is not there has a member")
	}
	if err := r.CreateLane("green", lane.Baseline); err != nil {
		t.Fatal(err)
	}
	_ = join("e1", s1, "green", "orders", "bills")
	_ = join("e2", s2, lane.Baseline, "orders")
	want("s1 s2 | e1@green/s1[orders bills] e2@/s2[orders]")
	r.Leave("billing", "e1", 10*time.Second)
	want("s1 s2 | e2@/s2[orders] e1@green/[orders bills]")
	_ = join("e3", s2, "green", "orders")
	want("s1 s2 | e2@/s2[orders] e1@green/[bills] e3@green/s2[orders]")
	now = now.Add(10 * time.Second)
	want("s1 s2 | e2@/s2[orders] e3@green/s2[orders]")
	_ = join("e4", s1, "green", "orders")
	r.Leave("billing", "e3", time.Second) // another one stands for it
	want("s1 s2 | e2@/s2[orders] e4@green/s1[orders]")
	r.End(s1)
	want("s2 | e2@/s2[orders]")
	if err := join("e5", s1, lane.Baseline); err == nil {
		t.Error("a session that has ended has a member")
	}
	_ = r.EndLane("green")
	if v := r.View("billing"); !v.Lanes["green"].Ended {
		t.Errorf("lanes %+v", v.Lanes)
	}
	if err := join("e6", s2, "green", "orders"); err == nil {
		t.Error("a lane that is over has a member")
	}
	_ = r.CreateLane("green", lane.Baseline)
	if l := r.View("billing").Lanes["green"]; l.Ended || l.Generation != 2 {
		t.Errorf("created anew: %+v", l)
	}
	r.ForgetLane("green")
	_ = r.CreateLane("green", lane.Baseline)
	if l := r.View("billing").Lanes["green"]; l.Generation != 3 {
		t.Errorf("after it was forgotten: %+v", l)
	}
}

// TestMemoryProcessCutOff: a process takes its session for lost before the registry ends it,
// and goes on under a new one.
func TestMemoryProcessCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryRegistry(MemoryRegistryConfig{})
		a, b := r.Connect(), r.Connect()
		ctx := t.Context()
		if err := a.Join(ctx, "billing", Member{ID: "e1", Topics: []string{"orders"}}); err != nil {
			t.Fatal(err)
		}
		seen := b.Views(ctx, "billing")
		next := func() string {
			for u := range seen {
				if u.View != nil {
					return picture(u.View)
				}
			}
			return "no more"
		}
		if got, want := next(), "s1 s2 | e1@/s1[orders]"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		a.Cut()
		if _, err := a.Move(ctx, &Write{Group: "billing", Partition: orders(0)}); !errors.Is(err, ErrDoubt) {
			t.Errorf("a move out of reach: %v", err)
		}
		if _, err := a.Records(ctx, "billing"); err == nil {
			t.Error("records are read out of reach")
		}
		pass(6 * time.Second)
		if id, left := a.Session(); id != "s1" || left != time.Second {
			t.Errorf("after 6 s: %s for %s", id, left)
		}
		a.Mend()
		if id, left := a.Session(); id != "s1" || left != 7*time.Second {
			t.Errorf("in reach again: %s for %s", id, left)
		}
		a.Cut()
		begin := time.Now()
		pass(8 * time.Second)
		if id, left := a.Session(); id != "s1" || left != 0 {
			t.Errorf("after 8 s: %s for %s", id, left)
		}
		if got, want := next(), "s2 | "; got != want || time.Since(begin) != 10*time.Second {
			t.Errorf("got %q after %s, want %q after the TTL", got, time.Since(begin), want)
		}
		a.Mend()
		if got, want := next(), "s2 s3 | "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		// Cut off for longer than it trusts its lease, and back before it runs out.
		a.Cut()
		pass(8 * time.Second)
		a.Mend()
		if got, want := next(), "s2 s4 | "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		r.End("s4")
		if id, _ := a.Session(); id != "s5" {
			t.Errorf("after an end: %s", id)
		}
		a.Close()
		b.Close()
		if id, _ := b.Session(); id != "" {
			t.Errorf("closed: %s", id)
		}
	})
}

// TestMemoryProcessLosesAnswers: the write has taken place, and its repetition shows it.
func TestMemoryProcessLosesAnswers(t *testing.T) {
	r := NewMemoryRegistry(MemoryRegistryConfig{})
	p := r.Connect()
	p.LoseAnswers(1)
	id, _ := p.Session()
	w := &Write{Group: "billing", Partition: orders(0), Session: id, Record: &Record{Main: Holder{Session: id}}}
	if _, err := p.Move(t.Context(), w); !errors.Is(err, ErrDoubt) {
		t.Fatalf("a lost answer: %v", err)
	}
	a, err := p.Move(t.Context(), w)
	if err != nil || a.Outcome != Conflict || a.Record.Main.Session != id {
		t.Errorf("repeated: %+v, %v", a, err)
	}
}

// TestMemoryRevisionOfTheGone: who reads a record that names a session which had ended when
// it was written learns that the picture is as new as the record.
func TestMemoryRevisionOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryRegistry(MemoryRegistryConfig{})
		p := r.Connect()
		gone := r.Open()
		r.End(gone)
		seen := p.Views(t.Context(), "billing")
		<-seen
		r.Apply(&Write{Group: "billing", Partition: orders(0), Record: &Record{Main: Holder{Session: gone}}})
		u := <-seen
		if len(u.Records) != 1 || u.View != nil || u.Revision < u.Records[0].Revision {
			t.Errorf("update %+v", u)
		}
	})
}

// TestMemoryRegistryAllAtOnce: of many who write on one revision one succeeds, and every
// watcher comes to the last record by steps that go up.
func TestMemoryRegistryAllAtOnce(t *testing.T) {
	r := NewMemoryRegistry(MemoryRegistryConfig{})
	const processes, moves = 4, 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg, watchers sync.WaitGroup
	var done [processes]int
	for i := range processes {
		p := r.Connect()
		seen := p.Views(ctx, "billing")
		watchers.Go(func() {
			var last uint64
			for u := range seen {
				for _, s := range u.Records {
					if s.Revision <= last {
						t.Errorf("revision %d after %d", s.Revision, last)
					}
					last = s.Revision
					if s.Record.Reset == "end" {
						return
					}
				}
			}
			t.Errorf("process %d never saw the end", i)
		})
		wg.Go(func() {
			id, _ := p.Session()
			for rev := uint64(0); done[i] < moves; {
				a, err := p.Move(ctx, &Write{Group: "billing", Partition: orders(0), Session: id, IfRevision: rev, Record: &Record{Main: Holder{Session: id}}})
				if err != nil {
					t.Error(err)
					return
				}
				if a.Outcome == Done {
					done[i]++
				}
				rev = a.Revision
				_ = p.Join(ctx, "billing", Member{ID: id, Topics: []string{"orders"}})
			}
		})
	}
	wg.Wait()
	last := r.Records("billing")[0]
	r.Apply(&Write{Group: "billing", Partition: orders(0), IfRevision: last.Revision, Record: &Record{Reset: "end"}})
	watchers.Wait()
}
