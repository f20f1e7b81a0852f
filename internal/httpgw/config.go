package httpgw

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits and waits. Those of a request can be set by its route.
const (
	// MaxAttempts is how many instances a request is sent to at most.
	MaxAttempts = 3
	// DefaultRequestTimeout is how long the response's headers may take once the
	// request has been sent. gRPC calls bring their own deadline and have none of
	// ours.
	DefaultRequestTimeout = 60 * time.Second
	// DefaultIdleTimeout is how long a request may pass no byte in either direction
	// once the response has begun. A gRPC stream may be silent for as long as it
	// likes: HTTP/2 pings tell whether its peers live.
	DefaultIdleTimeout = 5 * time.Minute
	// TunnelIdleTimeout is the same for upgraded connections and CONNECT.
	TunnelIdleTimeout = time.Hour
	// DefaultDrain bounds the end of a gateway whose Config.Drain is zero.
	DefaultDrain = 30 * time.Second

	maxHeaderBytes         = 64 << 10  // of a request
	maxResponseHeaderBytes = 256 << 10 // of a response
	headerTimeout          = 10 * time.Second
	keepAliveTimeout       = 3 * time.Minute // of a client's connection without a request
	dialTimeout            = 3 * time.Second
	tcpKeepAlive           = 30 * time.Second
	continueTimeout        = time.Second      // for an upstream's 100 Continue
	upstreamIdle           = 90 * time.Second // of an upstream connection without a request
	maxIdlePerUpstream     = 256
	maxStreams             = 250              // of one HTTP/2 connection at once
	streamBuffer           = 256 << 10        // what is taken of a stream before it is passed on
	connBuffer             = 2 << 20          // the same of a connection
	pingAfter              = 30 * time.Second // without a frame
	pingTimeout            = 15 * time.Second
	stuckWrite             = 60 * time.Second // of HTTP/2 frames, without a byte taken
	replayBytes            = 64 << 10         // of an idempotent request's body, kept for another attempt
	copyBytes              = 32 << 10
	writeEndTimeout        = 50 * time.Millisecond  // for the last bytes of a request that has been answered
	discardTimeout         = 50 * time.Millisecond  // for the rest of a body that is not wanted
	lingerTimeout          = 500 * time.Millisecond // before a connection with an unread body is closed
	lingerBytes            = 4 << 20
	maxPassages            = 10 // of one request through this gateway; more is a loop
)

// Config is what a [Gateway] needs.
type Config struct {
	// Views gives the present view of the registry. Required; it must not block. Nil
	// as an answer means that there is none yet: all requests are then answered 503.
	Views func() *laneclient.View
	// Used notes a color that was used. It must not block. Nil: nobody wants to know.
	Used func(lane.Name)

	Node    string // the gateway's name in explanations
	Domain  string // "<service>.<Domain>" names a service; default lane.localhost
	Cluster string // label that may stand before the domain in a tagged host; may be empty

	// Trusted are the peers of the edge whose colors, X-Forwarded-… and explain
	// headers are believed. Default: none.
	Trusted []netip.Prefix
	Signing *coloring.SignKeys // checks signed colors; nil: none is good
	JWT     *coloring.JWTKeys  // checks tokens for rules; nil: rules that need one are skipped
	Aliases []string           // further headers that carry a color

	Policy lane.Policy // which of equal instances gets a request

	// EdgeTLS makes the edge speak TLS. Nil: plain text.
	EdgeTLS *tls.Config
	// InsideTLS makes the inside speak TLS. Beyond loopback it is required and must
	// verify client certificates.
	InsideTLS *tls.Config

	Drain time.Duration // default DefaultDrain

	Log *slog.Logger // lifecycle and trouble; nil: discard
	// AccessLog gets one Info line per request, without query, header values or
	// payload. Nil: off.
	AccessLog *slog.Logger
	// Metrics is where the gateway's metrics are registered. Nil: nowhere.
	Metrics prometheus.Registerer
	// Tracer makes one span for each request to a service, also one that nobody may serve:
	// with color, lane and reason by the keys of laneotel, below the span that a request
	// names as its parent and above those of the instance. Requests to third parties have
	// none. Nil: there are no spans, and trace context passes as it came.
	Tracer trace.TracerProvider

	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// validate reports all problems and fills in defaults.
func (c *Config) validate() error {
	var errs []error
	if c.Views == nil {
		errs = append(errs, errors.New("gateway: Views is required"))
	}
	for n, a := range c.Aliases {
		// One that has a meaning to HTTP or to us is not to be had: stripping it would
		// change the request. Those must not be trailers either.
		if !httpguts.ValidHeaderFieldName(a) || !fitTrailer(http.CanonicalHeaderKey(a), nil, nil) {
			errs = append(errs, fmt.Errorf("gateway: aliases[%d]: %q cannot carry a color", n, a))
		}
	}
	if c.InsideTLS != nil && c.InsideTLS.ClientAuth != tls.RequireAndVerifyClientCert {
		errs = append(errs, errors.New("gateway: inside TLS must require and verify client certificates"))
	}
	if c.Domain == "" {
		c.Domain = "lane.localhost"
	}
	if c.Drain <= 0 {
		c.Drain = DefaultDrain
	}
	if c.Used == nil {
		c.Used = func(lane.Name) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return errors.Join(errs...)
}
