package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift"
	"github.com/laneway-dev/laneway/lane"
)

var thriftTransports = []string{lanethrift.TransportHeader, lanethrift.TransportFramed, lanethrift.TransportBuffered}

// python is the interpreter of the tests' environment.
func python(t *testing.T) string {
	t.Helper()
	path := filepath.Join(strings.TrimSpace(runIn(t, "..", nil, "tools/venv.sh")), "bin", "python")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make setup", err)
	}
	return path
}

func thriftPeer(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(python(t), append([]string{"py/thrift_peer.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	return cmd
}

// seen is a visit of the demo's service Chain, as far as it matters here.
type seen struct {
	Instance string `json:"instance"`
	Color    string `json:"color"`
	baggage  string // of a Python server: its field reason
}

// TestPythonCallsGo has Python's Thrift clients of every transport on one port.
func TestPythonCallsGo(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := lanethrift.NewServer(listener, newChain())
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, lanethrift.ErrServerClosed) {
			t.Error(err)
		}
	})
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	for _, transport := range thriftTransports {
		out, err := thriftPeer(t, "client", transport, port, "green").Output()
		if err != nil {
			t.Errorf("%s: %v", transport, err)
			continue
		}
		var got []seen
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %q: %v", transport, out, err)
		}
		want := seen{Instance: "go", Color: "green"}
		if transport != lanethrift.TransportHeader {
			want.Color = "" // no headers: plain
		}
		if len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("%s: got %+v, want %+v twice", transport, got, want)
		}
	}
}

