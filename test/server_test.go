package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestServerReady(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready := filepath.Join(dir, "here.json")
	p := startProcess(t, nil, "server", "--data", filepath.Join(dir, "data"), "--ready-file", ready,
		"--listen", "control=127.0.0.1:0,gateway=127.0.0.1:0", "--listen", "inside=[::1]:0")
	var addresses map[string]string
	poll(t, 30*time.Second, func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		// It is there whole or not at all.
		if err := json.Unmarshal(text, &addresses); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		return nil
	})
	for _, role := range []string{"control", "gateway", "inside"} {
		poll(t, 20*time.Second, func() error { // what it wrote may still be on its way here
			if addresses[role] == "" || !strings.Contains(p.stderr.String(), addresses[role]) {
				return fmt.Errorf("%s: address %q, want it here and on standard error", role, addresses[role])
			}
			return nil
		})
	}
	for _, path := range []string{"/readyz", "/healthz", "/metrics", "/v1/openapi.json"} {
		if status, body, err := get(t, addresses["control"], "localhost", path); err != nil || status != http.StatusOK {
			t.Errorf("GET %s: %d %s %v", path, status, body, err)
		}
	}
	_, body, err := get(t, addresses["control"], "localhost", "/readyz")
	if err != nil || !strings.Contains(body, `"gateway"`) || !strings.Contains(body, `"control"`) {
		t.Errorf("/readyz is %q, want it by role", body)
	}
	_, body, err = get(t, addresses["control"], "localhost", "/metrics")
	if err != nil || !strings.Contains(body, "laneway_build_info{version=") || !strings.Contains(body, "laneway_view_stale 0") || !strings.Contains(body, "laneway_gateway_requests_in_flight") {
		t.Errorf("/metrics misses build, view or gateway: %s", body)
	}
	p.Signal(syscall.SIGTERM)
	if status := p.wait(t, 15*time.Second); status != 0 {
		t.Errorf("exit status %d after TERM, want 0; stderr: %s", status, p.stderr.String())
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file is left behind: %v", err)
	}
}

