package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// rooms starts consumers in rooms and says who has which partition.
type rooms struct {
	*stage
	in map[string]string // room by session
}

func (s *rooms) start(room string, o consume.Options) *process {
	o.Handle = func(context.Context, *consume.Delivery) error { return nil }
	p := s.startIn(room, room+"-consumer", lane.Baseline, o)
	id, _ := p.access.Session()
	s.in[id] = room
	return p
}

// held are the rooms of those who hold main of each partition; empty: nobody does.
func (s *rooms) held() []string {
	n, err := s.engine.Partitions(s.t.Context(), "orders")
	if err != nil {
		s.t.Fatal(err)
	}
	out := make([]string, n)
	for _, r := range s.registry.Records("billing") {
		if r.Partition.Topic == "orders" {
			out[r.Partition.Index] = s.in[r.Record.Main.Session]
		}
	}
	return out
}

func (s *rooms) untilHeld(want ...string) {
	s.t.Helper()
	s.until("partitions to be held in their rooms", func() bool { return slices.Equal(s.held(), want) })
}

func (s *rooms) place(in ...string) {
	s.t.Helper()
	for i, room := range in {
		if err := s.engine.Place(consume.Partition{Topic: "orders", Index: int32(i)}, room); err != nil {
			s.t.Fatal(err)
		}
	}
}

func newRooms(t *testing.T, in ...string) *rooms {
	s := &rooms{newStage(t, int32(len(in))), map[string]string{}}
	s.place(in...)
	return s
}

// TestRunnerPrefersItsRoom: of two processes each has the partitions of its own room, however
// many these are, the other one has them while it is away, and they go back.
func TestRunnerPrefersItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRooms(t, "east", "east", "east", "west")
		east := s.start("east", consume.Options{})
		s.untilHeld("east", "east", "east", "east")
		west := s.start("west", consume.Options{})
		s.untilHeld("east", "east", "east", "west")
		pass(5 * time.Minute)
		s.untilHeld("east", "east", "east", "west")
		east.stop(t)
		s.untilHeld("west", "west", "west", "west")
		east = s.start("east", consume.Options{})
		s.untilHeld("east", "east", "east", "west")
		west.access.Cut() // as one that hangs
		s.until("the other room has all", func() bool { return slices.Equal(s.held(), []string{"east", "east", "east", "east"}) })
		west.access.Mend()
		id, _ := west.access.Session()
		s.in[id] = "west"
		s.untilHeld("east", "east", "east", "west")
		west.stop(t)
		east.stop(t)
	})
}

// TestRunnerFollowsRooms: a partition that is in another room by now goes to who is there, and
// at no time has it no holder, whoever asks the engine first; one that is in no room any more
// stays where it is, and one that is new is in its own at once.
func TestRunnerFollowsRooms(t *testing.T) {
	for _, first := range []string{"east", "west"} {
		t.Run(first+" asks first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRooms(t, "east", "west")
				processes := []*process{s.start(first, consume.Options{})}
				s.until("the first has both", func() bool { return slices.Equal(s.held(), []string{first, first}) })
				pass(7 * time.Second)
				processes = append(processes, s.start(map[string]string{"east": "west", "west": "east"}[first], consume.Options{}))
				s.untilHeld("east", "west")
				pass(time.Minute)
				for n := range 10 { // at whatever time the engine is asked
					room := []string{"west", "east"}[n%2]
					s.place(room, "west")
					began, free := time.Now(), 0
					s.until("the partition to go to room "+room, func() bool {
						held := s.held()
						if held[0] == "" {
							free++ // each 10 ms
						}
						return slices.Equal(held, []string{room, "west"})
					})
					if free > 100 {
						t.Errorf("the partition was without a holder for %d0 ms of the %s that it took to room %s", free, time.Since(began), room)
					}
					pass(time.Duration(n) * 3100 * time.Millisecond)
				}
				s.place("", "west")
				pass(5 * time.Minute)
				s.untilHeld("east", "west")
				if err := s.engine.Grow(t.Context(), "orders", 3); err != nil {
					t.Fatal(err)
				}
				s.place("", "west", "west")
				s.untilHeld("east", "west", "west")
				for _, p := range processes {
					p.stop(t)
				}
			})
		})
	}
}

// blind is an engine that cannot tell of one partition's room for a while.
type blind struct {
	*consume.Memory

	mu   sync.Mutex
	lost bool
}

func (b *blind) set(lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = lost
}

func (b *blind) Room(ctx context.Context, p consume.Partition) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost && p.Index == 0 {
		return "", errors.New("no answer")
	}
	return b.Memory.Room(ctx, p)
}

// TestRoomOutOfReach: where a partition's room was known it stays, though nobody can learn it
// now; whoever has never heard of it knows the others' rooms all the same.
func TestRoomOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRooms(t, "west", "west", "west", "west")
		src := &blind{Memory: s.engine}
		o := consume.Options{Source: src, Topics: src}
		west := s.start("west", o)
		east := s.start("east", o)
		s.untilHeld("west", "west", "west", "west")
		src.set(true)
		pass(5 * time.Minute)
		s.untilHeld("west", "west", "west", "west")
		west.stop(t)
		s.untilHeld("east", "east", "east", "east")
		west = s.start("west", o)
		s.until("what is known to be theirs", func() bool { return slices.Equal(s.held()[1:], []string{"west", "west", "west"}) })
		src.set(false)
		s.untilHeld("west", "west", "west", "west")
		west.stop(t)
		east.stop(t)
	})
}

// TestFindRoom: an engine that has no such word is asked for nothing.
func TestFindRoom(t *testing.T) {
	s := newStage(t, 1)
	for _, src := range []consume.Source{
		struct{ consume.Source }{s.engine},      // its Caps say more than it is
		&cappedSource{s.engine, consume.Caps{}}, // it is more than its Caps say
	} {
		if room, err := consume.FindRoom(t.Context(), src, consume.Partition{Topic: "orders"}); !errors.Is(err, consume.ErrUnsupported) {
			t.Errorf("%T: got %q, %v; want %v", src, room, err, consume.ErrUnsupported)
		}
	}
}

// cappedSource has other Caps than its engine.
type cappedSource struct {
	*consume.Memory
	caps consume.Caps
}

func (c *cappedSource) Caps() consume.Caps { return c.caps }
