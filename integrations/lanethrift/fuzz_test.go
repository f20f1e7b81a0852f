package lanethrift

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift/internal/echo"
	"github.com/laneway-dev/laneway/lane"
)

// script is a connection whose peer has sent all it will, and reads everything.
type script struct {
	net.Conn // nil: only what is below is used
	in       *bytes.Reader
}

func (s script) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s script) Write(b []byte) (int, error)      { return len(b), nil }
func (s script) Close() error                     { return nil }
func (s script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s script) SetDeadline(time.Time) error      { return nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }

// allocated runs f, which is not to take long, and returns how many bytes it allocated.
// Others may allocate too, so it is an upper bound.
func allocated(t *testing.T, f func()) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mostAllocated is what reading some bytes may allocate: a multiple of them, and room for
// the elements that they may say are to come.
func mostAllocated(sent int) uint64 { return uint64(sent)*20_000 + 64*MaxAheadElements }

// quietHandler answers without waiting for anything.
type quietHandler struct{}

func (quietHandler) Say(ctx context.Context, text string) (*echo.Seen, error) {
	return &echo.Seen{Color: string(lane.From(ctx)), Text: text}, nil
}
func (quietHandler) Tell(context.Context, string) error { return nil }
func (quietHandler) Climb(_ context.Context, tree *echo.Tree) (*echo.Tree, error) {
	return tree, nil
}

// FuzzServer has a server read whatever a peer may send: it returns, without a panic, and
// does not allocate out of proportion.
func FuzzServer(f *testing.F) {
	for _, transport := range []string{TransportHeader, TransportFramed, TransportBuffered, "compact", "framed compact"} {
		sent := message(f, transport, "hi", lane.Header, "green", lane.ExplainHeader, "1")
		f.Add(sent)
		f.Add(append(bytes.Clone(sent), sent...))
		f.Add(sent[:len(sent)/2])
	}
	f.Add(lyingList())
	f.Add(compressed(f, 1))
	f.Add(compressed(f, 3))
	server := NewServer(nil, echo.NewEchoProcessor(quietHandler{}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		got := allocated(t, func() {
			_ = server.calls(server.conn(script{in: bytes.NewReader(sent)})) // whatever it says of the bytes
		})
		if got > mostAllocated(len(sent)) {
			t.Errorf("%d bytes cost %d", len(sent), got)
		}
	})
}

// compressed is a call in a frame that is compressed several times over.
func compressed(t testing.TB, layers int) []byte {
	t.Helper()
	data := message(t, TransportBuffered, "hi")
	for range layers {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		data = b.Bytes()
	}
	header := binary.AppendUvarint([]byte{0}, uint64(layers)) // binary protocol
	header = append(header, bytes.Repeat([]byte{byte(thrift.TransformZlib)}, layers)...)
	header = append(header, make([]byte, (4-len(header)%4)%4)...)
	frame := []byte{0x0f, 0xff, 0, 0, 0, 0, 0, 7}
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(header)/4))
	frame = append(append(frame, header...), data...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

// FuzzClient has a client read whatever an instance may answer.
func FuzzClient(f *testing.F) {
	transports := []string{TransportHeader, TransportFramed, TransportBuffered}
	for i, transport := range transports {
		f.Add(byte(i), answer(f, transport))
	}
	f.Fuzz(func(t *testing.T, which byte, sent []byte) {
		transport := transports[int(which)%len(transports)]
		got := allocated(t, func() {
			c, err := newConn(script{in: bytes.NewReader(sent)}, transport, configuration())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r := c.call(t.Context(), "climb", &echo.EchoClimbArgs{Tree: &echo.Tree{}}, &echo.EchoClimbResult{})
				if r.err == nil && len(sent) == 0 {
					t.Error("an answer of nothing")
				}
			}
		})
		if got > mostAllocated(len(sent)) {
			t.Errorf("%d bytes cost %d", len(sent), got)
		}
	})
}

// answer is what a server answers to the first call of climb.
func answer(t testing.TB, transport string) []byte {
	t.Helper()
	buffer := thrift.NewTMemoryBuffer()
	var p thrift.TProtocol
	cfg := configuration()
	switch transport {
	case TransportHeader:
		p = thrift.NewTHeaderProtocolConf(buffer, cfg)
	case TransportFramed:
		p = thrift.NewTBinaryProtocolConf(thrift.NewTFramedTransportConf(buffer, cfg), cfg)
	default:
		p = thrift.NewTBinaryProtocolConf(buffer, cfg)
	}
	ctx := context.Background()
	result := &echo.EchoClimbResult{Success: &echo.Tree{Child: &echo.Tree{}, Leaves: []string{"a", "b"}}}
	for _, err := range []error{
		p.WriteMessageBegin(ctx, "climb", thrift.REPLY, 1), result.Write(ctx, p), p.WriteMessageEnd(ctx), p.Flush(ctx),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return buffer.Bytes()
}

// FuzzLines reads what an instance says of a route.
func FuzzLines(f *testing.F) {
	f.Add("")
	f.Add("service=a lane=- instance=a-1 rule=- reason=plain\nnonsense\n\n")
	f.Fuzz(func(t *testing.T, value string) {
		lines := splitLines(joinLines(lane.AppendHops(nil, lane.Hop{Service: "own"}, splitLines(value))))
		if len(lines) == 0 || len(lines) > lane.MaxTrailHops {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			if _, err := lane.ParseHop(line); err != nil {
				t.Errorf("line %q: %v", line, err)
			}
		}
	})
}
