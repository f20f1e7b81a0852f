package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	// progressEvery is how often the server is asked how far a watch has got, so that
	// with a slow answer there is still one each second.
	progressEvery = 500 * time.Millisecond
	// watchPatience is how long a watch goes without a sign of life.
	watchPatience = 5 * time.Second
	// watchRetry is the pause before a stream that broke is opened again.
	watchRetry = 100 * time.Millisecond
)

// Watch implements [store.Store].
//
// Each watch has a stream of its own. etcd's client would let watches share one, but
// buffers without bound for a slow reader, and progress of a shared stream waits
// for its slowest watch.
func (s *Store) Watch(ctx context.Context, prefix string, from uint64) <-chan store.Batch {
	feed := store.NewFeed(ctx, s.life.Done())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		feed.End(store.ErrClosed)
		return feed.C()
	}
	s.watches.Go(func() {
		wctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)() //nolint:contextcheck // the store ends its watches
		w := &watch{store: s, feed: feed, prefix: s.prefix + prefix, from: from}
		err := w.run(wctx)
		if wctx.Err() != nil || errors.Is(err, errEnded) {
			err = nil // by the context or Close, as the feed finds out
		}
		feed.End(err)
	})
	return feed.C()
}

// watch is one under way. Its goroutine owns it.
type watch struct {
	store  *Store
	feed   *store.Feed
	prefix string
	from   uint64 // all up to here has been delivered
	// since is when the watch last got ahead; waiting, that the reader, not the server, is
	// what it waits for. The pacer reads both.
	since   atomic.Int64
	waiting atomic.Bool
}

var errEnded = errors.New("watch has ended") // by its context or the store's close

func (w *watch) run(ctx context.Context) error {
	w.since.Store(time.Now().UnixNano())
	if err := w.known(ctx); err != nil {
		return err
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	<-retry.C
	// From inclusive, so that the server, which tells a watch of no progress before its
	// start, does so while nothing happens.
	start := max(w.from, 1)
	for {
		err := w.stream(ctx, start)
		var gone *compactedError
		switch {
		case errors.As(err, &gone) && gone.revision == w.from+1:
			// What follows from is all there.
			start = w.from + 1
			continue
		case errors.As(err, &gone):
			return store.ErrCompacted
		case !errors.Is(err, store.ErrUnavailable):
			return err
		case time.Since(time.Unix(0, w.since.Load())) > watchPatience:
			return err
		}
		start = max(w.from, 1)
		retry.Reset(watchRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			return errEnded
		}
	}
}

// known refuses a revision that the store has not reached: it is another store than the
// one which gave it, and would pass over all changes up to there in silence.
func (w *watch) known(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	revision, err := w.store.Revision(ctx)
	if err != nil {
		return err
	}
	if w.from > revision {
		return store.ErrCompacted
	}
	return nil
}

type compactedError struct{ revision uint64 }

func (e *compactedError) Error() string { return fmt.Sprintf("compacted up to %d", e.revision) }

// stream follows one stream of the server until it ends.
func (w *watch) stream(ctx context.Context, start uint64) error {
	l, err := w.store.use()
	if err != nil {
		return err
	}
	defer l.calls.Done()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var pacer sync.WaitGroup
	defer pacer.Wait()
	defer cancel()
	defer context.AfterFunc(l.life, cancel)() //nolint:contextcheck // the link ends its streams
	server, err := w.open(ctx, cancel, l, start, &pacer)
	if err != nil {
		return w.broken(err)
	}
	for {
		answer, err := server.Recv()
		if err != nil {
			return w.broken(err)
		}
		if err := w.take(answer); err != nil {
			return err
		}
	}
}

// open begins a stream, and a pacer that asks for progress and cancels a stream which
// is silent for too long, also while it is being opened.
func (w *watch) open(ctx context.Context, cancel context.CancelFunc, l *link, start uint64, pacer *sync.WaitGroup) (pb.Watch_WatchClient, error) {
	opened := make(chan pb.Watch_WatchClient, 1)
	pacer.Go(func() { w.pace(ctx, cancel, opened) })
	server, err := l.watch.Watch(ctx)
	if err != nil {
		return nil, err
	}
	end := clientv3.GetPrefixRangeEnd(w.prefix)
	err = server.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(w.prefix), RangeEnd: []byte(end), StartRevision: signed(start),
	}}})
	if err != nil {
		return nil, err
	}
	opened <- server
	return server, nil
}

func (w *watch) pace(ctx context.Context, cancel context.CancelFunc, opened <-chan pb.Watch_WatchClient) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var server pb.Watch_WatchClient
	ask := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	for {
		select {
		case server = <-opened:
		case <-ctx.Done():
			return
		case <-tick.C:
			if w.waiting.Load() {
				continue
			}
			if time.Since(time.Unix(0, w.since.Load())) > watchPatience {
				cancel()
				return
			}
			if server != nil && server.Send(ask) != nil {
				return // the receiver learns why
			}
		}
	}
}

// broken is what the end of a stream means.
func (w *watch) broken(err error) error {
	if w.store.life.Err() != nil {
		return errEnded
	}
	return classify(err)
}

// take delivers one answer of the server.
func (w *watch) take(answer *pb.WatchResponse) error {
	revision := unsigned(answer.GetHeader().GetRevision())
	switch {
	case answer.GetCompactRevision() != 0:
		return &compactedError{unsigned(answer.GetCompactRevision())}
	case answer.GetCanceled():
		return refused(answer.GetCancelReason())
	case answer.GetCreated():
		return nil // its revision says nothing of what was delivered
	case len(answer.GetEvents()) > 0:
		events := w.events(answer.GetEvents())
		if len(events) == 0 {
			return nil
		}
		// The header may be ahead: of a long past, one answer has a part.
		return w.send(store.Batch{Revision: events[len(events)-1].ModRevision, Events: events})
	case revision >= w.from:
		// Progress, which the server tells only when it has put all events up to there
		// into this stream.
		return w.send(store.Batch{Revision: revision})
	default:
		return nil
	}
}

// refused is what the server's reason to cancel means. Most are passing: no leader, a
// token that this member does not know yet.
func refused(reason string) error {
	if strings.HasSuffix(reason, rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)) {
		return fmt.Errorf("watch: %w", rpctypes.ErrPermissionDenied)
	}
	return fmt.Errorf("%w: watch: %s", store.ErrUnavailable, reason)
}

func (w *watch) send(b store.Batch) error {
	w.waiting.Store(true)
	sent := w.feed.Send(b)
	w.since.Store(time.Now().UnixNano())
	w.waiting.Store(false)
	if !sent {
		return errEnded
	}
	w.from = b.Revision
	return nil
}

// events are those that have not been delivered. In one process they are the server's
// own memory, hence the copies.
func (w *watch) events(all []*mvccpb.Event) []store.Event {
	out := make([]store.Event, 0, len(all))
	for _, e := range all {
		kv := w.store.kv(e.GetKv())
		if kv.ModRevision <= w.from {
			continue
		}
		if e.GetType() == mvccpb.Event_DELETE {
			out = append(out, store.Event{KV: store.KV{Key: kv.Key, ModRevision: kv.ModRevision}, Deleted: true})
			continue
		}
		kv.Value = slices.Clone(kv.Value)
		out = append(out, store.Event{KV: kv})
	}
	return out
}
