package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
)

// reference is a page of the reference, by its headings.
func reference(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", page))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for n, section := range strings.Split(string(text), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		if n == 0 {
			heading = ""
		}
		sections[heading] = body
	}
	return sections
}

// rows are the first cells of a section's table, and the rest of their rows.
func rows(section string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$").FindAllStringSubmatch(section, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// example is what stands as code in a section.
func example(section string) string {
	var b strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			b.WriteString(code)
		}
	}
	return b.String()
}

// same compares what is documented with what the code has.
func same(t *testing.T, what string, documented, known []string) {
	t.Helper()
	for _, path := range known {
		if !slices.Contains(documented, path) {
			t.Errorf("%s: %s is not documented", what, path)
		}
	}
	for _, path := range documented {
		if !slices.Contains(known, path) {
			t.Errorf("%s: there is no %s", what, path)
		}
	}
	if len(known) < 3 {
		t.Errorf("%s: only %v was found: the list is broken", what, known)
	}
}

// keysOf lists the paths of all keys that a configuration of type t has.
func keysOf(t reflect.Type, path string) []string {
	_, text := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t))
	switch {
	case text:
	case t.Kind() == reflect.Struct:
		var out []string
		for key, field := range yamlFields(t) {
			out = append(out, keysOf(field, below(path, key))...)
		}
		return out
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return keysOf(t.Elem(), path+"[]")
	case path == "listen":
		var out []string
		for _, name := range listenerNames() {
			out = append(out, below(path, name))
		}
		return out
	}
	return []string{path}
}

// TestReferenceOfConfiguration compares the page with the keys and flags that there are.
func TestReferenceOfConfiguration(t *testing.T) {
	page := reference(t, "configuration.md")
	keys := rows(page["Keys"])
	same(t, "keys", slices.Sorted(maps.Keys(keys)), keysOf(reflect.TypeFor[config](), ""))
	var flags, known []string
	for _, m := range regexp.MustCompile("`--([a-z-]+)[^`]*`").FindAllStringSubmatch(page["Keys"], -1) {
		if !slices.Contains(flags, m[1]) {
			flags = append(flags, m[1])
		}
	}
	for _, s := range settings() {
		known = append(known, s.flag)
	}
	same(t, "flags", flags, append(known, "control")) // which all commands have
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := os.WriteFile(file, []byte(example(page[""])), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig(func(string) string { return "" })
	if err := cfg.readFile(file); err != nil {
		t.Fatal(err)
	}
	if err := cfg.validate(); err != nil || cfg.Domain != "lanes.example.com" || len(cfg.Gateway.Edge.Trusted) != 1 {
		t.Errorf("the example gives %+v, %v", cfg, err)
	}
	// What the page calls a default is one.
	for name, address := range defaultConfig(os.Getenv).Listen {
		if row := keys["listen."+name]; !strings.Contains(row, "| "+address+" |") {
			t.Errorf("listen.%s: the default is %s, not as in %s", name, address, row)
		}
	}
}

// filled sets every field of v to something, so that nothing is left out of its JSON.
func filled(v reflect.Value) {
	if reads, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		for _, text := range []string{"1h", "2026-01-02T03:04:05Z"} {
			if reads.UnmarshalText([]byte(text)) == nil {
				return
			}
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			filled(field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		filled(value)
		v.SetMapIndex(reflect.ValueOf("a"), value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	default:
		panic(fmt.Sprintf("a field of type %s", v.Type()))
	}
}

// pathsOf lists the paths of all that a value has.
func pathsOf(v any, path string) []string {
	switch v := v.(type) {
	case map[string]any:
		if path == "labels" {
			break // whose names are anybody's
		}
		var out []string
		for key, value := range v {
			out = append(out, pathsOf(value, below(path, key))...)
		}
		return out
	case []any:
		if _, objects := v[0].(map[string]any); objects {
			return pathsOf(v[0], path+"[]")
		}
	}
	return []string{path}
}

// TestReferenceOfObjects compares the page with the kinds that apply takes and with what
// of each is a person's to say.
func TestReferenceOfObjects(t *testing.T) {
	page := reference(t, "objects.md")
	for _, kind := range appliedKinds() {
		section, ok := page[string(kind)]
		if !ok {
			t.Errorf("docs/reference/objects.md says nothing of %s", kind)
			continue
		}
		empty, err := readObject(kind, []byte(`{"name":"x","service":"x"}`))
		if err != nil {
			if empty, err = readObject(kind, []byte(`{"name":"x"}`)); err != nil {
				t.Fatal(err)
			}
		}
		full := reflect.New(reflect.TypeOf(empty.spec).Elem())
		filled(full.Elem())
		text, err := json.Marshal(full.Interface())
		if err != nil {
			t.Fatal(err)
		}
		o, err := readObject(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(kind), slices.Sorted(maps.Keys(rows(section))), pathsOf(o.field, ""))
		objects, err := readObjects("objects.md", strings.NewReader(example(section)))
		if err != nil || len(objects) == 0 {
			t.Errorf("%s: the example gives %d objects, %v", kind, len(objects), err)
		}
		for _, o := range objects {
			spec, err := json.Marshal(o.spec)
			if err != nil {
				t.Fatal(err)
			}
			if faults := control.CheckObject(o.kind, o.name, spec); len(faults) > 0 || o.kind != kind {
				t.Errorf("the example %s under %s: %v", o, kind, faults)
			}
		}
	}
	for heading := range page {
		if heading != "" && !slices.Contains(appliedKindNames(), heading) {
			t.Errorf("docs/reference/objects.md has %q, which apply does not take", heading)
		}
	}
}
