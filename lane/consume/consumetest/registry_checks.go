package consumetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// checkMoves: a write takes place only if everything that it compares is as it says, and then
// whole; a refusal shows what there is.
func checkMoves(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	mine, other, p := a.id, b.id, part(0)
	made, err := a.create(ctx, p)
	if err != nil {
		return err
	}
	rev, n := made.Revision, made.Notes[0].Revision
	for _, c := range []struct {
		name string
		w    consume.Write
	}{
		{"a second create", consume.Write{Record: heldBy(mine), Notes: []consume.NoteWrite{putNote(consume.Main, 9, 0)}}},
		{"another record's revision", consume.Write{IfRevision: rev - 1, Record: heldBy(other)}},
		{"a record's revision that is to come", consume.Write{IfRevision: rev + 1, Record: heldBy(other)}},
		{"another note's revision", consume.Write{IfRevision: rev, Record: heldBy(other), Notes: []consume.NoteWrite{putNote(consume.Main, 9, n+1)}}},
		{"a note that is said not to be there", consume.Write{IfRevision: rev, Notes: []consume.NoteWrite{putNote(consume.Main, 9, 0)}}},
		{"a note that is not there", consume.Write{IfRevision: rev, Notes: []consume.NoteWrite{putNote("green", 9, n)}}},
		{"the second note only", consume.Write{IfRevision: rev, Notes: []consume.NoteWrite{putNote("green", 0, 0), putNote(consume.Main, 9, 0)}}},
		{"a note on another record's revision", consume.Write{IfRevision: rev - 1, Notes: []consume.NoteWrite{putNote(consume.Main, 9, n)}}},
		{"a session that lives", consume.Write{IfRevision: rev, Record: heldBy(mine), Gone: []string{other}}},
		{"a note with a session that lives", consume.Write{IfRevision: rev, Notes: []consume.NoteWrite{putNote(consume.Main, 9, n)}, Gone: []string{other}}},
	} {
		c.w.Partition, c.w.Read = p, []lane.Name{consume.Main, "green"}
		got, err := a.move(ctx, c.w)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if got.Outcome != consume.Conflict || got.Ended || got.Revision != rev || got.Record == nil || got.Record.Main.Session != mine || got.Record.Epoch != "e1" {
			return fmt.Errorf("%s is answered %+v with record %+v: want a conflict, and the record as it is", c.name, got, got.Record)
		}
		if len(got.Notes) != 2 {
			return fmt.Errorf("%s is answered with notes %+v: want each that is named once", c.name, got.Notes)
		}
		for _, s := range got.Notes {
			if s.Cursor == consume.Main && (s.Revision != n || s.Note == nil || s.Note.Pos != 4) || s.Cursor == "green" && (s.Note != nil || s.Revision != 0) {
				return fmt.Errorf("%s leaves note %+v of %q", c.name, s.Note, s.Cursor)
			}
		}
	}
	return checkNotes(ctx, a, p, rev, n)
}

// checkNotes goes on from a record and main's note at 4.
func checkNotes(ctx context.Context, a *entrant, p consume.Partition, rev, n uint64) error {
	noted := consume.Write{Partition: p, IfRevision: rev, Notes: []consume.NoteWrite{putNote(consume.Main, 5, n)}}
	got, err := a.done(ctx, "a note", noted)
	if err != nil {
		return err
	}
	if got.Revision != rev || len(got.Notes) != 1 || got.Notes[0].Revision <= n {
		return fmt.Errorf("a note is answered %+v: want the record's revision as it was, and a higher one of the note", got)
	}
	late, err := a.move(ctx, noted)
	if err != nil || late.Outcome != consume.Conflict {
		return fmt.Errorf("a copy of an answered note: %s, %w", late.Outcome, orNil(err))
	}
	mine := a.id
	left := &consume.Note{Pos: 9, Left: []int64{4, 7}, Doubtful: 8}
	split := heldBy(mine)
	split.Colors = map[lane.Name]consume.Entry{"green": {From: 7, Holder: consume.Holder{Session: mine, Lane: "green"}}}
	got, err = a.done(ctx, "a split", consume.Write{
		Partition: p, IfRevision: rev, Record: split, Read: []lane.Name{"green", consume.Main},
		Notes: []consume.NoteWrite{{Cursor: "green", Note: left}},
	})
	if err != nil {
		return err
	}
	if got.Revision <= rev || len(got.Notes) != 2 || got.Notes[0].Cursor != "green" || got.Notes[1].Note == nil || got.Notes[1].Note.Pos != 5 {
		return fmt.Errorf("a split is answered %+v: want a higher revision, green's note and main's", got)
	}
	if g := got.Notes[0].Note; g == nil || g.Pos != 9 || !slices.Equal(g.Left, left.Left) || g.Doubtful != 8 {
		return fmt.Errorf("a note comes back as %+v, it was %+v", g, left)
	}
	green := got.Notes[0].Revision
	got, err = a.done(ctx, "a merge", consume.Write{
		Partition: p, IfRevision: got.Revision, Record: heldBy(mine), Read: []lane.Name{"green"},
		Notes: []consume.NoteWrite{{Cursor: "green", Compare: true, IfRevision: green}},
	})
	if err != nil {
		return err
	}
	if len(got.Notes) != 1 || got.Notes[0].Note != nil || got.Notes[0].Revision != 0 {
		return fmt.Errorf("a merge leaves notes %+v", got.Notes)
	}
	got, err = a.done(ctx, "another split", consume.Write{
		Partition: p, IfRevision: got.Revision, Record: split, Notes: []consume.NoteWrite{{Cursor: "green", Note: left}},
	})
	if err == nil && got.Notes[0].Revision <= green {
		err = fmt.Errorf("a note that is made anew has revision %d after %d", got.Notes[0].Revision, green)
	}
	return err
}

