package deploy

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestParseListen(t *testing.T) {
	tests := []struct {
		in   string
		want Listen
	}{
		{"8000", Listen{"http", "", 8000}},
		{"0", Listen{"http", "", 0}},
		{"http=0", Listen{"http", "", 0}},
		{"grpc=9000", Listen{"grpc", "", 9000}},
		{"tcp=65535", Listen{"tcp", "", 65535}},
		{"thrift=1", Listen{"thrift", "header", 1}},
		{"thrift-header=1", Listen{"thrift", "header", 1}},
		{"thrift-framed=1", Listen{"thrift", "framed", 1}},
		{"thrift-buffered=1", Listen{"thrift", "buffered", 1}},
	}
	for _, tt := range tests {
		if got, err := ParseListen(tt.in); err != nil || got != tt.want {
			t.Errorf("ParseListen(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "http", "http=", "=1", "udp=1", "65536", "-1", "grpc=x", "127.0.0.1:80"} {
		if got, err := ParseListen(bad); err == nil {
			t.Errorf("ParseListen(%q) = %v, want an error", bad, got)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=x, service.name=old,laneway.lane=other")
	t.Setenv("JAVA_TOOL_OPTIONS", "-Xmx1g")
	t.Setenv("LANEWAY_LANE", "other")
	p := Process{
		Service: "order", Lane: "green", Instance: "order-1", Room: "r1", Control: []string{"http://a", "http://b"},
		TokenFile: "/t", Listen: []Listen{{Port: 8000}, {Port: 8001}}, Proxy: "127.0.0.1:7781",
		Env: []string{"MINE=1", "PORT=7"},
	}
	env := p.environ()
	for _, want := range []string{
		"LANEWAY_CONTROL=http://a,http://b", "LANEWAY_SERVICE=order", "LANEWAY_LANE=green", "LANEWAY_ROOM=r1",
		"LANEWAY_INSTANCE=order-1", "LANEWAY_TOKEN_FILE=/t", "PORT=8000", "MINE=1",
		"OTEL_RESOURCE_ATTRIBUTES=team=x,service.name=order,service.instance.id=order-1,laneway.lane=green",
		"HTTP_PROXY=http://127.0.0.1:7781", "http_proxy=http://127.0.0.1:7781",
		"JAVA_TOOL_OPTIONS=-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=7781",
	} {
		key, _, _ := strings.Cut(want, "=")
		var got []string
		for _, e := range env {
			if strings.HasPrefix(e, key+"=") {
				got = append(got, e)
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q once", got, want)
		}
	}

	plain := Process{Service: "order", Instance: "order-1"}
	env = plain.environ()
	if got := lookup(env, "LANEWAY_LANE"); got != "" {
		t.Errorf("in the baseline LANEWAY_LANE is %q, want it empty: it must not be inherited", got)
	}
	if got, want := lookup(env, "OTEL_RESOURCE_ATTRIBUTES"), "team=x,service.name=order,service.instance.id=order-1"; got != want {
		t.Errorf("OTEL_RESOURCE_ATTRIBUTES = %q, want %q", got, want)
	}
}

func TestCompleteRefusesNames(t *testing.T) {
	tests := []Process{
		{Service: "Order", Cmd: []string{"x"}},
		{Service: "order", Lane: "ab", Cmd: []string{"x"}},
		{Service: "order", Instance: "a b", Cmd: []string{"x"}},
	}
	for _, p := range tests {
		var name *lane.NameError
		if err := p.complete(); !errors.As(err, &name) {
			t.Errorf("%+v: got %v, want a NameError", p, err)
		}
	}
	p := Process{Service: "order", Cmd: []string{"x"}}
	if err := p.complete(); err != nil {
		t.Fatal(err)
	}
	if lane.CheckInstance(p.Instance) != nil || !strings.HasPrefix(p.Instance, "order-") || len(p.Instance) != len("order-")+4 {
		t.Errorf("chosen name %q, want order- and four hex digits", p.Instance)
	}
	if len(p.Listen) != 1 {
		t.Errorf("got %v, want one HTTP port to be chosen", p.Listen)
	}
}

func TestChoosePorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	s := &supervisor{cfg: Process{Listen: []Listen{{Port: port}}}}
	if err := s.choosePorts(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want that the port is in use", err)
	}
	s = &supervisor{cfg: Process{Listen: make([]Listen, 20)}}
	if err := s.choosePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range s.ports() {
		if p < firstPort || p >= firstPort+portCount || seen[p] {
			t.Errorf("port %d, want one of the range, each once", p)
		}
		seen[p] = true
	}
	s = &supervisor{cfg: Process{Listen: []Listen{{Port: 1234}, {Port: 1234}}}}
	if err := s.choosePorts(t.Context()); err == nil {
		t.Error("a port that is given twice was taken")
	}
}

func TestProbeFindsTheLoopback(t *testing.T) {
	for _, host := range loopbacks {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Logf("no %s here: %v", host, err)
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if got, ok := probe(t.Context(), port); !ok || got != l.Addr().String() {
			t.Errorf("probe = %q, %v; want %s", got, ok, l.Addr())
		}
		if free(t.Context(), port) {
			t.Errorf("free(%d) while %s listens", port, l.Addr())
		}
		_ = l.Close()
		if got, ok := probe(t.Context(), port); ok {
			t.Errorf("probe = %q after it was closed", got)
		}
	}
}
