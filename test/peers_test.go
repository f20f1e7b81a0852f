package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/test/command"
)

// peers are servers whose embedded registries are one cluster.
type peers struct {
	data    []string
	servers []*server
	args    [][]string
}

// startPeers starts n of them, and returns when all are ready.
func startPeers(t *testing.T, n int, more ...string) *peers {
	t.Helper()
	data := make([]string, n)
	for i := range data {
		data[i] = t.TempDir()
	}
	return startPeersAt(t, data, more...)
}

// startPeersAt is startPeers with a directory for each.
func startPeersAt(t *testing.T, data []string, more ...string) *peers {
	t.Helper()
	p := &peers{data: data}
	addresses := make([]string, len(data))
	for i := range addresses {
		addresses[i] = command.FreeAddress(t)
	}
	for i, addr := range addresses {
		p.args = append(p.args, append([]string{
			"--registry-peers", strings.Join(addresses, ","), "--listen", "registry=" + addr, "--data", data[i],
		}, more...))
		p.servers = append(p.servers, launchServer(t, p.args[i]...))
	}
	for _, s := range p.servers {
		s.await(t)
	}
	return p
}

// others are the servers but one.
func (p *peers) others(i int) []*server {
	return append(append([]*server(nil), p.servers[:i]...), p.servers[i+1:]...)
}

// put writes a service, as soon as the registry takes it.
func (s *server) put(t *testing.T, service string) {
	t.Helper()
	poll(t, time.Minute, func() error {
		s.lives(t)
		status, text, err := call(t.Context(), http.MethodPut, s.url()+"/v1/services/"+service, []byte("{}"))
		if err == nil && status >= http.StatusBadRequest {
			err = fmt.Errorf("put %s: %d %s", service, status, text)
		}
		return err
	})
}

// has waits until the server knows a service.
func (s *server) has(t *testing.T, service string) {
	t.Helper()
	poll(t, time.Minute, func() error {
		s.lives(t)
		status, text, err := call(t.Context(), http.MethodGet, s.url()+"/v1/services/"+service, nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("get %s: %d %s", service, status, text)
		}
		return err
	})
}

// call sends a request to the control plane.
func call(ctx context.Context, method, url string, body []byte) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(got), err
}

// health is what a server says of itself at a path.
func (s *server) health(t *testing.T, path string) (status int, h laneclient.Health, err error) {
	t.Helper()
	status, text, err := call(t.Context(), http.MethodGet, s.url()+path, nil)
	if err == nil {
		err = json.Unmarshal([]byte(text), &h)
	}
	return status, h, err
}

// lives fails the test if the server has ended.
func (s *server) lives(t *testing.T) {
	t.Helper()
	select {
	case <-s.Done:
		t.Fatalf("the server has ended: %s\nstderr: %s", s.Cmd.ProcessState, s.stderr.String())
	default:
	}
}

// TestRegistryPeers has three servers whose registries are one cluster. Each of them, the
// leader among them, is killed and comes back: the other two go on. A last one alone
// takes no writes and says so, and routes.
func TestRegistryPeers(t *testing.T) {
	t.Parallel()
	p := startPeers(t, 3)
	p.servers[0].put(t, "first")
	for _, s := range p.servers {
		s.has(t, "first")
	}
	written := []string{"first"}
	for victim := range p.servers {
		p.servers[victim].Kill()
		for i, s := range p.others(victim) {
			service := fmt.Sprintf("without-%d-by-%d", victim, i)
			s.put(t, service)
			written = append(written, service)
		}
		p.servers[victim] = startServer(t, p.args[victim]...)
		for _, service := range written {
			p.servers[victim].has(t, service)
		}
	}
	last := p.servers[2]
	last.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	last.registered(t, "order", "o1")
	routed := func(s *server) {
		t.Helper()
		poll(t, time.Minute, func() error {
			_, err := s.ask(t, "order.lane.localhost")
			return err
		})
	}
	routed(last)
	p.servers[0].Kill()
	p.servers[1].Kill()
	poll(t, time.Minute, func() error {
		status, h, err := last.health(t, "/readyz")
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(h.Roles[0].Reason, "members") {
			return fmt.Errorf("/readyz of one of three: %d %+v %w", status, h, err)
		}
		return nil
	})
	if status, text, err := call(t.Context(), http.MethodPut, last.url()+"/v1/services/late", []byte("{}")); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a write with one member of three: %d %s %v, want 503", status, text, err)
	}
	routed(last)

	// It is started anew while it is the only one, and waits for the others.
	args := append([]string{"--listen", "gateway=" + last.addresses["gateway"]}, p.args[2]...)
	last.Signal(syscall.SIGTERM)
	last.wait(t, 20*time.Second)
	last = startServer(t, args...)
	p.servers[2] = last
	routed(last)
	if _, h, err := last.health(t, "/readyz"); err != nil || !strings.Contains(h.Roles[0].Reason, "waits for a majority of its 3 members") {
		t.Errorf("/readyz of the first of three: %+v %v", h, err)
	}
	p.servers[0] = startServer(t, p.args[0]...)
	for _, s := range []*server{p.servers[0], last} {
		for _, service := range written {
			s.has(t, service)
		}
	}
	p.servers[0].put(t, "late")
	last.has(t, "late")

	// One whose data is lost is not taken for new: it may have voted.
	if err := os.RemoveAll(p.data[1]); err != nil {
		t.Fatal(err)
	}
	lost := launchServer(t, p.args[1]...)
	if status := lost.wait(t, time.Minute); status != 1 || !strings.Contains(lost.stderr.String(), "already been bootstrapped") {
		t.Errorf("a member without its data: exit status %d, %s", status, lost.stderr.String())
	}
}

