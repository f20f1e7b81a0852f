package chaos

import (
	"context"
	"fmt"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
)

// try is one try of a message: where the message lay at first, and how often it had failed.
type try struct {
	place
	attempt int
}

// failed are the messages that failed and went on, as the engine has them.
type failed struct {
	retried []*consume.Message // in retry topics
	dead    []*consume.Message // in dead-letter topics
	tries   map[try]int        // how often each is in there
}

// readFailed reads all retry and dead-letter topics.
func readFailed(ctx context.Context, engine *jetstream.Engine) (*failed, error) {
	f := &failed{tries: map[try]int{}}
	for topic, l := range logs() {
		take := func(name string, to *[]*consume.Message) error {
			return readLog(ctx, engine, consume.Partition{Topic: name}, func(m *consume.Message) {
				*to = append(*to, m)
				f.tries[tryOf(m)]++
			})
		}
		if err := take(consume.RetryTopic(topic, l.group), &f.retried); err != nil {
			return nil, err
		}
		if err := take(consume.DeadTopic(topic, l.group), &f.dead); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func tryOf(m *consume.Message) try {
	if m.Origin == nil {
		return try{place{m.Partition, m.Offset}, m.Attempt}
	}
	return try{place{m.Origin.Partition, m.Origin.Offset}, m.Attempt}
}

// outstanding is how many tries are done, and how many are not settled or have not led to the
// next one.
func (f *failed) outstanding(p *progress) (done, missing int) {
	at := map[place]try{}
	for _, m := range f.retried {
		at[place{m.Partition, m.Offset}] = tryOf(m)
		if p.settled[m.Partition].has(m.Offset) {
			done++
		} else {
			missing++
		}
	}
	buried := f.buried()
	for place, must := range p.failed {
		switch {
		case f.tries[next(place, at)] > 0, buried[place] != nil:
			done++
		case must:
			missing++
		}
	}
	return done, missing
}

// buried are the messages that are dead because their strict lane has ended, and not because
// they had failed too often, by where they lay.
func (f *failed) buried() map[place]*consume.Message {
	at := map[try]place{}
	for _, m := range f.retried {
		at[tryOf(m)] = place{m.Partition, m.Offset}
	}
	out := map[place]*consume.Message{}
	for _, m := range f.dead {
		if m.Attempt > len(retries()) || !m.Color.Strict() {
			continue
		}
		t := tryOf(m)
		if m.Attempt > 0 {
			t.place = at[t]
		}
		out[t.place] = m
	}
	return out
}

// next is the try that must follow one that failed at a place.
func next(failed place, retried map[place]try) try {
	t, ok := retried[failed]
	if !ok {
		t = try{place: failed}
	}
	t.attempt++
	return t
}

// check holds what consumers said had failed, and whether each must have another try, against
// what has become of it.
func (f *failed) check(said map[place]bool) (wrong []string) {
	at := map[place]try{}
	for _, m := range f.retried {
		at[place{m.Partition, m.Offset}] = tryOf(m)
	}
	count := map[string]int{}
	note := func(t try, what string) {
		if count[what]++; count[what] <= 10 {
			wrong = append(wrong, fmt.Sprintf("%s, %d times failed, %s", t.place, t.attempt, what))
		}
	}
	expected := map[try]bool{}
	buried := f.buried()
	for place, must := range said {
		t := next(place, at)
		expected[t] = true
		// One whose consumer was killed before the next try was stored may be buried as it lay.
		if must && f.tries[t] == 0 && buried[place] == nil {
			note(t, "is neither retried nor dead")
		}
	}
	for _, m := range buried { // a retry that is buried is there twice: waiting, and dead
		t := tryOf(m)
		if m.Color != briefNames()[1] {
			note(t, fmt.Sprintf("is dead, though lane %s never ended", m.Color))
		}
		if f.tries[t]--; t.attempt == 0 {
			if expected[t] = true; f.tries[t] > 0 {
				note(t, fmt.Sprintf("is dead %d times", f.tries[t]+1))
			}
		}
	}
	for t, n := range f.tries {
		if n > 1 {
			note(t, fmt.Sprintf("is retried or dead %d times", n))
		}
		if !expected[t] {
			note(t, "is retried or dead, and nobody said that it had failed")
		}
	}
	for _, m := range f.dead {
		if m.Attempt <= len(retries()) && !m.Color.Strict() {
			note(tryOf(m), "is dead too early")
		}
	}
	for _, m := range f.retried {
		if m.Attempt > len(retries()) {
			note(tryOf(m), "is retried too often")
		}
	}
	return wrong
}
