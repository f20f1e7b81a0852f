package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane/consume"
)

// Bounds of follows.
const (
	maxFollows   = 4                     // of a filter in a partition; as many groups read it at full speed in one process
	followBusy   = 64                    // messages that a color has in a read for a place to be worth it
	followBehind = maxReadMessages       // messages that a follow may have to pass over
	followWait   = 10 * time.Millisecond // for the first message: of [maxReads], one waits
	followSure   = time.Second           // how long it is known which log it is in; see [Engine.readOn]
	followLate   = time.Second           // for the answer to who waits [lookAgain]
	followBytes  = 256 << 10             // of an answer to who waits, which is none of [maxReads]
	followHeld   = time.Second           // how long one without a reader is kept from others
	followIdle   = 30 * time.Second      // how long it stays, here
	followLeft   = time.Minute           // and at the server
	followBegin  = time.Second           // to make one
	followRetry  = time.Minute           // where one could not be made, or gave nothing
)

// follow is a place in a partition's log that the server remembers, a consumer in memory
// without acks: who reads on from where they were has their messages from it for half of what
// a direct get costs, which writes six headers into each message. It only gives messages. That
// there is nothing is never believed of it: it may not know yet of what was just appended.
type follow struct {
	consumer string // empty: it is to be made
	sub      *nats.Subscription
	in       chan *nats.Msg
	next     int64  // it gives what lies from here on
	given    uint64 // messages so far, by the server's count
	more     bool   // there was more than what was given last
	used     time.Time
	made     time.Time
	sure     sight // of the log that it is in
}

// sight is when an engine looked, and the epoch of the log that it saw.
type sight struct {
	epoch string
	at    time.Time
}

// follows are those of one partition, or of a color in it, that nobody uses just now.
type follows struct {
	idle   []*follow
	out    int     // so many are in use
	ends   []int64 // where the last reads without one ended
	denied time.Time
	used   time.Time
}

// errFollow: a follow is of no use any more.
var errFollow = errors.New("place in the log is lost")

// followOn reads from a place that the server remembers. last is the offset of the last
// message that it came to; 0: there is no such place, or nothing came.
//
// The consumer goes with its stream. Where it was made before the engine looked at the log, and
// gives messages after, it is in the log that was seen.
func (e *Engine) followOn(ctx context.Context, l log, from int64, filter consume.Filter, limit int, seen sight) (
	ms []*consume.Message, last int64,
) {
	if e.cfg.Replicas > 1 {
		return nil, 0 // the consumer may be with a replica that lags, and nobody says so
	}
	what := l.filter(filter)
	f := e.follows.take(what, from, time.Now())
	if f == nil {
		return nil, 0
	}
	var err error
	if f.consumer == "" {
		err = e.beginFollow(ctx, l, f, filter)
	}
	for before := int64(0); before < f.next && f.next <= from && err == nil; { // what others have read is passed over
		before = f.next
		var g got
		g, err = e.pullMany(ctx, l, f, from, limit)
		ms = g.ms
	}
	if f.next > from {
		last = f.next - 1
		if f.made.Before(seen.at) {
			f.sure = seen
		}
	}
	e.follows.give(what, f, err, time.Now())
	return ms, last
}

// beginFollow makes a place at the server.
func (e *Engine) beginFollow(ctx context.Context, l log, f *follow, filter consume.Filter) error {
	ctx, cancel := context.WithTimeout(ctx, followBegin)
	defer cancel()
	cfg := natsjs.ConsumerConfig{
		Name:          newFollowName(),
		DeliverPolicy: natsjs.DeliverByStartSequencePolicy, OptStartSeq: uint64(f.next),
		AckPolicy: natsjs.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: followLeft,
	}
	if !filter.All { // else the server would look at what nearly every message is
		cfg.FilterSubject = l.filter(filter)
	}
	consumer, err := e.js.CreateConsumer(ctx, l.stream, cfg)
	if err != nil {
		return err
	}
	f.consumer, f.in, f.made = consumer.CachedInfo().Name, make(chan *nats.Msg, maxReadMessages+8), time.Now()
	f.sub, err = e.nc.ChanSubscribe(e.nc.NewInbox(), f.in)
	return err
}

