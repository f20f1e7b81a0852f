package lanetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Names that the parts about consumption use.
const (
	suiteGroup  = "billing"
	suiteCursor = "main/billing/orders/0"
	freeRecord  = `{"v":1,"main":{"holder":null}}`
)

// consumeParts are the parts of [RunAPI] about what is consumed, and by whom.
func consumeParts() map[string]func(*suite) {
	return map[string]func(*suite){
		"Engines": (*suite).engines, "Topics": (*suite).topics, "Groups": (*suite).groups, "GroupEnd": (*suite).groupEnd,
		"Members": (*suite).members, "MemberSessions": (*suite).memberSessions, "Tombstones": (*suite).tombstones,
		"Cursors": (*suite).cursors, "CursorsRefused": (*suite).cursorsRefused, "CursorsOfNoGroup": (*suite).cursorsOfNoGroup,
		"CursorBatches": (*suite).cursorBatches, "CursorConditions": (*suite).cursorConditions,
		"ConsumeMistakes": (*suite).consumeMistakes, "CursorMistakes": (*suite).cursorMistakes,
		"ConsumeLists": (*suite).consumeLists, "WatchGroup": (*suite).watchGroup, "WatchRecords": (*suite).watchRecords,
	}
}

func (s *suite) newGroup(name string, topics ...string) *laneclient.Group {
	s.t.Helper()
	g, err := laneclient.Put(s.ctx, s.api, &laneclient.Group{Meta: named(name), Engine: "main", Topics: topics})
	s.must(err)
	return g
}

func (s *suite) putMember(session, name, in string, topics ...string) (*laneclient.Member, error) {
	return laneclient.Put(s.ctx, s.api, &laneclient.Member{Meta: named(name), Group: suiteGroup, Lane: in, Topics: topics}, laneclient.InSession(session))
}

func (s *suite) join(session, name, in string, topics ...string) *laneclient.Member {
	s.t.Helper()
	m, err := s.putMember(session, name, in, topics...)
	s.must(err)
	return m
}

func (s *suite) leave(session, name string, grace time.Duration) error {
	path := laneclient.PathOf(laneclient.KindMembers, suiteGroup+"/"+name)
	if grace > 0 {
		path += "?" + url.Values{laneclient.GraceParam: {grace.String()}}.Encode()
	}
	return s.api.Do(s.ctx, http.MethodDelete, path, nil, nil, laneclient.InSession(session))
}

// heldBy is a record whose main cursor a session holds.
func heldBy(session string) json.RawMessage {
	return json.RawMessage(`{"v":1,"main":{"holder":{"session":"` + session + `"}}}`)
}

func noteAt(pos int64) json.RawMessage { return fmt.Appendf(nil, `{"v":1,"pos":%d}`, pos) }

// putCursor makes a write that rests on a record's revision; 0: there is none.
func (s *suite) putCursor(session, name string, rev uint64, body any) (done laneclient.CursorDone, err error) {
	on := laneclient.IfMatch(rev)
	if rev == 0 {
		on = laneclient.IfNoneMatch()
	}
	err = s.api.Do(s.ctx, http.MethodPut, laneclient.PathOf(laneclient.KindCursors, name), body, &done, on, laneclient.InSession(session))
	return done, err
}

// wrote is putCursor for one that has to take place.
func (s *suite) wrote(session, name string, rev uint64, body laneclient.CursorWrite) laneclient.CursorDone {
	s.t.Helper()
	done, err := s.putCursor(session, name, rev, body)
	s.must(err)
	return done
}

func (s *suite) engines() {
	main := func(address string) *laneclient.Engine {
		return &laneclient.Engine{Meta: named("main"), Scheme: "nats", Address: address}
	}
	a, b := s.newSession(""), s.newSession("")
	mine, theirs := laneclient.InSession(a.Name), laneclient.InSession(b.Name)
	e, err := laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:1"), mine)
	s.must(err)
	if e.Session != a.Name || e.Since.IsZero() {
		s.t.Errorf("embedded engine is %+v: want it bound to session %s", e, a.Name)
	}
	for _, opts := range [][]laneclient.CallOption{nil, {theirs}} {
		_, err := laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:2"), opts...)
		p := s.problem(err, http.StatusConflict, laneclient.ProblemExists)
		if !strings.Contains(p.Detail, "127.0.0.1:1") || p.Current == nil {
			s.t.Errorf("refused with %+v: want it to say who has the name", p)
		}
	}
	again, err := laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:3"), mine)
	s.must(err)
	if !again.Since.Equal(e.Since) || again.Address != "nats://127.0.0.1:3" {
		s.t.Errorf("changed engine is %+v: want it there since %v", again, e.Since)
	}
	s.refused(laneclient.Delete[laneclient.Engine](s.ctx, s.api, "main", theirs), http.StatusConflict, "")
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, a.Name))
	gone[laneclient.Engine](s, "main")
	_, err = laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:1"), mine)
	s.refused(err, http.StatusConflict, laneclient.ProblemSessionGone)
	external, err := laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:4"))
	s.must(err)
	if external.Session != "" {
		s.t.Errorf("external engine is %+v", external)
	}
	_, err = laneclient.Put(s.ctx, s.api, main("nats://127.0.0.1:1"), theirs)
	s.refused(err, http.StatusConflict, laneclient.ProblemExists)
	found, err := laneclient.FindEngine(s.ctx, s.api, "")
	s.must(err)
	if found.Address != "nats://127.0.0.1:4" {
		s.t.Errorf("the only engine is found as %+v", found)
	}
	s.must(laneclient.Delete[laneclient.Engine](s.ctx, s.api, "main"))
}

