package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newApplyCommand(a *app) *cobra.Command {
	var files []string
	var dryRun, prune bool
	c := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Make objects be as files say",
		Long: `Writes the objects of files, in YAML of one or several documents or in JSON: each
has its kind (lanes, services, instances, routes, rules, engines, topics, groups), its
name and its fields.
Objects that are as they should be are left alone. A rule that is stored but gives no
color, or not all of its colors, is warned of, with its status. A topic is created on its
engine too, where it is not yet, and gets the partitions that it lacks.

Nothing is deleted without --prune, which deletes objects of the kinds that the
files have and that are not among them; instances and engines that belong to a session
and lanes that have ended are not. The messages of a topic stay on its engine; with a
group goes how far it has read.

With --dry-run nothing is changed, and what apply would refuse is refused, as far as
it can be known before.`,
		Example: `  laneway apply -f lanes.yaml -f rules.yaml
  laneway apply -f . --dry-run
  laneway export | laneway apply -f - --control http://127.0.0.1:8700`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("unexpected %q: use -f, as in `laneway apply -f %s`", args[0], args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usageError(errors.New("which file? Name it with -f FILE, or -f - for standard input"))
			}
			objects, err := a.readFiles(files)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), objects, dryRun, prune)
		},
	}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "`FILE`, directory of .yaml, .yml and .json files, or - for standard input; repeatable")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the difference and change nothing")
	c.Flags().BoolVar(&prune, "prune", false, "delete what is not in the files")
	_ = c.MarkFlagFilename("file", "yaml", "yml", "json")
	return c
}

// readFiles reads all objects; an object may be there once.
func (a *app) readFiles(files []string) ([]*object, error) {
	var all []*object
	var errs []error
	for _, name := range files {
		names := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			names = objectFiles(name)
			if len(names) == 0 {
				errs = append(errs, fmt.Errorf("%s: has no .yaml, .yml or .json files", name))
			}
		}
		for _, name := range names {
			objects, err := a.readObjectFile(name)
			all = append(all, objects...)
			errs = append(errs, err)
		}
	}
	seen := map[string]*object{}
	for _, o := range all {
		if first := seen[o.String()]; first != nil {
			errs = append(errs, fmt.Errorf("%s: %s is in %s already", o.where, o, first.where))
		}
		seen[o.String()] = o
	}
	switch errs = flatten(errors.Join(errs...)); len(errs) {
	case 0:
		return ordered(all), nil
	case 1:
		return nil, fmt.Errorf("nothing was changed: %w", errs[0])
	}
	for _, err := range errs {
		fmt.Fprintf(a.stderr, "laneway: %s\n", sentence(err))
	}
	return nil, fmt.Errorf("nothing was changed: correct these %d mistakes and apply again", len(errs))
}

func objectFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		for _, ext := range []string{".yaml", ".yml", ".json"} {
			if !e.IsDir() && strings.HasSuffix(e.Name(), ext) && !strings.HasPrefix(e.Name(), ".") {
				out = append(out, strings.TrimSuffix(dir, "/")+"/"+e.Name())
			}
		}
	}
	return out
}

