package consume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// RecordVersion is the version of the persisted forms of [Record] and [Note]. A form of a
// later version is refused, since its rules are not known here.
const RecordVersion = 1

// ErrVersion is returned by the UnmarshalJSON of [Record] and [Note] for a form that a later
// version of this package wrote.
var ErrVersion = errors.New("written by a later version: upgrade this process")

// Partition names one partition of a topic. It compares with ==.
type Partition struct {
	Topic string
	Index int32
}

// String is the topic and the index, as in "orders/3".
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Index) }

// Main is the name of the main cursor where cursors are named by their color.
const Main = lane.Baseline

// Holder is the session that runs a cursor, and the lane for whose members it runs it
// (zero: the baseline). The zero Holder is nobody. It compares with ==.
type Holder struct {
	Session string
	Lane    lane.Name
}

// None reports whether h is nobody.
func (h Holder) None() bool { return h.Session == "" }

// String is "session@lane", with "-" for the baseline's lane, or "none".
func (h Holder) String() string {
	switch {
	case h.None():
		return "none"
	case h.Lane == lane.Baseline:
		return h.Session + "@-"
	}
	return h.Session + "@" + string(h.Lane)
}

// Entry is a color that is split off: its messages at or above From belong to its own
// cursor, those below to the main cursor.
type Entry struct {
	From   int64
	Holder Holder

	extra fields
}

// Record is who holds the cursors of one partition. It is replaced as a whole, in a
// transaction that compares its revision; only moves write it. Nobody changes one that was
// handed to a [Core] or came from it.
//
// Its persisted form is JSON with a version; fields that are not known are kept.
type Record struct {
	Main   Holder
	Colors map[lane.Name]Entry
	Epoch  string // the engine's word for this run of offsets; another one means another log
	Reset  string // the id of the last reset that was done (see [Group])

	extra, mainExtra fields
}

// Holder gives who holds a cursor, and whether there is such a cursor.
func (r *Record) Holder(cursor lane.Name) (Holder, bool) {
	if cursor == Main {
		return r.Main, true
	}
	e, ok := r.Colors[cursor]
	return e.Holder, ok
}

// Clone is a deep copy.
func (r *Record) Clone() *Record {
	c := *r
	c.Colors = maps.Clone(r.Colors)
	return &c
}

// Owns reports whether a message of a color at an offset belongs to the color's own cursor,
// and not to main.
func (r *Record) Owns(color lane.Name, offset int64) bool {
	if color == Main {
		return false
	}
	e, ok := r.Colors[color]
	return ok && offset >= e.From
}

// setHolder changes the holder of a cursor that is there.
func (r *Record) setHolder(cursor lane.Name, h Holder) {
	if cursor == Main {
		r.Main = h
		return
	}
	e := r.Colors[cursor]
	e.Holder = h
	r.Colors[cursor] = e
}

// Note is the lasting fact that of a cursor's messages all below Pos are settled, except
// the offsets in Left, which go up and lie below Pos. It stays true until a merge, a reset
// or a new split of its color.
type Note struct {
	Pos  int64
	Left []int64
	// Doubtful: a message below it may have been dispatched by a holder that was lost.
	// Zero, or above Pos, or −1 where all may have been that were in the log.
	Doubtful int64

	extra fields
}

// doubtfulAll stands for the end of the log where it is not known.
const doubtfulAll = -1

// Settled reports whether the note says that a message of its cursor is settled.
func (n *Note) Settled(offset int64) bool {
	if offset >= n.Pos {
		return false
	}
	_, left := slices.BinarySearch(n.Left, offset)
	return !left
}

// fields are those of a persisted form that this version does not know.
type fields map[string]json.RawMessage

type jsonHolder struct {
	Session string    `json:"session"`
	Lane    lane.Name `json:"lane,omitempty"`
}

type jsonMain struct {
	Holder *jsonHolder `json:"holder"`
}

type jsonEntry struct {
	From   int64       `json:"from"`
	Holder *jsonHolder `json:"holder"`
}

// jsonRecord is a record whose parts may have fields that are not known.
type jsonRecord struct {
	V      int                           `json:"v"`
	Main   json.RawMessage               `json:"main"`
	Colors map[lane.Name]json.RawMessage `json:"colors,omitempty"`
	Epoch  string                        `json:"epoch,omitempty"`
	Reset  string                        `json:"reset,omitempty"`
}

// plainRecord is a record without such fields: nearly every one, and read for half of the
// price.
type plainRecord struct {
	V      int                     `json:"v"`
	Main   jsonMain                `json:"main"`
	Colors map[lane.Name]jsonEntry `json:"colors,omitempty"`
	Epoch  string                  `json:"epoch,omitempty"`
	Reset  string                  `json:"reset,omitempty"`
}

type jsonNote struct {
	V        int     `json:"v"`
	Pos      int64   `json:"pos"`
	Left     []int64 `json:"left,omitempty"`
	Doubtful int64   `json:"doubtful,omitempty"`
}

func toJSON(h Holder) *jsonHolder {
	if h.None() {
		return nil
	}
	return &jsonHolder{Session: h.Session, Lane: h.Lane}
}

func fromJSON(h *jsonHolder) Holder {
	if h == nil {
		return Holder{}
	}
	return Holder{Session: h.Session, Lane: h.Lane}
}

