package main

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checkYAML reports where a document cannot be read into a value of type t: each mistake
// with its file and line, the path of its field, what is there and what is wanted.
func checkYAML(file string, n *yaml.Node, t reflect.Type) error {
	y := yamlCheck{file: file}
	y.value(n, t, "")
	return errors.Join(y.errs...)
}

type yamlCheck struct {
	file string
	errs []error
}

func (y *yamlCheck) bad(n *yaml.Node, path, format string, args ...any) {
	if path == "" {
		path = "the configuration"
	}
	y.errs = append(y.errs, fmt.Errorf("%s:%d: %s: %s", y.file, n.Line, path, fmt.Sprintf(format, args...)))
}

// value checks n, which stands at path, for a value of type t.
func (y *yamlCheck) value(n *yaml.Node, t reflect.Type, path string) {
	switch {
	case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
		y.value(n.Content[0], t, path)
		return
	case n.Kind == yaml.AliasNode && n.Alias != nil:
		y.value(n.Alias, t, path)
		return
	case n.IsZero(), n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return // as if it were not there
	}
	if reads, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t)); ok {
		if n.Kind != yaml.ScalarNode {
			y.bad(n, path, "is %s: want %s", given(n), wanted(t))
		} else if err := reads.UnmarshalText([]byte(n.Value)); err != nil {
			y.bad(n, path, "%v", err)
		}
		return
	}
	switch kind := t.Kind(); {
	case kind == reflect.Struct && n.Kind == yaml.MappingNode:
		y.fields(n, t, path)
	case kind == reflect.Map && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			y.value(n.Content[i+1], t.Elem(), below(path, n.Content[i].Value))
		}
	case kind == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, c := range n.Content {
			y.value(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case kind == reflect.String && n.Kind == yaml.ScalarNode:
	case kind == reflect.Int && n.Kind == yaml.ScalarNode && n.Decode(new(int)) == nil:
	case kind == reflect.Bool && n.Kind == yaml.ScalarNode && n.Decode(new(bool)) == nil:
	default:
		y.bad(n, path, "is %s: want %s", given(n), wanted(t))
	}
}

// fields checks a block of keys for a struct.
func (y *yamlCheck) fields(n *yaml.Node, t reflect.Type, path string) {
	known := yamlFields(t)
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			continue // what it brings is checked where it stands, when it is read
		}
		field, ok := known[key.Value]
		at := below(path, key.Value)
		if line, twice := first[key.Value]; twice {
			y.bad(key, at, "stands there twice, before in line %d: leave one out", line)
			continue
		}
		first[key.Value] = key.Line
		if !ok {
			y.bad(key, at, "is no key: want one of %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			continue
		}
		y.value(value, field, at)
	}
}

func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// yamlFields are the keys that a struct takes, with their types.
func yamlFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

// given says what a node is.
func given(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

// wanted says what a value of type t is written as.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[duration]() {
		return "a time such as 10s"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "a block with the keys " + strings.Join(slices.Sorted(maps.Keys(yamlFields(t))), ", ")
	case reflect.Map:
		return "a block of keys, each with " + wanted(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "a list of blocks with the keys " + strings.Join(slices.Sorted(maps.Keys(yamlFields(t.Elem()))), ", ")
		}
		return "a list, as in [a, b]"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a number"
	default:
		return "a text"
	}
}
