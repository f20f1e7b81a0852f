package test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// TestEngineAccess: a server and commands use a NATS server that has TLS and asks for a
// password, each with their own; without it, or with a wrong one, commands say what to do, and
// nothing that people see has the password.
func TestEngineAccess(t *testing.T) {
	t.Parallel()
	const secret = "open-sesame-7281"
	ca, other := newTestCA(t), newTestCA(t)
	ca.issue(t, "nats", ca)
	pair, err := tls.LoadX509KeyPair(ca.file("nats.crt"), ca.file("nats.key"))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
		Username: "laneway", Password: secret, TLSTimeout: 20,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}},
	})
	if err != nil {
		t.Fatal(err)
	}
	peer.Start()
	t.Cleanup(func() {
		peer.Shutdown()
		peer.WaitForShutdown()
	})
	if !peer.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	url := "tls://" + peer.Addr().String()
	write := func(name, text string) string {
		path := filepath.Join(ca.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password, wrong := write("password", secret+"\n"), write("wrong", "x"+secret)
	config := write("server.yaml", "engines:\n  - {name: main, url: \""+url+"\", username: laneway, password_file: \""+password+"\", tls: {ca: \""+ca.file("ca.crt")+"\"}}\n")
	s := startServer(t, "--config", config)
	seen := []string{}
	run := func(env []string, args ...string) (stdout, stderr string, status int) {
		t.Helper()
		stdout, stderr, status = cli(t, append(env, "LANEWAY_CONTROL="+s.url()), "", args...)
		seen = append(seen, stdout, stderr)
		return stdout, stderr, status
	}
	access := func(password, ca string) []string {
		return []string{"LANEWAY_ENGINE_USERNAME=laneway", "LANEWAY_ENGINE_PASSWORD_FILE=" + password, "LANEWAY_ENGINE_CA=" + ca}
	}
	right := access(password, ca.file("ca.crt"))
	for _, args := range [][]string{{"topic", "create", "orders"}, {"topic", "show", "orders"}, {"group", "list"}, {"status"}} {
		if _, stderr, status := run(right, args...); status != 0 {
			t.Errorf("laneway %s: %d %s", strings.Join(args, " "), status, stderr)
		}
	}
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{[]string{"LANEWAY_ENGINE_CA=" + ca.file("ca.crt")}, "LANEWAY_ENGINE_CREDS_FILE"},
		{access(wrong, ca.file("ca.crt")), "does not take these credentials"},
		{access(password, other.file("ca.crt")), "LANEWAY_ENGINE_CA"},
		{nil, "LANEWAY_ENGINE_CA"},
	} {
		if _, stderr, status := run(tt.env, "topic", "show", "orders"); status != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("topic show with %v: %d %s; want %q", tt.env, status, stderr, tt.want)
		}
	}
	shown, _, _ := run(nil, "engine", "show", "main", "-o", "json")
	if !strings.Contains(shown, `"`+url+`"`) || !strings.Contains(shown, `"nats"`) {
		t.Errorf("engine show: %s", shown)
	}
	run(nil, "engine", "list")
	run(nil, "export")
	file := write("engine.yaml", "kind: engines\nname: bad\nscheme: nats\naddress: nats://u:"+secret+"@127.0.0.1:1\n")
	if _, stderr, status := run(nil, "apply", "-f", file); status == 0 || !strings.Contains(stderr, "names a user") {
		t.Errorf("apply of an engine with a password in its address: %d %s", status, stderr)
	}
	for _, text := range append(seen, s.stderr.String(), s.stdout.String()) {
		if strings.Contains(text, secret) {
			t.Errorf("this tells the password: %s", text)
		}
	}
}
