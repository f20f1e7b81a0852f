package lanetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// Report is what a [Service] answers: who it is and what came in.
type Report struct {
	Service  string              `json:"service"`
	Instance string              `json:"instance"`
	Lane     string              `json:"lane,omitempty"`  // of the instance
	Color    string              `json:"color,omitempty"` // of the request
	Method   string              `json:"method"`
	Host     string              `json:"host"`
	Path     string              `json:"path"`
	Headers  map[string][]string `json:"headers"`
	Body     string              `json:"body,omitempty"` // its first 64 KiB
}

// Service is an HTTP service on a port of loopback that answers every request with
// a [Report] as JSON.
type Service struct {
	*httptest.Server
	service, instance string
	lane              lane.Name
}

// NewService starts an instance of a service, in a lane or, for the zero Name, in
// the baseline. It ends with the test.
func NewService(t testing.TB, service, instance string, in lane.Name) *Service {
	t.Helper()
	s := &Service{service: service, instance: instance, lane: in}
	s.Server = httptest.NewServer(s.Handler())
	t.Cleanup(s.Close)
	return s
}

// Handler answers as the service does, for tests that serve it themselves.
func (s *Service) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const most = 64 << 10
		body, err := io.ReadAll(io.LimitReader(r.Body, most))
		if err != nil {
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		color, _ := lane.Extract(r.Header)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Report{ // the client may be gone
			Service: s.service, Instance: s.instance, Lane: string(s.lane), Color: string(color),
			Method: r.Method, Host: r.Host, Path: r.URL.Path, Headers: r.Header, Body: string(body),
		})
	})
}

// Address is the service's host:port.
func (s *Service) Address() string { return strings.TrimPrefix(s.URL, "http://") }

// Routing is the instance as routing sees it, for [Directory].
func (s *Service) Routing() *lane.Instance {
	return &lane.Instance{
		Service: s.service, Name: s.instance, Lane: s.lane, State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: s.Address()}},
	}
}

// ReadReport reads a service's answer, closes it, and fails the test if it is none.
func ReadReport(t testing.TB, resp *http.Response) Report {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the report: %v", err)
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("no report: status %d, %.200s", resp.StatusCode, body)
	}
	return r
}

// NewHandler serves h on a port of loopback until the test ends, and returns its
// URL.
func NewHandler(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
