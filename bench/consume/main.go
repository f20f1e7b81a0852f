// Command consume measures what consuming by lane costs, on JetStream as the embedded engine
// runs it (durability bounded), with the registry of lane/consume in memory. Server and
// consumers are in one process and speak TCP over loopback; processor time is that of all of
// them together. Kinds of one table take turns over the same log, so that what else the
// machine does falls on all of them alike; ratios are those of turns beside each other, and
// the median turn counts. It exits with 1 where a promise is broken:
//
//   - a group without lanes consumes at least 1.5 times as fast as durable pull consumers with
//     explicit acks, and 0.7 times as fast as batches of direct gets that nobody works on;
//   - with 100 lanes beside it and one message in a hundred colored, 0.95 times as fast as
//     without; and where each lane has a process of its own (here: a runner with its own
//     connection and session, since a hundred processes are too many for a small machine),
//     all of them read at most 1.2 times the bytes of main's readers and the colored messages;
//   - a lane that is stuck, or a thousand times slower, costs the baseline at most 5 percent
//     of processor time a message, and of throughput that and noise; and the reverse;
//   - the consumer of a lane that starts or stops has, or has given up, its colored messages
//     within 50 ms at the 99th percentile with 8 partitions, and 150 ms with 64.
//
// Two tables are made where they are named only, on the built command in a process of its
// own with etcd and JetStream embedded: control has the last promise over the real control
// plane, while clients in other processes watch it; moves has what moves of many cursors cost
// one control node, and how large its registry gets.
//
// Usage:
//
//	go run ./bench/consume [-only rates,lanes,bytes,stuck,hops,handover] [-rounds 9] [-messages 60000]
//	make build && go run ./bench/consume -only control [-partitions 64 -watchers 1000] [-follow]
//	make build && go run ./bench/consume -only moves [-cursors 64000 -colors 7 -handovers 64000]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
)

// settings are what the flags say.
type settings struct {
	rounds, messages, size, events int

	binary                     string // of the installation, for what is measured over one
	watchers, partitions       int
	watchGroups, yield         bool
	callable                   bool
	cursors, colors, handovers int
}

// part is one table.
type part struct {
	name string
	run  func(context.Context, settings) (kept bool, err error)
	big  bool // it is run where it is named only
}

func parts() []part {
	return []part{
		{"rates", inWorld(rates), false},
		{"lanes", inWorld(withLanes), false},
		{"bytes", inWorld(bytesRead), false},
		{"stuck", inWorld(stuck), false},
		{"hops", inWorld(hops), false},
		{"handover", inWorld(handover), false},
		{"control", control, true},
		{"moves", moves, true},
	}
}

func main() {
	var s settings
	only := flag.String("only", "", "tables, separated by commas; empty: all")
	flag.IntVar(&s.rounds, "rounds", 9, "how often the kinds of a table take turns")
	flag.IntVar(&s.messages, "messages", 60_000, "messages a turn")
	flag.IntVar(&s.size, "size", 1024, "bytes of a message's value")
	flag.IntVar(&s.events, "events", 100, "starts, and stops, of a lane's consumer for each kind of hand-over")
	flag.StringVar(&s.binary, "binary", "bin/laneway", "the built command, for control and moves")
	flag.IntVar(&s.watchers, "watchers", 100, "control: clients that watch")
	flag.BoolVar(&s.watchGroups, "follow", false, "control: they watch the group's members and records, too, as members do")
	flag.BoolVar(&s.yield, "yield", false, "control: they run only where nobody else wants a processor, as if they were on machines of their own")
	flag.BoolVar(&s.callable, "callable", false, "control: consumers can be called, too, so that all clients are told of each")
	flag.IntVar(&s.partitions, "partitions", partitions, "control: of the topic")
	flag.IntVar(&s.cursors, "cursors", 8000, "moves: cursors that move")
	flag.IntVar(&s.colors, "colors", 7, "moves: of them in one record, beside main")
	flag.IntVar(&s.handovers, "handovers", 40_000, "moves: how often a cursor is handed over, which is two moves")
	watch := flag.Int("watch", 0, "internal: be a process with so many watching clients")
	watchGroups := flag.String("watch-groups", "", "internal: the groups that they watch, too")
	watchYield := flag.Bool("watch-yield", false, "internal: run only where nobody else wants a processor")
	profile := flag.String("cpuprofile", "", "a file for the profile of processor time")
	flag.Parse()
	if flag.NArg() > 0 || s.rounds < 1 || s.messages < 10_000 || s.size < 0 || s.events < 1 ||
		s.watchers < 0 || s.partitions < 1 || s.cursors < 1 || s.colors < 0 || s.handovers < samples {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *watch > 0 {
		if err := beWatchers(ctx, *watch, *watchGroups, *watchYield); err != nil {
			fmt.Fprintln(os.Stderr, "consume:", err)
			os.Exit(1)
		}
		return
	}
	kept, err := profiled(*profile, func() (bool, error) { return run(ctx, s, *only) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "consume:", err)
	}
	if err != nil || !kept {
		os.Exit(1)
	}
}

func profiled(file string, do func() (bool, error)) (kept bool, err error) {
	if file == "" {
		return do()
	}
	f, err := os.Create(file)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return false, err
	}
	defer pprof.StopCPUProfile()
	return do()
}

func run(ctx context.Context, s settings, only string) (kept bool, err error) {
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
			return false, fmt.Errorf("there is no table %q", name)
		}
	}
	kept = true
	for _, p := range parts() {
		if !slices.Contains(wanted, p.name) && (len(wanted) > 0 || p.big) {
			continue
		}
		ok, err := p.run(ctx, s)
		if err != nil {
			return false, fmt.Errorf("%s: %w", p.name, err)
		}
		kept = kept && ok
	}
	return kept, nil
}

// inWorld gives a part a server of its own.
func inWorld(run func(context.Context, *world) (bool, error)) func(context.Context, settings) (bool, error) {
	return func(ctx context.Context, s settings) (kept bool, err error) {
		w, err := newWorld(ctx, s)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, w.close()) }()
		return run(ctx, w)
	}
}
