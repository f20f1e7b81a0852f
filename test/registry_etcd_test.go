package test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store/etcd/etcdtest"
)

// etcdURL is what --registry takes.
func etcdURL(t *testing.T, c *etcdtest.Cluster) string {
	t.Helper()
	var hosts []string
	for _, endpoint := range c.Endpoints() {
		u, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	return "etcd://" + strings.Join(hosts, ",")
}

// TestRegistryEtcd keeps the registry in an etcd of its own: what one server writes is
// there for another one that has no data, and while etcd is away requests are routed.
func TestRegistryEtcd(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartPlain(t, 1)
	s := startServer(t, "--registry", etcdURL(t, c))
	s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	routed := func(s *server) {
		t.Helper()
		poll(t, time.Minute, func() error {
			_, err := s.ask(t, "order.lane.localhost")
			return err
		})
	}
	other := startServer(t, "--registry", etcdURL(t, c))
	for _, s := range []*server{s, other} {
		routed(s)
		if status, h, err := s.health(t, "/readyz"); err != nil || status != http.StatusOK {
			t.Errorf("/readyz: %d %+v %v", status, h, err)
		}
	}
	c.Members[0].Stop()
	poll(t, time.Minute, func() error {
		status, h, err := s.health(t, "/readyz")
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(h.Roles[0].Reason, "does not answer") {
			return fmt.Errorf("/readyz without etcd: %d %+v %w", status, h, err)
		}
		return nil
	})
	routed(s)
	routed(other)
	c.Members[0].Start(t)
	c.Members[0].Wait(t)
	s.put(t, "late")
	other.has(t, "late")
	for _, s := range []*server{s, other} {
		poll(t, time.Minute, func() error {
			status, h, err := s.health(t, "/readyz")
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("/readyz: %d %+v", status, h)
			}
			return err
		})
	}
}

// TestRegistryEtcdLate starts a server before its etcd: a gateway with a snapshot routes,
// and all is well as soon as etcd is there.
func TestRegistryEtcdLate(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartPlain(t, 1)
	args := []string{"--registry", etcdURL(t, c), "--data", t.TempDir()}
	s := startServer(t, args...)
	s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	routed := func() {
		t.Helper()
		poll(t, time.Minute, func() error {
			_, err := s.ask(t, "order.lane.localhost")
			return err
		})
	}
	routed()
	for _, role := range []string{"control", "gateway", "inside"} {
		args = append(args, "--listen", role+"="+s.addresses[role])
	}
	s.Signal(syscall.SIGTERM)
	s.wait(t, 20*time.Second)
	c.Members[0].Stop()
	s = startServer(t, args...)
	routed()
	status, h, err := s.health(t, "/readyz")
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(h.Roles[0].Reason, "no answer from etcd at "+c.Endpoints()[0]) {
		t.Errorf("/readyz without etcd: %d %+v %v", status, h, err)
	}
	c.Members[0].Start(t)
	c.Members[0].Wait(t)
	s.put(t, "late")
	routed()
}

// TestRegistryEtcdCluster has a cluster with TLS and a user who may do no more than
// Laneway needs: the server goes on without its leader, and with less than it needs says
// what is wrong.
func TestRegistryEtcdCluster(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password := file("password", etcdtest.Password+"\n")
	config := func(name, password string) string {
		return file(name, fmt.Sprintf("registry: %q\netcd:\n  username: %s\n  password_file: %s\n  tls: {ca: %s, cert: %s, key: %s}\n",
			etcdURL(t, c), etcdtest.User, password, c.CA, c.Cert, c.Key))
	}
	good := config("good.yaml", password)
	s := startServer(t, "--config", good)
	s.put(t, "before")
	leader := c.Leader()
	if leader == nil {
		t.Fatal("etcd has no leader")
	}
	leader.Stop()
	s.put(t, "without")
	other := startServer(t, "--config", good)
	other.has(t, "before")
	other.has(t, "without")
	leader.Start(t)
	leader.Wait(t)

	bad := launchServer(t, "--config", config("bad.yaml", file("guess", "guess")))
	if status := bad.wait(t, time.Minute); status != 1 || !strings.Contains(bad.stderr.String(), "authentication failed") {
		t.Errorf("wrong password: exit status %d, %s; want 1, and what was refused", status, bad.stderr.String())
	}
	for name, tt := range map[string]struct{ text, want string }{
		"no password":  {"password_file: " + filepath.Join(dir, "missing"), "etcd.password_file: "},
		"no authority": {"tls: {ca: " + filepath.Join(dir, "missing") + "}", "etcd.tls.ca: "},
		"no key":       {"tls: {cert: " + c.Cert + "}", "etcd.tls: has one of cert and key"},
		"wrong key":    {"tls: {cert: " + c.Cert + ", key: " + password + "}", "etcd.tls: cert and key: "},
	} {
		_, stderr, status := cli(t, nil, "", "check", "--config", file("bad.yaml", fmt.Sprintf("registry: %q\netcd: {%s}\n", etcdURL(t, c), tt.text)))
		if status != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit status %d, %s; want 1 and %q", name, status, stderr, tt.want)
		}
	}
}
