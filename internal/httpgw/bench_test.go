package httpgw_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// BenchmarkProxy is a colored request through the inside, over kept connections, with
// a client and an upstream that do as little as they can. bench/httpgw compares with
// other proxies.
func BenchmarkProxy(b *testing.B) {
	const head = " /v1/orders HTTP/1.1\r\nHost: order\r\nV-Traffic-Lane: lane-0\r\nAccept: */*\r\nUser-Agent: bench\r\n"
	for name, request := range map[string]string{
		"get":  "GET" + head + "\r\n",
		"post": "POST" + head + "Content-Length: 100\r\n\r\n" + strings.Repeat("x", 98) + "\r\n",
	} {
		for _, lanes := range []int{1, 1000} {
			b.Run(fmt.Sprint(name, "/lanes=", lanes), func(b *testing.B) { benchProxy(b, lanes, request) })
		}
	}
}

func benchProxy(b *testing.B, lanes int, request string) {
	b.Helper()
	upstream := benchUpstream(b)
	in := lane.Input{Revision: 1}
	for n := range lanes {
		name := lane.Name(fmt.Sprint("lane-", n))
		in.Lanes = append(in.Lanes, lane.Lane{Name: name, Generation: 1, State: lane.Ready})
		in.Instances = append(in.Instances, &lane.Instance{
			Service: "order", Name: string(name), Lane: name, Generation: 1, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: upstream}},
		})
	}
	view := &laneclient.View{Snapshot: lane.NewSnapshot(in), Revision: 1}
	gw, err := httpgw.New(httpgw.Config{Views: func() *laneclient.View { return view }})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gw.Run(ctx, httpgw.Listeners{Inside: l}) }()
	defer func() {
		cancel()
		<-done
	}()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		const answer = 320 // bytes; the head and the body of 200 end within this
		buf := make([]byte, 4096)
		for pb.Next() {
			if _, err := io.WriteString(conn, request); err != nil {
				b.Error(err)
				return
			}
			for n := 0; n < answer-60; {
				m, err := conn.Read(buf)
				if err != nil {
					b.Error(err)
					return
				}
				n += m
			}
		}
	})
}

// benchUpstream answers each request, whose body is one line.
func benchUpstream(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200\r\n\r\n%0200d", 0)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				body := false
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return
					}
					switch {
					case bytes.HasPrefix(line, []byte("Content-Length")):
						body = true
						continue
					case line[0] == 'x': // the body
						body = false
					case len(line) > 2 || body:
						continue
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
