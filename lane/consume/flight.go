package consume

import "slices"

// itemState is where an unsettled message of a run is.
type itemState uint8

const (
	itemDone    itemState = iota // settled; its place is used again
	itemOut                      // with a consumer
	itemStoring                  // on its way to the retry or dead-letter topic
	itemBack                     // given back by a consumer
	itemAgain                    // left by the holder before, not yet dispatched by this one
)

// item is a message of a run that is not settled.
type item struct {
	offset      int64
	msg         *Message
	state       itemState
	redelivered bool
}

// flight holds what a run has below its position and is not settled, ascending by offset. In
// steady state it does not allocate: settled places are closed up and used again.
type flight struct {
	items []item
	open  int   // items that are not done
	out   int   // items that are out or storing
	again int   // items that are back or again
	bytes int64 // of open items
	hint  int   // where an item was found last: the next one that is looked for is it, or beside it, as a rule
}

func (f *flight) add(it item) {
	if len(f.items) == cap(f.items) {
		f.close()
	}
	f.items = append(f.items, it)
	f.open++
	f.bytes += it.msg.Bytes()
	f.count(it.state, 1)
}

// close drops items that are done.
func (f *flight) close() {
	f.items = slices.DeleteFunc(f.items, func(it item) bool { return it.state == itemDone })
}

func (f *flight) count(s itemState, by int) {
	switch s {
	case itemOut, itemStoring:
		f.out += by
	case itemBack, itemAgain:
		f.again += by
	case itemDone:
	}
}

// find gives the unsettled item at an offset, or nil.
func (f *flight) find(offset int64) *item {
	for i := f.hint; i < len(f.items) && i < f.hint+2; i++ {
		if f.items[i].offset == offset {
			f.hint = i
			return f.unsettled(i)
		}
	}
	i, ok := slices.BinarySearchFunc(f.items, offset, func(it item, o int64) int {
		switch {
		case it.offset < o:
			return -1
		case it.offset > o:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	f.hint = i
	return f.unsettled(i)
}

func (f *flight) unsettled(i int) *item {
	if f.items[i].state == itemDone {
		return nil
	}
	return &f.items[i]
}

// set changes the state of an item that is not done.
func (f *flight) set(it *item, s itemState) {
	f.count(it.state, -1)
	f.count(s, 1)
	it.state = s
	if s != itemDone {
		return
	}
	f.open--
	f.bytes -= it.msg.Bytes()
	it.msg = nil
	if f.open == 0 {
		f.items = f.items[:0]
	}
}

// has reports whether an unsettled item is one that m wants.
func (f *flight) has(m func(*item) bool) bool {
	for i := range f.items {
		if it := &f.items[i]; it.state != itemDone && m(it) {
			return true
		}
	}
	return false
}

// left appends the offsets that are not settled.
func (f *flight) left(to []int64) []int64 {
	for i := range f.items {
		if f.items[i].state != itemDone {
			to = append(to, f.items[i].offset)
		}
	}
	return to
}
