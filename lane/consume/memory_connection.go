package consume

import (
	"context"
	"fmt"
	"slices"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// MemoryIdentity is who a process of a [MemoryRegistry] is.
type MemoryIdentity struct {
	Lane           lane.Name // zero: the baseline
	Room, Instance string
}

var _ Connection = (*MemoryProcess)(nil)

// ConnectAs lets one more process in, under a session of its own.
func (r *MemoryRegistry) ConnectAs(who MemoryIdentity) *MemoryProcess {
	p := r.Connect()
	p.who = who
	return p
}

// Process is the process's lane.
func (p *MemoryProcess) Process() lane.Name { return p.who.Lane }

// Room is the process's room.
func (p *MemoryProcess) Room() string { return p.who.Room }

// Instance is the name of the process's instance.
func (p *MemoryProcess) Instance() string { return p.who.Instance }

// Used does nothing: lanes of a [MemoryRegistry] do not expire.
func (p *MemoryProcess) Used(lane.Name) {}

// Enter gives the settings of a group and keeps others of the process from its topics. While
// the process is cut off it asks again, until ctx ends.
func (p *MemoryProcess) Enter(ctx context.Context, group string, want Settings) (Settings, func(), error) {
	for n := 0; ; n++ {
		err := p.reach()
		if err == nil {
			break
		}
		if !pause.For(ctx, backoff(n)) {
			return Settings{}, nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.entered.Add(group, want.Topics); err != nil {
		return Settings{}, nil, err
	}
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.entered.Remove(group, want.Topics)
	}
	return p.r.Enter(group, want), leave, nil
}

// Enter gives the settings of a group: those that are wanted where it has none yet, with the
// topics that are wanted beside its own.
func (r *MemoryRegistry) Enter(group string, want Settings) Settings {
	r.lock()
	defer r.mu.Unlock()
	g := r.group(group)
	if g.hold == nil {
		hold := want.clone()
		g.hold = &hold
	} else {
		hold := g.hold.clone()
		hold.add(&want)
		g.hold = &hold
	}
	return g.hold.clone()
}

// Entered are the topics that a process consumes for its groups, for those who make a
// [Connection]. The zero value has none. It is for one goroutine at a time.
type Entered struct{ topics map[string][]string }

// Add notes topics of a group. Where one is there already it notes none: [ErrEntered].
func (e *Entered) Add(group string, topics []string) error {
	for _, t := range topics {
		if slices.Contains(e.topics[group], t) {
			return fmt.Errorf("topic %s of group %s: %w", t, group, ErrEntered)
		}
	}
	if e.topics == nil {
		e.topics = map[string][]string{}
	}
	e.topics[group] = append(e.topics[group], topics...)
	return nil
}

// Remove forgets topics of a group.
func (e *Entered) Remove(group string, topics []string) {
	e.topics[group] = slices.DeleteFunc(e.topics[group], func(t string) bool { return slices.Contains(topics, t) })
	if len(e.topics[group]) == 0 {
		delete(e.topics, group)
	}
}