// MarshalJSON gives the persisted form.
func (r *Record) MarshalJSON() ([]byte, error) {
	if r.plain() {
		return r.marshalPlain()
	}
	main, err := withExtra(jsonMain{toJSON(r.Main)}, r.mainExtra)
	if err != nil {
		return nil, err
	}
	out := jsonRecord{V: RecordVersion, Main: main, Epoch: r.Epoch, Reset: r.Reset}
	for c, e := range r.Colors {
		if out.Colors == nil {
			out.Colors = map[lane.Name]json.RawMessage{}
		}
		if out.Colors[c], err = withExtra(jsonEntry{e.From, toJSON(e.Holder)}, e.extra); err != nil {
			return nil, err
		}
	}
	return withExtra(out, r.extra)
}

// plain reports whether there are no fields that are not known.
func (r *Record) plain() bool {
	for _, e := range r.Colors {
		if len(e.extra) > 0 {
			return false
		}
	}
	return len(r.extra)+len(r.mainExtra) == 0
}

func (r *Record) marshalPlain() ([]byte, error) {
	out := plainRecord{V: RecordVersion, Main: jsonMain{toJSON(r.Main)}, Epoch: r.Epoch, Reset: r.Reset}
	if len(r.Colors) > 0 {
		out.Colors = make(map[lane.Name]jsonEntry, len(r.Colors))
		for c, e := range r.Colors {
			out.Colors[c] = jsonEntry{e.From, toJSON(e.Holder)}
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the persisted form. It refuses one of a later version with
// [ErrVersion], and one that contradicts itself.
func (r *Record) UnmarshalJSON(data []byte) error {
	var plain plainRecord
	if !isPlain(data, &plain) {
		return r.unmarshalAny(data)
	}
	if err := checkVersion(plain.V); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	out := Record{Main: fromJSON(plain.Main.Holder), Epoch: plain.Epoch, Reset: plain.Reset}
	for c, e := range plain.Colors {
		if err := out.setEntry(c, Entry{From: e.From, Holder: fromJSON(e.Holder)}); err != nil {
			return err
		}
	}
	*r = out
	return nil
}

// setEntry adds a color that was read.
func (r *Record) setEntry(color lane.Name, e Entry) error {
	switch {
	case !color.Valid():
		return fmt.Errorf("record: color %q is no lane name", color)
	case e.From < 0:
		return fmt.Errorf("record: color %s: from is %d", color, e.From)
	case r.Colors == nil:
		r.Colors = map[lane.Name]Entry{}
	}
	r.Colors[color] = e
	return nil
}

// unmarshalAny reads a record that may have fields that are not known.
func (r *Record) unmarshalAny(data []byte) error {
	var in jsonRecord
	extra, err := splitExtra(data, &in, "v", "main", "colors", "epoch", "reset")
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := checkVersion(in.V); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	out := Record{Epoch: in.Epoch, Reset: in.Reset, extra: extra}
	var m jsonMain
	if len(in.Main) > 0 {
		if out.mainExtra, err = splitExtra(in.Main, &m, "holder"); err != nil {
			return fmt.Errorf("record: main: %w", err)
		}
	}
	out.Main = fromJSON(m.Holder)
	for c, raw := range in.Colors {
		var e jsonEntry
		more, err := splitExtra(raw, &e, "from", "holder")
		if err != nil {
			return fmt.Errorf("record: color %s: %w", c, err)
		}
		if err := out.setEntry(c, Entry{From: e.From, Holder: fromJSON(e.Holder), extra: more}); err != nil {
			return err
		}
	}
	*r = out
	return nil
}

// MarshalJSON gives the persisted form.
func (n *Note) MarshalJSON() ([]byte, error) {
	return withExtra(jsonNote{V: RecordVersion, Pos: n.Pos, Left: n.Left, Doubtful: n.Doubtful}, n.extra)
}

// UnmarshalJSON reads the persisted form. It refuses one of a later version with
// [ErrVersion], and one whose left is not in order or not below its position.
func (n *Note) UnmarshalJSON(data []byte) error {
	var in jsonNote
	var extra fields
	if !isPlain(data, &in) {
		in = jsonNote{}
		var err error
		if extra, err = splitExtra(data, &in, "v", "pos", "left", "doubtful"); err != nil {
			return fmt.Errorf("note: %w", err)
		}
	}
	if err := checkVersion(in.V); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	for i, o := range in.Left {
		if o < 0 || o >= in.Pos || i > 0 && o <= in.Left[i-1] {
			return fmt.Errorf("note: left has %d at %d: want offsets that go up and lie below pos %d", o, i, in.Pos)
		}
	}
	if in.Pos < 0 || in.Doubtful < doubtfulAll {
		return fmt.Errorf("note: pos is %d and doubtful %d", in.Pos, in.Doubtful)
	}
	*n = Note{Pos: in.Pos, Left: in.Left, Doubtful: in.Doubtful, extra: extra}
	return nil
}

func checkVersion(v int) error {
	switch {
	case v < 1:
		return fmt.Errorf("version %d is none", v)
	case v > RecordVersion:
		return fmt.Errorf("version %d: %w", v, ErrVersion)
	}
	return nil
}

// isPlain reads data into known, and reports whether it is all of what data has.
func isPlain(data []byte, known any) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(known) == nil && d.InputOffset() == int64(len(data))
}

// splitExtra reads data into known and returns the fields that are none of names.
func splitExtra(data []byte, known any, names ...string) (fields, error) {
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	var all fields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for _, name := range names {
		delete(all, name)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// withExtra is the JSON of known with the fields of extra that it lacks.
func withExtra(known any, extra fields) ([]byte, error) {
	data, err := json.Marshal(known)
	if err != nil || len(extra) == 0 {
		return data, err
	}
	var all fields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for name, raw := range extra {
		if _, ok := all[name]; !ok {
			all[name] = raw
		}
	}
	return json.Marshal(all)
}
