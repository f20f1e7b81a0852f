package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestConsumeModel: whatever is asked of it, the control plane answers as the registry in
// memory does that the handover was proved with.
func TestConsumeModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := mem.New()
			t.Cleanup(func() { _ = s.Close() })
			newConsumeModel(t, s, seed).run(400)
		})
	}
}

// TestConsumeModelOverEtcd is the same over the storage that lasts.
func TestConsumeModelOverEtcd(t *testing.T) {
	t.Parallel()
	s, err := etcd.Open(t.Context(), etcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	newConsumeModel(t, s, 100).run(150)
}

// consumeModel does the same to a replica and to a registry in memory.
type consumeModel struct {
	*replica

	seed   uint64
	random *rand.Rand
	clock  atomic.Int64 // of both
	memory *consume.MemoryRegistry
	step   int
	what   string            // it does
	ids    map[string]string // sessions: the registry's by the model's
	names  map[string]string // and back
	opened []string          // all sessions that ever were, the model's
	alive  map[string]bool
	known  map[uint64]uint64 // the registry's revisions by the model's, of records and notes
	// From here on the model's revisions have no order among themselves: those of a batch may
	// be one in the registry.
	unordered uint64
	watched   *watch
}

const (
	modelEngine = "main"
	modelGroup  = "billing"
)

var (
	modelLanes   = []lane.Name{"", "green", "blue"}
	modelCursors = []lane.Name{consume.Main, "green", "blue", "main"}
	modelTopics  = []string{"a", "b", "c"}
)

func newConsumeModel(t *testing.T, s store.Store, seed uint64) *consumeModel {
	t.Helper()
	m := &consumeModel{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)),
		ids: map[string]string{}, names: map[string]string{}, alive: map[string]bool{}, known: map[uint64]uint64{0: 0},
	}
	m.clock.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	now := func() time.Time { return time.Unix(0, m.clock.Load()).UTC() }
	m.memory = consume.NewMemoryRegistry(consume.MemoryRegistryConfig{Now: now})
	m.replica = startOver(t, s, control.Config{Now: now})
	t.Cleanup(m.stop) // before the store is closed
	m.must(http.StatusCreated, nil, "PUT", "/v1/groups/"+modelGroup, map[string]any{"engine": modelEngine, "topics": modelTopics})
	m.watched = m.watch(url.Values{"select": {
		"lanes", "sessions", "members:group=" + modelGroup, "cursors:group=" + modelGroup,
	}}.Encode())
	return m
}

func (m *consumeModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d, step %d (%s): %s", m.seed, m.step, m.what, fmt.Sprintf(format, args...))
}

func pick[T any](m *consumeModel, from []T) T { return from[m.random.IntN(len(from))] }

// some are those of a list that a coin chooses, in any order.
func some[T any](m *consumeModel, from []T) []T {
	var out []T
	for _, n := range m.random.Perm(len(from)) {
		if m.random.IntN(2) == 0 {
			out = append(out, from[n])
		}
	}
	return out
}

func (m *consumeModel) run(steps int) {
	m.openSession()
	for _, l := range modelLanes[1:] {
		m.createLane(l)
	}
	for m.step = range steps {
		switch n := m.random.IntN(100); {
		case n < 6:
			m.openSession()
		case n < 11:
			m.endSession()
		case n < 13:
			m.endLane()
		case n < 17:
			m.createLane(pick(m, modelLanes[1:]))
		case n < 32:
			m.join()
		case n < 44:
			m.leave()
		case n < 48:
			m.wait()
		default:
			m.write()
		}
		m.compare()
	}
	m.compareWatch()
}

func (m *consumeModel) openSession() {
	m.what = "open a session"
	id := m.memory.Open()
	s := m.session(`{"ttl":"5m"}`)
	m.ids[id], m.names[s.Name] = s.Name, id
	m.opened, m.alive[id] = append(m.opened, id), true
}