// readOn reads from a place of which is known that it is in the log of the epoch that the
// reader names, without a look at that log, and waits there for messages. As long as no offset
// is missing nothing is gone, so the batch needs no bounds. It reports false where there is no
// such place, or what it gave is not all: then it takes a look.
//
// What is known of a place is renewed each [followSure], so that people see how far a reader
// is behind.
func (e *Engine) readOn(ctx context.Context, p consume.Partition, from int64, filter consume.Filter, limit int) (b consume.Batch, ok bool) {
	if !filter.All || filter.Epoch == "" || e.cfg.Replicas > 1 {
		return b, false
	}
	ctx, cancel := e.within(ctx, followLate)
	defer cancel()
	l, err := e.log(ctx, p)
	if err != nil {
		return b, false
	}
	what := l.filter(filter)
	f := e.follows.on(what, from, filter.Epoch, time.Now())
	if f == nil {
		return b, false
	}
	var g got
	limit = min(max(limit, 1), maxReadMessages)
	if f.more {
		g, err = e.pullMany(ctx, l, f, from, limit)
	} else {
		g, err = e.pull(ctx, l, f, from, pullOf{limit, followBytes, min(lookAgain, e.cfg.FetchWait)})
	}
	e.follows.give(what, f, err, time.Now())
	return consume.Batch{Messages: g.ms, Next: g.last + 1}, g.last > 0 && !g.gap
}

// pullMany is a pull of what is there, however much it is.
func (e *Engine) pullMany(ctx context.Context, l log, f *follow, from int64, limit int) (got, error) {
	select {
	case e.reads <- struct{}{}:
		defer func() { <-e.reads }()
	case <-ctx.Done():
		return got{}, ctx.Err()
	}
	before := f.next
	g, err := e.pull(ctx, l, f, from, pullOf{limit, maxReadBytes, followWait})
	if err == nil && f.more && f.next == before { // the next message is too big for it
		err = errFollow
	}
	return g, err
}

// pullOf is what a pull asks for: messages and bytes at most, and how long the server waits for
// the first one.
type pullOf struct {
	limit, bytes int
	wait         time.Duration
}

