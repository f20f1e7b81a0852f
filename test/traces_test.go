package test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans receives OTLP over HTTP.
type spans struct {
	url string
	mu  sync.Mutex
	all []span
}

// span is what a test looks at.
type span struct {
	service, instance string // that sent it
	trace, id, parent string
	kind              trace.Span_SpanKind
	attributes        map[string]string
}

func receiveSpans(t *testing.T) *spans {
	t.Helper()
	s := &spans{}
	server := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *spans) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &in) != nil {
		http.Error(w, "want spans", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range in.GetResourceSpans() {
		sender := map[string]string{}
		for _, kv := range from.GetResource().GetAttributes() {
			sender[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		for _, scope := range from.GetScopeSpans() {
			for _, in := range scope.GetSpans() {
				one := span{
					service: sender["service.name"], instance: sender["service.instance.id"], kind: in.GetKind(),
					trace: hex.EncodeToString(in.GetTraceId()), id: hex.EncodeToString(in.GetSpanId()), parent: hex.EncodeToString(in.GetParentSpanId()),
					attributes: map[string]string{},
				}
				for _, kv := range in.GetAttributes() {
					one.attributes[kv.GetKey()] = kv.GetValue().GetStringValue()
				}
				s.all = append(s.all, one)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// TestDemoTraces has the demo send its spans: each request is one trace through all
// services and protocols, whose spans say color, lane and reason.
func TestDemoTraces(t *testing.T) {
	t.Parallel()
	s := receiveSpans(t)
	stdout, stderr, exit := cli(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.url, "TMPDIR=" + t.TempDir()}, "", "demo", "-o", "json")
	if exit != 0 {
		t.Fatalf("exit status %d\n%s%s", exit, stdout, stderr)
	}
	var report demoReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Routes) != 2 || len(report.Routes[0].Hops) != 5 {
		t.Fatalf("the demo says %s, want two routes of five hops", stdout)
	}
	s.mu.Lock() // all have been sent: the processes have ended
	defer s.mu.Unlock()
	traces := map[string][]span{}
	for _, one := range s.all {
		traces[one.trace] = append(traces[one.trace], one)
	}
	for _, route := range report.Routes {
		faults := []string{fmt.Sprintf("no trace of %d", len(traces))}
		for _, trace := range traces {
			got := faultsOf(trace, route.Color, route.Hops)
			if len(got) == 0 {
				faults = nil
				break
			}
			if len(trace) == 2*len(route.Hops) && len(got) < len(faults) || len(faults) == 1 {
				faults = got
			}
		}
		if faults != nil {
			t.Errorf("color %q: %s", route.Color, strings.Join(faults, "\n"))
		}
	}
	if t.Failed() {
		for _, one := range s.all {
			t.Logf("%+v", one)
		}
	}
}

// faultsOf compares the spans of one trace with what the services report: every hop
// is a span of the caller, that of the choice, over one of the instance.
func faultsOf(trace []span, color string, hops []demoHop) []string {
	var faults []string
	byID := map[string]span{}
	for _, one := range trace {
		byID[one.id] = one
	}
	for _, hop := range hops {
		at := slices.IndexFunc(trace, func(one span) bool {
			return one.instance == hop.Instance && (one.kind == serverKind || one.kind == consumerKind)
		})
		if at < 0 {
			faults = append(faults, "no span of "+hop.Instance)
			continue
		}
		served := trace[at]
		chosen, found := byID[served.parent]
		lane := ""
		if hop.Reason == "lane-instance" {
			lane = "green"
		}
		switch {
		case served.service != hop.Service || served.attributes["laneway.color"] != color || served.attributes["laneway.lane"] != lane:
			faults = append(faults, fmt.Sprintf("%s served with %+v, want color %q and lane %q", hop.Instance, served, color, lane))
		case !found:
			faults = append(faults, hop.Instance+" was called by a span that is not there")
		case chosen.attributes["laneway.reason"] != hop.Reason || chosen.attributes["laneway.color"] != color || chosen.attributes["laneway.lane"] != lane:
			faults = append(faults, fmt.Sprintf("%s was called with %+v, want reason %s, color %q and lane %q", hop.Instance, chosen, hop.Reason, color, lane))
		}
	}
	return faults
}

const (
	serverKind   = trace.Span_SPAN_KIND_SERVER
	consumerKind = trace.Span_SPAN_KIND_CONSUMER
)

// TestTracesDoNotHinder: a receiver that is not there, and variables that nobody can
// use, are told of; everything else goes on, and ends in time.
func TestTracesDoNotHinder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, env string
		traced    bool
		says      string
	}{
		{"off", "OTEL_SERVICE_NAME=x", false, ""},
		{"nobody listens", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", true, "spans are lost"},
		{"no such", "OTEL_TRACES_EXPORTER=zipkin", false, "requests are not traced"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ready := t.TempDir() + "/ready.json"
			p := startProcess(t, []string{tt.env}, "server", "--registry", "mem", "--ready-file", ready, "--data", t.TempDir(),
				"--listen", "control=127.0.0.1:0", "--listen", "gateway=127.0.0.1:0", "--listen", "inside=127.0.0.1:0")
			s := &server{process: p}
			poll(t, 30*time.Second, func() error {
				text, err := os.ReadFile(ready)
				if err != nil {
					return err
				}
				return json.Unmarshal(text, &s.addresses)
			})
			s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
			s.registered(t, "order", "o1")
			poll(t, 10*time.Second, func() error {
				r, err := s.ask(t, "order.lane.localhost")
				if err == nil && (r.Trace != "") != tt.traced {
					t.Errorf("the request is of trace %q, want one: %v", r.Trace, tt.traced)
				}
				return err
			})
			p.Signal(syscall.SIGTERM)
			if status := p.wait(t, 20*time.Second); status != 0 {
				t.Errorf("exit status %d, want 0", status)
			}
			text := p.stderr.String()
			if !strings.Contains(text, tt.says) || tt.says == "" && (strings.Contains(text, "spans") || strings.Contains(text, "traced")) {
				t.Errorf("want %q in the log: %s", tt.says, text)
			}
		})
	}
}
