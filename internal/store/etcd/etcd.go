// Package etcd is a store.Store over etcd: in this process, on a directory of its own
// and without a listening port, or an external cluster.
//
// An embedded store compacts its history, gives space back when its quota is near, and
// refuses writes that need space before the disk is used up. Where the disk is used up all
// the same, its etcd stops and the process goes on: the store is unavailable, says why,
// and starts again by itself when there is room. An external cluster is
// its operator's: there only what a store.Store promises is asked of it, and a user who
// may read and write keys that begin with "laneway/" will do.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/internal/store"
)

// Limits and defaults of a store.
const (
	// DefaultQuotaBytes bounds the database of an embedded store.
	DefaultQuotaBytes = 2 << 30
	// DefaultReserveBytes of the disk stay free: room for the next segment of the
	// write-ahead log, for a database that is written anew, and some more.
	DefaultReserveBytes = 128 << 20
	// DefaultHistory is how many revisions an embedded store keeps at least for watches
	// that start in the past. Each consumer that is at work writes some notes a second, and
	// a replica that was cut off for half a minute has to be able to go on.
	DefaultHistory = 100_000

	dialTimeout      = 5 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	maxRedial        = 2 * time.Second
	versionTimeout   = 2 * time.Second

	// defaultProbe is the default of Config.Probe.
	defaultProbe = "-"

	minMajor = 3
	minMinor = 6
)

// Config says where the store is. Exactly one of Dir and Endpoints is set.
type Config struct {
	// Dir is the directory of an embedded store, which makes it. No second process can
	// open it meanwhile.
	Dir string
	// Endpoints are those of an external cluster: HOST:PORT or URLs.
	Endpoints []string
	// TLS is for an external cluster. Nil: plain connections.
	TLS *tls.Config
	// Username and Password are for an external cluster with authentication. The user
	// needs to read and write the keys that the caller uses, and for [Store.Compact]
	// etcd's role root; nothing else needs it.
	Username, Password string
	// Prefix comes before each key that the store is given, and is no part of those it
	// returns. Default: none.
	Prefix string
	// Probe is a key that nobody writes, without Prefix, for reads that want the revision
	// alone: one that Username may read. Default: "-".
	Probe string
	// Peers are all members of an embedded cluster, this one among them; each embeds one.
	// Default: none, a cluster of its own that listens nowhere. See [Peers].
	Peers *Peers
	// Patient has Open return also while an embedded store waits for room on its disk, or
	// for a majority of its peers, or an external cluster does not answer: the store is
	// unavailable, and comes by itself. [Store.Health] tells what it waits for.
	Patient bool
	// QuotaBytes bounds the database of an embedded store (default
	// [DefaultQuotaBytes]): beyond it, writes that need space are refused.
	QuotaBytes int64
	// ReserveBytes is how much of Dir's disk is left free (default
	// [DefaultReserveBytes]): with less, writes that need space are refused. Much less
	// than the default is not safe: etcd takes 64 MB at a time, and stops where it gets
	// none.
	ReserveBytes int64
	// History is how many revisions an embedded store keeps at least (default
	// [DefaultHistory]); a tenth of that while more than 70 % of its quota is in use, and
	// none where that is used up.
	History uint64
	// Log gets what etcd has to say. Nil: nobody does.
	Log *slog.Logger

	free     func(dir string) (uint64, error) // of the disk; set by tests
	patience time.Duration                    // with an etcd that failed; set by tests
}

// Validate reports all mistakes.
func (c Config) Validate() error {
	var errs []error
	if (c.Dir == "") == (len(c.Endpoints) == 0) {
		errs = append(errs, errors.New("etcd: want a directory or endpoints"))
	}
	if c.Dir != "" && (c.TLS != nil || c.Username != "" || c.Password != "") {
		errs = append(errs, errors.New("etcd: TLS and a user are for external clusters"))
	}
	if c.Peers != nil {
		errs = append(errs, c.Peers.validate(c.Dir))
	}
	if c.QuotaBytes < 0 || c.ReserveBytes < 0 {
		errs = append(errs, errors.New("etcd: a negative quota or reserve"))
	}
	return errors.Join(errs...)
}

