package control

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits of what a client may send.
const (
	maxBodyBytes  = 256 << 10        // one object, or one renewal
	maxDepth      = 16               // of nested JSON
	maxFaults     = 32               // mistakes that are reported at once
	maxQueryBytes = 16 << 10         // of a URL's query
	bodyTimeout   = 30 * time.Second // for a body to come in whole
)

// faults collects mistakes by field path.
type faults struct{ list []laneclient.FieldError }

func (f *faults) add(field, detail string, args ...any) {
	if len(f.list) >= maxFaults {
		return
	}
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	f.list = append(f.list, laneclient.FieldError{Field: field, Detail: detail})
}

// err is nil where nothing was found.
func (f *faults) err(what string) error {
	if len(f.list) == 0 {
		return nil
	}
	return invalid(what, f.list)
}

// readBody reads a JSON body of bounded size.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		media, _, _ := strings.Cut(ct, ";")
		if !strings.EqualFold(strings.TrimSpace(media), "application/json") {
			return nil, problem(http.StatusUnsupportedMediaType, "the body is %q: send application/json", ct)
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // in memory there is none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, err
		}
		return nil, problem(http.StatusBadRequest, "the body could not be read whole: send it again")
	}
	return body, nil
}

// decode reads one JSON object into out, a pointer to a struct. Unknown and
// repeated fields, wrong types and text that a field's type cannot read are
// refused, all at once, with their paths. Names count letter by letter: encoding/json
// alone would take "Name" for "name".
func decode(data []byte, out any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return problem(http.StatusUnprocessableEntity, "the body is empty: send a JSON object")
	}
	var value json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&value); err != nil {
		return malformed(err)
	}
	if len(bytes.Trim(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return problem(http.StatusUnprocessableEntity, "the body goes on after its JSON object: send one object")
	}
	f := &faults{}
	if err := walk(value, reflect.TypeOf(out).Elem(), f); err != nil {
		return malformed(err)
	}
	if err := f.err("the object"); err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			f.add(wrong.Field, "is %s: want %s", wrong.Value, typeWords(wrong.Type))
			return f.err("the object")
		}
		return malformed(err)
	}
	return nil
}

var errTooDeep = errors.New("is nested too deep")

func malformed(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return problem(http.StatusBadRequest, "the body is no JSON that can be read (%s): correct it and send it again", err.Error())
}

// isText reports whether values of t are written as text: durations and times.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func typeWords(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[laneclient.Duration]():
		return "a duration such as \"30s\" or \"72h\""
	case isText(t):
		return "a time such as \"2006-01-02T15:04:05Z\""
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number that fits"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	default:
		if form := form(t); form != "" {
			return "an object, such as " + form
		}
		return "an object"
	}
}

// form is how an object within another is written: what people write as a text instead.
func form(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[laneclient.LaneShare]():
		return "{lane: blue}"
	case reflect.TypeFor[laneclient.Match]():
		return "{path: /}"
	case reflect.TypeFor[laneclient.ValueMatch]():
		return "{name: x-try, value: blue}"
	case reflect.TypeFor[laneclient.UserMatch]():
		return `{from: "header:x-user"}`
	case reflect.TypeFor[laneclient.Endpoint]():
		return `{protocol: http, address: "127.0.0.1:8080"}`
	case reflect.TypeFor[laneclient.Check]():
		return "{protocol: http, path: /healthz}"
	case reflect.TypeFor[laneclient.Rewrite]():
		return "{prefix: /}"
	case reflect.TypeFor[laneclient.Timeouts]():
		return "{request: 3s}"
	}
	return ""
}

// jsonFields gives the fields of a struct type by their JSON names, those of
// embedded structs among them.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for sf := range t.Fields() {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case sf.Anonymous && name == "":
			maps.Copy(fields, jsonFields(sf.Type))
		case name != "" && name != "-":
			fields[name] = sf.Type
		}
	}
	return fields
}

// keepUnknown returns encoded, the JSON of a value of type t, with every field of
// stored that t does not know added where it stood: what a newer version wrote
// survives being rewritten by an older one. Elements of lists are paired by what t
// knows of them; what was unknown in a changed element goes with it.
func keepUnknown(encoded, stored json.RawMessage, t reflect.Type) json.RawMessage {
	if len(stored) == 0 {
		return encoded
	}
	if kept, changed := keep(encoded, stored, t); changed {
		return kept
	}
	return encoded
}

func keep(encoded, stored json.RawMessage, t reflect.Type) (json.RawMessage, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isText(t):
	case t.Kind() == reflect.Struct:
		return keepStruct(encoded, stored, t)
	case t.Kind() == reflect.Slice:
		return keepSlice(encoded, stored, t.Elem())
	}
	return encoded, false
}

func keepStruct(encoded, stored json.RawMessage, t reflect.Type) (json.RawMessage, bool) {
	var now, before map[string]json.RawMessage
	if json.Unmarshal(encoded, &now) != nil || json.Unmarshal(stored, &before) != nil || now == nil {
		return encoded, false
	}
	fields, changed := jsonFields(t), false
	for key, value := range before {
		ft, known := fields[key]
		if !known {
			now[key], changed = value, true
			continue
		}
		if _, set := now[key]; set {
			if kept, differs := keep(now[key], value, ft); differs {
				now[key], changed = kept, true
			}
		}
	}
	return remarshal(encoded, now, changed)
}

func keepSlice(encoded, stored json.RawMessage, elem reflect.Type) (json.RawMessage, bool) {
	if elem.Kind() != reflect.Struct || isText(elem) {
		return encoded, false
	}
	var now, before []json.RawMessage
	if json.Unmarshal(encoded, &now) != nil || json.Unmarshal(stored, &before) != nil {
		return encoded, false
	}
	known := make([][]byte, len(before))
	for n, raw := range before {
		v := reflect.New(elem)
		if json.Unmarshal(raw, v.Interface()) == nil {
			known[n], _ = json.Marshal(v.Interface())
		}
	}
	changed := false
	for n, raw := range now {
		at := slices.IndexFunc(known, func(k []byte) bool { return bytes.Equal(k, raw) })
		if at < 0 {
			continue
		}
		known[at] = nil
		if kept, differs := keep(raw, before[at], elem); differs {
			now[n], changed = kept, true
		}
	}
	return remarshal(encoded, now, changed)
}

func remarshal(encoded json.RawMessage, v any, changed bool) (json.RawMessage, bool) {
	if !changed {
		return encoded, false
	}
	b, err := json.Marshal(v)
	if err != nil {
		return encoded, false
	}
	return b, true
}