func (s *suite) topics() {
	put := func(name, engine string, partitions int) (*laneclient.Topic, error) {
		return laneclient.Put(s.ctx, s.api, &laneclient.Topic{Meta: named(name), Engine: engine, Partitions: partitions})
	}
	for _, c := range []struct {
		engine           string
		partitions, want int
	}{{"main", 0, 1}, {"main", 2, 2}, {"other", 2, 0}, {"main", 1, 0}, {"main", 3, 3}} {
		t, err := put("orders", c.engine, c.partitions)
		switch {
		case c.want == 0:
			s.refused(err, http.StatusUnprocessableEntity, "")
		case err != nil || t.Partitions != c.want || t.Engine != "main":
			s.t.Errorf("%d partitions: %+v, %v", c.partitions, t, err)
		}
	}
	_, err := put("else", "other", 1)
	s.must(err)
	_, err = laneclient.Put(s.ctx, s.api, &laneclient.Group{Meta: named(suiteGroup), Engine: "main", Topics: []string{"orders", "else"}})
	if p := s.problem(err, http.StatusUnprocessableEntity, ""); len(p.Errors) != 1 || p.Errors[0].Field != "topics[1]" {
		s.t.Errorf("errors are %+v: want one at topics[1], which is of another engine", p.Errors)
	}
	s.newGroup(suiteGroup, "orders", "nobody-described")
	err = laneclient.Delete[laneclient.Topic](s.ctx, s.api, "orders")
	if p := s.problem(err, http.StatusConflict, ""); !strings.Contains(p.Detail, suiteGroup) {
		s.t.Errorf("refused with %q: want the group that names it", p.Detail)
	}
	s.must(laneclient.Delete[laneclient.Group](s.ctx, s.api, suiteGroup))
	s.must(laneclient.Delete[laneclient.Topic](s.ctx, s.api, "orders"))
}

func (s *suite) groups() {
	g := s.newGroup(suiteGroup, "orders")
	if g.Start != laneclient.StartEarliest || g.OnRegistryLoss != laneclient.OnLossContinue || time.Duration(g.HandoverTimeout) != laneclient.DefaultHandover {
		s.t.Errorf("new group is %+v: want the defaults", g)
	}
	ordered, err := laneclient.Put(s.ctx, s.api, &laneclient.Group{Meta: named("ledger"), Engine: "main", Topics: []string{"orders"}, Ordered: true})
	s.must(err)
	if ordered.OnRegistryLoss != laneclient.OnLossHold {
		s.t.Errorf("an ordered group is to %q when the registry is lost, want hold", ordered.OnRegistryLoss)
	}
	g.Paused, g.Topics, g.Partitions = true, append(g.Topics, "bills"), map[string]int{"bills": 4}
	g.Reset = &laneclient.GroupReset{ID: "r1", Offsets: map[string]int64{"orders/1": 9}}
	changed, err := laneclient.Put(s.ctx, s.api, g, laneclient.IfMatch(g.Revision))
	s.must(err)
	got, err := laneclient.Get[laneclient.Group](s.ctx, s.api, suiteGroup)
	s.must(err)
	g.Revision = changed.Revision
	if !reflect.DeepEqual(got, changed) || !reflect.DeepEqual(got, g) {
		s.t.Errorf("got %+v, want %+v", got, g)
	}
	_, err = laneclient.Put(s.ctx, s.api, g, laneclient.IfMatch(g.Revision-1))
	s.refused(err, http.StatusPreconditionFailed, laneclient.ProblemChanged)
	g.Engine = "other"
	_, err = laneclient.Put(s.ctx, s.api, g)
	s.refused(err, http.StatusUnprocessableEntity, "")
}

// groupEnd: a group with members stays; its cursors, notes and tombstones go with it.
func (s *suite) groupEnd() {
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	s.join(id, "a", "", "orders")
	err := laneclient.Delete[laneclient.Group](s.ctx, s.api, suiteGroup)
	if p := s.problem(err, http.StatusConflict, ""); !strings.Contains(p.Detail, "billing/a") {
		s.t.Errorf("refused with %q: want a member that it has", p.Detail)
	}
	s.wrote(id, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id), Notes: []laneclient.NoteWrite{{Note: noteAt(3)}}})
	s.must(s.leave(id, "a", time.Minute))
	w := s.watchOf(0, []string{"cursors:group=billing", "members:group=billing", "groups:name=billing"})
	for e := s.nextEvent(w); e.Type != laneclient.EventSynced; e = s.nextEvent(w) {
	}
	s.must(laneclient.Delete[laneclient.Group](s.ctx, s.api, suiteGroup))
	s.expect(w, "delete cursors "+suiteCursor, "delete members billing/a", "delete groups billing")
	s.refused(laneclient.Delete[laneclient.Group](s.ctx, s.api, suiteGroup), http.StatusNotFound, "")
	s.newGroup(suiteGroup, "orders")
	_, err = laneclient.Get[laneclient.Cursor](s.ctx, s.api, suiteCursor)
	s.refused(err, http.StatusNotFound, "")
	done := s.wrote(id, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id), Read: []string{""}})
	if len(done.Notes) != 1 || done.Notes[0].Revision != 0 {
		s.t.Errorf("a group of the same name has notes %+v", done.Notes)
	}
}

