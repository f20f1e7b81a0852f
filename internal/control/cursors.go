package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	maxWriteBytes = 1 << 20   // of one write of cursors; a transaction holds no more
	maxBatchBytes = 4 << 20   // of a batch of them
	maxNoteBytes  = 256 << 10 // of one note
	maxMoves      = 128       // that a write tells of
)

// cursorWrite is a write of a partition's cursors that was read and checked.
type cursorWrite struct {
	name, engine, group string // of the cursors
	session             string // who writes
	rev                 uint64 // of the record; 0: there is none
	record              []byte // nil: it stays
	notes               []noteWrite
	gone                []string
	read                []string // cursors whose notes are asked for and not written
	moves               []laneclient.CursorMove
}

type noteWrite struct {
	cursor  string
	value   []byte // nil: deleted
	compare bool
	rev     uint64
}

// checkWrite reads a write. It is pure.
func checkWrite(name string, body *laneclient.CursorWrite, f *faults) *cursorWrite {
	w := &cursorWrite{name: name, moves: body.Moves}
	if n := len(body.Notes) + len(body.Gone) + len(body.Read); n > laneclient.MaxCursorKeys {
		f.add("notes", "with gone and read there are %d entries: at most %d are allowed in one write; do the rest in the next", n, laneclient.MaxCursorKeys)
		return w
	}
	if len(body.Moves) > maxMoves {
		f.add("moves", "has %d entries: at most %d are allowed", len(body.Moves), maxMoves)
	}
	field := func(name string, n int) string { return name + "[" + strconv.Itoa(n) + "]" }
	if isJSON(body.Record) {
		var r consume.Record
		w.record = stored(body.Record, &r, laneclient.MaxRecordBytes, "record", f)
	}
	for n, note := range body.Notes {
		where := field("notes", n)
		checkColor(where+".cursor", note.Cursor, f)
		if slices.ContainsFunc(w.notes, func(o noteWrite) bool { return o.cursor == note.Cursor }) {
			f.add(where+".cursor", "is there twice: write each note once")
		}
		w.notes = append(w.notes, noteWrite{note.Cursor, checkNote(note.Note, where+".note", f), note.Compare, note.Revision})
		if note.Revision != 0 && !note.Compare {
			f.add(where+".revision", "is not compared: set compare, or leave it out")
		}
	}
	for n, id := range body.Gone {
		if !isPlainName(id) {
			f.add(field("gone", n), "%q is no session: want the name of one, as records have it", clip(id))
		}
		if !slices.Contains(w.gone, id) {
			w.gone = append(w.gone, id)
		}
	}
	for n, cursor := range body.Read {
		checkColor(field("read", n), cursor, f)
		written := slices.ContainsFunc(w.notes, func(o noteWrite) bool { return o.cursor == cursor })
		if !written && !slices.Contains(w.read, cursor) {
			w.read = append(w.read, cursor)
		}
	}
	return w
}

