// Package cow has a map that is copied on write, a part at a time: a copy of it is made at
// once, and a write then costs about the same however large it is. Snapshots of the registry
// are made of such maps, so that each can share with the last one what has not changed.
package cow

import (
	"hash/maphash"
	"iter"
	"slices"
)

// Map finds values by name. The zero Map is empty and ready for use. One goroutine may write
// while others read clones of it; a Map that is no longer written to may be read and cloned
// by many at once, after [Map.Seal].
//
// A plain copy of a Map that is not sealed shares its memory with it; use [Map.Clone].
type Map[K ~string, V any] struct {
	seed   maphash.Seed
	shards []shard[K, V] // a power of four; none: empty
	size   int
	owned  []bool // which shards no clone shares; nil: not even the slice of them is our own
}

// shard is a table with linear probing: it costs less to look something up in than Go's map,
// and it is copied by copying one slice.
type shard[K ~string, V any] struct {
	slots []slot[K, V] // none, or a power of two of them of which at most half are taken
	taken int
}

type slot[K ~string, V any] struct {
	key   K
	value *V // nil: free
}

// shardSize is how many values a shard has on average before there are four times as many
// shards.
// A write copies a shard and the list of shards: at ten thousand values both are about as
// large.
const shardSize = 64

// Get returns the value of k, or nil. It does not allocate.
func (m *Map[K, V]) Get(k K) *V {
	if len(m.shards) == 0 {
		return nil
	}
	h := maphash.String(m.seed, string(k))
	slots := m.shards[h&uint64(len(m.shards)-1)].slots
	last := uint64(len(slots) - 1)
	for i := h >> shardBits; len(slots) > 0; i++ {
		s := &slots[i&last]
		if s.value == nil {
			return nil
		}
		if s.key == k {
			return s.value
		}
	}
	return nil
}

// shardBits of a hash say which shard, the others which slot in it.
const shardBits = 24

// Len is how many values there are.
func (m *Map[K, V]) Len() int { return m.size }

// All calls yield for all values, in no order. The map must not be written to meanwhile; a
// clone of it may be.
func (m *Map[K, V]) All() iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		for i := range m.shards {
			slots := m.shards[i].slots
			for n := range slots {
				if slots[n].value != nil && !yield(slots[n].key, slots[n].value) {
					return
				}
			}
		}
	}
}

// Clone returns a copy. Either is written to without the other changing.
func (m *Map[K, V]) Clone() Map[K, V] {
	m.Seal()
	return *m
}

// Seal makes the map give up what it owns: from now on it may be copied as a value, by
// several goroutines at once, and the next write to it or to a copy copies what it changes.
func (m *Map[K, V]) Seal() {
	if m.owned != nil { // a map that is sealed is not even touched
		m.owned = nil
	}
}

// Put sets the value of k, which must not be nil.
func (m *Map[K, V]) Put(k K, v *V) {
	switch {
	case len(m.shards) == 0:
		m.seed = maphash.MakeSeed()
		m.spread(1)
	case m.size >= shardSize*len(m.shards):
		m.spread(4 * len(m.shards))
	}
	s, h := m.own(k)
	if 2*(s.taken+1) > len(s.slots) {
		s.resize(m.seed, max(2, 2*len(s.slots)), nil)
	}
	if s.put(h, k, v) {
		m.size++
	}
}

// Delete removes k, if it is there.
func (m *Map[K, V]) Delete(k K) {
	if m.Get(k) == nil {
		return
	}
	if m.size--; m.size == 0 {
		*m = Map[K, V]{}
		return
	}
	s, _ := m.own(k)
	size := len(s.slots)
	if 8*s.taken < size {
		size /= 2
	}
	s.resize(m.seed, size, &k)
	if 16*m.size < shardSize*len(m.shards) && len(m.shards) > 1 {
		m.spread(len(m.shards) / 4)
	}
}

// own returns the shard of k, of which no clone has a part, and the hash of k.
func (m *Map[K, V]) own(k K) (*shard[K, V], uint64) {
	if m.owned == nil {
		m.shards = slices.Clone(m.shards)
		m.owned = make([]bool, len(m.shards))
	}
	h := maphash.String(m.seed, string(k))
	i := h & uint64(len(m.shards)-1)
	if !m.owned[i] {
		m.shards[i].slots = slices.Clone(m.shards[i].slots)
		m.owned[i] = true
	}
	return &m.shards[i], h
}

// spread puts all values into n shards.
func (m *Map[K, V]) spread(n int) {
	old := *m
	m.shards, m.owned = make([]shard[K, V], n), make([]bool, n)
	slots := 2 // with room for half as many again as there are on average
	for n > 1 && slots < 3*m.size/n {
		slots *= 2
	}
	for i := range m.owned {
		m.owned[i] = true
		m.shards[i].slots = make([]slot[K, V], slots)
	}
	for k, v := range old.All() {
		h := maphash.String(m.seed, string(k))
		s := &m.shards[h&uint64(n-1)]
		if 2*(s.taken+1) > len(s.slots) {
			s.resize(m.seed, max(2, 2*len(s.slots)), nil)
		}
		s.put(h, k, v)
	}
}

// put reports whether k is new. There is a free slot.
func (s *shard[K, V]) put(h uint64, k K, v *V) (added bool) {
	last := uint64(len(s.slots) - 1)
	for i := h >> shardBits; ; i++ {
		at := &s.slots[i&last]
		if at.value == nil {
			*at = slot[K, V]{k, v}
			s.taken++
			return true
		}
		if at.key == k {
			at.value = v
			return false
		}
	}
}

// resize makes the slots anew, without those of the key left out, if any. What it had
// before is not changed.
func (s *shard[K, V]) resize(seed maphash.Seed, size int, without *K) {
	old := s.slots
	s.slots, s.taken = make([]slot[K, V], size), 0
	for i := range old {
		if old[i].value != nil && (without == nil || old[i].key != *without) {
			s.put(maphash.String(seed, string(old[i].key)), old[i].key, old[i].value)
		}
	}
}
