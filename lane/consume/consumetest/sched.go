package consumetest

import (
	"time"
)

// stream is a source of numbers that depend on its seed alone (SplitMix64). Every process,
// log and link has its own, so that leaving out one thing changes little of the others.
type stream struct{ state uint64 }

// mixed makes one number of several.
func mixed(parts ...uint64) uint64 {
	s := stream{state: 0x243f6a8885a308d3}
	for _, p := range parts {
		s.state ^= p
		s.state = s.next()
	}
	return s.state
}

func (s *stream) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n is one of 0 to n-1; 0 where n is less than 1.
func (s *stream) n(n int) int {
	if n < 1 {
		return 0
	}
	return int(s.next() % uint64(n))
}

// permille is true that many times in a thousand.
func (s *stream) permille(rate int) bool { return rate > 0 && s.n(1000) < rate }

func (s *stream) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.next()%uint64(high-low))
}

// task is something that happens at a time.
type task struct {
	at  time.Duration
	key uint64 // decides among tasks of one time
	do  func()
}

func (t *task) before(o *task) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	return t.key < o.key
}

// scheduler runs tasks one after the other in virtual time. Which of two tasks comes first
// is decided by their delays, which are drawn anew for each, and by chance where these are
// the same. One that is sequential knows no delays at all and keeps the order of asking.
type scheduler struct {
	now        time.Duration
	tasks      []task // a heap
	asked      uint64
	random     stream
	sequential bool
	brisk      bool // nothing takes longer than briskly
}

// briskly is the most that anything takes for a brisk scheduler.
const briskly = 30 * time.Millisecond

// after asks for something to be done later.
func (s *scheduler) after(d time.Duration, do func()) {
	s.asked++
	key := s.asked
	if !s.sequential {
		key = s.random.next()
	}
	s.push(task{at: s.now + max(d, 0), key: key, do: do})
}

func (s *scheduler) push(t task) {
	h := append(s.tasks, t)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	s.tasks = h
}

func (s *scheduler) pop() task {
	h := s.tasks
	t := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = task{}
	h = h[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	s.tasks = h
	return t
}

// runUntil does what is due until a time, or until stop says so.
func (s *scheduler) runUntil(end time.Duration, stop func() bool) {
	for len(s.tasks) > 0 && s.tasks[0].at <= end && !stop() {
		t := s.pop()
		s.now = t.at
		t.do()
	}
	if !stop() {
		s.now = max(s.now, end)
	}
}

// delay is how long something takes: as a rule a little, at times longer, and at a rate of
// slow in a thousand very long.
func (s *scheduler) delay(r *stream, slow int) time.Duration {
	switch {
	case s.sequential:
		return 0
	case s.brisk:
		return r.between(100*time.Microsecond, briskly)
	}
	switch k := r.n(1000); {
	case k < slow:
		return r.between(time.Second, 4*time.Second)
	case k < 650:
		return r.between(100*time.Microsecond, 3*time.Millisecond)
	case k < 930:
		return r.between(time.Millisecond, 30*time.Millisecond)
	}
	return r.between(10*time.Millisecond, 300*time.Millisecond)
}