// Store is a store in etcd. Make one with [Open].
type Store struct {
	prefix string
	probe  string
	member *member // nil if external

	// life ends with Close; what is under way is canceled by it.
	life context.Context //nolint:containedctx // canceled by Close alone
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool  // guarded by mu, as are link and out
	link   *link // nil while there is none
	out    error // why there is no link
	// watches, and what looks for a link, grow under mu while not closed.
	watches sync.WaitGroup
	once    sync.Once
	err     error // of Close, set in once
}

var _ store.Store = (*Store)(nil)

// Open starts an embedded store or connects to a cluster, and returns when it can be
// read, or, if cfg is patient, what it waits for is known. If ctx has no deadline, it
// waits 5 s for a cluster and a minute for an embedded store, which may have a long log to
// read.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	open := openExternal
	if cfg.Dir != "" {
		open = openEmbedded
	}
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	return s, nil
}

// newStore makes a store without a link. It outlives ctx.
func newStore(ctx context.Context, cfg Config) *Store {
	s := &Store{prefix: cfg.Prefix, probe: cfg.Probe}
	if s.probe == "" {
		s.probe = defaultProbe
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// connect puts a link into service.
func (s *Store) connect(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.out = l, nil
}

// disconnect takes the link out of service, if there is one; why is what callers get.
func (s *Store) disconnect(why error) {
	s.mu.Lock()
	l := s.link
	s.link, s.out = nil, why
	s.mu.Unlock()
	if l != nil {
		l.end()
	}
}

// use gives the link in service, or why there is none. Who got it calls Done of its
// calls.
func (s *Store) use() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, store.ErrClosed
	case s.link == nil:
		return nil, s.out
	}
	s.link.calls.Add(1)
	return s.link, nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.end()
		s.watches.Wait()
		if s.member != nil {
			s.member.running.Wait()
			return
		}
		s.mu.Lock()
		l := s.link
		s.mu.Unlock()
		if l == nil {
			return // it never came to that
		}
		l.calls.Wait()
		if err := l.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			s.err = fmt.Errorf("close etcd: %w", err)
		}
	})
	return s.err
}

// enter begins an operation, and says over which link and how to end it. The context it
// returns has a deadline and ends with the link.
func (s *Store) enter(ctx context.Context) (*link, context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, fmt.Errorf("store: %w", err)
	}
	l, err := s.use()
	if err != nil {
		return nil, nil, nil, err
	}
	var cancel context.CancelFunc
	if _, limited := ctx.Deadline(); limited {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, store.DefaultTimeout)
	}
	stop := context.AfterFunc(l.life, cancel)
	return l, ctx, func() {
		stop()
		cancel()
		l.calls.Done()
	}, nil
}

// fail says what etcd's error is to a caller whose context is ctx.
func (s *Store) fail(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.life.Err() != nil:
		return store.ErrClosed
	case ctx.Err() != nil:
		// What was sent may have taken effect.
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return classify(err)
}

// classify says what etcd's error is in terms of package store.
func classify(err error) error {
	for _, known := range []struct{ etcd, ours error }{
		{rpctypes.ErrNoSpace, store.ErrFull},
		{rpctypes.ErrCompacted, store.ErrCompacted},
		{rpctypes.ErrLeaseNotFound, store.ErrLeaseNotFound},
		{rpctypes.ErrRequestTooLarge, store.ErrTooLarge},
		{rpctypes.ErrTooManyOps, store.ErrTooLarge},
	} {
		if errors.Is(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.ours, err)
		}
	}
	if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		// A member that has not heard of a new token yet, or no longer of an old one.
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	switch code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated,
		codes.NotFound, codes.OutOfRange, codes.AlreadyExists, codes.Unimplemented:
		return fmt.Errorf("etcd: %w", err)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}

// code is err's, in either of the forms that etcd's client returns.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// Health implements [store.Store].
func (s *Store) Health(ctx context.Context) error {
	if _, err := s.Revision(ctx); err != nil {
		return err
	}
	if s.member != nil {
		return s.member.health()
	}
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	alarms, err := l.client.AlarmList(ctx)
	if code(err) == codes.PermissionDenied {
		return nil // not for this user to know; a write will tell
	}
	if err != nil {
		return s.fail(caller, err)
	}
	for _, a := range alarms.Alarms {
		if a.Alarm == pb.AlarmType_NOSPACE {
			return fmt.Errorf("%w: etcd's alarm NOSPACE is raised", store.ErrFull)
		}
	}
	return nil
}
