package consume

import "context"

// Place puts a partition into a room, for tests of who consumes it then; empty: into none, as
// one that is new is. [ErrNoTopic]: there is no such topic or partition.
func (m *Memory) Place(p Partition, room string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return err
	}
	l.room = room
	return nil
}

// Room is the one that [Memory.Place] put a partition into last.
func (m *Memory) Room(_ context.Context, p Partition) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return "", err
	}
	return l.room, nil
}
