package consumetest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

// memoryRegistry is one whose sessions run out within seconds; wrap may change what a process
// is given.
func memoryRegistry(wrap func(*consume.MemoryRegistry, *consume.MemoryProcess) consume.Connection) consumetest.Registry {
	r := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{TTL: 2 * time.Second, Margin: time.Second})
	var mu sync.Mutex
	inner := map[consume.Connection]*consume.MemoryProcess{}
	of := func(c consume.Connection) *consume.MemoryProcess {
		mu.Lock()
		defer mu.Unlock()
		return inner[c]
	}
	connect := func(_ context.Context, in lane.Name) (consume.Connection, error) {
		p := r.ConnectAs(consume.MemoryIdentity{Lane: in})
		var c consume.Connection = p
		if wrap != nil {
			c = wrap(r, p)
		}
		mu.Lock()
		defer mu.Unlock()
		inner[c] = p
		return c, nil
	}
	return consumetest.Registry{
		Connect:     connect,
		Brief:       func(ctx context.Context) (consume.Connection, error) { return connect(ctx, lane.Baseline) },
		CreateLane:  func(_ context.Context, name, parent lane.Name) error { return r.CreateLane(name, parent) },
		EndLane:     func(_ context.Context, name lane.Name) error { return r.EndLane(name) },
		SetGroup:    func(_ context.Context, name string, to consume.Group) error { r.SetGroup(name, to); return nil },
		End:         func(_ context.Context, session string) error { r.End(session); return nil },
		Cut:         func(c consume.Connection) { of(c).Cut() },
		Mend:        func(c consume.Connection) { of(c).Mend() },
		LoseAnswers: func(c consume.Connection, n int) { of(c).LoseAnswers(n) },
	}
}

func TestMemoryRegistry(t *testing.T) {
	consumetest.RunRegistry(t, func(*testing.T) consumetest.Registry { return memoryRegistry(nil) })
}

// registryFault is how a registry is broken.
type registryFault struct {
	move    func(x *brokenRegistry, w consume.Write) (consume.Answer, error)
	update  func(x *brokenRegistry, u consume.Update) []consume.Update
	session func(x *brokenRegistry, id string, left time.Duration) (string, time.Duration)
	records func(x *brokenRegistry, rs []consume.Stored) []consume.Stored
	enter   func(want, held consume.Settings) consume.Settings
}

// brokenRegistry changes what a process is told.
type brokenRegistry struct {
	*consume.MemoryProcess
	registryFault
	registry *consume.MemoryRegistry

	mu      sync.Mutex
	kept    string
	old     []consume.Stored
	answer  consume.Answer
	waiting []consume.Update
	updates int
}