func TestServerKeepsData(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, "--data", data)
	s.must(t, "lane", "create", "green", "--owner", "ann", "--ttl", "5h")
	const objects = `kind: routes
name: shop
host: shop.example.com
service: order
---
kind: instances
name: fixed
service: order
endpoints: [{protocol: http, address: "127.0.0.1:1"}]
`
	if _, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, objects, "apply", "-f", "-"); status != 0 {
		t.Fatal(stderr)
	}
	before := s.must(t, "export")
	for _, end := range []struct {
		name string
		how  func()
	}{
		{"clean", func() { s.Signal(syscall.SIGTERM); s.wait(t, 15*time.Second) }},
		{"crash", func() { s.Kill() }},
	} {
		end.how()
		s = startServer(t, "--data", data)
		if after := s.must(t, "export"); after != before {
			t.Errorf("after a %s end:\n%s\nbefore:\n%s", end.name, after, before)
		}
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	free := []string{"--listen", "control=127.0.0.1:0,gateway=127.0.0.1:0,inside=127.0.0.1:0"}
	// The running server's directory is in its arguments.
	data := ""
	for i, arg := range s.Cmd.Args {
		if arg == "--data" {
			data = s.Cmd.Args[i+1]
		}
	}
	tests := []struct {
		name   string
		args   []string
		status int
		stderr []string
	}{
		{"control beyond loopback", []string{"--listen", "control=0.0.0.0:0"}, 2, []string{"listen.control: ", "not a loopback address", "authentication"}},
		{"gateway beyond loopback", []string{"--listen", "gateway=:0"}, 2, []string{"listen.gateway: ", "not a loopback address"}},
		{"inside beyond loopback", []string{"--listen", "inside=[::]:0"}, 2, []string{"listen.inside: ", "not a loopback address"}},
		{"a name", []string{"--listen", "inside=example.com:80"}, 2, []string{"listen.inside: "}},
		{"unknown listener", []string{"--listen", "amp=127.0.0.1:0"}, 2, []string{"listen.amp: is no listener"}},
		{"unknown role", []string{"--roles", "control,gatway"}, 2, []string{"roles[1]: "}},
		{"arguments", []string{"start"}, 2, []string{"takes no arguments"}},
		{"data in use", append([]string{"--data", data}, free...), 1, []string{"in use by another process"}},
		{"port in use", append(free, "--data", t.TempDir(), "--listen", "gateway="+s.addresses["gateway"]), 1, []string{"listen for gateway", "--listen gateway=HOST:PORT"}},
		{"no such file", []string{"--config", "/does/not/exist"}, 2, []string{"/does/not/exist"}},
		{"unwritable ready file", append(free, "--data", t.TempDir(), "--ready-file", "/does/not/exist/f"), 1, []string{"write the ready file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, stderr, status := cli(t, nil, "", append([]string{"server"}, tt.args...)...)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			last := stderr
			for _, want := range tt.stderr {
				if !strings.Contains(last, want) {
					t.Errorf("%q is not in: %s", want, stderr)
				}
			}
			if strings.Contains(stderr, "started again") {
				t.Errorf("a process that ends says that something goes on: %s", stderr)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("domain: lanes.example.com\ngateway:\n  edge:\n    trusted: [10.0.0.0/8]\n")
	if stdout, stderr, status := cli(t, nil, "", "check", "--config", file); status != 0 || stdout != "The configuration is good.\n" {
		t.Errorf("exit status %d, %q, %q", status, stdout, stderr)
	}
	if stdout, stderr, status := cli(t, nil, "", "check"); status != 0 || !strings.HasPrefix(stdout, "Without a file only the defaults") {
		t.Errorf("without a file: exit status %d, %q, %q", status, stdout, stderr)
	}
	write("roles: [control, x]\nlog: {level: loud}\ngateway:\n  edge:\n    trusted: [here]\n")
	_, stderr, status := cli(t, nil, "", "check", "--config", file)
	want := "roles[1]: \"x\" is no role: want control, gateway or engine\n" +
		"log.level: \"loud\": want debug, info, warn or error\n" +
		"gateway.edge.trusted[0]: \"here\": want an address or a network such as 10.0.0.0/8\n" +
		"laneway: the configuration has 3 problems: correct them and check again\n"
	if status != 1 || stderr != want {
		t.Errorf("exit status %d, want 1, and\n%s\nwant\n%s", status, stderr, want)
	}
	write("domian: x\n")
	_, stderr, status = cli(t, nil, "", "check", "--config", file)
	if status != 1 || !strings.Contains(stderr, file+":1: domian: is no key: want one of ") {
		t.Errorf("exit status %d and %q, want that there is no such key", status, stderr)
	}
}

// roles is an installation of two processes: control plane and gateway.
type roles struct {
	control, gateway *server
	controlArgs      []string
	gatewayArgs      []string
}

func startRoles(t *testing.T) *roles {
	t.Helper()
	dir := t.TempDir()
	r := &roles{controlArgs: []string{"--roles", "control", "--data", filepath.Join(dir, "c")}}
	r.control = startServer(t, r.controlArgs...)
	r.controlArgs = append(r.controlArgs, "--listen", "control="+r.control.addresses["control"])
	r.gatewayArgs = []string{"--roles", "gateway", "--data", filepath.Join(dir, "g"), "--control", r.control.url()}
	r.gateway = startServer(t, r.gatewayArgs...)
	r.gatewayArgs = append(r.gatewayArgs, "--listen", "gateway="+r.gateway.addresses["gateway"])
	// Questions to the registry go to one, requests to the other.
	r.control.addresses["gateway"] = r.gateway.addresses["gateway"]
	return r
}

// ready is what a gateway says at its admin address.
func ready(t *testing.T, s *server) (laneclient.Health, error) {
	t.Helper()
	var h laneclient.Health
	_, body, err := get(t, s.addresses["admin"], "x", "/readyz")
	if err == nil {
		err = json.Unmarshal([]byte(body), &h)
	}
	return h, err
}

// TestControlPlaneGoesAndComes kills the control plane under load, restarts the
// gateway while it is away, and brings it back: no request fails for it.
func TestControlPlaneGoesAndComes(t *testing.T) {
	t.Parallel()
	r := startRoles(t)
	s := r.control
	s.runService(t, "slow", nil, "--service", "order", "--instance", "base")
	s.runService(t, "slow", nil, "--service", "order", "--instance", "green", "--lane", "green")
	s.registered(t, "order", "base")
	s.registered(t, "order", "green")
	hosts := map[string]string{"base": "order.lane.localhost", "green": "green--order.lane.localhost"}
	routed := func() {
		t.Helper()
		for want, host := range hosts {
			poll(t, 5*time.Second, func() error {
				report, err := s.ask(t, host)
				if err == nil && report.Instance != want {
					err = fmt.Errorf("%s: got %s, want %s", host, report.Instance, want)
				}
				return err
			})
		}
	}
	routed()
	l := s.load(t, http.MethodPost, hosts["green"])
	l.await(t, 100)
	r.control.Kill()
	l.await(t, 500)
	routed()

	r.control = startServer(t, r.controlArgs...)
	l.await(t, 500)
	routed()
	l.stop(t)
	if who := l.who(); len(who) != 1 || who[0] != "green" {
		t.Errorf("colored requests were answered by %v, want green alone", who)
	}

	// A restarted gateway starts from its disk while nobody can tell it anything.
	r.control.Kill()
	r.gateway.Kill()
	r.gateway = startServer(t, r.gatewayArgs...)
	routed()
	if h, err := ready(t, r.gateway); err != nil || !h.OK {
		t.Errorf("/readyz of a gateway that routes by its last view: %+v %v", h, err)
	}
	_, metrics, err := get(t, r.gateway.addresses["admin"], "x", "/metrics")
	if err != nil || !strings.Contains(metrics, "laneway_view_stale 1") {
		t.Errorf("metrics do not say that the view is stale: %v", err)
	}

	// When it is back, changes are in force again.
	r.control = startServer(t, r.controlArgs...)
	s.runService(t, "http", nil, "--service", "late", "--instance", "l1")
	s.registered(t, "late", "l1")
	poll(t, 15*time.Second, func() error {
		_, err := s.ask(t, "late.lane.localhost")
		return err
	})
	routed()
}

// TestGatewayWithoutAView has a gateway start before the control plane.
func TestGatewayWithoutAView(t *testing.T) {
	t.Parallel()
	r := startRoles(t)
	control, admin := r.control.addresses["control"], r.gateway.addresses["admin"]
	r.control.Kill()
	r.gateway.Kill()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready.json")
	startProcess(t, nil, "server", "--roles", "gateway", "--control", "http://"+control, "--data", filepath.Join(dir, "new"),
		"--ready-file", file, "--listen", "gateway=127.0.0.1:0,inside=127.0.0.1:0,admin="+admin)
	// Nobody tells its admin address before it is ready, so it has to be given one.
	poll(t, 15*time.Second, func() error {
		status, body, err := get(t, admin, "x", "/readyz")
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(body, "has no view of the registry yet")) {
			err = fmt.Errorf("/readyz: %d %s, want that it has no view", status, body)
		}
		return err
	})
	if _, err := os.Stat(file); err == nil {
		t.Error("it says that it is ready, without a view")
	}
	startServer(t, r.controlArgs...)
	poll(t, 20*time.Second, func() error {
		_, err := os.Stat(file)
		return err
	})
}

// TestInstanceKilledUnderLoad kills instances under load: no idempotent request
// fails.
func TestInstanceKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "slow", nil, "--service", "order", "--instance", "stays")
	s.registered(t, "order", "stays")
	l := s.load(t, http.MethodGet, "order.lane.localhost")
	for n := range 5 {
		name := fmt.Sprintf("n%d", n)
		p := s.runService(t, "slow", nil, "--service", "order", "--instance", name)
		s.registered(t, "order", name)
		l.await(t, 50)
		if err := syscall.Kill(p.child(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.wait(t, 10*time.Second)
		l.await(t, 50)
	}
	l.stop(t)
	if len(l.who()) < 2 {
		t.Errorf("only %v answered: nothing was killed under load", l.who())
	}
}

// TestServerStopsUnderLoad asks a server to end while requests are under way: each
// that it has taken is answered.
func TestServerStopsUnderLoad(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "slow", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	// Of a kind that clients send again by themselves: one that meets the end of an
	// idle connection is nobody's fault.
	l := s.load(t, http.MethodGet, "order.lane.localhost")
	l.await(t, 200)
	s.Signal(syscall.SIGTERM)
	if status := s.wait(t, 20*time.Second); status != 0 {
		t.Errorf("exit status %d, want 0; stderr: %s", status, s.stderr.String())
	}
	l.end()
	for _, failure := range l.failed {
		// From the moment that it does not listen any more, connections are refused.
		if !strings.Contains(failure, "connection refused") {
			t.Errorf("a request that was under way failed: %s", failure)
		}
	}
}

// testCA makes certificates for tests, for 127.0.0.1.
type testCA struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	ca := &testCA{dir: t.TempDir()}
	ca.cert, ca.key = ca.issue(t, "ca", nil)
	return ca
}

func (ca *testCA) file(name string) string { return filepath.Join(ca.dir, name) }

// issue writes name.crt and name.key; without a parent, an authority.
func (ca *testCA) issue(t *testing.T, name string, parent *testCA) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signerKey := cert, key
	if parent == nil {
		cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(ca.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, key
}

// TestServerTLS has both listeners of the gateway speak TLS, and the inside beyond
// loopback, which it may since its clients have to show certificates.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	ca.issue(t, "node", ca)
	file := ca.file("laneway.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair := fmt.Sprintf("cert: %s, key: %s", ca.file("node.crt"), ca.file("node.key"))
	write("listen: {inside: \"0.0.0.0:0\"}\ngateway:\n  inside:\n    tls: {" + pair + "}\n")
	_, stderr, status := cli(t, nil, "", "check", "--config", file)
	if status != 1 || !strings.Contains(stderr, "listen.inside: ") || !strings.Contains(stderr, "gateway.inside.tls.client_ca: is missing") {
		t.Errorf("exit status %d and %q, want that the inside is exposed", status, stderr)
	}
	write("gateway:\n  edge:\n    tls: {" + pair + "}\n  inside:\n    tls: {" + pair + ", client_ca: " + ca.file("ca.crt") + "}\n")
	s := startServer(t, "--config", file, "--listen", "inside=0.0.0.0:0")
	s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")

	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	shown, err := tls.LoadX509KeyPair(ca.file("node.crt"), ca.file("node.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, listener string
		certificates   []tls.Certificate
		ok             bool
	}{
		{"edge", "gateway", nil, true},
		{"inside without a certificate", "inside", nil, false},
		{"inside", "inside", []tls.Certificate{shown}, true},
	} {
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: tt.certificates}, DisableKeepAlives: true,
		}}
		ask := func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port(s.addresses[tt.listener])+"/", nil)
			if err != nil {
				return err
			}
			req.Host = "order.lane.localhost"
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", resp.StatusCode)
			}
			return nil
		}
		if tt.ok {
			poll(t, seenAtOnce, ask)
		} else if err := ask(); err == nil {
			t.Errorf("%s: got an answer", tt.name)
		}
	}
}
