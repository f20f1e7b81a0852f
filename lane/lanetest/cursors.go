package lanetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	maxWriteBytes = 1 << 20
	maxMoves      = 128
)

func isJSON(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// cursorWrite is a write of a partition's cursors.
type cursorWrite struct {
	name, engine string
	record       json.RawMessage // as it is shown; nil: it stays
	w            consume.Write   // with sessions as clients know them
}

// faults are mistakes by field.
type faults []laneclient.FieldError

func (f *faults) add(field, detail string, args ...any) {
	*f = append(*f, laneclient.FieldError{Field: field, Detail: fmt.Sprintf(detail, args...)})
}

// parseWrite reads a write.
func parseWrite(body *laneclient.CursorBatchWrite, f *faults) *cursorWrite {
	c := &cursorWrite{name: body.Name}
	if err := checkCursorName(body.Name); err != nil {
		f.add("name", "%v", err)
		return c
	}
	var n int
	w := &c.w
	c.engine, w.Group, w.Partition.Topic, n, _ = laneclient.ParseCursorName(body.Name)
	w.Partition.Index, w.IfRevision = int32(n), body.IfRevision
	if n := len(body.Notes) + len(body.Gone) + len(body.Read); n > laneclient.MaxCursorKeys {
		f.add("notes", "with gone and read there are %d entries: at most %d are allowed", n, laneclient.MaxCursorKeys)
	}
	if len(body.Moves) > maxMoves {
		f.add("moves", "has %d entries: at most %d are allowed", len(body.Moves), maxMoves)
	}
	if isJSON(body.Record) {
		w.Record = new(consume.Record)
		c.record = parseStored(body.Record, w.Record, laneclient.MaxRecordBytes, "record", f)
	}
	for n := range body.Notes {
		parseNote(w, &body.Notes[n], fmt.Sprintf("notes[%d]", n), f)
	}
	for n, id := range body.Gone {
		if err := lane.CheckInstance(id); err != nil {
			f.add(fmt.Sprintf("gone[%d]", n), "%v", err)
		}
		w.Gone = append(w.Gone, id)
	}
	for n, cursor := range body.Read {
		checkColor(cursor, fmt.Sprintf("read[%d]", n), f)
		w.Read = append(w.Read, lane.Name(cursor))
	}
	return c
}

func parseNote(w *consume.Write, body *laneclient.NoteWrite, at string, f *faults) {
	n := consume.NoteWrite{Cursor: lane.Name(body.Cursor), Compare: body.Compare, IfRevision: body.Revision}
	checkColor(body.Cursor, at+".cursor", f)
	if slices.ContainsFunc(w.Notes, func(o consume.NoteWrite) bool { return o.Cursor == n.Cursor }) {
		f.add(at+".cursor", "is there twice")
	}
	if n.IfRevision != 0 && !n.Compare {
		f.add(at+".revision", "is not compared: set compare, or leave it out")
	}
	switch {
	case len(body.Note) == 0:
		f.add(at+".note", "is missing: give the note, or null to delete it")
	case isJSON(body.Note):
		n.Note = new(consume.Note)
		parseStored(body.Note, n.Note, maxBodyBytes, at+".note", f)
		if len(n.Note.Left) > laneclient.MaxNoteLeft {
			f.add(at+".note.left", "has %d offsets: at most %d are allowed", len(n.Note.Left), laneclient.MaxNoteLeft)
		}
	}
	w.Notes = append(w.Notes, n)
}

func checkColor(cursor, at string, f *faults) {
	if cursor != "" && !lane.Name(cursor).Valid() {
		f.add(at, "%q is no color: want a lane's name, or nothing for main", cursor)
	}
}

// parseStored reads a form of package consume, and gives it without white space.
func parseStored(raw json.RawMessage, into json.Unmarshaler, most int, at string, f *faults) json.RawMessage {
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	if err == nil {
		err = into.UnmarshalJSON(b.Bytes())
	}
	switch {
	case err != nil:
		f.add(at, "%v", err)
	case b.Len() > most:
		f.add(at, "has %d bytes: at most %d are allowed", b.Len(), most)
	}
	return b.Bytes()
}

// writeCursors carries out a write of a session, whole or not at all, and answers it.
func (r *registry) writeCursors(session string, body *laneclient.CursorBatchWrite, records bool) laneclient.CursorAnswer {
	var f faults
	c := parseWrite(body, &f)
	if !records && isJSON(body.Record) {
		f.add("record", "is no note: send records to POST /v1/cursors:batch")
	}
	if len(f) > 0 {
		return refused(laneclient.MistakesProblem("the write", f))
	}
	g := r.group(c.w.Group)
	switch {
	case g == nil:
		return refused(r.groupGone(c.w.Group))
	case g.Engine != c.engine:
		return refused(problem(http.StatusConflict, laneclient.ProblemGroup, "group %q is of engine %q", g.Name, g.Engine))
	}
	w := c.w
	w.Group, w.Session, w.Gone = r.logs[g.Name], r.inner(session), nil
	for _, id := range c.w.Gone {
		w.Gone = append(w.Gone, r.inner(id))
	}
	done, err := r.writer.Move(context.Background(), &w)
	if err != nil {
		panic("lanetest: the memory does not answer: " + err.Error())
	}
	return r.answer(c, &done, session)
}

// answer is what a client is told of a write that the memory has answered.
func (r *registry) answer(c *cursorWrite, done *consume.Answer, session string) laneclient.CursorAnswer {
	at := ref{laneclient.KindCursors, c.name}
	out := laneclient.CursorAnswer{Status: http.StatusOK}
	switch {
	case done.Ended:
		out = refused(sessionGone(http.StatusConflict, session))
	case done.Outcome != consume.Done:
		out = refused(problem(http.StatusPreconditionFailed, laneclient.ProblemChanged,
			"cursors %q, a note or a session are not as the write says: look at record and notes as they are", c.name))
	case c.record != nil:
		r.commitAt(done.Revision, mutation{at, cursorOf(c.name, c.record)})
	}
	if o := r.objects[at]; o != nil && out.Status != http.StatusOK {
		was, _ := o.obj.(*laneclient.Cursor)
		out.Record = was.Record
	}
	out.Revision = done.Revision
	for _, n := range done.Notes {
		r.rev = max(r.rev, n.Revision) // a note alone makes a revision, too
		out.Notes = append(out.Notes, shownNote(n))
	}
	return out
}

func refused(p *laneclient.Problem) laneclient.CursorAnswer {
	return laneclient.CursorAnswer{Status: p.Status, Type: p.Type, Detail: p.Detail, Errors: p.Errors}
}

func cursorOf(name string, record json.RawMessage) *laneclient.Cursor {
	c := &laneclient.Cursor{Meta: laneclient.Meta{Name: name}, Record: record}
	c.Engine, c.Group, c.Topic, c.Partition, _ = laneclient.ParseCursorName(name)
	return c
}

func shownNote(n consume.StoredNote) laneclient.CursorNote {
	out := laneclient.CursorNote{Cursor: string(n.Cursor), Revision: n.Revision}
	if n.Note == nil {
		return out
	}
	var err error
	if out.Note, err = json.Marshal(n.Note); err != nil {
		panic("lanetest: a note cannot be encoded: " + err.Error())
	}
	return out
}

// writerOf is the session that a write is made in.
func writerOf(req *http.Request) (string, error) {
	session := req.Header.Get(laneclient.SessionHeader)
	if lane.CheckInstance(session) != nil {
		return "", invalid(laneclient.SessionHeader, "is missing, or no session: name the writer's session, which must live")
	}
	return session, nil
}

// restsOn is the revision of the record that a write rests on.
func restsOn(h http.Header) (uint64, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	if none == "*" && match == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || none != "" {
		return 0, problem(http.StatusPreconditionRequired, "", "send If-Match with the record's revision, or If-None-Match: * where there is none")
	}
	return rev, nil
}

func (r *Replica) putCursor(w http.ResponseWriter, req *http.Request) error {
	k, _ := kindOf(laneclient.KindCursors)
	at, err := k.named(req)
	if err != nil {
		return err
	}
	body := laneclient.CursorBatchWrite{Name: at.name}
	if body.IfRevision, err = restsOn(req.Header); err != nil {
		return err
	}
	if err := decodeUpTo(w, req, maxWriteBytes, &body.CursorWrite); err != nil {
		return err
	}
	session, err := writerOf(req)
	if err != nil {
		return err
	}
	r.reg.mu.Lock()
	a := r.reg.writeCursors(session, &body, true)
	r.reg.mu.Unlock()
	if a.Status == http.StatusOK {
		w.Header().Set("Etag", etag(a.Revision))
		return writeJSON(w, http.StatusOK, laneclient.CursorDone{Revision: a.Revision, Notes: slices.Concat([]laneclient.CursorNote{}, a.Notes)})
	}
	p := problem(a.Status, a.Type, "%s", a.Detail)
	p.Errors = a.Errors
	if a.Type == laneclient.ProblemChanged || a.Type == laneclient.ProblemSessionGone {
		current := cursorOf(at.name, a.Record)
		current.Revision, current.Notes = a.Revision, a.Notes
		p.Current = (&object{obj: current}).body()
	}
	return p
}

// postCursors carries out writes one after the other. Without records: notes alone.
func (r *Replica) postCursors(records bool) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		var body laneclient.CursorBatch
		if err := decodeUpTo(w, req, laneclient.MaxBatchBytes, &body); err != nil {
			return err
		}
		session, err := writerOf(req)
		if err != nil {
			return err
		}
		if n := len(body.Writes); n > laneclient.MaxCursorBatch {
			return invalid("writes", "has %d entries: at most %d are allowed", n, laneclient.MaxCursorBatch)
		}
		out := laneclient.CursorAnswers{Answers: make([]laneclient.CursorAnswer, len(body.Writes))}
		r.reg.mu.Lock()
		for n := range body.Writes {
			out.Answers[n] = r.reg.writeCursors(session, &body.Writes[n], records)
		}
		r.reg.mu.Unlock()
		return writeJSON(w, http.StatusOK, out)
	}
}

// getCursor shows a record with its notes, main's first.
func (r *Replica) getCursor(w http.ResponseWriter, req *http.Request) error {
	k, _ := kindOf(laneclient.KindCursors)
	at := k.refOf(req)
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	o := r.reg.objects[at]
	if o == nil {
		return notFound(at)
	}
	stored, _ := o.obj.(*laneclient.Cursor)
	var record consume.Record
	if err := record.UnmarshalJSON(stored.Record); err != nil {
		return err
	}
	shown, p := *stored, consume.Partition{Topic: stored.Topic, Index: int32(stored.Partition)}
	for _, cursor := range slices.Concat([]lane.Name{consume.Main}, slices.Sorted(maps.Keys(record.Colors))) {
		shown.Notes = append(shown.Notes, shownNote(r.reg.memory.Note(r.reg.logs[stored.Group], p, cursor)))
	}
	return writeObject(w, http.StatusOK, &object{ref: at, obj: &shown, rev: o.rev})
}
