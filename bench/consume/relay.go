package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// relay stands between consumers and the server and counts what they read: all bytes of the
// protocol, not only those of messages.
type relay struct {
	listener net.Listener
	to       string
	read     atomic.Int64
	wg       sync.WaitGroup
}

func newRelay(ctx context.Context, url string) (*relay, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: strings.TrimPrefix(url, "nats://")}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.pass(ctx, c) })
		}
	})
	return r, nil
}

func (r *relay) url() string { return "nats://" + r.listener.Addr().String() }

// close waits until those who read have closed their connections.
func (r *relay) close() {
	_ = r.listener.Close()
	r.wg.Wait()
}

// pass copies both ways until one side closes.
func (r *relay) pass(ctx context.Context, c net.Conn) {
	defer c.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", r.to)
	if err != nil {
		return // who connects sees it closed
	}
	r.wg.Go(func() {
		_, _ = io.Copy(server, c) // ends with either connection
		_ = server.Close()
	})
	_, _ = io.Copy(counted{c, &r.read}, server)
}

// counted counts what is written.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}
