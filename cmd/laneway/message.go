package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	defaultMessages = 100
	maxMessages     = 100_000
	shownKey        = 40 // bytes of a key in tables
	shownValue      = 80 // and of a payload
)

func newMessageCommand(a *app) *cobra.Command {
	return groupCommand("message", "Look at the messages of topics", "  laneway message list orders --color green\n  laneway message show orders/0@17",
		a.messageList(), a.messageShow())
}

// messageView is a message as commands show it.
type messageView struct {
	ID      string          `json:"id"` // topic/partition@offset
	Color   string          `json:"color"`
	Key     string          `json:"key,omitempty"`
	Time    time.Time       `json:"time,omitzero"`
	Bytes   int64           `json:"bytes"`
	Attempt int             `json:"attempt,omitempty"`
	Error   string          `json:"error,omitempty"`
	Origin  string          `json:"origin,omitempty"`  // of a message that is retried, dead or replayed
	Replay  string          `json:"replay,omitempty"`  // that it is a copy of
	Headers []messageHeader `json:"headers,omitempty"` // with --payload
	Value   json.RawMessage `json:"value,omitempty"`   // with --payload: a text, or base64 of what is none
}

type messageHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// peek says which messages to look at.
type peek struct {
	topic     string
	partition int // -1: all
	filter    consume.Filter
	keep      func(*consume.Message) bool // which of those that the filter leaves; nil: all
	from      int64                       // offset
	since     time.Time
	limit     int
	// ends are where partitions end for this; one that is not there is added as it is found,
	// so that a second look sees nothing that came after the first. Nil: as they are.
	ends map[consume.Partition]int64
}

// readAtOnce is how many messages are read at a time.
const readAtOnce = 1000

// eachMessage calls f with messages, partition by partition, without consuming them: up to
// the end as it was when it began.
func eachMessage(ctx context.Context, e consume.Source, p peek, f func(*consume.Message)) error {
	n, err := e.Partitions(ctx, p.topic)
	if err != nil {
		return err
	}
	if p.partition >= int(n) {
		return fmt.Errorf("topic %s has %s, numbered from 0", p.topic, plural(int(n), "partition"))
	}
	left := p.limit
	for i := range n {
		if p.partition >= 0 && int(i) != p.partition {
			continue
		}
		at := consume.Partition{Topic: p.topic, Index: i}
		b, err := e.Bounds(ctx, at)
		if err != nil {
			return err
		}
		if p.ends != nil {
			if end, known := p.ends[at]; known {
				b.End = min(b.End, end)
			} else {
				p.ends[at] = b.End
			}
		}
		next := max(p.from, b.First)
		if !p.since.IsZero() {
			then, err := e.At(ctx, at, p.since)
			if err != nil {
				return err
			}
			next = max(next, then)
		}
		for left > 0 && next < b.End {
			atOnce := readAtOnce
			if p.keep == nil {
				atOnce = min(left, atOnce)
			}
			got, err := e.Read(ctx, at, next, p.filter, atOnce)
			if err != nil {
				return err
			}
			for _, m := range got.Messages {
				if left > 0 && m.Offset < b.End && (p.keep == nil || p.keep(m)) {
					f(m)
					left--
				}
			}
			if got.Next <= next {
				break
			}
			next = got.Next
		}
	}
	return nil
}

func checkLimit(n int) error {
	if n < 1 || n > maxMessages {
		return usageError(fmt.Errorf("--limit %d: want 1 to %d", n, maxMessages))
	}
	return nil
}