func (a *app) readObjectFile(name string) ([]*object, error) {
	if name == "-" {
		return readObjects("standard input", a.stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return readObjects(name, f)
}

// present is what the control plane has, as a person would write it.
type present struct {
	objects   map[string]*object // by kind/name
	revisions map[string]uint64
}

// readPresent reads the objects of some kinds, without instances and engines that belong
// to a session and lanes that are over.
func readPresent(ctx context.Context, c *api, kinds []laneclient.Kind) (present, error) {
	p := present{map[string]*object{}, map[string]uint64{}}
	for _, kind := range kinds {
		items, _, err := laneclient.ListRaw(ctx, c, kind, laneclient.ListOptions{})
		if err != nil {
			return present{}, err
		}
		for _, raw := range items {
			var about struct {
				Revision uint64 `json:"revision"`
				State    string `json:"state"`
				Static   bool   `json:"static"`
				Session  string `json:"session"`
			}
			if err := json.Unmarshal(raw, &about); err != nil {
				return present{}, err
			}
			over := about.State == string(lane.Ended) || about.State == string(lane.Draining)
			if kind == laneclient.KindLanes && over || kind == laneclient.KindInstances && !about.Static ||
				kind == laneclient.KindEngines && about.Session != "" {
				continue
			}
			o, err := readObject(kind, raw)
			if err != nil {
				return present{}, fmt.Errorf("read %s of a control plane that is newer than this command: %w", kind, err)
			}
			o.raw = raw
			p.objects[o.String()], p.revisions[o.String()] = o, about.Revision
		}
	}
	return p, nil
}

// step is one change that apply makes.
type step struct {
	mark   string // "+", "~" or "-"
	object *object
	old    *object
	check  laneclient.CallOption
}

// plan lists the changes, in the order in which they are to be made, and how many
// objects stay as they are.
func plan(want []*object, have present, prune bool) (steps []step, same int) {
	wanted := map[string]bool{}
	for _, o := range want {
		wanted[o.String()] = true
		old := have.objects[o.String()]
		switch {
		case old == nil:
			steps = append(steps, step{mark: "+", object: o, check: laneclient.IfNoneMatch()})
		case reflect.DeepEqual(old.field, o.field):
			same++
		default:
			steps = append(steps, step{mark: "~", object: o, old: old, check: laneclient.IfMatch(have.revisions[o.String()])})
		}
	}
	if !prune {
		return steps, same
	}
	var gone []*object
	for key, o := range have.objects {
		if !wanted[key] {
			gone = append(gone, o)
		}
	}
	for _, o := range slices.Backward(ordered(gone)) {
		steps = append(steps, step{mark: "-", object: o, old: o, check: laneclient.IfMatch(have.revisions[o.String()])})
	}
	return steps, same
}

func (a *app) apply(ctx context.Context, want []*object, dryRun, prune bool) error {
	var kinds []laneclient.Kind
	for _, k := range appliedKinds() {
		if slices.ContainsFunc(want, func(o *object) bool { return o.kind == k }) {
			kinds = append(kinds, k)
		}
	}
	c := a.api()
	have, err := readPresent(ctx, c, kinds)
	if err != nil {
		return err
	}
	steps, same := plan(want, have, prune)
	engines := engineCache{app: a, api: c}
	defer engines.close()
	refuse := func(s step) error {
		if err := s.applyTopic(ctx, &engines); err != nil {
			return err
		}
		return c.apply(ctx, s)
	}
	if dryRun {
		known, err := c.lanesAfter(ctx, want)
		if err != nil {
			return err
		}
		refuse = func(s step) error { return s.fault(known) }
		defer func() { a.warnOf(want, func(r *laneclient.Rule) string { return coloring.Check(r, known) }) }()
	}
	failed := 0
	for _, s := range steps {
		if err := refuse(s); err != nil {
			if _, refused := errors.AsType[*laneclient.Problem](err); !refused {
				return err
			}
			failed++
			fmt.Fprintf(a.stderr, "laneway: %s: %s: %s\n", s.object.where, s.object, sentence(err))
			continue
		}
		if err := s.write(a.stdout, a.painter()); err != nil {
			return err
		}
	}
	done, refused := "changed", "were refused"
	if dryRun {
		done, refused = "would change", "would be refused"
	}
	if _, err := fmt.Fprintf(a.stdout, "%d %s, %d as they should be\n", len(steps)-failed, done, same); err != nil {
		return err
	}
	if !dryRun {
		if err := a.warnOfRules(ctx, c, want); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d changes %s: correct them and apply again", failed, len(steps), refused)
	}
	return nil
}

// lanesAfter reports of a name whether there is such a lane, or will be once what is
// wanted has been applied.
func (c *api) lanesAfter(ctx context.Context, want []*object) (func(lane.Name) bool, error) {
	lanes, err := list[laneclient.Lane](ctx, c, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	known := map[lane.Name]bool{}
	for _, l := range lanes {
		known[lane.Name(l.Name)] = l.State != string(lane.Draining) && l.State != string(lane.Ended)
	}
	for _, o := range want {
		if o.kind == laneclient.KindLanes {
			known[lane.Name(o.name)] = true
		}
	}
	return func(name lane.Name) bool { return known[name] }, nil
}

// fault is what the control plane would refuse, as far as it can be known without
// changing anything.
func (s step) fault(known func(lane.Name) bool) error {
	if s.mark == "-" {
		return nil
	}
	text, err := json.Marshal(s.object.spec)
	if err != nil {
		return err
	}
	faults := control.CheckObject(s.object.kind, s.object.name, text)
	missing := func(field, name string) {
		if name != "" && !known(lane.Name(name)) {
			faults = append(faults, laneclient.FieldError{Field: field, Detail: fmt.Sprintf("lane %q does not exist: create it first", name)})
		}
	}
	switch o := s.object.spec.(type) {
	case *laneclient.Lane:
		if s.old != nil && s.old.after != o.Parent {
			faults = append(faults, laneclient.FieldError{Field: "parent", Detail: fmt.Sprintf("is fixed at creation and is %q", s.old.after)})
		} else {
			missing("parent", o.Parent)
		}
	case *laneclient.Instance:
		missing("lane", o.Lane)
	case *laneclient.Topic:
		if s.old != nil {
			faults = append(faults, s.fixedEngine(o.Engine)...)
			if now, _ := s.old.spec.(*laneclient.Topic); o.Partitions < now.Partitions {
				faults = append(faults, laneclient.FieldError{Field: "partitions", Detail: fmt.Sprintf("is %d, but there are %d, which are never taken away", o.Partitions, now.Partitions)})
			}
		}
	case *laneclient.Group:
		if s.old != nil {
			faults = append(faults, s.fixedEngine(o.Engine)...)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &laneclient.Problem{Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity, Errors: faults}
}

// fixedEngine is the mistake of a change that moves a topic or a group to another engine.
func (s step) fixedEngine(want string) []laneclient.FieldError {
	if is, _ := s.old.field["engine"].(string); is != want {
		return []laneclient.FieldError{{Field: "engine", Detail: fmt.Sprintf("is fixed at creation and is %q", is)}}
	}
	return nil
}

// applyTopic makes a topic be on its engine before it is in the registry: whoever finds it
// there finds it on the engine too.
func (s step) applyTopic(ctx context.Context, engines *engineCache) error {
	t, isTopic := s.object.spec.(*laneclient.Topic)
	if !isTopic || s.mark == "-" {
		return nil
	}
	if err := s.fault(nil); err != nil {
		return err
	}
	refused := func(err error) error {
		return laneclient.NewProblem(http.StatusUnprocessableEntity, "%s", err.Error())
	}
	e, err := engines.get(ctx, t.Engine)
	if err != nil {
		return refused(err)
	}
	is, err := ensureTopic(ctx, e, t)
	switch partitions, retention := int32(t.Partitions), time.Duration(t.Retention); {
	case err != nil:
		return refused(err)
	case is.Partitions > partitions:
		return refused(fmt.Errorf("partitions: is %d, but engine %s has %d, which are never taken away", partitions, t.Engine, is.Partitions))
	case is.Retention != retention:
		return refused(fmt.Errorf("retention: is %s, but engine %s has the topic with %s, which stays", retention, t.Engine, is.Retention))
	case is.Partitions < partitions:
		if err := e.Grow(ctx, t.Name, partitions); err != nil {
			return refused(fmt.Errorf("give it more partitions on engine %s: %w", t.Engine, err))
		}
	}
	return nil
}

// body is what a change sends: of a group that there is, with what others than people have
// written into it.
func (s step) body() (any, error) {
	g, isGroup := s.object.spec.(*laneclient.Group)
	if !isGroup || s.old == nil {
		return s.object.spec, nil
	}
	var now laneclient.Group
	if err := json.Unmarshal(s.old.raw, &now); err != nil {
		return nil, err
	}
	whole := *g
	whole.Partitions, whole.Reset = now.Partitions, now.Reset
	return &whole, nil
}

// warnOfRules warns of the rules among want that are there and do not do what they
// say.
func (a *app) warnOfRules(ctx context.Context, c *api, want []*object) error {
	if !slices.ContainsFunc(want, func(o *object) bool { return o.kind == laneclient.KindRules }) {
		return nil
	}
	rules, err := list[laneclient.Rule](ctx, c, laneclient.ListOptions{})
	if err != nil {
		return err
	}
	status := map[string]string{}
	for _, r := range rules {
		status[r.Name] = r.Status
	}
	a.warnOf(want, func(r *laneclient.Rule) string { return status[r.Name] })
	return nil
}

func (a *app) warnOf(want []*object, status func(*laneclient.Rule) string) {
	for _, o := range want {
		r, ok := o.spec.(*laneclient.Rule)
		if !ok {
			continue
		}
		if text := status(r); text != "" && text != coloring.StatusOK {
			fmt.Fprintf(a.stderr, "laneway: warning: %s: %s: %s\n", o.where, o, text)
		}
	}
}

func (c *api) apply(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	method := http.MethodPut
	in, err := s.body()
	if err != nil {
		return err
	}
	if s.mark == "-" {
		method, in = http.MethodDelete, nil
	}
	check := []laneclient.CallOption{s.check}
	if s.object.kind == laneclient.KindLanes && s.mark == "+" {
		// One that has ended is there still, and a new one may take its place.
		check = nil
	}
	return c.Do(ctx, method, s.object.path(), in, nil, check...)
}

// write shows a change: the object, and of one that is changed the fields.
func (s step) write(w io.Writer, p painter) error {
	var b strings.Builder
	line := func(mark, text string) {
		switch mark {
		case "+":
			text = p.good(mark + " " + text)
		case "-":
			text = p.bad(mark + " " + text)
		default:
			text = mark + " " + text
		}
		b.WriteString(text + "\n")
	}
	line(s.mark, s.object.String())
	if s.mark == "~" {
		for _, key := range slices.Sorted(maps.Keys(union(s.old.field, s.object.field))) {
			before, after := s.old.field[key], s.object.field[key]
			if reflect.DeepEqual(before, after) {
				continue
			}
			b.WriteString("    " + key + ": " + compact(before) + " -> " + compact(after) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// compact is a value in one line; what is not there is "-".
func compact(v any) string {
	if v == nil {
		return "-"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func newExportCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "export [KIND…]",
		Short: "Write objects as apply reads them",
		Long: `Writes lanes, services, static instances, routes, rules, external message engines,
topics and groups, or those of the kinds that are named, as YAML documents that apply
reads. Instances and engines that belong to a session, lanes that are over, and how far
groups have read are left out.`,
		Example: "  laneway export > backup.yaml\n  laneway export rules routes -o json",
		Args: func(_ *cobra.Command, args []string) error {
			for _, k := range args {
				if !slices.Contains(appliedKinds(), laneclient.Kind(k)) {
					return usageError(fmt.Errorf("kind %q: want one of %s", k, strings.Join(appliedKindNames(), ", ")))
				}
			}
			return nil
		},
		ValidArgs: appliedKindNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds := appliedKinds()
			if len(args) > 0 {
				kinds = slices.DeleteFunc(kinds, func(k laneclient.Kind) bool { return !slices.Contains(args, string(k)) })
			}
			have, err := readPresent(cmd.Context(), a.api(), kinds)
			if err != nil {
				return err
			}
			return a.export(ordered(slices.Collect(maps.Values(have.objects))))
		},
	}
	a.addOutput(c)
	return c
}

func (a *app) export(objects []*object) error {
	all := make([]json.RawMessage, 0, len(objects))
	for _, o := range objects {
		doc, err := o.document()
		if err != nil {
			return err
		}
		all = append(all, doc)
	}
	if a.output == outputJSON {
		return a.print(all, nil)
	}
	if len(all) == 0 {
		_, err := io.WriteString(a.stdout, "[]\n") // which apply takes for no objects
		return err
	}
	for i, doc := range all {
		text, err := toYAML(doc)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := a.stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}
