package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What libraries have to say of a peer that misbehaves goes to the log, as its lines do, and
// only where somebody wants to know.
func TestStrayLines(t *testing.T) {
	t.Parallel()
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	go func() { // ends with the listener
		for {
			conn, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "\x00\x00\x08\x06\x00\x00\x00\x00\x00datadata") // a PING, where SETTINGS must come first
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	const stray = "before a SETTINGS frame"
	for _, level := range []string{"debug", "info"} {
		s := startServer(t, "--log-level", level, "--log-format", "json")
		objects := fmt.Sprintf("kind: instances\nname: fixed\nservice: order\nendpoints: [{protocol: grpc, address: %q}]\n", upstream.Addr())
		if _, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, objects, "apply", "-f", "-"); status != 0 {
			t.Fatal(stderr)
		}
		poll(t, 30*time.Second, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addresses["gateway"]+"/s/m", strings.NewReader("x"))
			if err != nil {
				return err
			}
			req.Host = "order.lane.localhost"
			req.Header.Set("Content-Type", "application/grpc")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if message := resp.Header.Get("Grpc-Message"); !strings.Contains(message, "broke off") {
				return fmt.Errorf("the call was answered %q", message)
			}
			if level == "debug" && !strings.Contains(s.stderr.String(), stray) {
				return errors.New("nothing of it is in the log")
			}
			return nil
		})
		for line := range strings.SplitSeq(s.stderr.String(), "\n") {
			if !strings.Contains(line, stray) {
				continue
			}
			var record struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &record); err != nil || level == "info" || strings.Contains(record.Msg, stray) || record.Level != "DEBUG" {
				t.Errorf("level %s: got the line %s", level, line)
			}
		}
	}
}