// checkMovesAtOnce: what a process sends at once arrives whole, each with its own answer; of
// many who write on one revision one succeeds.
func checkMovesAtOnce(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	const partitions, rounds = 40, 5
	var wg sync.WaitGroup
	errs := make(chan error, 4*partitions)
	for i := range partitions {
		wg.Go(func() {
			p := part(i)
			was, err := a.create(ctx, p)
			if err != nil {
				errs <- err
				return
			}
			note := was.Notes[0].Revision
			for n := range rounds {
				got, err := a.done(ctx, "a note among others", consume.Write{
					Partition: p, IfRevision: was.Revision, Notes: []consume.NoteWrite{putNote(consume.Main, int64(100*i+n), note)},
				})
				if err == nil && (len(got.Notes) != 1 || got.Notes[0].Note.Pos != int64(100*i+n)) {
					err = fmt.Errorf("a note of %s is answered with %+v", p, got.Notes)
				}
				if err != nil {
					errs <- err
					return
				}
				note = got.Notes[0].Revision
			}
		})
	}
	wg.Wait()
	won := make([]int, 2)
	for i, p := range []*entrant{a, b} {
		wg.Go(func() {
			var rev uint64
			for won[i] < 20 {
				got, err := p.move(ctx, consume.Write{Partition: part(partitions), IfRevision: rev, Record: heldBy(p.id)})
				if err != nil {
					errs <- err
					return
				}
				if got.Outcome == consume.Done {
					won[i]++
					if got.Revision <= rev {
						errs <- fmt.Errorf("a write on %d gives %d", rev, got.Revision)
						return
					}
				}
				rev = got.Revision
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	records, err := b.Records(ctx, registryGroup)
	if err == nil && len(records) != partitions+1 {
		err = fmt.Errorf("%d records, want %d", len(records), partitions+1)
	}
	return err
}

// checkDoubt: a write without an answer is in doubt, and repeated it is not done twice.
func checkDoubt(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	w := &consume.Write{Group: registryGroup, Partition: part(0), Session: a.id, Record: heldBy(a.id), Notes: []consume.NoteWrite{putNote(consume.Main, 4, 0)}}
	r.LoseAnswers(a.Connection, 1)
	if got, err := a.Move(ctx, w); !errors.Is(err, consume.ErrDoubt) {
		return fmt.Errorf("a write without an answer is answered %+v, %w", got, orNil(err))
	}
	var records []consume.Stored
	err = poll(ctx, "the write that has no answer", func() bool {
		records, _ = b.Records(ctx, registryGroup)
		return len(records) == 1
	})
	if err != nil {
		return err
	}
	again, err := a.move(ctx, *w)
	if err != nil || again.Outcome != consume.Conflict || again.Revision != records[0].Revision || again.Record == nil || again.Record.Main.Session != a.id {
		return fmt.Errorf("repeated it is answered %+v, %w", again, orNil(err))
	}
	r.Cut(a.Connection)
	defer r.Mend(a.Connection)
	call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if got, err := a.Move(call, w); !errors.Is(err, consume.ErrDoubt) {
		return fmt.Errorf("a write out of reach is answered %+v, %w", got, orNil(err))
	}
	return nil
}

// checkRecords: they are those of the registry itself, with all that is in them.
func checkRecords(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	if got, err := b.Records(ctx, registryGroup); err != nil || len(got) != 0 {
		return fmt.Errorf("%d records of a new group, %w", len(got), orNil(err))
	}
	made, err := a.create(ctx, part(7))
	if err != nil {
		return err
	}
	rev := made.Revision
	rec := new(consume.Record)
	text := `{"v":1,"main":{"holder":null},"colors":{"green":{"from":9,"holder":{"session":"s","lane":"green"},"word":1}},"reset":"r","later":{"x":[1]}}`
	if err := json.Unmarshal([]byte(text), rec); err != nil {
		return err
	}
	for i := range 50 {
		got, err := a.done(ctx, "a record", consume.Write{Partition: part(7), IfRevision: rev, Record: rec})
		if err != nil {
			return err
		}
		rev = got.Revision
		records, err := b.Records(ctx, registryGroup)
		if err != nil {
			return err
		}
		if len(records) != 1 || records[0].Revision != rev || records[0].Partition != part(7) {
			return fmt.Errorf("round %d: records %+v after one was written at %d", i, records, rev)
		}
		back, err := json.Marshal(records[0].Record)
		if err != nil || !strings.Contains(string(back), `"later":{"x":[1]}`) || !strings.Contains(string(back), `"word":1`) || records[0].Record.Colors["green"].From != 9 {
			return fmt.Errorf("%s comes back as %s, %w", text, back, orNil(err))
		}
	}
	return nil
}

// checkFirstUpdate: it has everything.
func checkFirstUpdate(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	if err := r.CreateLane(ctx, "green", lane.Baseline); err != nil {
		return err
	}
	if err := r.CreateLane(ctx, "mint", "green"); err != nil {
		return err
	}
	if err := r.SetGroup(ctx, registryGroup, consume.Group{Paused: true, Reset: &consume.Reset{ID: "r1", Offsets: map[consume.Partition]int64{part(2): 30}}}); err != nil {
		return err
	}
	for i := range 5 {
		if _, err := a.create(ctx, part(i)); err != nil {
			return err
		}
	}
	for i, p := range []*entrant{a, b} {
		m := consume.Member{ID: fmt.Sprintf("e%d", i), Session: p.id, Topics: []string{registryTopic}, Room: "r1"}
		if i == 1 {
			m.Lane = "green"
		}
		if err := p.Join(ctx, registryGroup, m); err != nil {
			return err
		}
	}
	seen := b.watch(ctx)
	// What was done is done: but a replica may be a little behind with what it lists.
	complete := func() bool {
		v := seen.view
		return v.Lanes["mint"].Parent == "green" && v.Lanes["green"].Generation == 1 && v.Sessions[a.id] && v.Sessions[b.id] &&
			len(v.Members) == 2 && v.Group.Paused && v.Group.Reset != nil && v.Group.Reset.ID == "r1" && v.Group.Reset.Offsets[part(2)] == 30 && len(seen.records) == 5
	}
	if err := seen.await(ctx, "everything", complete); err != nil {
		return err
	}
	records, err := a.Records(ctx, registryGroup)
	if err != nil {
		return err
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.first.Records) != 5 {
		return fmt.Errorf("the first update has %d of 5 records", len(seen.first.Records))
	}
	for _, m := range seen.view.Members {
		if m.Room != "r1" || !slices.Equal(m.Topics, []string{registryTopic}) || m.ID == "e1" && (m.Lane != "green" || m.Generation != 1) {
			return fmt.Errorf("member %+v", m)
		}
	}
	return sameRecords(seen.values(), records)
}

// checkUpdates: steps go up, and come to what there is.
func checkUpdates(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	pictures := []*picture{a.watch(ctx), b.watch(ctx)}
	for _, p := range pictures { // a registry that is quick has done all before a watch that is slow has begun
		if err := p.await(ctx, "a first view", func() bool { return p.view != nil }); err != nil {
			return err
		}
	}
	errs := make(chan error, 2)
	var wg sync.WaitGroup
	for i, p := range []*entrant{a, b} {
		wg.Go(func() { errs <- churn(ctx, p, i) })
	}
	wg.Wait()
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	records, err := a.Records(ctx, registryGroup)
	if err != nil {
		return err
	}
	for _, p := range pictures {
		err := p.await(ctx, "the last record", func() bool {
			return sameRecords(p.values(), records) == nil && len(p.view.Members) == 2
		})
		if err != nil {
			return err
		}
		p.mu.Lock()
		steps := p.steps
		p.mu.Unlock()
		if steps < 2 {
			return fmt.Errorf("%d updates for all of it", steps)
		}
	}
	return nil
}

// churn writes records that others write, too, while members come and go.
func churn(ctx context.Context, p *entrant, who int) error {
	revs := map[consume.Partition]uint64{}
	for n := range 60 {
		at := part(n % 3)
		got, err := p.move(ctx, consume.Write{Partition: at, IfRevision: revs[at], Record: heldBy(p.id)})
		if err != nil {
			return err
		}
		revs[at] = got.Revision
		m := consume.Member{ID: fmt.Sprintf("e%d-%d", who, n%5), Session: p.id, Topics: []string{registryTopic}}
		if err := p.Join(ctx, registryGroup, m); err != nil {
			return err
		}
		if n == 59 {
			break
		}
		if err := p.Leave(ctx, registryGroup, m.ID, 0); err != nil {
			return err
		}
	}
	return nil
}

// checkProgress: how far a picture has got is told also where nothing of it changes, and soon
// after a record that names a session which does not live.
func checkProgress(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	seen := b.watch(ctx)
	made, err := a.create(ctx, part(0))
	if err != nil {
		return err
	}
	reached := func(rev uint64) func() bool { return func() bool { return seen.revision >= rev } }
	if err := seen.await(ctx, "the revision of the record", reached(made.Revision)); err != nil {
		return err
	}
	other, err := r.enter(ctx, "stock")
	if err != nil {
		return err
	}
	if made, err = other.create(ctx, part(0)); err != nil {
		return err
	}
	if err := seen.await(ctx, "the revision of another group's record", reached(made.Revision)); err != nil {
		return err
	}
	got, err := a.done(ctx, "a record of one that is gone", consume.Write{Partition: part(1), Record: heldBy("nobody")})
	if err != nil {
		return err
	}
	if err := seen.await(ctx, "the record of one that is gone, and its revision", func() bool {
		return seen.records[part(1)].Revision == got.Revision && seen.revision >= got.Revision
	}); err != nil {
		return err
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.records) != 2 {
		return fmt.Errorf("records %v: want those of the group", seen.names())
	}
	return nil
}

// checkViewsStay: a view is not changed after it was handed over, and the channel is closed
// when the context ends.
func checkViewsStay(ctx context.Context, r Registry) error {
	a, b, err := r.two(ctx)
	if err != nil {
		return err
	}
	if err := a.Join(ctx, registryGroup, consume.Member{ID: "e1", Session: a.id, Topics: []string{registryTopic}}); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := b.watch(watching)
	if err := seen.await(ctx, "the member", func() bool { return len(seen.view.Members) == 1 }); err != nil {
		return err
	}
	seen.mu.Lock()
	v := seen.view
	lanes, sessions, members := maps.Clone(v.Lanes), maps.Clone(v.Sessions), slices.Clone(v.Members)
	seen.mu.Unlock()
	if err := r.CreateLane(ctx, "green", lane.Baseline); err != nil {
		return err
	}
	if err := a.Leave(ctx, registryGroup, "e1", 0); err != nil {
		return err
	}
	if err := r.End(ctx, a.id); err != nil {
		return err
	}
	if err := seen.await(ctx, "the changes", func() bool {
		return len(seen.view.Members) == 0 && seen.view.Lanes["green"].Generation == 1 && !seen.view.Sessions[a.id]
	}); err != nil {
		return err
	}
	if !maps.Equal(v.Lanes, lanes) || !maps.Equal(v.Sessions, sessions) || len(v.Members) != len(members) || v.Members[0].ID != members[0].ID {
		return fmt.Errorf("a view has changed after it was handed over: %+v", v)
	}
	cancel()
	return poll(ctx, "the end of the updates", func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return seen.ended
	})
}

// checkGroups: what is one group's is not another's.
func checkGroups(ctx context.Context, r Registry) error {
	a, _, err := r.two(ctx)
	if err != nil {
		return err
	}
	other, err := r.enter(ctx, "stock")
	if err != nil {
		return err
	}
	seen := other.watch(ctx)
	made, err := a.create(ctx, part(0))
	if err != nil {
		return err
	}
	if err := a.Join(ctx, registryGroup, consume.Member{ID: "e1", Session: a.id, Topics: []string{registryTopic}}); err != nil {
		return err
	}
	if err := r.SetGroup(ctx, registryGroup, consume.Group{Paused: true}); err != nil {
		return err
	}
	theirs, err := other.create(ctx, part(0))
	if err != nil {
		return fmt.Errorf("another group's record is in the way: %w", err)
	}
	records, err := other.Records(ctx, "stock")
	if err != nil || len(records) != 1 || records[0].Revision != theirs.Revision {
		return fmt.Errorf("records %+v beside another group's at %d, %w", records, made.Revision, orNil(err))
	}
	if err := seen.await(ctx, "the record", func() bool { return seen.records[part(0)].Revision == theirs.Revision }); err != nil {
		return err
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.view.Members) != 0 || seen.view.Group.Paused {
		return fmt.Errorf("a view has what is another group's: %+v", seen.view)
	}
	return nil
}
