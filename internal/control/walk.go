package control

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// What null says where a value stands.
type nullRule bool

const (
	mayBeNull nullRule = true  // of a field: as if it were left out
	notNull   nullRule = false // of the whole, and of elements: that there is something, and what is not said
)

// manyKeys is from how many on an object's keys are looked up in a map.
const manyKeys = 16

// walk notes what of a JSON value, which is known to be one, does not fit t.
//
// It reads the text itself: [json.Decoder] gives tokens at several times the price, and every
// write of cursors comes through here.
func walk(value []byte, t reflect.Type, f *faults) error {
	w := walker{text: value, shapes: map[reflect.Type]*shape{}, f: f}
	return w.value(t, notNull)
}

// walker is at a place in a JSON text. It makes the words of where it is only for a fault.
type walker struct {
	text   []byte
	at     int
	path   []place
	keys   [][]byte // of the objects around, one after the other
	shapes map[reflect.Type]*shape
	f      *faults
}

// place is a key, or a place in a list.
type place struct {
	key   []byte // nil: index says it
	index int
}

// shape is what there is to know of a type.
type shape struct {
	isText bool
	fields map[string]reflect.Type // of a struct
}

func (w *walker) shape(t reflect.Type) *shape {
	s := w.shapes[t]
	if s == nil {
		s = &shape{isText: isText(t)}
		if !s.isText && t.Kind() == reflect.Struct {
			s.fields = jsonFields(t)
		}
		w.shapes[t] = s
	}
	return s
}

// where is the path to the present value, as in "notes[2].cursor".
func (w *walker) where() string {
	var b strings.Builder
	for _, s := range w.path {
		switch {
		case s.key == nil:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.Write(s.key)
	}
	return b.String()
}

func (w *walker) fault(detail string, args ...any) { w.f.add(w.where(), detail, args...) }

// next passes over space, and is the byte that follows it.
func (w *walker) next() byte {
	for {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
}

// value reads one value and notes what does not fit t. A nil t fits everything.
func (w *walker) value(t reflect.Type, null nullRule) error {
	if len(w.path) > maxDepth {
		return errTooDeep
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		t = nil // read elsewhere
	}
	switch w.next() {
	case '{':
		return w.object(t)
	case '[':
		return w.list(t)
	}
	switch text := w.scalar(); {
	case t == nil:
	case text[0] != 'n':
		w.checkScalar(text, t)
	case null == notNull:
		w.fault("is null: want %s", typeWords(t))
	}
	return nil
}

// scalar passes over a string, a number or a word, and gives it as it is written.
func (w *walker) scalar() []byte {
	from := w.at
	if w.text[from] == '"' {
		for w.at++; w.text[w.at] != '"'; w.at++ {
			if w.text[w.at] == '\\' {
				w.at++
			}
		}
		w.at++
		return w.text[from:w.at]
	}
	for w.at < len(w.text) && !endsScalar(w.text[w.at]) {
		w.at++
	}
	return w.text[from:w.at]
}

func endsScalar(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ']', '}':
		return true
	}
	return false
}

// unquoted is what a string in JSON says.
func unquoted(text []byte) []byte {
	if !bytes.ContainsRune(text, '\\') && isASCII(text) {
		return text[1 : len(text)-1]
	}
	var s string
	_ = json.Unmarshal(text, &s) // it is one
	return []byte(s)
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x80 })
}

func (w *walker) object(t reflect.Type) error {
	var known map[string]reflect.Type
	var elem reflect.Type
	switch {
	case t == nil:
	case t.Kind() == reflect.Map && !w.shape(t).isText:
		elem = t.Elem()
	case w.shape(t).fields != nil:
		known = w.shape(t).fields
	default:
		w.fault("is an object: want %s", typeWords(t))
	}
	first, many := len(w.keys), map[string]bool(nil)
	for w.at++; w.next() != '}'; {
		if w.text[w.at] == ',' {
			w.at++
			continue
		}
		key := unquoted(w.scalar())
		w.path = append(w.path, place{key: key})
		if twice(key, w.keys[first:], &many) {
			w.fault("stands twice: leave one")
		}
		w.keys = append(w.keys, key)
		child, null := elem, notNull
		if known != nil {
			ft, ok := known[string(key)]
			if child, null = ft, mayBeNull; !ok {
				w.fault("is not known: known here are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
		}
		w.next()
		w.at++ // ':'
		if err := w.value(child, null); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	w.at++
	w.keys = w.keys[:first]
	return nil
}

// twice reports whether a key is among those before, which it looks up in a map where they are
// many.
func twice(key []byte, before [][]byte, many *map[string]bool) bool {
	if len(before) < manyKeys {
		return slices.ContainsFunc(before, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if *many == nil {
		*many = map[string]bool{}
		for _, k := range before {
			(*many)[string(k)] = true
		}
	}
	there := (*many)[string(key)]
	(*many)[string(key)] = true
	return there
}

func (w *walker) list(t reflect.Type) error {
	var elem reflect.Type
	switch {
	case t == nil:
	case t.Kind() == reflect.Slice && !w.shape(t).isText:
		elem = t.Elem()
	default:
		w.fault("is a list: want %s", typeWords(t))
	}
	w.path = append(w.path, place{})
	for w.at++; w.next() != ']'; {
		if w.text[w.at] == ',' {
			w.at++
			continue
		}
		if err := w.value(elem, notNull); err != nil {
			return err
		}
		w.path[len(w.path)-1].index++
	}
	w.at++
	w.path = w.path[:len(w.path)-1]
	return nil
}

// checkScalar notes what is wrong with a string, a number, true or false.
func (w *walker) checkScalar(text []byte, t reflect.Type) {
	isString, isBool := text[0] == '"', text[0] == 't' || text[0] == 'f'
	if w.shape(t).isText {
		if !isString {
			w.fault("want %s", typeWords(t))
			return
		}
		u, _ := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t))
		if err := u.UnmarshalText(unquoted(text)); err != nil {
			w.fault("%s", err.Error())
		}
		return
	}
	isNumber, fits := !isString && !isBool, false
	switch t.Kind() {
	case reflect.String:
		fits = isString
	case reflect.Bool:
		fits = isBool
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		fits = isNumber
	default:
	}
	if !fits {
		w.fault("want %s", typeWords(t))
		return
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](reflect.New(t)); ok && isNumber {
		if err := u.UnmarshalJSON(text); err != nil {
			w.fault("%s", err.Error())
		}
	}
}
