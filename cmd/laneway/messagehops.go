package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// hopsBefore is how much earlier than a message's hops are looked for: clocks differ.
	hopsBefore = 5 * time.Minute
	maxHops    = 10_000 // of one message that are shown
)

// messageHops is what is known of one message.
type messageHops struct {
	Message *messageView  `json:"message,omitempty"` // left out: it is not in its log, or was asked for by name
	Name    string        `json:"name,omitempty"`    // under which its producer records hops
	Origin  string        `json:"origin,omitempty"`  // where it was at first
	Hops    []consume.Hop `json:"hops"`
	// Missing is how many hops, of any messages, were not kept in the time that was looked at.
	Missing int64 `json:"missing"`
	// Cut: there are more hops than are shown.
	Cut bool `json:"cut,omitempty"`
}

// hopQuery says whose hops are looked for.
type hopQuery struct {
	topic  string // the hops topic
	of     string // topic that the message was sent to; empty: any
	name   string
	origin string
	since  time.Time
}

func (q *hopQuery) wants(h *consume.Hop) bool {
	if q.of != "" && h.Topic != q.of {
		return false
	}
	return q.name != "" && h.Message == q.name || q.origin != "" && h.Origin == q.origin
}

func (a *app) messageShow() *cobra.Command {
	topic, on, since := consume.HopsTopic, "", ""
	var payload bool
	c := &cobra.Command{
		Use:   "show MESSAGE",
		Short: "Show what happened to a message, hop by hop",
		Long: `Shows which member of which lane a message was handed to, and what became of it there:
all its hops, as far as the programs record them (consume.Hops). MESSAGE is TOPIC/PARTITION@OFFSET,
as lists show it: where it was sent to, or in a retry or dead-letter topic; or the name that
its header laneway-message has. Hops of different machines are in the order of their clocks.`,
		Example: `  laneway message show orders/0@17
  laneway message show orders.billing.dead/0@3 -o json
  laneway message show 9f86d081884c7d65 --since 2h`,
		Args: exactArgs("MESSAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := hopQuery{topic: topic}
			var err error
			if q.since, err = parseTime("--since", since, time.Now()); err != nil {
				return err
			}
			m, err := a.findHops(cmd.Context(), args[0], on, q, payload)
			if err != nil {
				return err
			}
			return a.print(m, func(w io.Writer) error { return a.writeHops(w, m, topic) })
		},
	}
	f := c.Flags()
	f.StringVar(&on, "engine", "", "`NAME` of the engine, where MESSAGE is a name (default the installation's)")
	f.StringVar(&topic, "hops", topic, "`TOPIC` that hops are kept in")
	f.StringVar(&since, "since", "", "look at hops since this `TIME`, as 2026-11-30T08:00:00Z or 2h (default: since the message was sent)")
	f.BoolVar(&payload, "payload", false, "show headers and payload too (with -o json or yaml)")
	_ = c.RegisterFlagCompletionFunc("engine", a.complete(laneclient.KindEngines))
	a.addOutput(c)
	return c
}

// messageName is what a producer calls its messages.
var messageName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// findHops finds a message, and then its hops.
func (a *app) findHops(ctx context.Context, id, on string, q hopQuery, payload bool) (*messageHops, error) {
	out := &messageHops{Hops: []consume.Hop{}}
	var e engine
	var err error
	if messageName.MatchString(id) {
		if e, _, err = a.openNamed(ctx, a.api(), on); err != nil {
			return nil, err
		}
		q.name = id
	} else {
		p, offset, err := parseID(id)
		if err != nil {
			return nil, usageError(err)
		}
		if _, e, err = a.openTopic(ctx, a.api(), p.Topic); err != nil {
			return nil, err
		}
		q.origin, q.of = id, p.Topic
		m, err := readMessage(ctx, e, p, offset)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		if m != nil {
			view := viewMessage(m, payload)
			out.Message = &view
			q.take(m)
		}
	}
	defer func() { _ = e.Close() }()
	out.Name, out.Origin = q.name, q.origin
	err = q.each(ctx, e, func(h *consume.Hop) {
		switch {
		case h.Kind == consume.HopMissing:
			out.Missing += h.Count
		case !q.wants(h):
		case len(out.Hops) == maxHops:
			out.Cut = true
		default:
			out.Hops = append(out.Hops, *h)
		}
	})
	if errors.Is(err, consume.ErrNoTopic) { // nobody has recorded anything yet
		err = nil
	}
	if err == nil && len(out.Hops) == 0 && out.Message == nil {
		err = fmt.Errorf("there is no message %s and no hop of it: it was never there, or its topic and %s do not keep it any more", id, q.topic)
	}
	consume.SortHops(out.Hops)
	return out, err
}