func (m *consumeModel) endSession() {
	id := pick(m, m.opened)
	m.what = "end session " + id
	m.memory.End(id)
	want := http.StatusNotFound
	if m.alive[id] {
		want = http.StatusNoContent
	}
	if got := m.status("DELETE", "/v1/sessions/"+m.ids[id], nil); got != want {
		m.fail("answered %d, want %d", got, want)
	}
	m.alive[id] = false
}

func (m *consumeModel) createLane(name lane.Name) {
	m.what = "create lane " + string(name)
	err := m.memory.CreateLane(name, lane.Baseline)
	a := m.do("POST", "/v1/lanes", map[string]any{"name": name, "ttl": "10000h"})
	if (err == nil) != (a.status == http.StatusCreated) {
		m.fail("answered %d, want %v", a.status, err)
	}
}

// endLane lets a lane end: in the registry it drains first, which the clock passes over.
func (m *consumeModel) endLane() {
	name := pick(m, modelLanes[1:])
	m.what = "end lane " + string(name)
	if m.memory.EndLane(name) != nil {
		return
	}
	m.must(http.StatusOK, nil, "DELETE", "/v1/lanes/"+string(name), nil)
	m.clock.Add(int64(31 * time.Second))
	m.memory.Tick()
	m.until("the lane to end", func() bool { return m.lane(string(name)).State == "ended" })
	m.untilNoneIsOver()
}

// wait lets time go by, and tombstones with it.
func (m *consumeModel) wait() {
	m.what = "wait"
	m.clock.Add(int64(time.Duration(m.random.IntN(15)) * time.Second))
	m.memory.Tick()
	m.untilNoneIsOver()
}

func (m *consumeModel) untilNoneIsOver() {
	m.t.Helper()
	m.until("tombstones to go", func() bool {
		return !slices.ContainsFunc(m.members(), func(o laneclient.Member) bool {
			return o.Session == "" && !time.Unix(0, m.clock.Load()).Before(o.Until)
		})
	})
}

func (m *consumeModel) join() {
	id := pick(m, m.opened)
	member := consume.Member{
		ID: fmt.Sprintf("m%d", m.random.IntN(5)), Session: id, Lane: pick(m, modelLanes), Topics: some(m, modelTopics),
	}
	if len(member.Topics) == 0 {
		member.Topics = []string{pick(m, modelTopics)}
	}
	m.what = fmt.Sprintf("join %+v", member)
	err := m.memory.Join(modelGroup, member)
	a := m.do("PUT", "/v1/members/"+modelGroup+"/"+member.ID, map[string]any{"topics": member.Topics, "lane": member.Lane},
		laneclient.SessionHeader, m.ids[id])
	if (err == nil) != (a.status/100 == 2) {
		m.fail("answered %d %s, want %v", a.status, a.body, err)
	}
	if p := (laneclient.Problem{}); err != nil {
		a.into(m.t, &p)
		if gone := !m.alive[id]; gone != (p.Type == laneclient.ProblemSessionGone) {
			m.fail("refused with %q", p.Type)
		}
	}
}

func (m *consumeModel) leave() {
	id, grace := fmt.Sprintf("m%d", m.random.IntN(5)), time.Duration(m.random.IntN(2))*10*time.Second
	m.what = fmt.Sprintf("leave %s with %s", id, grace)
	was := m.memory.View(modelGroup)
	there := slices.ContainsFunc(was.Members, func(o consume.Member) bool { return o.ID == id && o.Session != "" })
	m.memory.Leave(modelGroup, id, grace)
	want := http.StatusNotFound
	if there {
		want = http.StatusNoContent
	}
	if got := m.status("DELETE", "/v1/members/"+modelGroup+"/"+id+"?grace="+grace.String(), nil); got != want {
		m.fail("answered %d, want %d", got, want)
	}
}

// partition is one of few, so that writes meet.
func (m *consumeModel) partition() consume.Partition {
	return consume.Partition{Topic: pick(m, modelTopics[:2]), Index: int32(m.random.IntN(2))}
}

