package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	// renewStreams is how many streams carry renewals. The server answers one renewal of
	// a stream after the other.
	renewStreams = 4
	// renewRetry is the pause before a renewal goes out again on another stream.
	renewRetry = 50 * time.Millisecond
)

// renewer sends renewals over a stream that stays open. etcd's client opens one for each,
// and for each has the server check the password, which is slow by design.
type renewer struct {
	life   context.Context //nolint:containedctx // of the store
	leases pb.LeaseClient
	done   *sync.WaitGroup // of the store

	turn   chan struct{} // holds one token; who has it may open and send
	stream *renewStream  // guarded by turn; nil if none is open
}

// renewStream is an open stream. Answers come in the order of requests.
type renewStream struct {
	server pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc

	mu      sync.Mutex
	waiting []chan<- renewed // guarded by mu; each has room for its answer
	err     error            // guarded by mu: why it ended
}

type renewed struct {
	ttl int64
	err error
}

func newRenewer(life context.Context, leases pb.LeaseClient, done *sync.WaitGroup) *renewer {
	r := &renewer{life: life, leases: leases, done: done, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// renew returns the lease's time in seconds, 0 or less if it is gone. A renewal that is
// sent twice does no harm, so it is until there is an answer.
func (r *renewer) renew(ctx context.Context, id int64) (int64, error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		answer, err := r.send(ctx, id)
		if err == nil {
			select {
			case a := <-answer:
				if a.err == nil {
					return a.ttl, nil
				}
				err = a.err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		pause.Reset(renewRetry)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), err)
		}
	}
}

// send asks for one renewal, over a new stream if there is none.
func (r *renewer) send(ctx context.Context, id int64) (<-chan renewed, error) {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.stream == nil || r.stream.ended() {
		stream, err := r.open() //nolint:contextcheck // it serves others after this one
		if err != nil {
			return nil, err
		}
		r.stream = stream
	}
	answer := make(chan renewed, 1)
	if err := r.stream.expect(answer); err != nil {
		return nil, err
	}
	if err := r.stream.server.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		r.stream.cancel() // its receiver tells everybody who waits
	}
	return answer, nil
}

func (r *renewer) open() (*renewStream, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(r.life))
	late := time.AfterFunc(store.DefaultTimeout, cancel)
	server, err := r.leases.LeaseKeepAlive(ctx)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &renewStream{server: server, cancel: cancel}
	r.done.Go(s.receive)
	return s, nil
}

func (s *renewStream) receive() {
	defer s.cancel()
	for {
		got, err := s.server.Recv()
		s.mu.Lock()
		if err != nil {
			s.err = err
			for _, w := range s.waiting {
				w <- renewed{err: err}
			}
			s.waiting = nil
			s.mu.Unlock()
			return
		}
		if len(s.waiting) > 0 {
			s.waiting[0] <- renewed{ttl: got.GetTTL()}
			s.waiting = s.waiting[1:]
		}
		s.mu.Unlock()
	}
}

func (s *renewStream) expect(answer chan<- renewed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.waiting = append(s.waiting, answer)
	}
	return s.err
}

func (s *renewStream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}