func (s *suite) members() {
	id := s.newSession("").Name
	_, err := s.putMember(id, "a", "", "orders")
	s.refused(err, http.StatusConflict, laneclient.ProblemGroup)
	s.newGroup(suiteGroup, "orders", "bills")
	_, err = s.putMember(id, "a", "green", "orders")
	s.refused(err, http.StatusUnprocessableEntity, laneclient.ProblemLane)
	s.newLane("green", "")
	m, err := laneclient.Put(s.ctx, s.api, &laneclient.Member{
		Meta: named("a"), Group: suiteGroup, Topics: []string{"orders"}, Lane: "green", Room: "r1",
		Client: &laneclient.MemberClient{Name: "b-1", Version: "7"}, Generation: 9, Until: time.Now(),
	}, laneclient.InSession(id))
	s.must(err)
	if m.Generation != 1 || m.Session != id || m.Engine != "main" || m.Group != suiteGroup || m.Room != "r1" || m.Client.Version != "7" ||
		!m.Until.IsZero() || m.Since.IsZero() || !slices.Equal(m.Topics, []string{"orders"}) {
		s.t.Errorf("member is %+v: want it of the session, and of its lane's generation", m)
	}
	same := s.rejoin(m, id)
	if same.Revision != m.Revision {
		s.t.Errorf("written again as it is, the member has revision %d, not %d", same.Revision, m.Revision)
	}
	m.Topics = []string{"orders", "bills"}
	more := s.rejoin(m, id)
	if more.Revision <= m.Revision || !more.Since.Equal(m.Since) || !slices.Equal(more.Topics, m.Topics) {
		s.t.Errorf("changed member is %+v", more)
	}
	s.eventually("the lane is ready", func() bool {
		l, err := laneclient.Get[laneclient.Lane](s.ctx, s.api, "green")
		return err == nil && l.State == string(lane.Ready)
	})
	_, err = laneclient.Put(s.ctx, s.api, &laneclient.Member{Meta: named("b"), Group: suiteGroup, Topics: []string{"orders"}, Engine: "other"}, laneclient.InSession(id))
	s.refused(err, http.StatusUnprocessableEntity, "")
	s.must(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "green"))
	_, err = s.putMember(id, "b", "green", "orders")
	s.refused(err, http.StatusConflict, laneclient.ProblemLane)
}

// rejoin writes a member as it was read.
func (s *suite) rejoin(m *laneclient.Member, session string) *laneclient.Member {
	s.t.Helper()
	stored, err := laneclient.Put(s.ctx, s.api, m, laneclient.InSession(session))
	s.must(err)
	return stored
}

// memberSessions: a member ends in the very revision in which its session does.
func (s *suite) memberSessions() {
	s.newGroup(suiteGroup, "orders")
	a, b := s.newSession("").Name, s.newSession("").Name
	s.join(a, "m", "", "orders")
	s.join(b, "n", "", "orders")
	s.refused(s.leave(b, "m", 0), http.StatusConflict, "")
	taken := s.join(b, "m", "", "orders")
	if taken.Session != b {
		s.t.Errorf("a member that another session has written is %+v", taken)
	}
	s.join(a, "o", "", "orders")
	w := s.watchOf(0, []string{"members:group=billing", "sessions"})
	for e := s.nextEvent(w); e.Type != laneclient.EventSynced; e = s.nextEvent(w) {
	}
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, a))
	first, second := s.nextEvent(w), s.nextEvent(w)
	if first.Type != laneclient.EventDelete || second.Type != laneclient.EventDelete || first.Revision != second.Revision || first.Kind == second.Kind {
		s.t.Errorf("the session's end is told as %+v and %+v: want both at one revision", first, second)
	}
	if _, err := laneclient.Get[laneclient.Member](s.ctx, s.api, "billing/m"); err != nil {
		s.t.Errorf("a member should outlive a session that it is no longer of: %v", err)
	}
	_, err := s.putMember(a, "o", "", "orders")
	s.refused(err, http.StatusConflict, laneclient.ProblemSessionGone)
	s.must(s.leave("", "n", 0))
	s.refused(s.leave("", "n", 0), http.StatusNotFound, "")
}

