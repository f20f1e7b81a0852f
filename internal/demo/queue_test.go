package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestOpenMessagesShowsAccess: a service gets into an engine that asks who connects by its
// environment, as every program does.
func TestOpenMessagesShowsAccess(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LANEWAY_ENGINE_USERNAME", "demo")
	t.Setenv("LANEWAY_ENGINE_PASSWORD_FILE", password)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	shown := make(chan string, 1)
	go func() { shown <- askOnce(listener) }()

	control := lanetest.NewControl(t)
	client := control.Config()
	client.Service, client.NoListen = "e", true
	lc, err := laneclient.Dial(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer lc.Close()
	e := laneclient.Engine{Meta: laneclient.Meta{Name: "main"}, Scheme: "nats", Address: "nats://" + listener.Addr().String(), Default: true}
	if _, err := laneclient.Put(t.Context(), lc, &e); err != nil {
		t.Fatal(err)
	}
	if m, err := openMessages(t.Context(), lc); err == nil {
		_ = m.Source.Close()
		t.Error("an engine opens that refuses everybody")
	}
	if got := <-shown; got != "demo secret" {
		t.Errorf("the engine was shown %q, want the user and the password of the environment", got)
	}
}

// askOnce is a NATS server that asks who connects and takes nobody. It returns the user and
// the password that it was shown.
func askOnce(l net.Listener) string {
	conn, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, `INFO {"server_id":"x","version":"2.15.0","auth_required":true,"max_payload":1024}`+"\r\n"); err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	var connect struct{ User, Pass string }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "CONNECT ")), &connect); err != nil {
		return err.Error()
	}
	_, _ = fmt.Fprint(conn, "-ERR 'Authorization Violation'\r\n")
	return connect.User + " " + connect.Pass
}
