package consume

import (
	"context"
	"sync"
	"time"
)

const (
	pollRooms   = 15 * time.Second // how soon it is seen that a partition is in another room
	believeRoom = 2 * pollRooms    // how long it must be said before that is another's
	roomsAtOnce = 16               // partitions that an engine is asked about at once
)

// RoomFinder is an engine whose [Caps] say Rooms.
type RoomFinder interface {
	// Room is the room that a partition is in: where reading it costs least, as in the data
	// center of its broker. Empty: in none. All processes must be told the same, or they
	// do not agree on who is to have it; and it should change seldom, as a cursor changes hands
	// by that: where a partition has replicas in several rooms, a leader that moves between
	// them is no reason. ErrNoTopic: there is no such topic or partition. It may be called at
	// any time, and returns as calls of a [Source] do.
	Room(ctx context.Context, p Partition) (string, error)
}

// FindRoom asks an engine for the room that a partition is in, as [RoomFinder.Room] does.
// ErrUnsupported: it cannot tell.
func FindRoom(ctx context.Context, src Source, p Partition) (string, error) {
	f, ok := src.(RoomFinder)
	if !ok || !src.Caps().Rooms {
		return "", ErrUnsupported
	}
	return f.Room(ctx, p)
}

// located is where a partition is.
type located struct {
	room  string    // as the Core is told
	known bool      // the engine has said so
	next  string    // what the engine has said instead since then
	since time.Time // zero: it has not
}

// hear takes in what the engine says, and reports whether the Core has to be told. A room of
// this process is believed at once, another one only after everybody must have heard of it:
// whoever gives a cursor up because its partition is in another room must not do so before
// those of that room know that it is theirs.
func (p *located) hear(room string, own bool, now time.Time) (moved bool) {
	switch {
	case p.known && room == p.room:
		p.since = time.Time{}
		return false
	case !p.known || own:
	case p.since.IsZero() || room != p.next:
		p.next, p.since = room, now
		return false
	case now.Sub(p.since) < believeRoom:
		return false
	}
	moved = room != p.room
	*p = located{room: room, known: true}
	return moved
}

// placeAll asks where the partitions of a topic are, if it is time to, and reports whether
// any is elsewhere. What the engine cannot tell stays as it was, and is asked for again with
// the next count: a room that is out of reach keeps nobody from the others.
func (r *Runner) placeAll(ctx context.Context, topic string, c *counted) (moved bool) {
	f, ok := r.o.Source.(RoomFinder)
	if !ok || !r.o.Source.Caps().Rooms || int(c.partitions) == len(c.places) && time.Since(c.asked) < pollRooms {
		return false
	}
	for len(c.places) < int(c.partitions) {
		c.places = append(c.places, located{})
	}
	c.places = c.places[:c.partitions]
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	rooms, errs := make([]string, len(c.places)), make([]error, len(c.places))
	turns := make(chan struct{}, roomsAtOnce)
	var asking sync.WaitGroup
	for i := range c.places {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			rooms[i], errs[i] = f.Room(ctx, Partition{topic, int32(i)})
		})
	}
	asking.Wait()
	now, all := time.Now(), true
	for i := range c.places {
		p := &c.places[i]
		if errs[i] != nil {
			r.log.DebugContext(ctx, "room of a partition is not known", "topic", topic, "partition", i, "error", errs[i])
			all = false
			continue
		}
		before := *p
		if p.hear(rooms[i], r.isOwn(rooms[i]), now) {
			moved = true
			if before.known {
				r.log.InfoContext(ctx, "partition is in another room", "topic", topic, "partition", i, "room", p.room)
			}
		}
	}
	if all {
		c.asked = now
	}
	return moved
}

// isOwn reports whether a member of this process is in a room.
func (r *Runner) isOwn(room string) bool {
	for i := range r.o.Members {
		if room != "" && r.o.Members[i].Room == room {
			return true
		}
	}
	return false
}

// rooms are those of all partitions; nil: none is in any.
func (c *counted) rooms() []string {
	var out []string
	for i := range c.places {
		out = append(out, c.places[i].room)
	}
	return out
}