// tombstones: who leaves with grace counts until another one of its lane comes for its topics,
// or the time is over; a lane that still has somebody needs none.
func (s *suite) tombstones() {
	s.newGroup(suiteGroup, "orders", "bills", "notes")
	s.newLane("green", "")
	id := s.newSession("").Name
	stone := func(name string) (topics []string) {
		s.t.Helper()
		m, err := laneclient.Get[laneclient.Member](s.ctx, s.api, "billing/"+name)
		if laneclient.IsNotFound(err) {
			return nil
		}
		s.must(err)
		if m.Session != "" || m.Until.IsZero() || m.Lane != "green" || m.Generation != 1 || m.Engine != "main" {
			s.t.Errorf("what stands for %s is %+v", name, m)
		}
		return m.Topics
	}
	s.join(id, "a", "green", "orders", "bills", "notes")
	s.join(id, "b", "green", "notes")
	s.join(id, "c", "", "orders")
	left := time.Now()
	s.must(s.leave(id, "a", time.Minute))
	if got := stone("a"); !slices.Equal(got, []string{"orders", "bills"}) {
		s.t.Errorf("a leaves for %q: want what no other one of the lane has", got)
	}
	if m, err := laneclient.Get[laneclient.Member](s.ctx, s.api, "billing/a"); err != nil || m.Until.Before(left.Add(50*time.Second)) {
		s.t.Errorf("what stands for a is %+v, %v: want it to count for a minute", m, err)
	}
	s.refused(s.leave(id, "a", time.Minute), http.StatusNotFound, "")
	s.join(id, "d", "", "bills") // of another lane
	s.join(id, "d", "green", "orders")
	if got := stone("a"); !slices.Equal(got, []string{"bills"}) {
		s.t.Errorf("after another one has come for orders, a counts for %q", got)
	}
	s.join(id, "e", "green", "bills")
	if got := stone("a"); got != nil {
		s.t.Errorf("after others have come for all, a counts for %q", got)
	}
	s.join(id, "f", "green", "orders")
	s.must(s.leave(id, "f", time.Minute))
	gone[laneclient.Member](s, "billing/f")
	s.must(s.leave(id, "e", time.Second))
	if got := stone("e"); !slices.Equal(got, []string{"bills"}) {
		s.t.Errorf("e leaves for %q", got)
	}
	gone[laneclient.Member](s, "billing/e")
	s.must(s.leave(id, "d", time.Minute))
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, id))
	if got := stone("d"); !slices.Equal(got, []string{"orders"}) {
		s.t.Errorf("d counts for %q when its session has ended: it had left before", got)
	}
}

// cursors: a write puts record and notes at one revision; a write of notes leaves the record's.
func (s *suite) cursors() {
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	const record = `{"v":1,"main":{"holder":{"session":"x"},"more":2},"colors":{"green":{"from":3,"holder":null,"new":[1]}},"extra":{"k":null}}`
	const note = `{"v":1,"pos":5,"left":[1,3],"later":"x"}`
	made := s.wrote(id, suiteCursor, 0, laneclient.CursorWrite{
		Record: json.RawMessage(record), Notes: []laneclient.NoteWrite{{Cursor: "green", Note: json.RawMessage(note), Compare: true}},
		Read: []string{"blue", "", "green"}, Moves: []laneclient.CursorMove{{Kind: "create", Why: "new-group"}},
	})
	if len(made.Notes) != 3 || made.Notes[0].Revision != made.Revision || made.Notes[1].Cursor != "blue" || made.Notes[2].Cursor != "" || made.Notes[2].Revision != 0 {
		s.t.Errorf("answered %+v: want the note that was written, and then those that were asked for beside it", made)
	}
	noted := s.wrote(id, suiteCursor, made.Revision, laneclient.CursorWrite{
		Notes: []laneclient.NoteWrite{{Note: noteAt(7), Compare: true}, {Cursor: "blue", Note: noteAt(1)}},
	})
	if noted.Revision != made.Revision || noted.Notes[0].Revision <= made.Revision || noted.Notes[0].Revision != noted.Notes[1].Revision {
		s.t.Errorf("notes are answered %+v: want the record's revision as it was, %d, and one above it for both", noted, made.Revision)
	}
	if _, rev, err := laneclient.ListAll[laneclient.Cursor](s.ctx, s.api, laneclient.ListOptions{Group: suiteGroup}); err != nil || rev < noted.Notes[0].Revision {
		s.t.Errorf("a list after a note at %d is as of %d, %v", noted.Notes[0].Revision, rev, err)
	}
	c, err := laneclient.Get[laneclient.Cursor](s.ctx, s.api, suiteCursor)
	s.must(err)
	if !sameJSON(c.Record, record) || c.Revision != made.Revision || c.Name != suiteCursor || c.Engine != "main" || c.Group != suiteGroup || c.Topic != "orders" || c.Partition != 0 {
		s.t.Errorf("cursor is %+v with record %s: want every field of the record", c, c.Record)
	}
	if len(c.Notes) != 2 || c.Notes[0].Cursor != "" || !sameJSON(c.Notes[0].Note, string(noteAt(7))) || !sameJSON(c.Notes[1].Note, note) || c.Notes[1].Revision != made.Revision {
		s.t.Errorf("its notes are %+v: want those of the record's cursors, main's first", c.Notes)
	}
	deleted := s.wrote(id, suiteCursor, made.Revision, laneclient.CursorWrite{
		Notes: []laneclient.NoteWrite{{Cursor: "green", Note: json.RawMessage("null"), Compare: true, Revision: made.Revision}},
	})
	if deleted.Notes[0].Revision != 0 || isJSON(deleted.Notes[0].Note) {
		s.t.Errorf("a deleted note is answered %+v", deleted.Notes)
	}
	again := s.wrote(id, suiteCursor, made.Revision, laneclient.CursorWrite{Record: heldBy(id)})
	if again.Revision <= noted.Notes[0].Revision || len(again.Notes) != 0 {
		s.t.Errorf("a record after notes is answered %+v", again)
	}
}

func sameJSON(got json.RawMessage, want string) bool {
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}

