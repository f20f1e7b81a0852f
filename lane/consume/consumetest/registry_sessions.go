package consumetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// checkLanes: views follow lanes, and a lane that is made anew is another generation.
func checkLanes(ctx context.Context, r Registry) error {
	a, _, err := r.two(ctx)
	if err != nil {
		return err
	}
	seen := a.watch(ctx)
	for _, l := range [][2]lane.Name{{"green", ""}, {"mint", "green"}, {"strict-load", ""}} {
		if err := r.CreateLane(ctx, l[0], l[1]); err != nil {
			return err
		}
	}
	is := func(name, parent lane.Name, generation uint64, ended bool) func() bool {
		return func() bool {
			l, ok := seen.view.Lanes[name]
			return ok && l == consume.Lane{Parent: parent, Generation: generation, Ended: ended}
		}
	}
	for name, parent := range map[lane.Name]lane.Name{"green": "", "mint": "green", "strict-load": ""} {
		if err := seen.await(ctx, "lane "+string(name), is(name, parent, 1, false)); err != nil {
			return err
		}
	}
	if err := r.EndLane(ctx, "mint"); err != nil {
		return err
	}
	return seen.await(ctx, "the end of lane mint", is("mint", "green", 1, true))
}

// member finds a member of the present view.
func (p *picture) member(id string) *consume.Member {
	i := slices.IndexFunc(p.view.Members, func(m consume.Member) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return &p.view.Members[i]
}

// checkMembers: who joins is seen with the generation of its lane, until it leaves or its
// session ends; a lane that is not there has none.
func checkMembers(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	seen, id := b.watch(ctx), a.id
	join := func(name string, in lane.Name, topics ...string) error {
		return a.Join(ctx, registryGroup, consume.Member{ID: name, Session: id, Lane: in, Topics: topics, Room: "r2"})
	}
	if err := join("e1", "green", registryTopic); !errors.Is(err, consume.ErrRefused) {
		return fmt.Errorf("a member of a lane that is not there: %w", orNil(err))
	}
	if err := r.CreateLane(ctx, "green", lane.Baseline); err != nil {
		return err
	}
	for _, err := range []error{join("e1", "green", registryTopic), join("e2", lane.Baseline, registryTopic), join("e2", lane.Baseline, registryTopic)} {
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
	if err := seen.await(ctx, "both members", func() bool {
		e1, e2 := seen.member("e1"), seen.member("e2")
		return len(seen.view.Members) == 2 && e1 != nil && e2 != nil && e1.Lane == "green" && e1.Generation == 1 && e1.Session == id && e1.Room == "r2" &&
			slices.Equal(e1.Topics, []string{registryTopic}) && e2.Lane == lane.Baseline && e2.Session == id
	}); err != nil {
		return err
	}
	for range 2 { // one that is not there has left
		if err := a.Leave(ctx, registryGroup, "e2", 0); err != nil {
			return fmt.Errorf("leave: %w", err)
		}
	}
	if err := seen.await(ctx, "that one has left", func() bool { return seen.member("e2") == nil && seen.member("e1") != nil }); err != nil {
		return err
	}
	if err := r.End(ctx, id); err != nil {
		return err
	}
	if err := seen.await(ctx, "the end of the session, and of its member", func() bool {
		return !seen.view.Sessions[id] && len(seen.view.Members) == 0
	}); err != nil {
		return err
	}
	if err := join("e3", lane.Baseline, registryTopic); err == nil {
		return errors.New("a session that has ended has a member")
	}
	return nil
}

// checkGrace: who leaves with grace counts, without a session, until another one of the lane
// comes for its topics, or the time is over.
func checkGrace(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	if err := r.CreateLane(ctx, "green", lane.Baseline); err != nil {
		return err
	}
	seen, id := b.watch(ctx), a.id
	join := func(name string, topics ...string) error {
		return a.Join(ctx, registryGroup, consume.Member{ID: name, Session: id, Lane: "green", Topics: topics})
	}
	topicsOf := func(name string) []string {
		if m := seen.member(name); m != nil && m.Session == "" && m.Lane == "green" && m.Generation == 1 {
			return m.Topics
		}
		return nil
	}
	if err := join("e1", registryTopic, "bills"); err != nil {
		return err
	}
	if err := a.Leave(ctx, registryGroup, "e1", 3*time.Second); err != nil {
		return err
	}
	if err := seen.await(ctx, "what stands for the one that left", func() bool {
		topics := slices.Sorted(slices.Values(topicsOf("e1")))
		return slices.Equal(topics, []string{"bills", registryTopic})
	}); err != nil {
		return err
	}
	if err := join("e2", registryTopic); err != nil {
		return err
	}
	if err := seen.await(ctx, "that another one has come for a topic", func() bool { return slices.Equal(topicsOf("e1"), []string{"bills"}) }); err != nil {
		return err
	}
	return seen.await(ctx, "that the time is over", func() bool { return seen.member("e1") == nil && seen.member("e2") != nil })
}

// checkEndedSession: what a session wrote is refused once it has ended, and what it held can
// be taken then, and not before.
func checkEndedSession(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	made, err := a.create(ctx, part(0))
	if err != nil {
		return err
	}
	dead := a.id
	take := consume.Write{
		Partition: part(0), IfRevision: made.Revision, Record: heldBy(b.id), Gone: []string{dead}, Read: []lane.Name{consume.Main},
		Moves: []consume.Move{{Kind: consume.Take, Why: consume.WhyGone}},
	}
	if got, err := b.move(ctx, take); err != nil || got.Outcome != consume.Conflict || got.Revision != made.Revision {
		return fmt.Errorf("a take from a session that lives is answered %+v, %w", got, orNil(err))
	}
	if err := r.End(ctx, dead); err != nil {
		return err
	}
	n := made.Notes[0].Revision
	for name, w := range map[string]consume.Write{
		"a record": {IfRevision: made.Revision, Record: &consume.Record{}},
		"a note":   {IfRevision: made.Revision, Notes: []consume.NoteWrite{putNote(consume.Main, 9, n)}},
	} {
		w.Partition, w.Session, w.Read = part(0), dead, []lane.Name{consume.Main}
		got, err := a.move(ctx, w)
		if err != nil || got.Outcome != consume.Conflict || !got.Ended || got.Revision != made.Revision || got.Record == nil || got.Record.Main.Session != dead {
			return fmt.Errorf("%s of a session that has ended is answered %+v, %w", name, got, orNil(err))
		}
		if len(got.Notes) != 1 || got.Notes[0].Revision != n || got.Notes[0].Note.Pos != 4 {
			return fmt.Errorf("%s of a session that has ended leaves notes %+v", name, got.Notes)
		}
	}
	got, err := b.done(ctx, "a take from a session that has ended", take)
	if err != nil {
		return err
	}
	if len(got.Notes) != 1 || got.Notes[0].Note.Pos != 4 {
		return fmt.Errorf("a take is answered with notes %+v", got.Notes)
	}
	next, err := a.session(ctx)
	if err != nil {
		return err
	}
	if next == dead {
		return fmt.Errorf("session %s is given again after it has ended", dead)
	}
	return nil
}

// checkLostSession: a process that cannot renew its session is told in time that nothing of
// it remains; it is never given again, and is gone before another one is given.
func checkLostSession(ctx context.Context, r Registry) error {
	brief, err := r.Brief(ctx)
	if err != nil {
		return err
	}
	a, err := entered(ctx, brief, registryGroup)
	if err != nil {
		return err
	}
	b, err := r.enter(ctx, registryGroup)
	if err != nil {
		return err
	}
	seen, id := b.watch(ctx), a.id
	if err := a.Join(ctx, registryGroup, consume.Member{ID: "e1", Session: id, Topics: []string{registryTopic}}); err != nil {
		return err
	}
	if err := seen.await(ctx, "the member", func() bool { return seen.member("e1") != nil }); err != nil {
		return err
	}
	r.Cut(a.Connection)
	mend := sync.OnceFunc(func() { r.Mend(a.Connection) })
	defer mend()
	_, left := a.Session()
	until := time.Now().Add(left)
	if err := poll(ctx, "that nothing of the session remains", func() bool {
		now, left := a.Session()
		return now == id && left <= 0
	}); err != nil {
		return err
	}
	if late := time.Since(until); late > 15*time.Second {
		return fmt.Errorf("the session is said to last %s too long", late)
	}
	mend()
	var next string
	wrong := false
	if err := poll(ctx, "another session", func() bool {
		var left time.Duration
		next, left = a.Session()
		wrong = wrong || next == id && left > 0
		return wrong || next != id && left > 0
	}); err != nil {
		return err
	}
	if wrong {
		return fmt.Errorf("session %s is given again after nothing of it remained", id)
	}
	got, err := b.move(ctx, consume.Write{Partition: part(0), Record: heldBy(next), Gone: []string{id}})
	if err != nil || got.Outcome != consume.Done {
		return fmt.Errorf("the old session lives when the new one is given: %s, %w", got.Outcome, orNil(err))
	}
	return seen.await(ctx, "the new session, and neither the old one nor its member", func() bool {
		return !seen.view.Sessions[id] && seen.view.Sessions[next] && seen.member("e1") == nil
	})
}

// checkSettings: those of the first who enters a group hold, topics are added, and a process
// enters a topic once.
func checkSettings(ctx context.Context, r Registry) error {
	a, err := r.Connect(ctx, lane.Baseline)
	if err != nil {
		return err
	}
	b, err := r.Connect(ctx, lane.Baseline)
	if err != nil {
		return err
	}
	at := time.Unix(1_700_000_000, 0).UTC()
	want := consume.Settings{
		Topics: []string{"orders"}, Partitions: map[string]int32{"orders": 8}, Start: consume.Start{Kind: consume.StartTime, Time: at}, Ordered: true,
		RetryDelays: []time.Duration{time.Second, time.Minute}, HandoverTimeout: 20 * time.Second, OnLoss: consume.LossContinue,
	}
	hold, leave, err := a.Enter(ctx, "ship", want)
	if err != nil {
		return err
	}
	same := func(s *consume.Settings) bool {
		return s.Start.Kind == consume.StartTime && s.Start.Time.Equal(at) && s.Ordered && slices.Equal(s.RetryDelays, want.RetryDelays) &&
			s.HandoverTimeout == want.HandoverTimeout && s.OnLoss == consume.LossContinue && s.Partitions["orders"] == 8
	}
	if !same(&hold) || !slices.Equal(hold.Topics, want.Topics) {
		return fmt.Errorf("a new group has %+v, want %+v", hold, want)
	}
	if _, _, err := a.Enter(ctx, "ship", want); !errors.Is(err, consume.ErrEntered) {
		return fmt.Errorf("a topic is entered twice: %w", orNil(err))
	}
	hold, _, err = b.Enter(ctx, "ship", consume.Settings{Topics: []string{"bills", "orders"}, Partitions: map[string]int32{"bills": 2, "orders": 9}})
	if err != nil {
		return err
	}
	if !same(&hold) || !slices.Equal(hold.Topics, []string{"orders", "bills"}) || hold.Partitions["bills"] != 2 {
		return fmt.Errorf("after another one has entered the group has %+v", hold)
	}
	leave()
	if _, _, err := a.Enter(ctx, "ship", want); err != nil {
		return fmt.Errorf("enter again after leaving: %w", err)
	}
	for _, s := range []consume.Start{{}, {Kind: consume.StartLatest}, {Kind: consume.StartOffset, Offset: 12}} {
		name := fmt.Sprintf("start%d", s.Kind)
		hold, _, err := a.Enter(ctx, name, consume.Settings{Topics: []string{"orders"}, Start: s})
		if err != nil || hold.Start != s || len(hold.RetryDelays) != 0 || hold.Ordered {
			return fmt.Errorf("group %s has %+v, %w", name, hold, orNil(err))
		}
	}
	return nil
}