// revision is mostly the present one.
func (m *consumeModel) revision(present uint64) uint64 {
	switch m.random.IntN(12) {
	case 0:
		return 0
	case 1: // of something else, or an old one
		if other := pick(m, slices.Sorted(maps.Keys(m.known))); m.known[other] != m.known[present] {
			return other
		}
	}
	return present
}

func (m *consumeModel) note() *consume.Note {
	if m.random.IntN(4) == 0 {
		return nil
	}
	n := &consume.Note{Pos: m.random.Int64N(100), Doubtful: m.random.Int64N(3) - 1}
	for o := range n.Pos {
		if m.random.IntN(20) == 0 {
			n.Left = append(n.Left, o)
		}
	}
	return n
}

func (m *consumeModel) holder() consume.Holder {
	if m.random.IntN(3) == 0 {
		return consume.Holder{}
	}
	return consume.Holder{Session: pick(m, m.opened), Lane: pick(m, modelLanes)}
}

func (m *consumeModel) randomWrite() *consume.Write {
	w := &consume.Write{Group: modelGroup, Partition: m.partition(), Session: pick(m, m.opened)}
	if m.random.IntN(3) > 0 { // mostly one that lives
		if live := slices.DeleteFunc(slices.Clone(m.opened), func(id string) bool { return !m.alive[id] }); len(live) > 0 {
			w.Session = pick(m, live)
		}
	}
	var present uint64
	for _, s := range m.memory.Records(modelGroup) {
		if s.Partition == w.Partition {
			present = s.Revision
		}
	}
	w.IfRevision = m.revision(present)
	if m.random.IntN(3) > 0 {
		w.Record = &consume.Record{Main: m.holder(), Epoch: fmt.Sprint("e", m.step)}
		for _, c := range some(m, modelCursors[1:]) {
			if w.Record.Colors == nil {
				w.Record.Colors = map[lane.Name]consume.Entry{}
			}
			w.Record.Colors[c] = consume.Entry{From: m.random.Int64N(50), Holder: m.holder()}
		}
	}
	for _, c := range some(m, modelCursors) {
		n := consume.NoteWrite{Cursor: c, Note: m.note()}
		if n.Compare = m.random.IntN(3) > 0; n.Compare {
			n.IfRevision = m.revision(m.memory.Note(modelGroup, w.Partition, c).Revision)
		}
		w.Notes = append(w.Notes, n)
	}
	if m.random.IntN(4) == 0 {
		dead := slices.DeleteFunc(slices.Clone(m.opened), func(id string) bool { return m.alive[id] })
		w.Gone = some(m, dead)
		if m.random.IntN(4) == 0 {
			w.Gone = append(w.Gone, pick(m, m.opened), "nobody")
		}
	}
	w.Read = some(m, modelCursors)
	if len(w.Read) > 0 && m.random.IntN(4) == 0 {
		w.Read = append(w.Read, w.Read[0])
	}
	return w
}

// body is a write as it goes over the wire.
func (m *consumeModel) body(w *consume.Write) laneclient.CursorWrite {
	m.t.Helper()
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			m.t.Fatal(err)
		}
		return b
	}
	var out laneclient.CursorWrite
	if w.Record != nil {
		out.Record = raw(w.Record)
	}
	for _, n := range w.Notes {
		note := laneclient.NoteWrite{Cursor: string(n.Cursor), Compare: n.Compare, Revision: m.known[n.IfRevision]}
		if n.Note != nil {
			note.Note = raw(n.Note)
		}
		out.Notes = append(out.Notes, note)
	}
	for _, id := range w.Gone {
		if name, ok := m.ids[id]; ok {
			id = name
		}
		out.Gone = append(out.Gone, id)
	}
	for _, c := range w.Read {
		out.Read = append(out.Read, string(c))
	}
	return out
}

func cursorName(p consume.Partition) string {
	return laneclient.CursorName(modelEngine, modelGroup, p.Topic, int(p.Index))
}