// cursorsRefused: who is refused learns what there is, also one whose session has ended.
func (s *suite) cursorsRefused() {
	s.newGroup(suiteGroup, "orders")
	a, b := s.newSession("").Name, s.newSession("").Name
	made := s.wrote(a, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(a), Notes: []laneclient.NoteWrite{{Note: noteAt(4)}}})
	shown := func(err error, status int, typ string) {
		s.t.Helper()
		p := s.problem(err, status, typ)
		var c laneclient.Cursor
		if json.Unmarshal(p.Current, &c) != nil || c.Name != suiteCursor || c.Revision != made.Revision || !sameJSON(c.Record, string(heldBy(a))) {
			s.t.Errorf("current is %s: want the record as it is", p.Current)
		}
		if len(c.Notes) != 2 || c.Notes[0].Cursor != "green" || c.Notes[0].Revision != 0 || c.Notes[1].Cursor != "" || !sameJSON(c.Notes[1].Note, string(noteAt(4))) {
			s.t.Errorf("current has notes %+v: want those that the write names, and then those that it reads", c.Notes)
		}
	}
	green := laneclient.NoteWrite{Cursor: "green", Note: noteAt(1)}
	wrong := green
	wrong.Compare, wrong.Revision = true, made.Revision
	for name, c := range map[string]struct {
		rev  uint64
		note laneclient.NoteWrite
		gone []string
	}{
		"there is no record":        {0, green, nil},
		"the record is another":     {made.Revision + 1, green, nil},
		"the note is another":       {made.Revision, wrong, nil},
		"a session that lives":      {made.Revision, green, []string{"nobody", a}},
		"a session that lives, b's": {made.Revision, green, []string{b}},
	} {
		_, err := s.putCursor(b, suiteCursor, c.rev, laneclient.CursorWrite{Record: heldBy(b), Notes: []laneclient.NoteWrite{c.note}, Gone: c.gone, Read: []string{""}})
		s.t.Log(name)
		shown(err, http.StatusPreconditionFailed, laneclient.ProblemChanged)
	}
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, a))
	for _, rev := range []uint64{made.Revision, 0} {
		_, err := s.putCursor(a, suiteCursor, rev, laneclient.CursorWrite{Notes: []laneclient.NoteWrite{green}, Read: []string{""}})
		shown(err, http.StatusConflict, laneclient.ProblemSessionGone)
	}
	s.wrote(b, suiteCursor, made.Revision, laneclient.CursorWrite{Record: heldBy(b), Gone: []string{a}})
}

func (s *suite) cursorsOfNoGroup() {
	id := s.newSession("").Name
	_, err := s.putCursor(id, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id)})
	s.refused(err, http.StatusConflict, laneclient.ProblemGroup)
	s.newGroup(suiteGroup, "orders")
	_, err = s.putCursor(id, "other/billing/orders/0", 0, laneclient.CursorWrite{Record: heldBy(id)})
	s.refused(err, http.StatusConflict, laneclient.ProblemGroup)
	s.wrote(id, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id)})
}

// post sends a batch.
func (s *suite) post(path, session string, writes ...laneclient.CursorBatchWrite) []laneclient.CursorAnswer {
	s.t.Helper()
	var out laneclient.CursorAnswers
	s.must(s.api.Do(s.ctx, http.MethodPost, path, laneclient.CursorBatch{Writes: writes}, &out, laneclient.InSession(session)))
	if len(out.Answers) != len(writes) {
		s.t.Fatalf("%d answers to %d writes", len(out.Answers), len(writes))
	}
	return out.Answers
}

// cursorBatches: each write of a batch is answered as it would be alone.
func (s *suite) cursorBatches() {
	const batch, notes = "/v1/cursors:batch", "/v1/notes"
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	write := func(name string, rev uint64, w laneclient.CursorWrite) laneclient.CursorBatchWrite {
		return laneclient.CursorBatchWrite{Name: name, IfRevision: rev, CursorWrite: w}
	}
	one, two := laneclient.CursorName("main", suiteGroup, "orders", 1), laneclient.CursorName("main", suiteGroup, "orders", 2)
	a := s.post(batch, id,
		write(one, 0, laneclient.CursorWrite{Record: heldBy(id), Notes: []laneclient.NoteWrite{{Note: noteAt(1)}}}),
		write(two, 7, laneclient.CursorWrite{Record: heldBy(id)}),
		write("main/nobody/orders/0", 0, laneclient.CursorWrite{Record: heldBy(id)}),
		write("no-cursor", 0, laneclient.CursorWrite{Record: heldBy(id)}),
		write(suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id)}))
	for n, want := range []struct {
		status int
		typ    string
	}{{200, ""}, {412, laneclient.ProblemChanged}, {409, laneclient.ProblemGroup}, {422, ""}, {200, ""}} {
		if a[n].Status != want.status || want.typ != "" && a[n].Type != want.typ || (a[n].Detail == "") != (want.status == 200) {
			s.t.Errorf("write %d is answered %+v, want status %d of type %q", n, a[n], want.status, want.typ)
		}
	}
	rev := a[0].Revision
	if c, err := laneclient.Get[laneclient.Cursor](s.ctx, s.api, one); err != nil || c.Revision != rev || rev == 0 || len(a[0].Notes) != 1 || a[1].Revision != 0 {
		s.t.Errorf("answered %+v, and there is %+v, %v", a, c, err)
	}
	a = s.post(notes, id,
		write(one, rev, laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Note: noteAt(2)}}}),
		write(one, rev, laneclient.CursorWrite{Record: heldBy(id)}),
		write(one, rev+1, laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Note: noteAt(3)}}}))
	if a[0].Status != 200 || a[0].Revision != rev || a[1].Status != 422 || a[2].Status != 412 || a[2].Revision != rev ||
		!sameJSON(a[2].Record, string(heldBy(id))) || len(a[2].Notes) != 1 {
		s.t.Errorf("notes are answered %+v", a)
	}
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, id))
	a = s.post(batch, id, write(one, rev, laneclient.CursorWrite{Record: json.RawMessage(freeRecord), Notes: []laneclient.NoteWrite{{Note: noteAt(9)}}}))
	if a[0].Status != 409 || a[0].Type != laneclient.ProblemSessionGone || a[0].Revision != rev || !sameJSON(a[0].Record, string(heldBy(id))) ||
		len(a[0].Notes) != 1 || !sameJSON(a[0].Notes[0].Note, string(noteAt(2))) {
		s.t.Errorf("a session that has ended is answered %+v", a)
	}
}

