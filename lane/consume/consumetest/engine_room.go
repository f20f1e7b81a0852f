package consumetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway-dev/laneway/lane/consume"
)

// checkRooms: each partition that there is has a room or none, which is the same whoever asks
// and whatever else happens; one that was moved is in the other room, and it alone.
func checkRooms(ctx context.Context, e Engine) error {
	if !e.Caps().Rooms {
		if _, err := consume.FindRoom(ctx, e.Source, zero); !errors.Is(err, consume.ErrUnsupported) {
			return fmt.Errorf("the engine's Caps say that it cannot tell of rooms, and asked it says: %w", orNil(err))
		}
		return nil
	}
	if _, ok := e.Source.(consume.RoomFinder); !ok {
		return errors.New("the engine's Caps say Rooms: it has to be a RoomFinder")
	}
	const partitions = 3
	if err := e.Ensure(ctx, consume.TopicSpec{Name: zero.Topic, Partitions: partitions}); err != nil {
		return err
	}
	for _, p := range []consume.Partition{{Topic: "nobody"}, {Topic: zero.Topic, Index: partitions}, {Topic: zero.Topic, Index: -1}} {
		if _, err := consume.FindRoom(ctx, e.Source, p); !errors.Is(err, consume.ErrNoTopic) {
			return fmt.Errorf("the room of %s, which is not there: %w", p, orNil(err))
		}
	}
	rooms := make([]string, partitions)
	for i := range rooms {
		var err error
		if rooms[i], err = consume.FindRoom(ctx, e.Source, consume.Partition{Topic: zero.Topic, Index: int32(i)}); err != nil {
			return fmt.Errorf("room of partition %d: %w", i, err)
		}
	}
	if err := readOn(ctx, e); err != nil {
		return err
	}
	if err := roomsAre(ctx, e, rooms); err != nil {
		return fmt.Errorf("asked again: %w", err)
	}
	if e.Place == nil {
		return nil
	}
	for _, room := range []string{"east", "west"} {
		rooms[1] = room
		if err := e.Place(ctx, consume.Partition{Topic: zero.Topic, Index: 1}, room); err != nil {
			return fmt.Errorf("move a partition to room %s: %w", room, err)
		}
		if err := roomsAre(ctx, e, rooms); err != nil {
			return fmt.Errorf("partition 1 was moved: %w", err)
		}
	}
	return nil
}

// roomsAre holds what an engine says of its partitions' rooms against what it has to say.
func roomsAre(ctx context.Context, e Engine, want []string) error {
	for i, room := range want {
		got, err := consume.FindRoom(ctx, e.Source, consume.Partition{Topic: zero.Topic, Index: int32(i)})
		if err != nil || got != room {
			return fmt.Errorf("partition %d is in room %q, want %q: %w", i, got, room, orNil(err))
		}
	}
	return nil
}
