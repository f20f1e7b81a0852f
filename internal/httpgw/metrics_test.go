package httpgw_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
)

// A lane's series goes with the lane, so that colors that come and go, or that
// callers make up, do not pile up.
func TestLaneSeriesAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *httpgw.Config) { c.Metrics = registry })
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	for _, color := range []string{"green", "made-up", "made-up-2", "strict-x", ""} {
		w.get(w.inside, "api", "/", "v-traffic-lane: "+color)
	}
	count := func() map[string]float64 { return gather(t, registry, "laneway_gateway_lane_requests_total") }
	eventually(t, "four requests are counted", func() bool { return count()["lane=-"] == 3 && count()["lane=green"] == 1 })
	if n := count(); len(n) != 2 {
		t.Errorf("series: %v", n)
	}
	requests := gather(t, registry, "laneway_gateway_requests_total")
	if requests["class=2xx,listener=inside,reason=unknown-color"] != 2 || requests["class=5xx,listener=inside,reason=strict-none"] != 1 {
		t.Errorf("requests: %v", requests)
	}
	w.lanes[0].State = lane.Ended
	w.publish()
	w.get(w.inside, "api", "/")
	if n := count(); len(n) != 1 {
		t.Errorf("after the lane's end: %v", n)
	}
	if n := gather(t, registry, "laneway_gateway_requests_in_flight"); n["listener=inside"] != 0 {
		eventually(t, "nothing is in flight", func() bool {
			return gather(t, registry, "laneway_gateway_requests_in_flight")["listener=inside"] == 0
		})
	}
}

// The access log tells where a request went, and nothing of what it carried.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := newWorld(t, func(c *httpgw.Config) { c.AccessLog = slog.New(slog.NewJSONHandler(&buf, nil)) })
	w.lane("green")
	w.serve("api", "A2", "green", echo("A2"))
	w.get(w.edge, "green--api.lane.localhost", "/path?token=secret", "authorization: Bearer secret", "cookie: a=secret")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(buf.Bytes(), &line); err != nil {
		t.Fatalf("%q: %v", buf.String(), err)
	}
	for key, want := range map[string]any{
		"service": "api", "lane": "green", "color": "green", "instance": "A2", "rule": "host", "reason": "lane-instance", "status": 200.0, "path": "/path", "listener": "edge",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if strings.Contains(buf.String(), "secret") {
		t.Errorf("tells too much: %s", buf.String())
	}
}

// Beyond loopback the inside asks for client certificates, and without one there is
// no answer.
func TestInsideByMutualTLS(t *testing.T) {
	t.Parallel()
	certificate, pool := selfSigned(t)
	server := &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
	w := newWorld(t, func(c *httpgw.Config) { c.InsideTLS = server })
	w.serve("api", "A1", "", echo("A1"))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	if resp, err := (&http.Client{Transport: tr}).Do(request(t, http.MethodGet, "https://"+w.inside+"/", "api", nil)); err == nil {
		_ = resp.Body.Close()
		t.Error("answered without a client certificate")
	}
	conn := w.dial(w.inside)
	conn.send("GET / HTTP/1.1\r\nHost: api\r\n\r\n")
	if got := conn.line(); strings.Contains(got, "200") {
		t.Errorf("plain text: %s", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := httpgw.New(httpgw.Config{Aliases: []string{"x-env", "cookie", ""}, InsideTLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	for _, want := range []string{"Views", `aliases[1]: "cookie"`, "aliases[2]", "client certificates"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to tell of %s", err, want)
		}
	}
	registry := prometheus.NewRegistry()
	for range 2 {
		_, err = httpgw.New(httpgw.Config{Views: newView, Metrics: registry})
	}
	if !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("metrics twice: %v", err)
	}
	// Without a view there is an answer all the same.
	w := newWorld(t, nil)
	w.view.Store(nil)
	if resp, body := w.get(w.edge, "api.lane.localhost", "/"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no picture of the registry") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}