// cursorConditions: a write says what record it rests on, and in which session it is made.
func (s *suite) cursorConditions() {
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	path := laneclient.PathOf(laneclient.KindCursors, suiteCursor)
	body := laneclient.CursorWrite{Record: heldBy(id)}
	err := s.api.Do(s.ctx, http.MethodPut, path, body, nil, laneclient.InSession(id))
	s.refused(err, http.StatusPreconditionRequired, "")
	err = s.api.Do(s.ctx, http.MethodPut, path, body, nil, laneclient.InSession(id), laneclient.IfMatch(3), laneclient.IfNoneMatch())
	s.refused(err, http.StatusPreconditionRequired, "")
	err = s.api.Do(s.ctx, http.MethodPut, path, body, nil, laneclient.IfNoneMatch())
	s.fault(err, laneclient.SessionHeader)
	err = s.api.Do(s.ctx, http.MethodPost, "/v1/notes", laneclient.CursorBatch{Writes: []laneclient.CursorBatchWrite{}}, nil)
	s.fault(err, laneclient.SessionHeader)
	_, err = s.putCursor("nobody", suiteCursor, 0, body)
	s.refused(err, http.StatusConflict, laneclient.ProblemSessionGone)
	s.wrote(id, suiteCursor, 0, body)
}

// fault fails the part unless err is a mistake in the field, and maybe in others.
func (s *suite) fault(err error, field string) {
	s.t.Helper()
	p := s.problem(err, http.StatusUnprocessableEntity, "")
	if !slices.ContainsFunc(p.Errors, func(f laneclient.FieldError) bool { return f.Field == field && f.Detail != "" }) {
		s.t.Errorf("errors are %+v: want one at %s", p.Errors, field)
	}
}

func (s *suite) consumeMistakes() {
	id := s.newSession("").Name
	long := strings.Repeat("x", 300)
	const group = "/v1/groups/billing"
	for _, c := range []struct{ path, body, field string }{
		{"/v1/topics/orders", `{}`, "engine"},
		{"/v1/topics/orders", `{"engine":"a b"}`, "engine"},
		{"/v1/topics/orders", `{"engine":"main","partitions":65}`, "partitions"},
		{"/v1/topics/orders", `{"engine":"main","retention":"-1s"}`, "retention"},
		{"/v1/topics/orders", `{"engine":"main","durability":"best"}`, "durability"},
		{"/v1/topics/" + long, `{"engine":"main"}`, "name"},
		{"/v1/engines/main", `{"address":"nats://h:1"}`, "scheme"},
		{"/v1/engines/main", `{"scheme":"nats"}`, "address"},
		{"/v1/engines/main", `{"scheme":"nats","address":"nats://u:secret@h:1"}`, "address"},
		{"/v1/engines/main", `{"scheme":"nats","address":"nats://h:1","session":"other"}`, "session"},
		{"/v1/groups/" + strings.Repeat("g", 65), `{"engine":"main","topics":["a"]}`, "name"},
		{group, `{"topics":["a"]}`, "engine"},
		{group, `{"engine":"main"}`, "topics"},
		{group, `{"engine":"main","topics":["a","a"]}`, "topics[1]"},
		{group, `{"engine":"main","topics":["a","b c"]}`, "topics[1]"},
		{group, `{"engine":"main","topics":["a"],"start":"soon"}`, "start"},
		{group, `{"engine":"main","topics":["a"],"start":"offset:-1"}`, "start"},
		{group, `{"engine":"main","topics":["a"],"retry":["1s","-1s"]}`, "retry[1]"},
		{group, `{"engine":"main","topics":["a"],"handover_timeout":"1ms"}`, "handover_timeout"},
		{group, `{"engine":"main","topics":["a"],"on_registry_loss":"panic"}`, "on_registry_loss"},
		{group, `{"engine":"main","topics":["a"],"partitions":{"a":0}}`, "partitions.a"},
		{group, `{"engine":"main","topics":["a"],"reset":{"offsets":{"a/1":1}}}`, "reset.id"},
		{group, `{"engine":"main","topics":["a"],"reset":{"id":"r","offsets":{"a/01":1}}}`, "reset.offsets.a/01"},
		{group, `{"engine":"main","topics":["a"],"reset":{"id":"r","offsets":{"a/1":-1}}}`, "reset.offsets.a/1"},
		{"/v1/members/billing/m", `{}`, "topics"},
		{"/v1/members/billing/m", `{"topics":["a"],"group":"other"}`, "group"},
		{"/v1/members/billing/m", `{"topics":["a"],"session":"other"}`, "session"},
		{"/v1/members/billing/" + long, `{"topics":["a"]}`, "name"},
	} {
		s.t.Log(c.path, c.body)
		s.fault(s.api.Do(s.ctx, http.MethodPut, c.path, json.RawMessage(c.body), nil, laneclient.InSession(id)), c.field)
	}
	s.fault(s.api.Do(s.ctx, http.MethodPut, "/v1/members/billing/m", json.RawMessage(`{"topics":["a"]}`), nil), laneclient.SessionHeader)
	for _, query := range []string{"grace=10", "grace=11m", "grace=-1s", "graze=1s"} {
		field, _, _ := strings.Cut(query, "=")
		s.fault(s.api.Do(s.ctx, http.MethodDelete, "/v1/members/billing/m?"+query, nil, nil), field)
	}
}