func (a *app) messageList() *cobra.Command {
	p := peek{limit: defaultMessages}
	var color, key, since string
	var payload bool
	c := &cobra.Command{
		Use:   "list TOPIC",
		Short: "List messages of a topic without consuming them",
		Long: `Lists messages of a topic, partition by partition, oldest first. Nothing is consumed, and
no group notices. Payloads and headers are shown with --payload alone.`,
		Example: `  laneway message list orders
  laneway message list orders --color green --since 10m
  laneway message list orders --partition 2 --from 4711 --limit 1 --payload -o json`,
		Args: exactArgs("TOPIC"), ValidArgsFunction: a.complete(laneclient.KindTopics),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.topic, p.filter = args[0], consume.Filter{All: true}
			if err := checkLimit(p.limit); err != nil {
				return err
			}
			var err error
			if color != "" {
				p.filter = consume.Filter{}
				if p.filter.Color, err = parseColor(color); err != nil {
					return err
				}
			}
			if key != "" {
				p.keep = func(m *consume.Message) bool { return string(m.Key) == key }
			}
			if p.since, err = parseTime("--since", since, time.Now()); err != nil {
				return err
			}
			views, err := a.peekMessages(cmd.Context(), p, payload)
			if err != nil {
				return err
			}
			return a.print(views, func(w io.Writer) error { return a.writeMessages(w, views, payload) })
		},
	}
	f := c.Flags()
	f.IntVar(&p.partition, "partition", -1, "only this `NUMBER`ed partition (default all)")
	f.StringVar(&color, "color", "", "only this `COLOR`; - is plain (default all)")
	f.StringVar(&key, "key", "", "only messages of this `KEY`")
	f.Int64Var(&p.from, "from", 0, "begin at this `OFFSET` of each partition")
	f.StringVar(&since, "since", "", "begin at this `TIME`, as 2026-11-30T08:00:00Z or 2h (ago)")
	f.IntVar(&p.limit, "limit", p.limit, "`NUMBER` of messages at most")
	f.BoolVar(&payload, "payload", false, "show headers and payloads too")
	_ = c.RegisterFlagCompletionFunc("color", a.complete(laneclient.KindLanes))
	a.addOutput(c)
	return c
}

// parseColor reads the value of --color, of which - is plain.
func parseColor(text string) (lane.Name, error) {
	if text == laneclient.BaselineWord {
		return lane.Baseline, nil
	}
	color, err := lane.ParseName(text)
	if err != nil {
		return color, usageError(fmt.Errorf("--color: %w", err))
	}
	return color, nil
}

// parseTime reads the value of a flag that is a time; empty: the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	start, err := parseReset(text, now)
	if err != nil || start.Kind != consume.StartTime {
		return time.Time{}, usageError(fmt.Errorf("%s %q: want a time as 2026-11-30T08:00:00Z, or 2h for two hours ago", flag, text))
	}
	return start.Time, nil
}

func (a *app) peekMessages(ctx context.Context, p peek, payload bool) ([]messageView, error) {
	t, e, err := a.openTopic(ctx, a.api(), p.topic)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	p.topic = t.Name
	views := []messageView{}
	err = eachMessage(ctx, e, p, func(m *consume.Message) { views = append(views, viewMessage(m, payload)) })
	return views, err
}

func viewMessage(m *consume.Message, payload bool) messageView {
	v := messageView{ID: idOf(m), Color: string(m.Color), Key: printable(m.Key), Time: m.Time, Bytes: m.Bytes(), Attempt: m.Attempt, Error: m.Error, Replay: m.Replayed()}
	if m.Origin != nil {
		v.Origin = placeID(m.Origin.Partition, m.Origin.Offset)
	}
	if !payload {
		return v
	}
	for _, h := range m.Headers {
		v.Headers = append(v.Headers, messageHeader{h.Name, printable(h.Value)})
	}
	v.Value, _ = json.Marshal(m.Value) // base64; bytes are never refused
	if utf8.Valid(m.Value) {
		v.Value, _ = json.Marshal(string(m.Value))
	}
	return v
}

func (a *app) writeMessages(w io.Writer, views []messageView, payload bool) error {
	now := time.Now()
	header := []string{"MESSAGE", "COLOR", "KEY", "SENT", "BYTES"}
	if payload {
		header = append(header, "PAYLOAD")
	}
	g := a.newGrid(header...)
	for _, v := range views {
		row := []string{v.ID, colorText(lane.Name(v.Color)), shorten(v.Key, shownKey), ago(v.Time, now), fmt.Sprint(v.Bytes)}
		if payload {
			var text string
			if json.Unmarshal(v.Value, &text) == nil {
				row = append(row, shorten(printable([]byte(text)), shownValue))
			}
		}
		g.add(row...)
	}
	return g.write(w)
}

// printable is a text without what would change a terminal; other bytes are written as Go
// does.
func printable(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("%q", b)
	}
	s := string(b)
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// shorten cuts a text for a table.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
