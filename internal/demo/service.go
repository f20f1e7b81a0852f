package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// ReadyPath is answered by a service that is called over HTTP without calling
	// others.
	ReadyPath = "/healthz"

	callTimeout = 3 * time.Second // of every call to the next service
	// LeaseTTL is that of the demo's sessions. `laneway run` sees at once where a process has
	// ended; a lease that ran out on a machine that stands still for seconds would only look
	// like one that has.
	LeaseTTL    = 30 * time.Second
	dialTimeout = 10 * time.Second
	stopTimeout = time.Second // for requests in flight
	replyBytes  = 1 << 20     // the largest reply that is read
)

// Config is what a service gets from its environment.
type Config struct {
	Client laneclient.Config // as laneclient.FromEnv gives it
	// Listen opens the port to serve on. It is called once the service can serve:
	// `laneway run` registers an instance as soon as it listens.
	Listen func(ctx context.Context) (net.Listener, error)
	// Tracer makes the spans of requests and calls. Nil: there are none.
	Tracer trace.TracerProvider
	// Messages opens the engine between d and e, which the service closes. Nil: the default
	// engine of the installation.
	Messages func(ctx context.Context, lc *laneclient.Client) (Messages, error)
}

// service is one instance in the chain.
type service struct {
	self   Visit
	next   caller // nil: the end of the chain
	tracer trace.Tracer
}

// caller calls the next service by its protocol.
type caller interface {
	call(ctx context.Context) (Reply, error)
	close() error
}

// server serves one protocol until ctx ends, then finishes what is in flight.
type server func(ctx context.Context, listener net.Listener, s *service) error

// Run serves as the service of the chain that the configuration names, until ctx
// ends.
func Run(ctx context.Context, cfg Config) (err error) {
	links := Chain()
	at := slices.IndexFunc(links, func(l Link) bool { return l.Service == cfg.Client.Service })
	if at < 0 {
		return fmt.Errorf("LANEWAY_SERVICE is %q, want one of a to e: this is started by `laneway demo`",
			cfg.Client.Service)
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	cfg.Client.AdminListen = "127.0.0.1:0" // for laneway explain --at
	cfg.Client.TTL = LeaseTTL
	lc, err := laneclient.Dial(dialing, cfg.Client)
	if err != nil {
		return fmt.Errorf("join the control plane: %w", err)
	}
	defer func() { err = errors.Join(err, lc.Close()) }()

	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider()
	}
	s := &service{tracer: cfg.Tracer.Tracer("laneway demo"), self: Visit{
		Service:  cfg.Client.Service,
		Instance: cfg.Client.Instance,
		Lane:     lane.Name(cfg.Client.Lane),
		Protocol: links[at].Protocol,
	}}
	open := cfg.Messages
	if open == nil {
		open = openMessages
	}
	if links[at].Protocol == Queue {
		m, err := open(dialing, lc)
		if err != nil {
			return fmt.Errorf("open the message engine: %w", err)
		}
		return errors.Join(consumeQueue(ctx, s, m, &cfg), m.Source.Close())
	}
	if at+1 < len(links) {
		if s.next, err = newCaller(dialing, links[at+1], lc, open); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.next.close()) }()
	}
	listener, err := cfg.Listen(ctx)
	if err != nil {
		return fmt.Errorf("serve as %s: %w", s.self.Instance, err)
	}
	return serverOf(links[at].Protocol)(ctx, listener, s)
}

func serverOf(protocol string) server {
	switch protocol {
	case lane.GRPC:
		return serveGRPC
	case lane.Thrift:
		return serveThrift
	default:
		return serveHTTP
	}
}

func newCaller(ctx context.Context, next Link, lc *laneclient.Client, open func(context.Context, *laneclient.Client) (Messages, error)) (caller, error) {
	if next.Protocol == Queue {
		m, err := open(ctx, lc)
		if err != nil {
			return nil, fmt.Errorf("open the message engine: %w", err)
		}
		return newQueueCaller(ctx, next.Service, m)
	}
	// Not before the first call, so that the first call is as quick as others.
	if err := lc.Need(ctx, next.Service); err != nil {
		return nil, fmt.Errorf("learn of service %s: %w", next.Service, err)
	}
	switch next.Protocol {
	case lane.GRPC:
		return newGRPCCaller(next.Service, lc)
	case lane.Thrift:
		return newThriftCaller(next.Service, lc), nil
	default:
		return newHTTPCaller(next.Service, lc), nil
	}
}

// visit serves one request: it reports this instance and what the rest of the
// chain reports. What goes wrong further down is part of the reply, so that it
// shows how far the request got.
func (s *service) visit(ctx context.Context) Reply {
	own := s.self
	own.Color = lane.From(ctx)
	reply := Reply{Visits: []Visit{own}}
	if s.next == nil {
		return reply
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A caller that wants to know the route has made the trail already.
	trail := lane.TrailFrom(ctx)
	if trail == nil {
		ctx, trail = lane.WithTrail(ctx)
	}
	further, err := s.calling(ctx)
	if err != nil {
		reply.Error = fmt.Sprintf("%s could not call on: %s", own.Instance, err)
		return reply
	}
	hop, err := ownHop(trail)
	switch {
	case err != nil:
		reply.Error = fmt.Sprintf("%s was not told who got its call: %s", own.Instance, err)
		return reply
	case len(further.Visits) == 0:
		reply.Error = fmt.Sprintf("%s was answered without a visit", own.Instance)
		return reply
	case hop.Instance != further.Visits[0].Instance:
		reply.Error = fmt.Sprintf("%s was told that %q gets its call, but %q answered",
			own.Instance, hop.Instance, further.Visits[0].Instance)
	default:
		reply.Error = further.Error
	}
	further.Visits[0].Reason = hop.Reason
	reply.Visits = append(reply.Visits, further.Visits...)
	return reply
}

// ownHop is what the SDK noted of the one call that this request caused; what is
// further on follows it.
func ownHop(trail *lane.Trail) (lane.Hop, error) {
	lines := trail.Lines()
	if len(lines) == 0 {
		return lane.Hop{}, errors.New("the trail is empty")
	}
	return lane.ParseHop(lines[0])
}

func writeReply(w http.ResponseWriter, reply Reply) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(reply) // a caller that has gone needs no answer
}