func (s *suite) cursorMistakes() {
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	many := func(n int, format string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(list, ",")
	}
	for _, c := range []struct{ body, field string }{
		{`{"record":{}}`, "record"},
		{`{"record":{"v":2}}`, "record"},
		{`{"record":7}`, "record"},
		{`{"record":{"v":1,"epoch":"` + strings.Repeat("e", laneclient.MaxRecordBytes) + `"}}`, "record"},
		{`{"notes":[{"cursor":""}]}`, "notes[0].note"},
		{`{"notes":[{"cursor":"No","note":null}]}`, "notes[0].cursor"},
		{`{"notes":[{"cursor":"green","note":null},{"cursor":"green","note":null}]}`, "notes[1].cursor"},
		{`{"notes":[{"cursor":"","note":{"v":1,"pos":3,"left":[3]}}]}`, "notes[0].note"},
		{`{"notes":[{"cursor":"","note":null,"revision":3}]}`, "notes[0].revision"},
		{`{"notes":[{"cursor":"","note":{"v":1,"pos":99999,"left":[` + many(laneclient.MaxNoteLeft+1, "%d") + `]}}]}`, "notes[0].note.left"},
		{`{"gone":["a b"]}`, "gone[0]"},
		{`{"read":["-"]}`, "read[0]"},
		{`{"read":[` + many(laneclient.MaxCursorKeys+1, `"c%d"`) + `]}`, "notes"},
		{`{"moves":[` + many(maxMoves+1, `{"kind":"take%d"}`) + `]}`, "moves"},
	} {
		s.t.Logf("%.100s", c.body)
		_, err := s.putCursor(id, suiteCursor, 0, json.RawMessage(c.body))
		s.fault(err, c.field)
		// In a batch it is refused alone.
		var out laneclient.CursorAnswers
		batch := json.RawMessage(`{"writes":[{"name":"` + suiteCursor + `",` + c.body[1:] + `]}`)
		s.must(s.api.Do(s.ctx, http.MethodPost, "/v1/cursors:batch", batch, &out, laneclient.InSession(id)))
		if len(out.Answers) != 1 || out.Answers[0].Status != http.StatusUnprocessableEntity || out.Answers[0].Errors[0].Field != c.field {
			s.t.Errorf("in a batch it is answered %+v", out)
		}
	}
	for _, name := range []string{"main/billing/orders/x", "main/billing/orders/01", "main/b g/orders/1"} {
		_, err := s.putCursor(id, name, 0, json.RawMessage(`{"record":`+freeRecord+`}`))
		s.fault(err, "name")
	}
	_, err := s.putCursor(id, suiteCursor, 0, json.RawMessage(`{"nots":1}`))
	s.fault(err, "nots")
	_, err = s.putCursor(id, suiteCursor, 0, json.RawMessage(`{"record":"`+strings.Repeat("x", maxWriteBytes)+`"}`))
	s.refused(err, http.StatusRequestEntityTooLarge, "")
	over := laneclient.CursorBatch{Writes: make([]laneclient.CursorBatchWrite, laneclient.MaxCursorBatch+1)}
	s.fault(s.api.Do(s.ctx, http.MethodPost, "/v1/notes", over, nil, laneclient.InSession(id)), "writes")
	full := laneclient.CursorWrite{Record: heldBy(id)}
	for n := range laneclient.MaxCursorKeys {
		full.Notes = append(full.Notes, laneclient.NoteWrite{Cursor: fmt.Sprintf("color%d", n), Note: noteAt(1)})
	}
	s.wrote(id, suiteCursor, 0, full)
}