// isJSON reports whether a field has a value: one that is null is left out.
func isJSON(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

func checkColor(field, cursor string, f *faults) {
	if cursor != "" && !lane.Name(cursor).Valid() {
		f.add(field, "%q is no color: want a lane's name, or nothing for main", clip(cursor))
	}
}

func checkNote(raw json.RawMessage, field string, f *faults) []byte {
	if len(raw) == 0 {
		f.add(field, "is missing: give the note, or null to delete it")
	}
	if !isJSON(raw) {
		return nil
	}
	var n consume.Note
	value := stored(raw, &n, maxNoteBytes, field, f)
	if len(n.Left) > laneclient.MaxNoteLeft {
		f.add(field+".left", "has %d offsets: at most %d are allowed; give out fewer messages at once", len(n.Left), laneclient.MaxNoteLeft)
	}
	return value
}

// stored checks a form that package consume reads, and gives it as it is stored: with every
// field, also those that this version does not know.
func stored(raw json.RawMessage, into json.Unmarshaler, most int, field string, f *faults) []byte {
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	if err == nil {
		err = into.UnmarshalJSON(b.Bytes())
	}
	switch {
	case errors.Is(err, consume.ErrVersion):
		f.add(field, "is of a later version than this control plane knows: upgrade the control plane first")
	case err != nil:
		f.add(field, "%s", clip(err.Error()))
	case b.Len() > most:
		f.add(field, "has %d bytes: at most %d are allowed", b.Len(), most)
	}
	return b.Bytes()
}

// txn is the write as one transaction. What it compares and what it reads name no key twice.
func (w *cursorWrite) txn() store.Txn {
	record := cursorRef(w.name).key()
	t := store.Txn{If: []store.Compare{
		{Key: sessionRef(w.session).key(), Revision: store.Exists},
		{Key: membershipPrefix + w.group, Revision: store.Exists},
		{Key: record, Revision: w.rev},
	}}
	if w.record != nil {
		t.Ops = append(t.Ops, store.Op{Key: record, Value: w.record})
	}
	for _, n := range w.notes {
		key := noteKey(w.name, n.cursor)
		if n.compare {
			t.If = append(t.If, store.Compare{Key: key, Revision: n.rev})
		} else {
			t.Read = append(t.Read, key)
		}
		t.Ops = append(t.Ops, store.Op{Key: key, Value: n.value, Delete: n.value == nil})
	}
	for _, id := range w.gone {
		t.If = append(t.If, store.Compare{Key: sessionRef(id).key()})
	}
	for _, cursor := range w.read {
		t.Read = append(t.Read, noteKey(w.name, cursor))
	}
	return t
}

// cursorAnswer is what a write was answered. err is nil where it took place.
type cursorAnswer struct {
	rev    uint64
	record []byte // of one that was refused
	notes  []laneclient.CursorNote
	err    *laneclient.Problem
}

// note is a cursor's note as it is stored; a kv without revision: there is none.
func note(cursor string, kv store.KV) laneclient.CursorNote {
	if kv.ModRevision == 0 {
		return laneclient.CursorNote{Cursor: cursor}
	}
	return laneclient.CursorNote{Cursor: cursor, Note: kv.Value, Revision: kv.ModRevision}
}

// writeCursors carries out a write in one transaction, and answers it with record and notes
// as they are at that very revision. err: what became of it is not known, or it was not
// carried out at all. It is counted.
func (c *Control) writeCursors(ctx context.Context, w *cursorWrite) (cursorAnswer, error) {
	began := time.Now()
	a, err := c.carryOut(ctx, w)
	c.metrics.cursors.wrote(w, &a, err, time.Since(began))
	return a, err
}

func (c *Control) carryOut(ctx context.Context, w *cursorWrite) (cursorAnswer, error) {
	if err := c.admit(ctx, w); err != nil {
		return cursorAnswer{}, err
	}
	res, err := c.cfg.Store.Do(ctx, w.txn())
	switch {
	case err != nil:
		return cursorAnswer{}, err
	case res.Done:
		return w.done(res.Revision, foundIn(res)), nil
	}
	return w.refused(foundIn(res))
}

// admit says why a write is not even tried.
func (c *Control) admit(ctx context.Context, w *cursorWrite) error {
	if err := c.engineOf(ctx, w); err != nil {
		return err
	}
	if w.record != nil && w.rev == 0 && c.cache.count(laneclient.KindCursors) >= maxPerKind {
		return problem(http.StatusConflict, "there are the cursors of %d partitions, which is the limit: delete groups that nobody needs first", maxPerKind)
	}
	return nil
}

// foundIn is what a transaction has read, by key.
func foundIn(res store.Result) map[string]store.KV {
	found := map[string]store.KV{}
	for _, kv := range slices.Concat(res.Current, res.Read) {
		found[kv.Key] = kv
	}
	return found
}

// done answers a write that took place at a revision.
func (w *cursorWrite) done(rev uint64, found map[string]store.KV) cursorAnswer {
	a := cursorAnswer{rev: w.rev}
	if w.record != nil {
		a.rev = rev
	}
	for _, n := range w.notes {
		kv := store.KV{}
		if n.value != nil {
			kv = store.KV{Value: n.value, ModRevision: rev}
		}
		a.notes = append(a.notes, note(n.cursor, kv))
	}
	a.notes = append(a.notes, w.asked(found)...)
	return a
}

// asked are the notes that a write reads and does not write.
func (w *cursorWrite) asked(found map[string]store.KV) (notes []laneclient.CursorNote) {
	for _, cursor := range w.read {
		notes = append(notes, note(cursor, found[noteKey(w.name, cursor)]))
	}
	return notes
}

// refused answers a write that did not take place, with what there is.
func (w *cursorWrite) refused(found map[string]store.KV) (cursorAnswer, error) {
	kv := found[cursorRef(w.name).key()]
	a := cursorAnswer{rev: kv.ModRevision, record: kv.Value}
	for _, n := range w.notes {
		a.notes = append(a.notes, note(n.cursor, found[noteKey(w.name, n.cursor)]))
	}
	a.notes = append(a.notes, w.asked(found)...)
	if a.record != nil && !json.Valid(a.record) { // the other answers of a batch could not be sent with it
		return cursorAnswer{}, fmt.Errorf("stored cursors %s: %w", w.name, errNoRecord)
	}
	_, lives := found[sessionRef(w.session).key()]
	_, open := found[membershipPrefix+w.group]
	switch {
	case !lives:
		a.err = sessionGone(http.StatusConflict, w.session)
	case !open:
		return cursorAnswer{}, groupGone(w.group)
	default:
		a.err = typed(problem(http.StatusPreconditionFailed,
			"cursors %q, a note or a session are not as the write says: look at record and notes as they are, and decide again", w.name), laneclient.ProblemChanged)
	}
	return a, nil
}

// refusal is that of a write by itself: it carries what there is.
func (a *cursorAnswer) refusal(name string) error {
	obj := &laneclient.Cursor{Meta: laneclient.Meta{Name: name, Revision: a.rev}, Record: a.record, Notes: a.notes}
	obj.Engine, obj.Group, obj.Topic, obj.Partition, _ = laneclient.ParseCursorName(name)
	var err error
	if a.err.Current, err = json.Marshal(obj); err != nil { // a note as it is stored is no JSON
		return fmt.Errorf("stored cursors %s: %w", name, err)
	}
	return a.err
}

// engineOf checks that a write's cursors are where the group's are.
func (c *Control) engineOf(ctx context.Context, w *cursorWrite) error {
	g := groupOfItem(c.cache.get(groupRef(w.group)))
	if g == nil || g.Engine != w.engine { // it may be newer than the cache
		it, err := c.read(ctx, groupRef(w.group))
		if err != nil {
			return err
		}
		g = groupOfItem(it)
	}
	switch {
	case g == nil:
		return groupGone(w.group)
	case g.Engine != w.engine:
		return typed(problem(http.StatusConflict, "group %q is of engine %q: name its cursors %s/%s/…", g.Name, g.Engine, g.Engine, g.Name), laneclient.ProblemGroup)
	}
	return nil
}

// getCursor shows a record with its notes, both read from the registry itself.
func (c *Control) getCursor(w http.ResponseWriter, r *http.Request, p params) error {
	at := refOf(c.cache.kinds[laneclient.KindCursors], p)
	for range maxAttempts {
		it, err := c.read(r.Context(), at)
		if err != nil {
			return err
		}
		if it == nil {
			return notFound(at)
		}
		notes, same, err := c.notesOf(r.Context(), it)
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		obj, _ := copyObject(it.obj).(*laneclient.Cursor)
		obj.Notes = notes
		w.Header().Set("Etag", etag(it.rev))
		return writeJSON(w, http.StatusOK, obj)
	}
	return busy(at)
}

// notesOf reads the notes of a record's cursors; same is false where the record has changed
// meanwhile.
func (c *Control) notesOf(ctx context.Context, it *item) (notes []laneclient.CursorNote, same bool, err error) {
	var r consume.Record
	if err := r.UnmarshalJSON(it.raw); err != nil {
		return nil, false, fmt.Errorf("stored cursors %s: %w", it.name, err)
	}
	cursors := []string{""}
	for _, color := range slices.Sorted(maps.Keys(r.Colors)) {
		cursors = append(cursors, string(color))
	}
	for part := range slices.Chunk(cursors, laneclient.MaxCursorKeys) {
		txn := store.Txn{If: []store.Compare{{Key: it.key(), Revision: it.rev}}}
		for _, cursor := range part {
			txn.Read = append(txn.Read, noteKey(it.name, cursor))
		}
		res, err := c.cfg.Store.Do(ctx, txn)
		if err != nil || !res.Done {
			return nil, false, err
		}
		found := map[string]store.KV{}
		for _, kv := range res.Read {
			found[kv.Key] = kv
		}
		for _, cursor := range part {
			notes = append(notes, note(cursor, found[noteKey(it.name, cursor)]))
		}
	}
	return notes, true, nil
}
