package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/store"
)

func openExternal(ctx context.Context, cfg Config) (*Store, error) {
	s := newStore(ctx, cfg)
	err := s.dial(ctx, cfg)
	if err != nil && cfg.Patient && errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
		s.missing(ctx, cfg, err)
		s.watches.Go(func() { s.redial(cfg) })
		return s, nil
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// dial connects to a cluster, sees that it answers, and puts the link into service.
func (s *Store) dial(ctx context.Context, cfg Config) error {
	client, err := clientv3.New(clientv3.Config{
		Context:   s.life,
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Username: cfg.Username, Password: cfg.Password,
		DialTimeout: patience(ctx), DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRedial},
			MinConnectTimeout: dialTimeout,
		})},
		Logger: zapLogger(cfg.Log),
	})
	err = s.fail(ctx, err)
	if err == nil {
		if err = s.answers(ctx, client); err == nil {
			conn := client.ActiveConnection()
			s.connect(newLink(s.life, client, pb.NewWatchClient(conn), pb.NewLeaseClient(conn))) //nolint:contextcheck // outlives ctx
			return nil
		}
		_ = client.Close() // the first error says more
	}
	if errors.Is(err, store.ErrUnavailable) {
		protocol := "without TLS"
		if cfg.TLS != nil {
			protocol = "with TLS"
		}
		return fmt.Errorf("no answer from etcd at %s %s: check that it runs, and is reached this way: %w",
			strings.Join(cfg.Endpoints, ", "), protocol, err)
	}
	return err
}

// answers says whether the cluster can be read, and is none too old.
func (s *Store) answers(ctx context.Context, client *clientv3.Client) error {
	limited, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	if _, err := client.Get(limited, s.prefix+s.probe); err != nil {
		return s.fail(ctx, err)
	}
	return recent(limited, client)
}

// redial connects to a cluster that does not answer, as soon as it does.
func (s *Store) redial(cfg Config) {
	retry := backoff.New(restartLeast, restartMost)
	for {
		backoff.Wait(s.life, retry.Next())
		if s.life.Err() != nil {
			return
		}
		err := s.dial(s.life, cfg)
		if err == nil {
			cfg.Log.InfoContext(s.life, "registry is in service again")
			return
		}
		s.missing(s.life, cfg, err)
	}
}

// missing says why there is no link.
func (s *Store) missing(ctx context.Context, cfg Config, err error) {
	out := &store.OutError{Reason: "the registry is out of service until its etcd can be used", Err: err}
	s.disconnect(out)
	cfg.Log.ErrorContext(ctx, "registry is out of service", "error", out)
}

// patience is how long to wait for a connection and for the answer to a password.
func patience(ctx context.Context) time.Duration {
	if deadline, limited := ctx.Deadline(); limited {
		return max(min(time.Until(deadline), dialTimeout), time.Millisecond)
	}
	return dialTimeout
}

// recent refuses members before 3.6: a watch of theirs can lose a deletion at the
// revision of a compaction, or be told of progress ahead of its events. One that does
// not answer is not asked again: it may be down for an update.
func recent(ctx context.Context, client *clientv3.Client) error {
	for _, endpoint := range client.Endpoints() {
		version, err := version(ctx, client, endpoint)
		if err != nil {
			continue
		}
		if tooOld(version) {
			return fmt.Errorf("member %s is etcd %s: want %d.%d or later", endpoint, version, minMajor, minMinor)
		}
	}
	return nil
}

func tooOld(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d.", &major, &minor); err != nil {
		return true
	}
	return major < minMajor || (major == minMajor && minor < minMinor)
}

func version(ctx context.Context, client *clientv3.Client, endpoint string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	got, err := client.Status(ctx, endpoint)
	if err != nil {
		return "", err
	}
	return got.Version, nil
}