// write makes a write, or several of one session in a batch. Those of a batch have no order:
// they may come to be at one revision.
func (m *consumeModel) write() {
	writes := []*consume.Write{m.randomWrite()}
	alone := m.random.IntN(3) > 0
	for !alone && m.random.IntN(3) > 0 {
		w := m.randomWrite()
		w.Session = writes[0].Session
		if !slices.ContainsFunc(writes, func(o *consume.Write) bool { return o.Partition == w.Partition }) {
			writes = append(writes, w)
		}
	}
	m.what = ""
	bodies := make([]laneclient.CursorWrite, len(writes))
	for n, w := range writes {
		bodies[n] = m.body(w)
		text, _ := json.Marshal(bodies[n])
		m.what += fmt.Sprintf("write %s of %s over %d by %s ", text, cursorName(w.Partition), w.IfRevision, w.Session)
	}
	wants := make([]consume.Answer, len(writes))
	for n, w := range writes {
		wants[n] = m.apply(w)
	}
	var answers []laneclient.CursorAnswer
	if alone {
		answers = append(answers, m.put(writes[0], bodies[0]))
	} else {
		answers = m.batch(writes, bodies)
	}
	m.unordered = slices.Max(append(slices.Collect(maps.Keys(m.known)), 0)) + 1
	for n, want := range wants {
		m.compareWrite(&answers[n], &want, m.alive[writes[n].Session])
	}
}

// batch sends writes together, with one that is none.
func (m *consumeModel) batch(writes []*consume.Write, bodies []laneclient.CursorWrite) []laneclient.CursorAnswer {
	m.t.Helper()
	path := "/v1/notes"
	batch := laneclient.CursorBatch{Writes: []laneclient.CursorBatchWrite{{Name: "nothing"}}}
	for n, w := range writes {
		batch.Writes = append(batch.Writes, laneclient.CursorBatchWrite{Name: cursorName(w.Partition), IfRevision: m.known[w.IfRevision], CursorWrite: bodies[n]})
		if w.Record != nil {
			path = "/v1/cursors:batch"
		}
	}
	var answers laneclient.CursorAnswers
	m.must(http.StatusOK, &answers, "POST", path, batch, laneclient.SessionHeader, m.ids[writes[0].Session])
	if len(answers.Answers) != len(batch.Writes) || answers.Answers[0].Status != http.StatusUnprocessableEntity {
		m.fail("batch is answered %+v", answers)
	}
	return answers.Answers[1:]
}

func (m *consumeModel) compareWrite(got *laneclient.CursorAnswer, want *consume.Answer, alive bool) {
	m.t.Helper()
	status := http.StatusOK
	switch {
	case !alive:
		status = http.StatusConflict
	case want.Outcome == consume.Conflict:
		status = http.StatusPreconditionFailed
	}
	if got.Status != status {
		m.fail("answered %d %s %s, want %d", got.Status, got.Type, got.Detail, status)
	}
	if gone := got.Type == laneclient.ProblemSessionGone; gone != (status == http.StatusConflict) {
		m.fail("answered %d with type %q", got.Status, got.Type)
	}
	m.compareAnswer(got, want)
}

// apply does a write in memory, which does not ask for the writer's session.
func (m *consumeModel) apply(w *consume.Write) consume.Answer {
	if m.alive[w.Session] {
		return m.memory.Apply(w)
	}
	never := *w
	never.IfRevision = ^uint64(0)
	return m.memory.Apply(&never)
}

// put sends a write by itself.
func (m *consumeModel) put(w *consume.Write, body laneclient.CursorWrite) laneclient.CursorAnswer {
	m.t.Helper()
	condition := []string{"If-None-Match", "*"}
	if w.IfRevision > 0 {
		condition = []string{"If-Match", etagOf(m.known[w.IfRevision])}
	}
	a := m.do("PUT", "/v1/cursors/"+cursorName(w.Partition), body, append(condition, laneclient.SessionHeader, m.ids[w.Session])...)
	if a.status == http.StatusOK {
		var done laneclient.CursorDone
		a.into(m.t, &done)
		if a.header.Get("ETag") != etagOf(done.Revision) {
			m.fail("ETag is %s, the revision %d", a.header.Get("ETag"), done.Revision)
		}
		return laneclient.CursorAnswer{Status: a.status, Revision: done.Revision, Notes: done.Notes}
	}
	p := a.problem(m.t)
	var current laneclient.Cursor
	if err := json.Unmarshal(p.Current, &current); err != nil {
		m.fail("%v in %s", err, a.body)
	}
	return laneclient.CursorAnswer{Status: a.status, Type: p.Type, Detail: p.Detail, Revision: current.Revision, Record: current.Record, Notes: current.Notes}
}

