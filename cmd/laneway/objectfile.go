package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// appliedKinds are the kinds that apply and export know, in the order in which
// they are written: what others need comes first.
func appliedKinds() []laneclient.Kind {
	return []laneclient.Kind{
		laneclient.KindLanes, laneclient.KindServices, laneclient.KindInstances, laneclient.KindRoutes, laneclient.KindRules,
	}
}

// object is one object as a person would write it: without what the control plane
// sets, with defaults filled in, so that two of them can be compared.
type object struct {
	kind  laneclient.Kind
	name  string         // in the API: "service/name" for instances
	spec  any            // *laneclient.Lane, …
	after string         // a lane's parent
	where string         // file and line that it comes from
	field map[string]any // spec as JSON has it
}

func (o *object) String() string { return string(o.kind) + "/" + o.name }

// path is the object's in the API.
func (o *object) path() string { return objectPath(o.kind, strings.Split(o.name, "/")...) }

// readObject makes an object of a JSON text. Fields that there are none of are
// errors.
func readObject(kind laneclient.Kind, text []byte) (*object, error) {
	o := &object{kind: kind}
	var err error
	switch kind {
	case laneclient.KindLanes:
		var l laneclient.Lane
		err = strictJSON(text, &l)
		o.name, o.after = l.Name, l.Parent
		o.spec = normalLane(l)
	case laneclient.KindServices:
		var s laneclient.Service
		err = strictJSON(text, &s)
		s.Revision = 0
		o.name, o.spec = s.Name, &s
	case laneclient.KindInstances:
		var i laneclient.Instance
		err = strictJSON(text, &i)
		if err == nil && i.Service == "" {
			err = errors.New("service is missing: say whose instance it is")
		}
		o.name = i.Service + "/" + i.Name
		o.spec = normalInstance(i)
	case laneclient.KindRoutes:
		var r laneclient.Route
		err = strictJSON(text, &r)
		r.Revision, r.Host = 0, strings.ToLower(r.Host)
		o.name, o.spec = r.Name, &r
	case laneclient.KindRules:
		var r laneclient.Rule
		err = strictJSON(text, &r)
		r.Revision, r.Status = 0, ""
		o.name, o.spec = r.Name, &r
	case laneclient.KindSessions:
		err = errors.New("sessions are opened by processes and cannot be applied")
	default:
		var known []string
		for _, k := range appliedKinds() {
			known = append(known, string(k))
		}
		err = fmt.Errorf("kind %q: want one of %s", kind, strings.Join(known, ", "))
	}
	if err != nil {
		return nil, err
	}
	if o.name == "" || strings.HasSuffix(o.name, "/") {
		return nil, errors.New("name is missing")
	}
	normal, err := json.Marshal(o.spec)
	if err != nil {
		return nil, err
	}
	return o, json.Unmarshal(normal, &o.field)
}

// normalLane leaves what a person decides of a lane.
func normalLane(l laneclient.Lane) *laneclient.Lane {
	const defaultTTL = 72 * time.Hour
	out := &laneclient.Lane{Meta: laneclient.Meta{Name: l.Name}, Parent: l.Parent, Owner: l.Owner, TTL: l.TTL, Held: l.Held}
	if out.TTL == 0 {
		out.TTL = laneclient.Duration(defaultTTL)
	}
	return out
}

// normalInstance leaves what a person decides of a static instance.
func normalInstance(i laneclient.Instance) *laneclient.Instance {
	i.Revision, i.Generation, i.Health, i.Static, i.Session, i.Since = 0, 0, "", false, "", time.Time{}
	if i.State == "" {
		i.State = string(lane.Ready)
	}
	if i.Weight == 0 {
		i.Weight = 1
	}
	return &i
}

func strictJSON(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		return nil
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: is a %s, which it cannot be", mistyped.Field, mistyped.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// readObjects reads objects from YAML, of one or several documents, or JSON. A
// document may also be a list of objects. All mistakes are reported.
func readObjects(file string, in io.Reader) ([]*object, error) {
	var out []*object
	var errs []error
	dec := yaml.NewDecoder(in)
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, errors.Join(errs...)
		}
		if err != nil {
			return nil, errors.Join(append(errs, fmt.Errorf("%s: %w", file, err))...)
		}
		for _, n := range documents(&doc) {
			o, err := objectOf(n)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %w", file, n.Line, err))
				continue
			}
			o.where = fmt.Sprintf("%s:%d", file, n.Line)
			out = append(out, o)
		}
	}
}

// documents are the objects of a YAML document: none in an empty one.
func documents(n *yaml.Node) []*yaml.Node {
	switch {
	case n.Kind == yaml.DocumentNode:
		var out []*yaml.Node
		for _, c := range n.Content {
			out = append(out, documents(c)...)
		}
		return out
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil
	}
	return []*yaml.Node{n}
}

func objectOf(n *yaml.Node) (*object, error) {
	var fields map[string]any
	if err := n.Decode(&fields); err != nil {
		return nil, fmt.Errorf("is no object with fields: %w", yamlError(err))
	}
	kind, _ := fields["kind"].(string)
	if kind == "" {
		return nil, errors.New("kind is missing: say what the object is, as in `kind: lanes`")
	}
	delete(fields, "kind")
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("has a key that is no text: %w", err)
	}
	return readObject(laneclient.Kind(kind), text)
}

// ordered sorts objects so that each comes after what it needs.
func ordered(objects []*object) []*object {
	kinds := appliedKinds()
	parents := map[string]string{}
	for _, o := range objects {
		if o.kind == laneclient.KindLanes {
			parents[o.name] = o.after
		}
	}
	depth := func(name string) int {
		n := 0
		for p := parents[name]; p != "" && n <= len(parents); p = parents[p] {
			n++
		}
		return n
	}
	out := slices.Clone(objects)
	slices.SortStableFunc(out, func(a, b *object) int {
		if d := slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind); d != 0 {
			return d
		}
		if a.kind == laneclient.KindLanes {
			if d := depth(a.name) - depth(b.name); d != 0 {
				return d
			}
		}
		return strings.Compare(a.name, b.name)
	})
	return out
}

// document is the object as a file for apply has it: kind first, then the fields
// in the order of the API.
func (o *object) document() (json.RawMessage, error) {
	text, err := json.Marshal(o.spec)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(fmt.Sprintf(`{"kind":%q,`, o.kind)), text[1:]), nil
}
