package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
)

// growthKnown is how long after a topic has grown a producer may go by what it was before.
const growthKnown = 10 * time.Second

// copied is where the log has a message, and since when.
type copied struct {
	p  consume.Partition
	at time.Time
	m  *logged
}

// tried is when a life began to send a batch.
type tried struct {
	life string
	at   time.Time
}

// history is what became of a batch, as producers have written it down.
type history struct {
	tries  []tried
	acked  []tried // when who learned that it is there
	forgot bool
}

// sent is what became of what producers sent.
type sent struct {
	lives     int
	inherited int // messages that a producer sent again that another one had left in doubt
	known     int // of these, in the log before, and not a second time
	forgotten int // messages that nobody sent again that may be there
	lucky     int // of these, in the log
	twice     int // messages that are in the log more than once
	moved     int // of these, sent by two producers, the topic having grown in between, as the promises allow
	late      int // of these, sent again when the engine need not know their IDs any more
	ended     map[string]bool
	wrong     map[string][]string // what is wrong, with examples
}

// judgeSent holds what producers have written down against the log. What a producer was told
// is there is there, and whatever is there is there once, whoever has sent it again, but for
// what a message's ID does not promise.
func (c *chaos) judgeSent(copies map[string][]copied) (*sent, error) {
	s := &sent{ended: map[string]bool{}, wrong: map[string][]string{}}
	batches := map[batch]*history{}
	for _, o := range c.outlets {
		for _, life := range o.lives {
			if err := s.read(life, c.sentBook(life), batches); err != nil {
				return nil, err
			}
		}
	}
	known := 0
	for b, h := range batches {
		for n := b.first; n <= b.last; n++ {
			if at := copies[b.value(n)]; len(at) > 0 {
				known++
			}
			c.judgeCopies(s, b, n, h, copies[b.value(n)])
		}
	}
	if known < len(copies) {
		s.breach("in the log, and sent by nobody", fmt.Sprint(len(copies)-known))
	}
	for b, h := range batches {
		for _, t := range h.tries {
			if s.ended[t.life] && !slices.ContainsFunc(h.acked, func(a tried) bool { return a.life == t.life }) {
				s.breach("left in doubt by who ended well", b.String())
			}
		}
	}
	return s, nil
}

// read takes in what one life has written down.
func (s *sent) read(life, file string, batches map[batch]*history) error {
	s.lives++
	return eachEntry(file, func(e entry) error {
		switch e.letter {
		case lineEnded:
			s.ended[life] = true
			return nil
		case lineBurst:
			return nil
		}
		b := e.batch()
		h := batches[b]
		if h == nil {
			h = &history{}
			batches[b] = h
		}
		switch e.letter {
		case lineTried:
			h.tries = append(h.tries, tried{life, e.at})
		case lineAcked:
			h.acked = append(h.acked, tried{life, e.at})
		case lineForgot:
			h.forgot = true
		}
		return nil
	})
}

func (s *sent) breach(what, example string) {
	s.wrong[what] = append(s.wrong[what], example)
}

// judgeCopies judges one message of a batch.
func (c *chaos) judgeCopies(s *sent, b batch, n int, h *history, copies []copied) {
	value := b.value(n)
	for _, at := range copies {
		if at.p.Topic != b.topic || at.m.color != b.color {
			s.breach("changed on their way", value)
		}
	}
	switch {
	case len(h.acked) > 0 && len(copies) == 0:
		s.breach("taken by the engine, and not in the log", value)
	case len(h.acked) == 0 && !h.forgot:
		s.breach("still in doubt", value)
	case len(h.acked) == 0:
		s.forgotten++
		s.lucky += min(len(copies), 1)
	}
	if again := slices.IndexFunc(h.tries, func(t tried) bool { return t.life != b.life }); again >= 0 {
		s.inherited++
		if len(copies) == 1 && copies[0].at.Before(h.tries[again].at) {
			s.known++
		}
	}
	if len(copies) > 1 {
		s.twice++
		switch {
		case c.movedBetween(h, copies):
			s.moved++
		case h.outlasted():
			s.late++
		default:
			s.breach("in the log more than once, though they had IDs", value)
		}
	}
}

// movedBetween reports whether a message is there twice since another producer sent it again
// when its topic had grown, and did not know where it went at first.
func (c *chaos) movedBetween(h *history, copies []copied) bool {
	several := slices.ContainsFunc(h.tries, func(t tried) bool { return t.life != h.tries[0].life })
	sent := h.sent()
	return several && !c.grown.from.IsZero() && len(copies) == 2 && copies[0].p.Topic == ordersTopic && copies[0].p != copies[1].p &&
		sent.from.Before(c.grown.to.Add(growthKnown)) && sent.to.After(c.grown.from)
}

// outlasted reports whether a batch was in doubt for longer than the engine knows an ID.
func (h *history) outlasted() bool {
	sent := h.sent()
	return sent.to.Sub(sent.from) > jetstream.DedupWindow-5*time.Second
}

// sent is from when on and until when somebody sent a batch.
func (h *history) sent() span {
	s := span{h.tries[0].at, h.tries[0].at}
	for _, t := range slices.Concat(h.tries, h.acked) {
		if t.at.Before(s.from) {
			s.from = t.at
		}
		if t.at.After(s.to) {
			s.to = t.at
		}
	}
	return s
}

func (s *sent) String() string {
	return fmt.Sprintf("%d producers; %d messages sent again by another one, %d of them were there; %d given up in doubt, %d of them were there; %d there twice, %d of them since their topic grew, %d too late",
		s.lives, s.inherited, s.known, s.forgotten, s.lucky, s.twice, s.moved, s.late)
}

// errors are what is wrong.
func (s *sent) errors() (out []string) {
	for what, examples := range s.wrong {
		slices.Sort(examples)
		out = append(out, fmt.Sprintf("%d messages are %s: %v", len(examples), what, examples[:min(len(examples), 10)]))
	}
	slices.Sort(out)
	return out
}