// meet notes that two revisions are the same, and fails where they cannot be.
func (m *consumeModel) meet(what string, want, got uint64) {
	m.t.Helper()
	if known, ok := m.known[want]; ok && known != got {
		m.fail("%s is at %d, want %d", what, got, known)
	} else if !ok {
		for w, g := range m.known {
			if (w < want) != (g < got) && min(w, want) < m.unordered {
				m.fail("%s is at %d, which came at %d before %d at %d", what, got, want, g, w)
			}
		}
		m.known[want] = got
	}
}

func (m *consumeModel) compareAnswer(got *laneclient.CursorAnswer, want *consume.Answer) {
	m.t.Helper()
	m.meet("the record", want.Revision, got.Revision)
	m.compareRecord(got.Record, want.Record)
	if len(got.Notes) != len(want.Notes) {
		m.fail("%d notes, want %d: %+v", len(got.Notes), len(want.Notes), got.Notes)
	}
	for n, note := range want.Notes {
		m.compareNote(got.Notes[n], note)
	}
}

func (m *consumeModel) compareRecord(raw json.RawMessage, want *consume.Record) {
	m.t.Helper()
	var got *consume.Record
	if raw != nil {
		got = new(consume.Record)
		if err := json.Unmarshal(raw, got); err != nil {
			m.fail("record: %v", err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		m.fail("record is %+v, want %+v", got, want)
	}
}

func (m *consumeModel) compareNote(got laneclient.CursorNote, want consume.StoredNote) {
	m.t.Helper()
	var note *consume.Note
	if string(got.Note) != "null" {
		note = new(consume.Note)
		if err := json.Unmarshal(got.Note, note); err != nil {
			m.fail("note: %v", err)
		}
	}
	if lane.Name(got.Cursor) != want.Cursor || !reflect.DeepEqual(note, want.Note) {
		m.fail("note of %q is %+v, want %+v", got.Cursor, note, want)
	}
	m.meet("the note of "+got.Cursor, want.Revision, got.Revision)
}

func (m *consumeModel) members() []laneclient.Member {
	m.t.Helper()
	var list laneclient.List
	m.must(http.StatusOK, &list, "GET", "/v1/members?group="+modelGroup, nil)
	out := make([]laneclient.Member, len(list.Items))
	for n, raw := range list.Items {
		if err := json.Unmarshal(raw, &out[n]); err != nil {
			m.t.Fatal(err)
		}
	}
	return out
}

// asModel is a member as the model has it; topics are in no order.
func (m *consumeModel) asModel(o *laneclient.Member) consume.Member {
	topics := slices.Sorted(slices.Values(o.Topics))
	return consume.Member{ID: o.Name, Session: m.names[o.Session], Lane: lane.Name(o.Lane), Generation: o.Generation, Topics: topics, Room: o.Room}
}

func (m *consumeModel) wantMembers() []consume.Member {
	list := slices.Clone(m.memory.View(modelGroup).Members)
	for n := range list {
		list[n].Topics = slices.Sorted(slices.Values(list[n].Topics))
	}
	slices.SortFunc(list, func(a, b consume.Member) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// compare compares all that there is.
func (m *consumeModel) compare() {
	m.t.Helper()
	got := []consume.Member{}
	for _, o := range m.members() {
		got = append(got, m.asModel(&o))
	}
	if want := m.wantMembers(); !reflect.DeepEqual(got, append([]consume.Member{}, want...)) {
		m.fail("members are\n%+v, want\n%+v", got, want)
	}
	var list laneclient.List
	m.must(http.StatusOK, &list, "GET", "/v1/cursors?group="+modelGroup, nil)
	records := m.memory.Records(modelGroup)
	if len(list.Items) != len(records) {
		m.fail("%d records, want %d", len(list.Items), len(records))
	}
	for n, raw := range list.Items {
		var c laneclient.Cursor
		if err := json.Unmarshal(raw, &c); err != nil {
			m.t.Fatal(err)
		}
		if c.Name != cursorName(records[n].Partition) || len(c.Notes) > 0 {
			m.fail("%s is listed, want %s, without notes", raw, cursorName(records[n].Partition))
		}
		m.meet("the record", records[n].Revision, c.Revision)
		m.compareRecord(c.Record, records[n].Record)
	}
	if len(records) > 0 {
		m.compareCursor(&records[m.random.IntN(len(records))])
	}
}

// compareCursor compares what is shown of one partition.
func (m *consumeModel) compareCursor(want *consume.Stored) {
	m.t.Helper()
	var c laneclient.Cursor
	m.must(http.StatusOK, &c, "GET", "/v1/cursors/"+cursorName(want.Partition), nil)
	m.meet("the record", want.Revision, c.Revision)
	m.compareRecord(c.Record, want.Record)
	cursors := []lane.Name{consume.Main}
	cursors = append(cursors, slices.Sorted(maps.Keys(want.Record.Colors))...)
	if len(c.Notes) != len(cursors) {
		m.fail("notes are %+v, want those of %q", c.Notes, cursors)
	}
	for n, cursor := range cursors {
		m.compareNote(c.Notes[n], m.memory.Note(modelGroup, want.Partition, cursor))
	}
}

// compareWatch reads what the watch has told all along: it comes to the same, in one order of
// revisions, and after each record it told how far it had got before it waited for more.
func (m *consumeModel) compareWatch() {
	m.what = "watch"
	end := m.session(`{"role":"end"}`)
	members, records, sessions := map[string]laneclient.Member{}, map[string]laneclient.Cursor{}, map[string]bool{}
	var rev, record, told uint64
	for {
		e, ok := <-m.watched.lines
		switch {
		case !ok || e.Type == laneclient.EventCompacted:
			m.fail("the watch has ended")
		case e.Revision < rev:
			m.fail("%s %s %s at %d comes after %d", e.Type, e.Kind, e.Name, e.Revision, rev)
		}
		rev = e.Revision
		switch {
		case e.Type == laneclient.EventProgress || e.Type == laneclient.EventSynced:
			told = rev
		case e.Kind == laneclient.KindSessions:
			sessions[e.Name] = e.Type == laneclient.EventPut
		case e.Kind == laneclient.KindMembers:
			var o laneclient.Member
			if delete(members, e.Name); e.Type == laneclient.EventPut {
				if err := json.Unmarshal(e.Object, &o); err != nil {
					m.t.Fatal(err)
				}
				members[e.Name] = o
			}
		case e.Kind == laneclient.KindCursors:
			var c laneclient.Cursor
			if err := json.Unmarshal(e.Object, &c); err != nil {
				m.t.Fatal(err)
			}
			records[e.Name], record = c, e.Revision
		}
		if sessions[end.Name] && told >= record {
			break
		}
	}
	delete(sessions, end.Name)
	got := []consume.Member{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		o := members[name]
		got = append(got, m.asModel(&o))
	}
	if want := m.wantMembers(); !reflect.DeepEqual(got, append([]consume.Member{}, want...)) {
		m.fail("members are\n%+v, want\n%+v", got, want)
	}
	for _, s := range m.memory.Records(modelGroup) {
		c := records[cursorName(s.Partition)]
		m.meet("the record", s.Revision, c.Revision)
		m.compareRecord(c.Record, s.Record)
	}
	for id, name := range m.ids {
		if sessions[name] != m.alive[id] {
			m.fail("session %s lives: %t, want %t", id, sessions[name], m.alive[id])
		}
	}
}
