package consume

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of [Config].
const (
	DefaultWindow          = 1000     // messages in flight with a cursor
	MaxWindow              = 4096     // of these, since each may be named in a note
	DefaultWindowBytes     = 16 << 20 // and their bytes
	DefaultFetch           = 256      // messages in one read
	DefaultHandoverTimeout = 10 * time.Second
	DefaultNoteMin         = 200 * time.Millisecond
	DefaultNoteMax         = 5 * time.Second
	DefaultSplitPatience   = time.Second
	DefaultUnknownStrict   = time.Hour
	DefaultMaxMoves        = 40 // moves, and notes, of one write: registries bound their transactions
	// notePerCursor is how much each cursor that moves adds to the time between notes, so
	// that a process writes no more than about 200 notes a second.
	notePerCursor = 5 * time.Millisecond
)

// Topic is one topic of a group.
type Topic struct {
	Name string
	// Retry and Dead are the topics for its messages that failed; zero: a message that fails
	// is given back, as by [ErrReturn]. A retry topic counts as its origin: who is
	// a member for the one is one for the other.
	Retry, Dead string
	// Partitions is how many there were when the group was created. One that came later
	// begins at its first offset, whatever the group's start. 0: not known, so that all
	// begin at the group's start.
	Partitions int32
}

// Config is what a [Core] is made of. Zero fields have the defaults of this package.
type Config struct {
	Group  string
	Topics []Topic
	Start  Start
	// Ordered: one color is never with two lanes at once, also at a split.
	Ordered bool
	OnLoss  LossPolicy

	Window      int   // messages in flight with one cursor at most; up to [MaxWindow]
	WindowBytes int64 // and their bytes; one message is let through whatever its size
	Fetch       int   // messages of one read at most
	MaxMoves    int   // moves of one write at most, and notes of one that has no moves

	HandoverTimeout  time.Duration // how long a release waits for what is in flight
	NoteMin, NoteMax time.Duration // between two notes of a cursor that moves
	SplitPatience    time.Duration // how long main may stand still before colors that wait are split off
	UnknownStrict    time.Duration // how long a strict color's lane is unknown before it counts as ended

	// RetryDelays are the delays of a message's retries, in order; after the last one it is
	// dead. Empty: no retries.
	RetryDelays []time.Duration
	// Filter reports whether the group wants a message; nil: it wants all. It is pure.
	Filter func(*Message) bool
}

// Validate reports everything that is wrong with a configuration, with the field's name.
func (c *Config) Validate() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if c.Group == "" {
		fault("group", "is empty: name the group")
	}
	if len(c.Topics) == 0 {
		fault("topics", "is empty: name at least one topic")
	}
	seen := map[string]bool{}
	for i, t := range c.Topics {
		field := fmt.Sprintf("topics[%d]", i)
		if t.Name == "" {
			fault(field+".name", "is empty")
		}
		if (t.Retry == "") != (t.Dead == "") {
			fault(field, "has a retry topic or a dead-letter topic without the other: give both or none")
		}
		for _, name := range []string{t.Name, t.Retry, t.Dead} {
			if name != "" && seen[name] {
				fault(field, "names topic %q, which is named already", name)
			}
			seen[name] = true
		}
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"window", int64(c.Window)},
		{"window_bytes", c.WindowBytes},
		{"fetch", int64(c.Fetch)},
		{"max_moves", int64(c.MaxMoves)},
		{"handover_timeout", int64(c.HandoverTimeout)},
		{"note_min", int64(c.NoteMin)},
		{"note_max", int64(c.NoteMax)},
		{"split_patience", int64(c.SplitPatience)},
		{"unknown_strict", int64(c.UnknownStrict)},
	} {
		if n.value < 0 {
			fault(n.field, "is negative: give a positive value, or zero for the default")
		}
	}
	if c.Window > MaxWindow {
		fault("window", "is %d: at most %d messages of one cursor can be in flight", c.Window, MaxWindow)
	}
	for i, d := range c.RetryDelays {
		if d < 0 {
			fault(fmt.Sprintf("retry_delays[%d]", i), "is negative")
		}
	}
	return errors.Join(errs...)
}

// filled is the configuration with its defaults.
func (c Config) filled() Config {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.WindowBytes == 0 {
		c.WindowBytes = DefaultWindowBytes
	}
	if c.Fetch == 0 {
		c.Fetch = DefaultFetch
	}
	if c.MaxMoves == 0 {
		c.MaxMoves = DefaultMaxMoves
	}
	or(&c.HandoverTimeout, DefaultHandoverTimeout)
	or(&c.NoteMin, DefaultNoteMin)
	or(&c.NoteMax, DefaultNoteMax)
	or(&c.SplitPatience, DefaultSplitPatience)
	or(&c.UnknownStrict, DefaultUnknownStrict)
	c.OnLoss = c.OnLoss.filled(c.Ordered)
	return c
}

// origin is the topic whose members count for t, and its entry; ok is false for a topic that
// is not the group's.
func (c *Config) origin(topic string) (t *Topic, retry, ok bool) {
	for i := range c.Topics {
		t := &c.Topics[i]
		if t.Name == topic {
			return t, false, true
		}
		if t.Retry != "" && t.Retry == topic {
			return t, true, true
		}
	}
	return nil, false, false
}