// pull takes the next messages of a place, those from an offset on. With an error it cannot be
// used again, though what it gave is right.
func (e *Engine) pull(ctx context.Context, l log, f *follow, from int64, ask pullOf) (g got, err error) {
	request := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"no_wait":true,"expires":%d}`, ask.limit, ask.bytes, ask.wait.Nanoseconds())
	if err := e.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+l.stream+"."+f.consumer, f.sub.Subject, request); err != nil {
		return g, err
	}
	f.more = true
	size := 0
	for {
		var m *nats.Msg
		select {
		case m = <-f.in:
		default: // not as cheap
			if m, err = await(ctx, f.in); err != nil {
				return g, err
			}
		}
		if m.Reply == "" {
			f.more, err = endOfPull(m)
			return g, err
		}
		at, ok := placeOf(m.Reply)
		if !ok || at.count != f.given+1 || at.offset < f.next {
			return g, errFollow // some got lost on their way
		}
		g.gap = g.gap || at.offset > max(f.next, from)
		f.given, f.next = at.count, at.offset+1
		if at.offset >= from {
			g.last = at.offset
			if l.gives(m.Subject) {
				g.ms = append(g.ms, decode(l.p, at.offset, m.Subject, at.stored, m.Header, m.Data))
			}
		}
		if size += m.Size(); size == ask.bytes {
			return g, nil // the one case in which the server does not say that it is the end
		}
	}
}

// endOfPull reads what comes after the last message: whether there may be more. An error:
// the place is of no use any more.
func endOfPull(m *nats.Msg) (more bool, err error) {
	switch m.Header.Get("Status") {
	case "404", "408": // nothing more for now
		return false, nil
	case "409":
		switch m.Header.Get("Description") {
		case "Batch Completed": // as many as were asked for
			return true, nil
		case "Message Size Exceeds MaxBytes": // as many bytes, or the first one has more
			return true, nil
		}
	}
	return false, errFollow
}

// place is what the server says of a message that it gives out.
type place struct {
	offset int64
	count  uint64 // of messages of this consumer
	stored time.Time
}

// placeOf reads the subject that a message's ack would go to:
// $JS.ACK.<stream>.<consumer>.<delivered>.<offset>.<count>.<time>.<pending>, or with a domain
// and an account before the stream.
func placeOf(reply string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return p, false
	}
	skip := 3
	if strings.Count(rest, ".") > 6 {
		skip = 5
	}
	for range skip {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return p, false
		}
		rest = rest[i+1:]
	}
	var n [3]int64
	for i := range n {
		if n[i], rest = leading(rest); n[i] < 1 {
			return p, false
		}
	}
	return place{offset: n[0], count: uint64(n[1]), stored: time.Unix(0, n[2]).UTC()}, true
}

// leading is the number before the first dot, and what follows it; 0: there is none.
func leading(s string) (n int64, rest string) {
	for i := range min(len(s), 20) {
		switch c := s[i]; {
		case c == '.' && i > 0:
			return n, s[i+1:]
		case c < '0' || c > '9' || n > (math.MaxInt64-9)/10:
			return 0, ""
		default:
			n = 10*n + int64(c-'0')
		}
	}
	return 0, ""
}

// followSet is all follows that nobody uses just now, by the subject of what they give.
type followSet struct {
	mu    sync.Mutex
	of    map[string]*follows
	swept time.Time
}

// take gives the follow that is nearest before an offset; where there is none, and somebody
// reads on from where they were, one that is to be made. Nil: neither. It is followed by give.
func (s *followSet) take(what string, from int64, now time.Time) *follow {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	fs := s.of[what]
	if fs == nil {
		return nil
	}
	best := -1
	for i, f := range fs.idle {
		if f.next <= from && from-f.next <= followBehind && (best < 0 || f.next > fs.idle[best].next) {
			best = i
		}
	}
	f := &follow{next: from}
	switch full := fs.out+len(fs.idle) >= maxFollows; {
	case best >= 0:
		f = fs.idle[best]
		fs.idle = slices.Delete(fs.idle, best, best+1)
	case !slices.Contains(fs.ends, from) || now.Sub(fs.denied) < followRetry:
		return nil
	case full && (len(fs.idle) == 0 || now.Sub(fs.idle[0].used) < followHeld):
		return nil // all are read from: readers would take them from each other at each read
	case full: // the one that nobody used for the longest time goes
		fs.idle[0].drop()
		fs.idle = slices.Delete(fs.idle, 0, 1)
	}
	fs.out++
	return f
}

// on gives a follow that is at an offset, in the log of an epoch; nil: there is none. It is
// followed by give.
func (s *followSet) on(what string, from int64, epoch string, now time.Time) *follow {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.of[what]
	if fs == nil {
		return nil
	}
	i := slices.IndexFunc(fs.idle, func(f *follow) bool {
		return f.next == from && f.sure.epoch == epoch && now.Sub(f.sure.at) < followSure
	})
	if i < 0 {
		return nil
	}
	f := fs.idle[i]
	fs.idle = slices.Delete(fs.idle, i, i+1)
	fs.out++
	return f
}

// give takes a follow back, with the error of its use.
func (s *followSet) give(what string, f *follow, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.of[what]
	fs.out--
	if err == nil {
		f.used, fs.used = now, now
		fs.idle = append(fs.idle, f)
		return
	}
	f.drop()
	if f.given == 0 && !errors.Is(err, context.Canceled) { // the next one would end as this one
		fs.denied = now
	}
}

// ended notes where a read ended that was without a follow. Whoever comes to read on from
// there gets one.
func (s *followSet) ended(what string, next int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.of[what]
	if fs == nil {
		fs = &follows{}
		s.of[what] = fs
	}
	fs.used = now
	if len(fs.ends) >= maxFollows {
		fs.ends = slices.Delete(fs.ends, 0, 1)
	}
	fs.ends = append(fs.ends, next)
}

// sweep forgets what nobody used for a while.
func (s *followSet) sweep(now time.Time) {
	if now.Sub(s.swept) < followIdle {
		return
	}
	s.swept = now
	for what, fs := range s.of {
		fs.idle = slices.DeleteFunc(fs.idle, func(f *follow) bool {
			old := now.Sub(f.used) > followIdle
			if old {
				f.drop()
			}
			return old
		})
		if len(fs.idle)+fs.out == 0 && now.Sub(fs.used) > followIdle {
			delete(s.of, what)
		}
	}
}

// drop ends a follow here, also one that was never made; the server forgets it by itself.
func (f *follow) drop() { _ = f.sub.Unsubscribe() }
