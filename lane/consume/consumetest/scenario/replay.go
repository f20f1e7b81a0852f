// Package scenario replays what happens to a group of consumers as a text that people can read:
// commands, each followed by the trace that it gave. Every scenario is checked by the
// promises of package consume while it runs. It is a tool of tests.
package scenario

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// dashes separates commands from the trace that they gave.
const dashes = "----"

// Replay runs a scenario, a text of blocks that are separated by empty lines:
//
//	start p1 baseline
//	append orders/0 plain
//	----
//	p1 orders/0 begins the record, main from 0: new group
//	...
//
// Each block has commands, a line of dashes, and the trace that the commands gave. Lines that
// begin with # are for people. Replay gives the same text with the traces as they are now;
// who keeps a scenario compares the two. The error names a command that was not understood
// or could not be done, and otherwise what the scenario shows to be broken.
//
// By default everything is quick: after each command writes land, answers, views and records
// arrive, and what was appended is read. "p1 hold writes" and the like keep things back until
// "p1 deliver write". Consumers keep what they are given until "p1 settle 4". Time stands
// still but for "wait 10s", and timers run out by "p1 timer note". The commands are those of
// the scenarios in testdata.
func Replay(script []byte) ([]byte, error) {
	var out bytes.Buffer
	w := newStage()
	var faults []error
	for i, block := range strings.Split(strings.TrimRight(string(script), "\n"), "\n\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		commands, _, _ := strings.Cut(block+"\n", dashes+"\n")
		out.WriteString(commands)
		ran := false
		for line := range strings.Lines(commands) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			ran = true
			if err := w.do(strings.Fields(line)); err != nil {
				return nil, fmt.Errorf("block %d, %q: %w", i+1, line, err)
			}
			w.flow()
		}
		if !ran {
			continue
		}
		out.WriteString(dashes + "\n")
		for _, line := range w.trace {
			out.WriteString(line + "\n")
		}
		w.trace = nil
	}
	for _, f := range w.check.faults {
		faults = append(faults, errors.New(f))
	}
	return out.Bytes(), errors.Join(faults...)
}

// stage is everything that a scenario has.
type stage struct {
	cfg      consume.Config
	clock    time.Time
	engine   *consume.Memory
	registry *consume.MemoryRegistry
	procs    []*process        // in the order of their first start
	sessions map[string]string // what people call them
	counts   map[string]int32  // partitions of topics
	reset    int               // how many were asked for
	check    *invariants
	trace    []string
}

func newStage() *stage {
	w := &stage{clock: time.Unix(0, 0).UTC(), sessions: map[string]string{}, counts: map[string]int32{}}
	now := func() time.Time { return w.clock }
	w.engine = consume.NewMemory(consume.MemoryConfig{Now: now})
	w.registry = consume.NewMemoryRegistry(consume.MemoryRegistryConfig{Now: now})
	w.cfg = consume.Config{Group: "billing"}
	w.check = newInvariants(w)
	return w
}

// say adds a line to the trace.
func (w *stage) say(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

var errCommand = errors.New("no such command")

// do does one command.
func (w *stage) do(c []string) error {
	if p := w.proc(c[0]); p != nil && len(c) > 1 {
		return p.do(c[1], c[2:])
	}
	args := c[1:]
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch c[0] {
	case "group":
		return w.group(args)
	case "start":
		return w.start(arg(0), args[1:])
	case "lane":
		return w.registry.CreateLane(lane.Name(arg(0)), lane.Name(arg(2))) // lane blue under green
	case "end":
		return w.registry.EndLane(lane.Name(arg(0)))
	case "forget":
		w.registry.ForgetLane(lane.Name(arg(0)))
		return nil
	case "append":
		return w.append(args)
	case "grow":
		return w.grow(arg(0), arg(1))
	case "retain", "truncate", "drop":
		return w.damage(c[0], arg(0), arg(1))
	case "recreate":
		for i := range w.counts[arg(0)] {
			w.check.broken[consume.Partition{Topic: arg(0), Index: i}] = true
		}
		return w.engine.Recreate(arg(0))
	case "reset": // reset orders/0 to 3
		return w.resetTo(arg(0), arg(2))
	case "pause", "resume":
		w.registry.SetGroup(w.cfg.Group, consume.Group{Paused: c[0] == "pause"})
		return nil
	case "wait":
		d, err := time.ParseDuration(arg(0))
		w.clock = w.clock.Add(d)
		return err
	case "state":
		w.state()
		return nil
	case "finish":
		return w.finish()
	}
	return errCommand
}

// group says what the group is, and makes its topics: "group ordered window=2
// topics=orders:1,bills:2 retries=1".
func (w *stage) group(args []string) error {
	topics := "orders:1"
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "ordered":
			w.cfg.Ordered = true
		case "window":
			w.cfg.Window = n
		case "fetch":
			w.cfg.Fetch = n
		case "loss":
			w.cfg.OnLoss = map[string]consume.LossPolicy{"hold": consume.LossHold, "continue": consume.LossContinue}[value]
		case "from":
			w.cfg.Start = consume.Start{Kind: map[string]consume.StartKind{"earliest": consume.StartEarliest, "latest": consume.StartLatest}[value]}
		case "retries":
			for range n {
				w.cfg.RetryDelays = append(w.cfg.RetryDelays, time.Second)
			}
		case "topics":
			topics = value
		default:
			return errCommand
		}
	}
	for t := range strings.SplitSeq(topics, ",") {
		if t == "" { // those that there are
			continue
		}
		name, count, _ := strings.Cut(t, ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil {
			return err
		}
		topic := consume.Topic{Name: name, Partitions: int32(n)}
		if err := w.topic(name, int32(n)); err != nil {
			return err
		}
		if w.cfg.RetryDelays != nil {
			topic.Retry, topic.Dead = name+".retry", name+".dead"
			if err := errors.Join(w.topic(topic.Retry, 1), w.topic(topic.Dead, 1)); err != nil {
				return err
			}
		}
		w.cfg.Topics = append(w.cfg.Topics, topic)
	}
	return w.cfg.Validate()
}

