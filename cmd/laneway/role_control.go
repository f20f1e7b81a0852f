package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// controlDrain is how long requests to the control plane may take to finish when
// it stops; watches are ended at once.
const controlDrain = 3 * time.Second

// addControl opens the registry and adds the control plane to the node.
func (n *node) addControl(ctx context.Context) error {
	log := n.log.With(telemetry.KeyRole, roleControl)
	s, err := n.cfg.openRegistry(ctx, log)
	if err != nil {
		return fmt.Errorf("open the registry: %w", err)
	}
	n.close = append(n.close, s.Close)
	c, err := control.New(control.Config{
		Store: s, Address: n.address(listenControl), Hosts: n.cfg.ControlHosts,
		Cluster: n.cfg.Cluster, Domain: n.cfg.Domain, Version: version(), Log: log, Metrics: n.metrics,
	})
	if err != nil {
		return err
	}
	handler := c.Handler()
	n.transport = laneclient.InMemory(handler)
	n.control = c.AddReadiness
	n.group.Add(roleControl, func(ctx context.Context, ready func()) error {
		ready()
		return c.Run(ctx)
	})
	// Its listener is a part of its own, which stops first: what is under way then
	// finishes while the control plane still runs.
	n.group.Add(roleControl+" listener", func(ctx context.Context, ready func()) error {
		ready()
		return serveHTTP(ctx, control.Listener(n.listeners[listenControl]), handler, controlDrain, log)
	})
	return nil
}

// openRegistry opens the storage of the registry.
func (c *config) openRegistry(ctx context.Context, log *slog.Logger) (store.Store, error) {
	// Patient: a gateway of this process routes by its snapshot meanwhile.
	cfg := etcd.Config{Log: log, Probe: control.ProbeKey, Patient: true}
	switch c.Registry {
	case registryMemory:
		return mem.New(), nil
	case registryEmbedded:
		cfg.Dir, cfg.Peers = filepath.Join(c.Data, "registry"), c.peers()
		return etcd.Open(ctx, cfg)
	}
	cfg.Endpoints = c.etcdHosts()
	cfg.Username = c.Etcd.Username
	var err error
	if cfg.TLS, err = c.Etcd.TLS.client("etcd.tls"); err != nil {
		return nil, err
	}
	if c.Etcd.PasswordFile != "" {
		password, err := readSecret(c.Etcd.PasswordFile)
		if err != nil {
			return nil, problem("etcd.password_file", "%w", err)
		}
		cfg.Password = string(password)
	}
	return etcd.Open(ctx, cfg)
}

// etcdHosts are those of an etcd:// URL.
func (c *config) etcdHosts() []string {
	scheme := "http"
	if c.Etcd.TLS.set() {
		scheme = "https"
	}
	rest, _ := strings.CutPrefix(c.Registry, etcdScheme)
	var out []string
	for _, host := range laneclient.SplitList(rest) {
		out = append(out, (&url.URL{Scheme: scheme, Host: host}).String())
	}
	return out
}
