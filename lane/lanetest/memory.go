package lanetest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// errRefused is what dialing a stopped replica gives.
func errRefused() error {
	return &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
}

var errBodyClosed = errors.New("the reader has closed the answer")

// memoryTransport serves requests in this process, by host. Answers stream.
type memoryTransport struct {
	hosts map[string]http.Handler
	up    func(host string) bool
}

// RoundTrip runs the host's handler in a goroutine of its own and returns at its
// first write or flush.
func (t *memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	h := t.hosts[req.URL.Host]
	if h == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: &net.DNSError{Err: "no such host", Name: req.URL.Host, IsNotFound: true}}
	}
	if !t.up(req.URL.Host) {
		return nil, errRefused()
	}
	ctx, cancel := context.WithCancel(req.Context())
	pr, pw := io.Pipe()
	w := &memoryWriter{header: http.Header{}, pipe: pw, started: make(chan struct{})}
	served := req.Clone(ctx)
	served.RemoteAddr, served.RequestURI, served.Host = "memory", req.URL.RequestURI(), req.URL.Host
	if served.Body == nil {
		served.Body = http.NoBody
	}
	go func() {
		defer cancel()
		w.finish(serve(h, w, served))
	}()
	// Neither a reader nor a handler outlives the request.
	context.AfterFunc(ctx, func() {
		if err := req.Context().Err(); err != nil {
			_ = pr.CloseWithError(err)
			_ = pw.CloseWithError(err)
		}
	})
	select {
	case <-w.started:
	case <-req.Context().Done():
		cancel()
		return nil, req.Context().Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &memoryBody{pr, cancel}, ContentLength: -1, Request: req,
	}, nil
}

// serve turns the panic by which a handler aborts into a broken connection.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint // a recovered value is compared, as net/http does
				panic(v)
			}
			err = io.ErrUnexpectedEOF
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

type memoryWriter struct {
	header  http.Header
	pipe    *io.PipeWriter
	once    sync.Once
	started chan struct{} // closed once the three below are set
	status  int
	sent    http.Header
	err     error
}

func (w *memoryWriter) start(status int, err error) {
	w.once.Do(func() {
		w.status, w.sent, w.err = status, w.header.Clone(), err
		close(w.started)
	})
}

func (w *memoryWriter) Header() http.Header    { return w.header }
func (w *memoryWriter) WriteHeader(status int) { w.start(status, nil) }
func (w *memoryWriter) Flush()                 { w.start(http.StatusOK, nil) }

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.start(http.StatusOK, nil)
	return w.pipe.Write(p)
}

func (w *memoryWriter) finish(err error) {
	w.start(http.StatusOK, err)
	_ = w.pipe.CloseWithError(err) // nil reads as io.EOF
}

type memoryBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *memoryBody) Close() error {
	_ = b.CloseWithError(errBodyClosed)
	b.cancel()
	return nil
}
