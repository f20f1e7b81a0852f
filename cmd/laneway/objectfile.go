package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// appliedKinds are the kinds that apply and export know, in the order in which
// they are written: what others need comes first.
func appliedKinds() []laneclient.Kind {
	return []laneclient.Kind{
		laneclient.KindLanes, laneclient.KindServices, laneclient.KindInstances, laneclient.KindRoutes, laneclient.KindRules,
		laneclient.KindEngines, laneclient.KindTopics, laneclient.KindGroups,
	}
}

func appliedKindNames() []string {
	var out []string
	for _, kind := range appliedKinds() {
		out = append(out, string(kind))
	}
	return out
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
	raw   []byte         // of one that is there: all of it
}

func (o *object) String() string { return string(o.kind) + "/" + o.name }

// path is the object's in the API.
func (o *object) path() string { return laneclient.PathOf(o.kind, o.name) }

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
	case laneclient.KindEngines:
		var e laneclient.Engine
		err = strictJSON(text, &e)
		e.Revision, e.Session, e.Since = 0, "", time.Time{}
		o.name, o.spec = e.Name, &e
	case laneclient.KindTopics:
		var t laneclient.Topic
		err = strictJSON(text, &t)
		t.Revision, t.Partitions = 0, cmp.Or(t.Partitions, 1)
		o.name, o.spec = t.Name, &t
	case laneclient.KindGroups:
		var g laneclient.Group
		err = strictJSON(text, &g)
		o.name, o.spec = g.Name, normalGroup(g)
	case laneclient.KindSessions:
		err = errors.New("sessions are opened by processes and cannot be applied")
	default:
		err = fmt.Errorf("kind %q: want one of %s", kind, strings.Join(appliedKindNames(), ", "))
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
	out := &laneclient.Lane{Meta: laneclient.Meta{Name: l.Name}, Parent: l.Parent, Owner: l.Owner, TTL: l.TTL, Held: l.Held}
	if out.TTL == 0 {
		out.TTL = laneclient.Duration(laneclient.DefaultLaneTTL)
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

// normalGroup leaves what a person decides of a group once and for all. A reset is asked
// for once, and how many partitions the group has got to know its consumers say.
func normalGroup(g laneclient.Group) *laneclient.Group {
	g.Revision, g.Partitions, g.Reset = 0, nil, nil
	g.Start = cmp.Or(g.Start, laneclient.DefaultStart)
	g.HandoverTimeout = cmp.Or(g.HandoverTimeout, laneclient.Duration(laneclient.DefaultHandover))
	loss := laneclient.DefaultOnLoss
	if g.Ordered {
		loss = laneclient.OnLossHold
	}
	g.OnRegistryLoss = cmp.Or(g.OnRegistryLoss, loss)
	return &g
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
// document may also be a list of objects. All mistakes are reported, joined; a text
// without any document is one.
func readObjects(file string, in io.Reader) ([]*object, error) {
	var out []*object
	var errs []error
	empty := true
	dec := yaml.NewDecoder(in)
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			if empty {
				errs = append(errs, fmt.Errorf("%s: is empty: write objects into it, each with its kind and name, or [] for none", file))
			}
			return out, errors.Join(errs...)
		}
		if err != nil {
			return nil, errors.Join(append(errs, errors.New(file+separator(err)+yamlText(err)))...)
		}
		for _, n := range documents(&doc) {
			empty = false
			o, faults := objectOf(n)
			for _, fault := range faults {
				errs = append(errs, fmt.Errorf("%s:%d: %w", file, fault.line, fault.err))
			}
			if len(faults) > 0 {
				continue
			}
			o.where = fmt.Sprintf("%s:%d", file, n.Line)
			out = append(out, o)
		}
		empty = empty && !isList(&doc)
	}
}

// isList reports whether a document is a list, which may be one of no objects.
func isList(doc *yaml.Node) bool {
	return len(doc.Content) == 1 && doc.Content[0].Kind == yaml.SequenceNode
}

// separator and yamlText make "file:3: what is wrong" of a YAML reader's error, which
// names the line, where it knows it, in front.
func separator(err error) string {
	if strings.HasPrefix(err.Error(), yamlLine) {
		return ":"
	}
	return ": "
}

func yamlText(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), yamlLine), "yaml: ")
}

const yamlLine = "yaml: line "

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

// misplaced is a mistake and the line that it is in.
type misplaced struct {
	line int
	err  error
}

func objectOf(n *yaml.Node) (*object, []misplaced) {
	one := func(err error) (*object, []misplaced) { return nil, []misplaced{{n.Line, err}} }
	var fields map[string]any
	if err := n.Decode(&fields); err != nil {
		return one(fmt.Errorf("is no object with fields: %w", yamlError(err)))
	}
	kind, _ := fields["kind"].(string)
	if kind == "" {
		return one(errors.New("kind is missing: say what the object is, as in `kind: lanes`"))
	}
	delete(fields, "kind")
	text, err := json.Marshal(fields)
	if err != nil {
		return one(fmt.Errorf("has a key that is no text: %w", err))
	}
	if slices.Contains(appliedKinds(), laneclient.Kind(kind)) {
		var wrong []misplaced
		for _, f := range control.CheckFields(laneclient.Kind(kind), text) {
			wrong = append(wrong, misplaced{lineOf(n, f.Field), fmt.Errorf("%s: %s", f.Field, f.Detail)})
		}
		if len(wrong) > 0 {
			slices.SortStableFunc(wrong, func(a, b misplaced) int { return a.line - b.line })
			return nil, wrong
		}
	}
	o, err := readObject(laneclient.Kind(kind), text)
	if err != nil {
		return one(err)
	}
	return o, nil
}

// lineOf is the line of a field of n, given its path ("lanes[0].percent"), or of what
// of the path there is.
func lineOf(n *yaml.Node, path string) int {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			// The rest of the path tells apart keys that begin alike.
			rest, found := strings.CutPrefix(path, key.Value)
			switch {
			case !found:
			case rest == "":
				return key.Line
			case rest[0] == '.' || rest[0] == '[':
				return max(key.Line, lineOf(n.Content[i+1], strings.TrimPrefix(rest, ".")))
			}
		}
	case yaml.SequenceNode:
		index, rest, found := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if at, err := strconv.Atoi(index); found && err == nil && at >= 0 && at < len(n.Content) {
			return lineOf(n.Content[at], strings.TrimPrefix(rest, "."))
		}
	default:
	}
	return n.Line
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
