package chaos

import (
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// progress is how far consumers are, by what they have written down so far.
type progress struct {
	books   map[string]*following // by life
	settled map[consume.Partition]bits
	total   int            // messages that are settled, of those that producers have sent
	failed  map[place]bool // messages that failed, and whether each must have another try

	sends   map[string]*sending
	arrived map[string]*arrived // by the life that made them
	acked   int                 // messages that are known to be in the log
	waiting int                 // of these, not settled
	unread  map[lane.Name]int   // the same, by color
	bursts  map[lane.Name]int   // that are over, or can come to no end
	doubts  map[batch]string    // batches of which is not known whether they are there, with who tried last
	passed  int                 // messages that were tried by more than one life
}

// arrived are messages of one life, by their number.
type arrived struct{ acked, settled bits }

// sending is a producer's book that is being written.
type sending struct {
	reader
	bursts map[lane.Name]int // that were asked for and are not over
}

// following is a book that is being written.
type following struct {
	reader
	open   map[int64]message    // that were begun and are not over, by number
	joined map[string]time.Time // by group
	sure   map[string]bool      // groups that were joined under the present session
	quiet  map[string]bool      // groups that it knows to be paused, and of which it has nothing in hand
}

type message struct {
	color lane.Name
	value string
}

func newProgress() *progress {
	return &progress{
		books: map[string]*following{}, settled: map[consume.Partition]bits{}, failed: map[place]bool{},
		sends: map[string]*sending{}, arrived: map[string]*arrived{}, unread: map[lane.Name]int{}, bursts: map[lane.Name]int{},
		doubts: map[batch]string{},
	}
}

// follow reads a book, too, from now on.
func (p *progress) follow(life, file string) {
	p.books[life] = &following{reader: reader{file: file}, open: map[int64]message{}, joined: map[string]time.Time{}, sure: map[string]bool{}, quiet: map[string]bool{}}
}

// watch reads the book of a producer, too, from now on.
func (p *progress) watch(life, file string) {
	p.sends[life] = &sending{reader: reader{file: file}, bursts: map[lane.Name]int{}}
}

// look reads what was written since the last time.
func (p *progress) look() error {
	for _, b := range p.books {
		if err := b.next(func(e entry) error { p.take(b, &e); return nil }); err != nil {
			return err
		}
	}
	for life := range p.sends {
		if err := p.lookAt(life); err != nil {
			return err
		}
	}
	return nil
}

// lookAt reads what a producer has written since the last time.
func (p *progress) lookAt(life string) error {
	s := p.sends[life]
	return s.next(func(e entry) error { p.heard(life, s, &e); return nil })
}

// gone reads a producer's book for the last time.
func (p *progress) gone(life string) error {
	err := p.lookAt(life)
	for color, n := range p.sends[life].bursts {
		p.bursts[color] += n
	}
	delete(p.sends, life)
	return err
}

// heard takes in what a producer has written.
func (p *progress) heard(life string, s *sending, e *entry) {
	switch e.letter {
	case lineTried:
		b := e.batch()
		if b.life != life {
			p.passed += b.last - b.first + 1
		}
		p.doubts[b] = life
	case lineForgot:
		delete(p.doubts, e.batch())
	case lineAcked:
		b := e.batch()
		delete(p.doubts, b)
		p.ack(b)
	case lineBurst:
		color := undash(e.fields[0])
		s.bursts[color]--
		p.bursts[color]++
	}
}

// ack notes that a batch is in the log.
func (p *progress) ack(b batch) {
	a := p.of(b.life)
	for n := int64(b.first); n <= int64(b.last); n++ {
		if !a.acked.add(n) {
			continue
		}
		p.acked++
		if !a.settled.has(n) {
			p.waiting++
			p.unread[b.color]++
		}
	}
}

func (p *progress) of(life string) *arrived {
	a := p.arrived[life]
	if a == nil {
		a = &arrived{}
		p.arrived[life] = a
	}
	return a
}

func (p *progress) take(b *following, e *entry) {
	switch e.letter {
	case lineBegun:
		b.open[e.number()] = message{undash(e.fields[3]), e.fields[6]}
	case lineReturned:
		delete(b.open, e.number())
	case lineSettled, lineFailed:
		m, at := b.open[e.number()], e.place()
		delete(b.open, e.number())
		if e.letter == lineFailed {
			p.failed[at] = true
		}
		p.done(at, m)
	case lineJoined:
		b.joined[e.fields[0]], b.sure[e.fields[0]] = e.at, true
	case lineLost:
		clear(b.sure)
	case lineQuiet:
		b.quiet[e.fields[0]] = true
	case linePaused:
		delete(b.quiet, e.fields[0])
	}
}

// done notes that a message is settled.
func (p *progress) done(at place, m message) {
	set := p.settled[at.p]
	if _, sent := logs()[at.p.Topic]; set.add(at.offset) && sent {
		p.total++
		life, n := parseValue(m.value)
		if a := p.of(life); a.settled.add(int64(n)) && a.acked.has(int64(n)) {
			p.waiting--
			p.unread[m.color]--
		}
	}
	p.settled[at.p] = set
}

// unsettle notes that messages come again, from an offset on, and do not fail then: one whose
// consumer was killed before it had stored the next try has none.
func (p *progress) unsettle(part consume.Partition, from int64) {
	set := p.settled[part]
	for n := from; int(n/64) < len(set); n++ {
		if set.has(n) {
			set[n/64] &^= 1 << (n % 64)
			p.total--
		}
	}
	for at := range p.failed {
		if at.p == part && at.offset >= from {
			p.failed[at] = false
		}
	}
}

// joined is since when a life is a member of all its groups; zero: it is not yet.
func (p *progress) joined(life string, groups int) (at time.Time) {
	b := p.books[life]
	if b == nil || len(b.joined) < groups {
		return at
	}
	for _, j := range b.joined {
		if j.After(at) {
			at = j
		}
	}
	return at
}

// sure reports whether a life is a member of all its groups under its present session.
func (p *progress) sure(life string, groups int) bool {
	b := p.books[life]
	return b != nil && len(b.sure) == groups
}

// bits is a set of numbers that are not negative.
type bits []uint64

// add reports whether n is new.
func (b *bits) add(n int64) bool {
	for int(n/64) >= len(*b) {
		*b = append(*b, make([]uint64, len(*b)+64)...)
	}
	was := (*b)[n/64]
	(*b)[n/64] |= 1 << (n % 64)
	return was != (*b)[n/64]
}

func (b bits) has(n int64) bool { return int(n/64) < len(b) && b[n/64]&(1<<(n%64)) != 0 }