func (s *suite) consumeLists() {
	id := s.newSession("").Name
	for _, group := range []string{suiteGroup, "ledger"} {
		_, err := laneclient.Put(s.ctx, s.api, &laneclient.Group{Meta: named(group), Engine: "on-" + group, Topics: []string{"orders", group}})
		s.must(err)
		for _, topic := range []string{"orders", group} {
			for n := range 3 {
				s.wrote(id, laneclient.CursorName("on-"+group, group, topic, n), 0, laneclient.CursorWrite{
					Record: heldBy(id), Notes: []laneclient.NoteWrite{{Note: noteAt(1)}},
				})
			}
		}
		_, err = laneclient.Put(s.ctx, s.api, &laneclient.Member{Meta: named("m"), Group: group, Topics: []string{"orders"}}, laneclient.InSession(id))
		s.must(err)
	}
	for _, c := range []struct {
		opts laneclient.ListOptions
		want int
	}{
		{laneclient.ListOptions{}, 12},
		{laneclient.ListOptions{Group: suiteGroup}, 6},
		{laneclient.ListOptions{Topic: "orders"}, 6},
		{laneclient.ListOptions{Group: "ledger", Topic: "ledger"}, 3},
		{laneclient.ListOptions{Group: suiteGroup, Engine: "on-ledger"}, 0},
		{laneclient.ListOptions{Engine: "on-ledger"}, 6},
		{laneclient.ListOptions{Group: "nobody"}, 0},
	} {
		c.opts.PageSize = 4
		all, _, err := laneclient.ListAll[laneclient.Cursor](s.ctx, s.api, c.opts)
		s.must(err)
		if len(all) != c.want {
			s.t.Errorf("%d cursors are listed by %+v, want %d", len(all), c.opts, c.want)
		}
		for _, one := range all {
			if len(one.Notes) > 0 || !bytes.Contains(one.Record, []byte(id)) || one.Revision == 0 {
				s.t.Errorf("listed is %+v: want the record, and no notes", one)
			}
		}
	}
	members, _, err := laneclient.ListAll[laneclient.Member](s.ctx, s.api, laneclient.ListOptions{Group: "ledger"})
	s.must(err)
	groups, _, err := laneclient.ListAll[laneclient.Group](s.ctx, s.api, laneclient.ListOptions{Topic: "ledger"})
	s.must(err)
	if len(members) != 1 || members[0].Group != "ledger" || len(groups) != 1 || groups[0].Name != "ledger" {
		s.t.Errorf("listed are members %+v and groups %+v", members, groups)
	}
	s.fault(s.api.Do(s.ctx, http.MethodGet, "/v1/topics?group=billing", nil, nil), "group")
	s.fault(s.api.Do(s.ctx, http.MethodGet, "/v1/cursors?partition=1", nil, nil), "partition")
}

// watchGroup: a group's consumers see what is theirs, in one order with all else.
func (s *suite) watchGroup() {
	w := s.watchOf(0, []string{"lanes", "members:group=billing", "groups:name=billing", "cursors:group=billing", "topics:name=orders", "engines"})
	last := s.expect(w, "synced")
	id := s.newSession("").Name
	_, err := laneclient.Put(s.ctx, s.api, &laneclient.Engine{Meta: named("main"), Scheme: "nats", Address: "nats://127.0.0.1:1"})
	s.must(err)
	for _, topic := range []string{"orders", "else"} {
		_, err := laneclient.Put(s.ctx, s.api, &laneclient.Topic{Meta: named(topic), Engine: "main"})
		s.must(err)
	}
	s.newGroup("ledger", "orders")
	s.newGroup(suiteGroup, "orders")
	s.wrote(id, "main/ledger/orders/0", 0, laneclient.CursorWrite{Record: heldBy(id)})
	made := s.wrote(id, suiteCursor, 0, laneclient.CursorWrite{Record: heldBy(id)})
	s.wrote(id, suiteCursor, made.Revision, laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Note: noteAt(9)}}}) // is not told
	s.newLane("green", "")
	s.join(id, "a", "", "orders")
	s.must(s.leave(id, "a", time.Minute))
	for _, want := range []string{
		"put engines main", "put topics orders", "put groups billing", "put cursors " + suiteCursor,
		"put lanes green", "put members billing/a", "put members billing/a",
	} {
		e := s.expect(w, want)
		if e.Revision <= last.Revision || strings.Contains(string(e.Object), `"notes"`) {
			s.t.Errorf("%s is at revision %d, after %d: %s", want, e.Revision, last.Revision, e.Object)
		}
		if e.Kind == laneclient.KindCursors && e.Revision != made.Revision {
			s.t.Errorf("the record is told at %d, and was written at %d", e.Revision, made.Revision)
		}
		last = e
	}
	again := s.watchOf(made.Revision, []string{"cursors:topic=orders", "members:session=" + id, "members:engine=main"})
	s.expect(again, "put members billing/a", "put members billing/a", "synced")
	_, err = s.api.Watch(s.ctx, 0, []string{"cursors:partition=0"})
	s.refused(err, http.StatusUnprocessableEntity, "")
}

// watchRecords: a watch that has told of a record tells at once how far it has got, before it
// tells of another one.
func (s *suite) watchRecords() {
	s.newGroup(suiteGroup, "orders")
	id := s.newSession("").Name
	w := s.watchOf(0, []string{"cursors:group=billing"})
	s.expect(w, "synced")
	write := func(n int) {
		s.t.Helper()
		s.wrote(id, laneclient.CursorName("main", suiteGroup, "orders", n), 0, laneclient.CursorWrite{Record: json.RawMessage(freeRecord)})
	}
	write(0)
	for n := range 20 {
		put := s.expect(w, fmt.Sprintf("put cursors main/billing/orders/%d", n))
		write(n + 1)
		if e, err := w.Next(); err != nil || e.Type != laneclient.EventProgress || e.Revision < put.Revision {
			s.t.Fatalf("after the record at %d comes %+v, %v", put.Revision, e, err)
		}
	}
}
