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
	colors  map[lane.Name]int // messages that are settled, by color
	total   int               // of those that producers have sent
	failed  map[place]bool
}

// following is a book that is being written.
type following struct {
	reader
	open   map[int64]lane.Name  // colors of messages that were begun and are not over, by number
	joined map[string]time.Time // by group
	sure   map[string]bool      // groups that were joined under the present session
}

func newProgress() *progress {
	return &progress{books: map[string]*following{}, settled: map[consume.Partition]bits{}, colors: map[lane.Name]int{}, failed: map[place]bool{}}
}

// follow reads a book, too, from now on.
func (p *progress) follow(life, file string) {
	p.books[life] = &following{reader: reader{file: file}, open: map[int64]lane.Name{}, joined: map[string]time.Time{}, sure: map[string]bool{}}
}

// look reads what was written since the last time.
func (p *progress) look() error {
	for _, b := range p.books {
		if err := b.next(func(e entry) error { p.take(b, &e); return nil }); err != nil {
			return err
		}
	}
	return nil
}

func (p *progress) take(b *following, e *entry) {
	switch e.letter {
	case lineBegun:
		b.open[e.number()] = undash(e.fields[3])
	case lineReturned:
		delete(b.open, e.number())
	case lineSettled, lineFailed:
		color, at := b.open[e.number()], e.place()
		delete(b.open, e.number())
		if e.letter == lineFailed {
			p.failed[at] = true
		}
		p.done(at, color)
	case lineJoined:
		b.joined[e.fields[0]], b.sure[e.fields[0]] = e.at, true
	case lineLost:
		clear(b.sure)
	}
}

// done notes that a message is settled.
func (p *progress) done(at place, color lane.Name) {
	set := p.settled[at.p]
	if _, sent := logs()[at.p.Topic]; set.add(at.offset) && sent {
		p.total++
		p.colors[color]++
	}
	p.settled[at.p] = set
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