func (w *stage) topic(name string, partitions int32) error {
	w.counts[name] = partitions
	return w.engine.Ensure(context.Background(), consume.TopicSpec{Name: name, Partitions: partitions})
}

func (w *stage) grow(topic, to string) error {
	n, err := strconv.ParseInt(to, 10, 32)
	if err != nil {
		return err
	}
	w.counts[topic] = int32(n)
	return w.engine.Grow(context.Background(), topic, int32(n))
}

// append adds messages: "append orders/0 green x3 plain".
func (w *stage) append(args []string) error {
	if len(args) == 0 {
		return errCommand
	}
	p, err := parsePartition(args[0])
	if err != nil {
		return err
	}
	var ms []*consume.Message
	for _, a := range args[1:] {
		if n, ok := strings.CutPrefix(a, "x"); ok && len(ms) > 0 {
			if n, err := strconv.Atoi(n); err == nil {
				for range n - 1 {
					ms = append(ms, ms[len(ms)-1])
				}
				continue
			}
		}
		ms = append(ms, &consume.Message{Partition: p, Color: colorNamed(a)})
	}
	return w.engine.Append(context.Background(), ms...)
}

func (w *stage) damage(what, where, at string) error {
	p, err := parsePartition(where)
	if err != nil {
		return err
	}
	o, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return err
	}
	switch what {
	case "retain":
		return w.engine.Retain(p, o)
	case "drop":
		return w.engine.Drop(p, o)
	}
	w.check.broken[p] = true
	return w.engine.Truncate(p, o)
}

func (w *stage) resetTo(where, to string) error {
	p, err := parsePartition(where)
	if err != nil {
		return err
	}
	o, err := strconv.ParseInt(to, 10, 64)
	if err != nil {
		return err
	}
	w.reset++
	w.registry.SetGroup(w.cfg.Group, consume.Group{Reset: &consume.Reset{
		ID: strconv.Itoa(w.reset), Offsets: map[consume.Partition]int64{p: o},
	}})
	return nil
}

// state tells of the records and notes.
func (w *stage) state() {
	for _, s := range w.registry.Records(w.cfg.Group) {
		p := s.Partition
		w.say("%s main: %s, %s", p, w.holder(s.Record.Main), w.noted(p, consume.Main))
		for _, c := range sortedColors(s.Record) {
			e := s.Record.Colors[c]
			w.say("%s %s from %d: %s, %s", p, c, e.From, w.holder(e.Holder), w.noted(p, c))
		}
	}
}

func (w *stage) noted(p consume.Partition, cursor lane.Name) string {
	n := w.registry.Note(w.cfg.Group, p, cursor).Note
	if n == nil {
		return "no note"
	}
	return "note " + noteWords(n)
}

// finish lets consumers settle what they are given, until nothing happens any more, and
// says whether everything is settled.
func (w *stage) finish() error {
	for range 1000 {
		w.flow()
		busy := false
		for _, p := range w.procs {
			if !p.alive {
				continue
			}
			for len(p.out) > 0 {
				busy = true
				p.settle(p.out[0])
				w.flow()
			}
		}
		if busy {
			continue
		}
		for _, p := range w.procs {
			if note := (consume.Timer{Kind: consume.TimerNote}); p.alive && p.timers[note] {
				delete(p.timers, note)
				p.step(&consume.Fired{Timer: note})
			}
		}
		w.flow()
		w.check.total()
		return nil
	}
	return errors.New("it never ends")
}

// flow lets everything happen that is not held back.
func (w *stage) flow() {
	for range 10_000 {
		if !slices.ContainsFunc(w.procs, (*process).move) {
			return
		}
	}
	w.check.fault("it never comes to rest")
}

func (w *stage) proc(name string) *process {
	for _, p := range w.procs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// partition reads "orders/0".
func parsePartition(s string) (consume.Partition, error) {
	topic, index, ok := strings.Cut(s, "/")
	n, err := strconv.ParseInt(index, 10, 32)
	if !ok || err != nil {
		return consume.Partition{}, fmt.Errorf("%q is no partition", s)
	}
	return consume.Partition{Topic: topic, Index: int32(n)}, nil
}

// colorNamed reads a color, or a lane's name.
func colorNamed(s string) lane.Name {
	if s == "plain" || s == "baseline" {
		return lane.Baseline
	}
	return lane.Name(s)
}

func sortedColors(r *consume.Record) []lane.Name {
	var cs []lane.Name
	for c := range r.Colors {
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b lane.Name) int { return cmp.Compare(a, b) })
	return cs
}