// take takes from a message how its hops are found.
func (q *hopQuery) take(m *consume.Message) {
	if m.Origin != nil {
		q.of, q.origin = m.Origin.Partition.Topic, placeID(m.Origin.Partition, m.Origin.Offset)
	} else if q.since.IsZero() && !m.Time.IsZero() {
		q.since = m.Time.Add(-hopsBefore)
	}
	if names := (*consume.Headers)(&m.Headers).Values(consume.MessageHeader); len(names) > 0 {
		q.name = names[0]
	}
}

// readMessage reads one message; nil: it is not there.
func readMessage(ctx context.Context, e consume.Source, p consume.Partition, offset int64) (found *consume.Message, err error) {
	look := peek{topic: p.Topic, partition: int(p.Index), filter: consume.Filter{All: true}, from: offset, limit: 1}
	err = eachMessage(ctx, e, look, func(m *consume.Message) {
		if m.Offset == offset {
			found = m
		}
	})
	return found, err
}

// each calls f with hops that may be those of the message, and with what is missing.
func (q *hopQuery) each(ctx context.Context, e consume.Source, f func(*consume.Hop)) error {
	needles := [][]byte{[]byte(consume.HopMissing)}
	for _, text := range []string{q.name, q.origin} {
		if text != "" {
			quoted, err := json.Marshal(text)
			if err != nil {
				return err
			}
			needles = append(needles, quoted)
		}
	}
	look := peek{topic: q.topic, partition: -1, filter: consume.Filter{All: true}, since: q.since, limit: math.MaxInt}
	return eachMessage(ctx, e, look, func(m *consume.Message) {
		for line := range bytes.Lines(m.Value) {
			if !containsAny(line, needles) { // most are of others
				continue
			}
			var h consume.Hop
			if json.Unmarshal(line, &h) == nil { // what is no hop was put there by somebody else
				f(&h)
			}
		}
	})
}

func containsAny(b []byte, needles [][]byte) bool {
	for _, n := range needles {
		if bytes.Contains(b, n) {
			return true
		}
	}
	return false
}

func (a *app) writeHops(w io.Writer, m *messageHops, topic string) error {
	now := time.Now()
	if v := m.Message; v != nil {
		g := a.newGrid("MESSAGE", v.ID)
		g.add("color", colorText(lane.Name(v.Color)))
		g.add("key", shorten(v.Key, shownKey))
		g.add("sent", ago(v.Time, now))
		g.add("bytes", fmt.Sprint(v.Bytes))
		if m.Origin != v.ID {
			g.add("was at first", m.Origin)
		}
		g.add("name", m.Name)
		if err := g.write(w); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	if len(m.Hops) == 0 {
		_, err := fmt.Fprintf(w, "no hop of it is in %s: its programs do not record hops, not of this message, or it is longer ago than they are kept\n", topic)
		return err
	}
	if err := a.hopGrid(m.Hops).write(w); err != nil {
		return err
	}
	if m.Cut {
		if _, err := fmt.Fprintf(w, "there are more: only %d are shown\n", maxHops); err != nil {
			return err
		}
	}
	if m.Missing > 0 {
		_, err := fmt.Fprintf(w, "%d hops of any messages were not kept meanwhile, since they came faster than they were written: some may be of this one\n", m.Missing)
		return err
	}
	return nil
}

func (a *app) hopGrid(hops []consume.Hop) *grid {
	g := a.newGrid("TIME", "HOP", "GROUP", "LANE", "BY", "TRY", "AT", "WHY")
	for i := range hops {
		h := &hops[i]
		try := ""
		if h.Attempt > 0 {
			try = fmt.Sprint(h.Attempt)
		}
		at := cmp.Or(h.Place, h.Topic)
		if h.To != "" {
			at = "to " + h.To
		}
		why := []string{}
		if h.Reason != "" {
			why = append(why, printable([]byte(h.Reason)))
		}
		if h.Redelivered {
			why = append(why, "redelivered")
		}
		if h.Error != "" {
			why = append(why, printable([]byte(h.Error)))
		}
		g.add(h.Time.Local().Format("2006-01-02 15:04:05.000"), printable([]byte(h.Kind)), printable([]byte(h.Group)),
			printable([]byte(ofLane(h))), printable([]byte(by(h))), try, printable([]byte(at)), shorten(strings.Join(why, ": "), shownValue))
	}
	return g
}

// ofLane is whose member a hop is of, or what it was replayed for; what somebody did by hand is
// of none.
func ofLane(h *consume.Hop) string {
	if h.Reason == consume.ReasonByHand {
		return ""
	}
	return laneOrBaseline(string(h.Lane))
}

// by is who a hop was made by: a member's name has its instance's.
func by(h *consume.Hop) string {
	switch {
	case h.Member != "":
		return h.Member
	case h.Instance != "":
		return h.Instance
	}
	return h.Service
}