// TestRegistryPeersTLS has members talk by mutual TLS, and one who shows no certificate
// is not heard.
func TestRegistryPeersTLS(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	ca.issue(t, "node", ca)
	file := ca.file("laneway.yaml")
	text := fmt.Sprintf("registry_tls: {ca: %s, cert: %s, key: %s}\n", ca.file("ca.crt"), ca.file("node.crt"), ca.file("node.key"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPeers(t, 3, "--config", file)
	p.servers[1].put(t, "order")
	p.servers[2].has(t, "order")

	addr := strings.TrimPrefix(p.args[0][3], "registry=")
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		// In TLS 1.3 the refusal comes with the first answer.
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err = fmt.Fprintf(conn, "GET /members HTTP/1.1\r\nHost: %s\r\n\r\n", addr)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		_ = conn.Close()
	}
	var alert tls.AlertError
	var op *net.OpError
	if !errors.As(err, &alert) && !errors.As(err, &op) {
		t.Errorf("without a certificate: %v, want that TLS refuses", err)
	}
}

// TestRegistryPeersRefused are configurations of peers that cannot work.
func TestRegistryPeersRefused(t *testing.T) {
	t.Parallel()
	const three = "127.0.0.1:7701,127.0.0.1:7702,127.0.0.1:7703"
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"beyond loopback": {
			[]string{"--registry-peers", "10.0.0.1:7701,127.0.0.1:7702", "--listen", "registry=127.0.0.1:7702"},
			[]string{"registry_peers[0]: 10.0.0.1:7701 is not a loopback address", "registry_tls"},
		},
		"listens beyond loopback": {
			[]string{"--registry-peers", three, "--registry-self", "127.0.0.1:7701", "--listen", "registry=0.0.0.0:7701"},
			[]string{"listen.registry: 0.0.0.0:7701 is not a loopback address", "registry_tls"},
		},
		"none of them":   {[]string{"--registry-peers", three, "--listen", "registry=127.0.0.1:7704"}, []string{"listen.registry: ", "none of registry_peers"}},
		"not said which": {[]string{"--registry-peers", three}, []string{"listen.registry: is missing"}},
		"one":            {[]string{"--registry-peers", "127.0.0.1:7701", "--listen", "registry=127.0.0.1:7701"}, []string{"registry_peers: has 1"}},
		"twice":          {[]string{"--registry-peers", "127.0.0.1:7701,127.0.0.1:7701", "--listen", "registry=127.0.0.1:7701"}, []string{"registry_peers[1]: ", "twice"}},
		"no port":        {[]string{"--registry-peers", "127.0.0.1,127.0.0.1:7701", "--listen", "registry=127.0.0.1:7701"}, []string{"registry_peers[0]: ", "HOST:PORT"}},
		"no peers":       {[]string{"--listen", "registry=127.0.0.1:7701"}, []string{"registry_peers: is missing"}},
		"external":       {[]string{"--registry-peers", three, "--listen", "registry=127.0.0.1:7701", "--registry", "etcd://127.0.0.1:2379"}, []string{"registry_peers: is for an embedded registry"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stderr, status := cli(t, nil, "", append([]string{"server"}, tt.args...)...)
			if status != 2 {
				t.Errorf("exit status %d, want 2", status)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is not in: %s", want, stderr)
				}
			}
		})
	}
}