// TestGoCallsPython has Python's Thrift servers of every transport as instances.
func TestGoCallsPython(t *testing.T) {
	t.Parallel()
	in := lane.Input{Lanes: []lane.Lane{{Name: "green", Generation: 1, State: lane.Ready}}}
	for _, transport := range thriftTransports {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: transport, Name: "python-" + transport, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Transport: transport, Address: startThriftPeer(t, transport)}},
		})
	}
	for _, transport := range thriftTransports {
		client := lanethrift.NewClient(stillDirectory{lane.NewSnapshot(in)}, transport)
		for _, color := range []lane.Name{"green", "", "green"} {
			want := seen{Instance: "python-" + transport}
			if transport == lanethrift.TransportHeader && color != "" {
				want.Color, want.baggage = "green", "v-traffic-lane=green"
			}
			var got callResult
			if _, err := client.Call(lane.With(t.Context(), color), "call", callArgs{}, &got); err != nil {
				t.Errorf("%s: %v", transport, err)
			} else if got.visit != want {
				t.Errorf("%s, color %q: got %+v, want %+v", transport, color, got.visit, want)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

// startThriftPeer runs a server in Python until the test ends, and returns its address.
func startThriftPeer(t *testing.T, transport string) string {
	t.Helper()
	cmd := thriftPeer(t, "server", transport)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // asks it to end
		if err := cmd.Wait(); err != nil {
			t.Errorf("server in Python: %v", err)
		}
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
}

// stillDirectory is a lane.Directory in which nothing changes.
type stillDirectory struct{ snapshot *lane.Snapshot }

func (d stillDirectory) Snapshot() *lane.Snapshot         { return d.snapshot }
func (stillDirectory) Need(context.Context, string) error { return nil }
func (stillDirectory) Subscribe(func()) func()            { return func() {} }
func (stillDirectory) Process() lane.Name                 { return lane.Baseline }
func (stillDirectory) Used(lane.Name)                     {}

// chain serves the demo's service Chain. Its code is written by hand, since what is
// generated for the demo is not for others.
type chain map[string]thrift.TProcessorFunction

func newChain() chain {
	return chain{"call": thrift.WrappedTProcessorFunction{Wrapped: serveCall}}
}

// Process implements thrift.TProcessor.
func (c chain) Process(ctx context.Context, in, out thrift.TProtocol) (bool, thrift.TException) {
	name, _, seqID, err := in.ReadMessageBegin(ctx)
	if err != nil {
		return false, thrift.WrapTException(err)
	}
	function, ok := c[name]
	if !ok {
		return false, thrift.NewTApplicationException(thrift.UNKNOWN_METHOD, name)
	}
	return function.Process(ctx, seqID, in, out)
}

// ProcessorMap implements thrift.TProcessor.
func (c chain) ProcessorMap() map[string]thrift.TProcessorFunction { return c }

// AddToProcessorMap implements thrift.TProcessor: middleware puts itself before a function.
func (c chain) AddToProcessorMap(name string, f thrift.TProcessorFunction) { c[name] = f }

func serveCall(ctx context.Context, seqID int32, in, out thrift.TProtocol) (bool, thrift.TException) {
	if err := errors.Join(in.Skip(ctx, thrift.STRUCT), in.ReadMessageEnd(ctx)); err != nil {
		return false, thrift.WrapTException(err)
	}
	err := errors.Join(
		out.WriteMessageBegin(ctx, "call", thrift.REPLY, seqID),
		(&callResult{seen{Instance: "go", Color: string(lane.From(ctx))}}).Write(ctx, out),
		out.WriteMessageEnd(ctx), out.Flush(ctx),
	)
	return err == nil, thrift.WrapTException(err)
}

// callArgs is what call is given: nothing.
type callArgs struct{}

// Read implements thrift.TStruct.
func (callArgs) Read(ctx context.Context, p thrift.TProtocol) error {
	return p.Skip(ctx, thrift.STRUCT)
}

// Write implements thrift.TStruct.
func (callArgs) Write(ctx context.Context, p thrift.TProtocol) error {
	return errors.Join(p.WriteStructBegin(ctx, "call_args"), p.WriteFieldStop(ctx), p.WriteStructEnd(ctx))
}

// callResult is what call returns: a CallReply with one Visit.
type callResult struct{ visit seen }

// Write implements thrift.TStruct.
func (r *callResult) Write(ctx context.Context, p thrift.TProtocol) error {
	return errors.Join(
		p.WriteStructBegin(ctx, "call_result"),
		p.WriteFieldBegin(ctx, "success", thrift.STRUCT, 0),
		p.WriteStructBegin(ctx, "CallReply"),
		p.WriteFieldBegin(ctx, "visits", thrift.LIST, 1), p.WriteListBegin(ctx, thrift.STRUCT, 1),
		p.WriteStructBegin(ctx, "Visit"),
		p.WriteFieldBegin(ctx, "instance", thrift.STRING, 2), p.WriteString(ctx, r.visit.Instance), p.WriteFieldEnd(ctx),
		p.WriteFieldBegin(ctx, "color", thrift.STRING, 5), p.WriteString(ctx, r.visit.Color), p.WriteFieldEnd(ctx),
		p.WriteFieldStop(ctx), p.WriteStructEnd(ctx),
		p.WriteListEnd(ctx), p.WriteFieldEnd(ctx),
		p.WriteFieldStop(ctx), p.WriteStructEnd(ctx),
		p.WriteFieldEnd(ctx), p.WriteFieldStop(ctx), p.WriteStructEnd(ctx),
	)
}

// Read implements thrift.TStruct.
func (r *callResult) Read(ctx context.Context, p thrift.TProtocol) error {
	return readFields(ctx, p, func(id int16, of thrift.TType) error { // call_result
		if id != 0 || of != thrift.STRUCT {
			return p.Skip(ctx, of)
		}
		return readFields(ctx, p, func(id int16, of thrift.TType) error { // CallReply
			if id != 1 || of != thrift.LIST {
				return p.Skip(ctx, of)
			}
			_, n, err := p.ReadListBegin(ctx)
			for range n {
				err = errors.Join(err, readFields(ctx, p, r.readVisit(ctx, p)))
			}
			return errors.Join(err, p.ReadListEnd(ctx))
		})
	})
}

func (r *callResult) readVisit(ctx context.Context, p thrift.TProtocol) func(int16, thrift.TType) error {
	return func(id int16, of thrift.TType) error {
		into := map[int16]*string{2: &r.visit.Instance, 5: &r.visit.Color, 6: &r.visit.baggage}[id]
		if into == nil || of != thrift.STRING {
			return p.Skip(ctx, of)
		}
		value, err := p.ReadString(ctx)
		*into = value
		return err
	}
}

func readFields(ctx context.Context, p thrift.TProtocol, read func(id int16, of thrift.TType) error) error {
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, of, id, err := p.ReadFieldBegin(ctx)
		if err != nil || of == thrift.STOP {
			return errors.Join(err, p.ReadStructEnd(ctx))
		}
		if err := errors.Join(read(id, of), p.ReadFieldEnd(ctx)); err != nil {
			return err
		}
	}
}