func (x *brokenRegistry) Session() (string, time.Duration) {
	id, left := x.MemoryProcess.Session()
	if x.session == nil {
		return id, left
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.session(x, id, left)
}

func (x *brokenRegistry) Move(ctx context.Context, w *consume.Write) (consume.Answer, error) {
	if x.move == nil {
		return x.MemoryProcess.Move(ctx, w)
	}
	return x.move(x, *w)
}

func (x *brokenRegistry) Records(ctx context.Context, group string) ([]consume.Stored, error) {
	rs, err := x.MemoryProcess.Records(ctx, group)
	if err != nil || x.records == nil {
		return rs, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.records(x, rs), nil
}

func (x *brokenRegistry) Enter(ctx context.Context, group string, want consume.Settings) (consume.Settings, func(), error) {
	held, leave, err := x.MemoryProcess.Enter(ctx, group, want)
	if err == nil && x.enter != nil {
		held = x.enter(want, held)
	}
	return held, leave, err
}

func (x *brokenRegistry) Views(ctx context.Context, group string) <-chan consume.Update {
	in := x.MemoryProcess.Views(ctx, group)
	if x.update == nil {
		return in
	}
	out := make(chan consume.Update)
	go func() {
		defer close(out)
		for u := range in {
			for _, u := range x.update(x, u) {
				select {
				case out <- u:
				case <-ctx.Done():
					return
				}
			}
			x.updates++
		}
	}()
	return out
}

// TestRegistrySuiteIsStrict: each registry that breaks a promise fails the suite, at the check
// that is for it.
func TestRegistrySuiteIsStrict(t *testing.T) {
	through := func(change func(w *consume.Write)) func(*brokenRegistry, consume.Write) (consume.Answer, error) {
		return func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			w.Notes = slices.Clone(w.Notes)
			change(&w)
			return x.MemoryProcess.Move(context.Background(), &w)
		}
	}
	answered := func(change func(a *consume.Answer)) func(*brokenRegistry, consume.Write) (consume.Answer, error) {
		return func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			a, err := x.MemoryProcess.Move(context.Background(), &w)
			change(&a)
			return a, err
		}
	}
	seen := func(change func(v *consume.View)) func(*brokenRegistry, consume.Update) []consume.Update {
		return func(_ *brokenRegistry, u consume.Update) []consume.Update {
			if u.View != nil {
				v := *u.View
				v.Lanes, v.Members = maps.Clone(v.Lanes), slices.Clone(v.Members)
				change(&v)
				u.View = &v
			}
			return []consume.Update{u}
		}
	}
	for _, c := range []struct {
		name, check string
		fault       registryFault
	}{
		{"answers are mixed up", "MovesAtOnce", registryFault{move: func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			a, err := x.MemoryProcess.Move(context.Background(), &w)
			x.mu.Lock()
			defer x.mu.Unlock()
			if w.Partition.Index > 0 {
				a, x.answer = x.answer, a
			}
			return a, err
		}}},
		{"a lane that has ended lives", "Lanes", registryFault{update: seen(func(v *consume.View) {
			for name, l := range v.Lanes {
				l.Ended = false
				v.Lanes[name] = l
			}
		})}},
		{"who left with grace does not count", "Grace", registryFault{update: seen(func(v *consume.View) {
			v.Members = slices.DeleteFunc(v.Members, func(m consume.Member) bool { return m.Session == "" })
		})}},
		{"groups have all members", "Groups", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			all := seen(func(v *consume.View) { v.Members = append(v.Members, x.registry.View("billing").Members...) })
			return all(x, u)
		}}},
		{"groups have all records", "Groups", registryFault{records: func(x *brokenRegistry, rs []consume.Stored) []consume.Stored {
			return append(rs, x.registry.Records("billing")...)
		}}},
		{"each has settings of its own", "Settings", registryFault{enter: func(want, _ consume.Settings) consume.Settings { return want }}},
		{"no topic is added", "Settings", registryFault{enter: func(_, held consume.Settings) consume.Settings {
			held.Topics = held.Topics[:1]
			return held
		}}},
		{"a note's revision is not compared", "Moves", registryFault{move: through(func(w *consume.Write) {
			for i := range w.Notes {
				w.Notes[i].Compare = false
			}
		})}},
		{"only the first note is compared", "Moves", registryFault{move: through(func(w *consume.Write) {
			for i := range w.Notes {
				w.Notes[i].Compare = w.Notes[i].Compare && i == 0
			}
		})}},
		{"sessions that must be gone are not looked at", "EndedSession", registryFault{move: through(func(w *consume.Write) { w.Gone = nil })}},
		{"a dead session writes", "EndedSession", registryFault{move: func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			return x.registry.Apply(&w), nil
		}}},
		{"the record's revision is not compared", "Moves", registryFault{move: func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			for _, s := range x.registry.Records(w.Group) {
				if s.Partition == w.Partition {
					w.IfRevision = s.Revision
				}
			}
			return x.MemoryProcess.Move(context.Background(), &w)
		}}},
		{"notes are left out", "Moves", registryFault{move: through(func(w *consume.Write) { w.Notes = nil })}},
		{"a refusal shows no notes", "Moves", registryFault{move: answered(func(a *consume.Answer) {
			if a.Outcome == consume.Conflict {
				a.Notes = nil
			}
		})}},
		{"a refusal shows no record", "Moves", registryFault{move: answered(func(a *consume.Answer) { a.Record = nil })}},
		{"no answer counts as done", "Doubt", registryFault{move: func(x *brokenRegistry, w consume.Write) (consume.Answer, error) {
			a, _ := x.MemoryProcess.Move(context.Background(), &w)
			return a, nil
		}}},
		{"records are stale", "Records", registryFault{records: func(x *brokenRegistry, rs []consume.Stored) []consume.Stored {
			old := x.old
			x.old = rs
			return old
		}}},
		{"a session rises again", "LostSession", registryFault{session: func(x *brokenRegistry, id string, left time.Duration) (string, time.Duration) {
			if x.kept == "" {
				x.kept = id
			}
			if id != x.kept {
				left = time.Second
			}
			return x.kept, left
		}}},
		{"a session lasts for ever", "LostSession", registryFault{session: func(_ *brokenRegistry, id string, _ time.Duration) (string, time.Duration) {
			return id, time.Hour
		}}},
		{"updates out of order", "Updates", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			x.waiting = append(x.waiting, u)
			if x.updates > 0 && len(x.waiting) < 2 {
				return nil
			}
			out := x.waiting
			x.waiting = nil
			slices.Reverse(out)
			return out
		}}},
		{"records get lost on the way", "Updates", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			if x.updates > 0 {
				u.Records = nil
			}
			return []consume.Update{u}
		}}},
		{"members get lost on the way", "Members", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			if x.updates > 0 {
				u.View = nil
			}
			return []consume.Update{u}
		}}},
		{"the first update is a part", "FirstUpdate", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			if x.updates == 0 && len(u.Records) > 1 {
				return []consume.Update{{View: u.View, Records: u.Records[:1]}, {Records: u.Records[1:]}}
			}
			return []consume.Update{u}
		}}},
		{"no progress is told", "Progress", registryFault{update: func(_ *brokenRegistry, u consume.Update) []consume.Update {
			u.Revision = 0
			return []consume.Update{u}
		}}},
		{"views are changed", "ViewsStay", registryFault{update: func(x *brokenRegistry, u consume.Update) []consume.Update {
			if u.View == nil {
				return []consume.Update{u}
			}
			if x.waiting == nil {
				c := *u.View
				x.waiting = []consume.Update{{View: &c}}
			}
			shown := x.waiting[0].View
			if x.updates > 0 {
				for id := range shown.Sessions {
					if !u.View.Sessions[id] {
						delete(shown.Sessions, id)
					}
				}
			}
			return []consume.Update{u}
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { strict(t, c.check, c.fault) })
		})
	}
}

// strict sees to it that a check does not pass a registry that is broken.
func strict(t *testing.T, check string, fault registryFault) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // some wait for what never comes
	defer cancel()
	failed := consumetest.CheckRegistry(ctx, func() (consumetest.Registry, error) {
		return memoryRegistry(func(r *consume.MemoryRegistry, p *consume.MemoryProcess) consume.Connection {
			return &brokenRegistry{MemoryProcess: p, registry: r, registryFault: fault}
		}), nil
	}, check)
	if failed[check] == nil {
		t.Errorf("check %s passes", check)
	}
}
