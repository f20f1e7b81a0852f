package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// addGateway adds the HTTP gateway to the node.
func (n *node) addGateway() error {
	cfg, err := n.gatewayConfig()
	if err != nil {
		return err
	}
	dir := filepath.Join(n.cfg.Data, "gateway")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the gateway's directory: %w", err)
	}
	view := laneclient.Config{
		Control: n.cfg.Control, Transport: n.transport, TokenFile: n.tokenFile, Room: n.cfg.Room, All: true,
		Admin: n.address(listenAdmin), SnapshotFile: filepath.Join(dir, "snapshot.json"), Log: cfg.Log,
	}
	g := &gatewayPart{node: n, cfg: cfg, view: view}
	n.addReadiness(roleGateway, g.check)
	n.group.Add(roleGateway, g.run)
	return nil
}

// gatewayConfig is what the gateway needs, without the view.
func (n *node) gatewayConfig() (httpgw.Config, error) {
	signing, err := n.cfg.signing()
	if err != nil {
		return httpgw.Config{}, err
	}
	jwt, err := n.cfg.jwt()
	if err != nil {
		return httpgw.Config{}, err
	}
	edge, err := n.cfg.Gateway.Edge.TLS.server("gateway.edge.tls")
	if err != nil {
		return httpgw.Config{}, err
	}
	inside, err := n.cfg.Gateway.Inside.TLS.server("gateway.inside.tls")
	if err != nil {
		return httpgw.Config{}, err
	}
	var trusted []netip.Prefix
	for _, t := range n.cfg.Gateway.Edge.Trusted {
		p, err := coloring.ParsePrefix(t)
		if err != nil {
			return httpgw.Config{}, err
		}
		trusted = append(trusted, p)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	cfg := httpgw.Config{
		Node: host + "/" + n.address(listenGateway), Domain: n.cfg.Domain, Cluster: n.cfg.Cluster,
		Trusted: trusted, Signing: signing, JWT: jwt, EdgeTLS: edge, InsideTLS: inside, Aliases: n.cfg.Gateway.Aliases,
		Drain: time.Duration(n.cfg.Drain), Log: n.log.With(telemetry.KeyRole, roleGateway), Metrics: n.metrics,
	}
	if n.traces != nil {
		cfg.Tracer = n.traces
	}
	if n.cfg.Gateway.AccessLog {
		cfg.AccessLog = cfg.Log
	}
	return cfg, nil
}

// gatewayPart is a gateway with its view of the registry.
type gatewayPart struct {
	node  *node
	cfg   httpgw.Config
	view  laneclient.Config
	about atomic.Pointer[http.Handler] // what it says of itself; nil while it has no view
}

func (g *gatewayPart) run(ctx context.Context, ready func()) error {
	// The admin listener answers from the first moment, to say why the gateway is not
	// ready, until the last request has been served.
	end := g.node.serveAdmin(ctx, "/", g.serveAbout, g.cfg.Log)
	err := g.route(ctx, ready)
	return errors.Join(err, end())
}

// route gets a view and serves by it until ctx ends.
func (g *gatewayPart) route(ctx context.Context, ready func()) error {
	client, err := dialPatiently(ctx, g.view, g.cfg.Log)
	if err != nil {
		return err
	}
	defer func() {
		if err := client.Close(); err != nil {
			g.cfg.Log.WarnContext(ctx, "left the registry uncleanly, the lease ends the session", telemetry.KeyError, err)
		}
	}()
	g.cfg.Views, g.cfg.Used = client.View, client.Used
	gw, err := httpgw.New(g.cfg)
	if err != nil {
		return err
	}
	if err := registerView(g.node.metrics, client); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", gw.Admin())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { g.serveHealth(w, client) })
	about := http.Handler(mux)
	g.about.Store(&about)
	ready()
	return gw.Run(ctx, httpgw.Listeners{Edge: g.node.listeners[listenGateway], Inside: g.node.listeners[listenInside]})
}

// serveHealth answers /healthz with where this gateway is reached.
func (g *gatewayPart) serveHealth(w http.ResponseWriter, client *laneclient.Client) {
	h := client.Health()
	h.Listen = map[string]string{
		listenGateway: urlOf(g.node.address(listenGateway), g.cfg.EdgeTLS != nil),
		listenInside:  urlOf(g.node.address(listenInside), g.cfg.InsideTLS != nil),
	}
	laneclient.WriteAnswer(w, http.StatusOK, h)
}

func urlOf(address string, tls bool) string {
	if tls {
		return "https://" + address
	}
	return "http://" + address
}

// dialPatiently gets the first view: that of the control plane, or the last one that is on
// disk. Without either there is nothing to go by, so it goes on trying.
func dialPatiently(ctx context.Context, cfg laneclient.Config, log *slog.Logger) (*laneclient.Client, error) {
	for retry := backoff.New(100*time.Millisecond, 5*time.Second); ; {
		client, err := laneclient.Dial(ctx, cfg)
		if err == nil {
			return client, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var p *laneclient.Problem
		if errors.As(err, &p) && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
			return nil, err
		}
		delay := retry.Next()
		log.WarnContext(ctx, "no view of the registry yet, will try again", telemetry.KeyError, err, telemetry.KeyDelay, delay)
		if !backoff.Wait(ctx, delay) {
			return nil, ctx.Err()
		}
	}
}

// errNoView is why a gateway is not ready. One whose view is stale is: it routes.
var errNoView = errors.New("has no view of the registry yet: is the control plane reachable?")

// check is the gateway's readiness.
func (g *gatewayPart) check(context.Context) error {
	if g.about.Load() == nil {
		return errNoView
	}
	return nil
}

// serveAbout serves what the gateway says of itself.
func (g *gatewayPart) serveAbout(w http.ResponseWriter, r *http.Request) {
	about := g.about.Load()
	if about == nil {
		http.Error(w, "the gateway "+errNoView.Error(), http.StatusServiceUnavailable)
		return
	}
	(*about).ServeHTTP(w, r)
}

// registerView tells of the view in metrics.
func registerView(r prometheus.Registerer, client *laneclient.Client) error {
	revision := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: telemetry.MetricViewRevision, Help: "Registry revision of this process's view.",
	}, func() float64 { return float64(client.View().Revision) })
	stale := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: telemetry.MetricViewStale, Help: "1 while the control plane cannot be reached or lags.",
	}, func() float64 {
		if client.View().Stale {
			return 1
		}
		return 0
	})
	return errors.Join(r.Register(revision), r.Register(stale))
}
