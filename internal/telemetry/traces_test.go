package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// otlp receives spans by both protocols.
type otlp struct {
	collector.UnimplementedTraceServiceServer
	mu       sync.Mutex
	received []string // span names
	senders  []string // resource attributes as k=v
}

func (o *otlp) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range in.GetResourceSpans() {
		for _, kv := range r.GetResource().GetAttributes() {
			o.senders = append(o.senders, kv.GetKey()+"="+kv.GetValue().GetStringValue())
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				o.received = append(o.received, span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &in) != nil {
		http.Error(w, "want spans", http.StatusBadRequest)
		return
	}
	_, _ = o.Export(r.Context(), &in)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestTracesAreSent(t *testing.T) {
	for _, protocol := range []string{"", "http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			o := &otlp{}
			var address string
			if protocol == "grpc" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				server := grpc.NewServer()
				collector.RegisterTraceServiceServer(server, o)
				go func() { _ = server.Serve(l) }()
				defer server.Stop()
				address = l.Addr().String()
			} else {
				server := httptest.NewServer(o)
				defer server.Close()
				address = strings.TrimPrefix(server.URL, "http://")
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "laneway.lane=green,service.instance.id=o1")
			p, err := Traces{Getenv: os.Getenv, Service: "order", Instance: "other", Version: "v1", Log: slog.New(slog.DiscardHandler)}.Open(t.Context())
			if err != nil || p == nil {
				t.Fatalf("got %v, %v; want a provider", p, err)
			}
			_, span := p.Tracer("test").Start(t.Context(), "one")
			span.End()
			if err := CloseTraces(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if len(o.received) != 1 || o.received[0] != "one" {
				t.Errorf("received %v, want the span, sent at the end at the latest", o.received)
			}
			senders := strings.Join(o.senders, " ")
			for _, want := range []string{"service.name=order", "service.version=v1", "service.instance.id=o1", "laneway.lane=green"} {
				if !strings.Contains(senders, want) {
					t.Errorf("the sender is %s, want %s in it", senders, want)
				}
			}
		})
	}
}

func TestTracesAreOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	tests := []struct {
		env  string
		want string // on, off or a part of the error
	}{
		{"", "off"},
		{"OTEL_SERVICE_NAME=x OTEL_RESOURCE_ATTRIBUTES=a=b", "off"},
		{endpoint, "on"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", "on"},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:1/v1/metrics", "off"},
		{"OTEL_TRACES_EXPORTER=otlp", "on"},
		{endpoint + " OTEL_TRACES_EXPORTER=none", "off"},
		{endpoint + " OTEL_SDK_DISABLED=true", "off"},
		{endpoint + " OTEL_TRACES_EXPORTER=zipkin", "want otlp or none"},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon", "want http/protobuf"},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc", "on"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318", "want a URL"},
	}
	for _, tt := range tests {
		getenv := func(key string) string {
			for e := range strings.FieldsSeq(tt.env) {
				if k, v, _ := strings.Cut(e, "="); k == key {
					return v
				}
			}
			return ""
		}
		p, err := Traces{Getenv: getenv, Service: "x", Log: slog.New(slog.DiscardHandler)}.Open(t.Context())
		got := "off"
		switch {
		case err != nil:
			got = err.Error()
		case p != nil:
			got = "on"
			if err := CloseTraces(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%q: got %s, want %s", tt.env, got, tt.want)
		}
	}
}
