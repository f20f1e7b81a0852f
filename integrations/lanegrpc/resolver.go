package lanegrpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/laneway-dev/laneway/lane"
)

// Scheme is the scheme of targets that this package resolves: "lane:///order".
const Scheme = "lane"

// needTimeout is how long one attempt to learn of a service may take; attempts go on until
// the connection closes.
const needTimeout = 5 * time.Second

// builder makes resolvers that know one directory. It is given to one ClientConn, not
// registered.
type builder struct{ *config }

func (b builder) Scheme() string { return Scheme }

func (b builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	service := strings.TrimPrefix(target.Endpoint(), "/")
	if err := lane.CheckService(service); err != nil {
		return nil, fmt.Errorf("target %s: want lane:///SERVICE: %w", target.URL.String(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &laneResolver{cancel: cancel}
	r.done.Go(func() { r.resolve(ctx, cc, scope{config: b.config, service: service}) })
	return r, nil
}

// laneResolver makes the directory know a service. Everything else is the balancer's
// matter: it reads the directory's snapshots itself.
type laneResolver struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (r *laneResolver) resolve(ctx context.Context, cc resolver.ClientConn, s scope) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, needTimeout)
		err := s.dir.Need(attempt, s.service)
		cancel()
		if err == nil {
			// An error here is the balancer's, which reports its own.
			_ = cc.UpdateState(resolver.State{Attributes: attributes.New(scopeKey{}, s)})
			return
		}
		cc.ReportError(fmt.Errorf("learn of service %s: %w", s.service, err))
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// ResolveNow implements resolver.Resolver: the directory is always up to date.
func (r *laneResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (r *laneResolver) Close() {
	r.cancel()
	r.done.Wait()
}

// scope is what the resolver tells the balancer.
type scope struct {
	*config
	service string
}

type scopeKey struct{}

// Equal lets attributes compare scopes.
func (s scope) Equal(other any) bool {
	o, ok := other.(scope)
	return ok && o == s
}
