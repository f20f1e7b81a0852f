package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Errors of a [Connection] and of [Run].
var (
	// ErrRefused: the registry has answered, and asking again will not change its mind until
	// somebody has done something about what it says.
	ErrRefused = errors.New("the registry refuses")
	// ErrEntered: the process consumes this topic for this group already.
	ErrEntered = errors.New("this process consumes the topic for this group already: raise its concurrency, or dial the control plane once more")
	// ErrMismatch: the group has other settings than the program demands.
	ErrMismatch = errors.New("the group has other settings than the program demands")
)

// Identity says who a process is, as far as that colors what it sends. laneclient's Client is
// one. All of its calls may be made at once; none blocks.
type Identity interface {
	// Process is the process's lane, and so the color of what it sends where a context says
	// nothing of one; zero: the baseline.
	Process() lane.Name
	// Used notes that a color was just used, which keeps its lane from expiring.
	Used(color lane.Name)
}

// Connection is a process's connection to the control plane, as [Run] needs it: laneclient's
// Client is one, [MemoryRegistry.Connect] makes one for tests. All of its calls may be made
// at once.
type Connection interface {
	Registry
	Identity
	// Room is the process's room; empty: none.
	Room() string
	// Instance is the name of the process's instance; empty: it is none.
	Instance() string
	// Enter gives the settings that hold for a group. A group that is not there is created
	// with those that are wanted, topics of them that it lacks are added, and all else of
	// want is passed over. From then on until leave is called no other Enter of this process
	// for one of the topics succeeds: [ErrEntered]. Where the registry does not answer, it
	// asks again until ctx ends; an answer that will not change is an [ErrRefused].
	Enter(ctx context.Context, group string, want Settings) (hold Settings, leave func(), err error)
}

// Settings are what holds for a whole group, whichever process consumes. They are kept with
// the group; the first process that consumes for it decides, and after that operators do.
type Settings struct {
	// Engine is the name of the engine that has the topics; empty, when a group is created:
	// that of its topics, or the only one that there is.
	Engine string
	Topics []string
	// Partitions are how many each topic had when the group got to know it: those that come
	// later are read from their first offset, wherever the group starts.
	Partitions map[string]int32

	Start           Start
	Ordered         bool
	RetryDelays     []time.Duration // empty: a message that fails is dead
	HandoverTimeout time.Duration   // 0: DefaultHandoverTimeout
	OnLoss          LossPolicy
}

// clone is a copy that shares nothing.
func (s *Settings) clone() Settings {
	c := *s
	c.Topics, c.Partitions, c.RetryDelays = slices.Clone(s.Topics), maps.Clone(s.Partitions), slices.Clone(s.RetryDelays)
	return c
}

// add takes in the topics of want that s lacks.
func (s *Settings) add(want *Settings) {
	for _, t := range want.Topics {
		if slices.Contains(s.Topics, t) {
			continue
		}
		s.Topics = append(s.Topics, t)
		if n := want.Partitions[t]; n > 0 {
			if s.Partitions == nil {
				s.Partitions = map[string]int32{}
			}
			s.Partitions[t] = n
		}
	}
}

// demands are which settings the program has named.
type demands struct{ engine, start, ordered, retries, handover, onLoss bool }

// check compares what holds with what the program demands.
func (d demands) check(group string, hold, want *Settings) error {
	var errs []error
	differ := func(demanded, same bool, field string, is, wants any) {
		if demanded && !same {
			errs = append(errs, fmt.Errorf("group %s: %s is %v, and the program wants %v: change one of them: %w", group, field, is, wants, ErrMismatch))
		}
	}
	differ(d.engine, hold.Engine == want.Engine, "engine", hold.Engine, want.Engine)
	differ(d.start, hold.Start.Kind == want.Start.Kind && hold.Start.Time.Equal(want.Start.Time) && hold.Start.Offset == want.Start.Offset,
		"start", hold.Start, want.Start)
	differ(d.ordered, hold.Ordered == want.Ordered, "ordered", hold.Ordered, want.Ordered)
	differ(d.retries, slices.Equal(hold.RetryDelays, want.RetryDelays), "retry", hold.RetryDelays, want.RetryDelays)
	differ(d.handover, hold.HandoverTimeout == want.HandoverTimeout, "handover_timeout", hold.HandoverTimeout, want.HandoverTimeout)
	is, wants := hold.OnLoss.filled(hold.Ordered), want.OnLoss.filled(want.Ordered)
	differ(d.onLoss, is == wants, "on_registry_loss", is, wants)
	return errors.Join(errs...)
}

// String is the word of the API and of files: "continue", "hold", or nothing for the default.
func (p LossPolicy) String() string {
	switch p {
	case LossContinue:
		return "continue"
	case LossHold:
		return "hold"
	case LossDefault:
	}
	return ""
}

// String is the word of the API and of files: "earliest", "latest", a time of RFC 3339, or
// "offset:" and the number.
func (s Start) String() string {
	switch s.Kind {
	case StartLatest:
		return "latest"
	case StartTime:
		return s.Time.Format(time.RFC3339Nano)
	case StartOffset:
		return fmt.Sprintf("offset:%d", s.Offset)
	case StartEarliest:
	}
	return "earliest"
}
