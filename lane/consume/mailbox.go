package consume

import "sync"

// input is what reaches the loop.
type input struct {
	event Event
	do    func() // instead of an event
}

// mailbox is the loop's inbox: unbounded, but what is in it is bounded by the windows of the
// cursors, one fetch for each, one write for each partition.
type mailbox struct {
	mu   sync.Mutex
	in   []input
	wake chan struct{}
}

func (b *mailbox) put(in input) {
	b.mu.Lock()
	b.in = append(b.in, in)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() []input {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.in
	b.in = nil
	return in
}

// ofRegistry are the events at the head of what came in that the registry told.
func ofRegistry(in []input) (told []Event) {
	for _, in := range in {
		switch in.event.(type) {
		case *Viewed, *Recorded, *Reached, *Answered:
			told = append(told, in.event)
		default:
			return told
		}
	}
	return told
}
