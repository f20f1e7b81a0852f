package laneclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// memoryAddr stands for an address in requests that came through [InMemory].
const memoryAddr = "in-memory"

// errBodyClosed is what a handler's write gets once the client is no longer
// interested.
var errBodyClosed = errors.New("client closed the response body")

// InMemory returns a RoundTripper that serves every request by h in this process,
// without a socket; it is a [Config.Transport] for a control plane in the same one.
// Requests have the RemoteAddr "in-memory" and the Host of their URL. Answers stream: RoundTrip returns at the first flush, or the
// first write, or when h returns, and the body yields what h writes from then on,
// with h held back while nobody reads. The request's context is that of the
// handler's: when it ends, or the body is closed, the handler's context does, and
// its writes fail.
//
// One goroutine runs per request, until h returns; a body that is neither read to
// its end nor closed keeps it, as with a real connection. Write deadlines are not
// supported. A panic of h is an error of RoundTrip, or of the body:
// [http.ErrAbortHandler] as it is, and others with what was panicked with. It may be
// used from several goroutines at once.
func InMemory(h http.Handler) http.RoundTripper { return &memoryTransport{handler: h} }

type memoryTransport struct{ handler http.Handler }

func (t *memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	served := serverRequest(ctx, req)
	pr, pw := io.Pipe()
	w := &memoryWriter{header: http.Header{}, pipe: pw, started: make(chan struct{})}
	go func() {
		defer cancel()
		err := serveRecovered(t.handler, w, served)
		if req.Body != nil {
			_ = req.Body.Close()
		}
		if err == nil {
			err = req.Context().Err() // an answer that was cut short does not end well
		}
		w.finish(err)
	}()
	// The pipe is cut when the context ends, so that neither a reader nor a handler
	// that waits for one outlives it.
	stop := context.AfterFunc(ctx, func() {
		if err := req.Context().Err(); err != nil {
			_ = pw.CloseWithError(err)
		}
	})
	select {
	case <-w.started:
	case <-req.Context().Done():
		cancel()
		return nil, req.Context().Err()
	}
	status, header, err := w.result()
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp := &http.Response{
		Status:        http.StatusText(status),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          &memoryBody{pr: pr, cancel: cancel},
		ContentLength: -1,
		Request:       req,
	}
	if req.Method == http.MethodHead {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, nil
}

// serverRequest is req as a server would have read it.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
	served := req.Clone(ctx)
	served.RequestURI = req.URL.RequestURI()
	served.RemoteAddr = memoryAddr
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/1.1", 1, 1
	if served.Host == "" {
		served.Host = req.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	if served.Header == nil {
		served.Header = http.Header{}
	}
	return served
}

// serveRecovered makes an error of a panic.
func serveRecovered(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			err = fmt.Errorf("handler panicked: %v", v)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// memoryWriter is the handler's side of a round trip.
type memoryWriter struct {
	header  http.Header
	pipe    *io.PipeWriter
	started chan struct{} // closed when the answer's head is known

	mu     sync.Mutex
	status int
	sent   http.Header
	err    error // of a handler that ended before it wrote
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		return // interim answers have no receiver here
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(status, nil)
}

// start publishes the head once; w.mu is held.
func (w *memoryWriter) start(status int, err error) {
	if w.status != 0 || w.err != nil {
		return
	}
	w.status, w.sent, w.err = status, w.header.Clone(), err
	close(w.started)
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

// Flush sends the head; what was written is on its way already.
func (w *memoryWriter) Flush() { w.WriteHeader(http.StatusOK) }

func (w *memoryWriter) finish(err error) {
	w.mu.Lock()
	if err == nil {
		w.start(http.StatusOK, nil)
	} else {
		w.start(0, err)
	}
	w.mu.Unlock()
	_ = w.pipe.CloseWithError(err) // nil reads as io.EOF
}

func (w *memoryWriter) result() (int, http.Header, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status, w.sent, w.err
}

// memoryBody ends the handler when the client is through with the answer.
type memoryBody struct {
	pr     *io.PipeReader
	cancel context.CancelFunc
}

func (b *memoryBody) Read(p []byte) (int, error) { return b.pr.Read(p) }

func (b *memoryBody) Close() error {
	_ = b.pr.CloseWithError(errBodyClosed)
	b.cancel()
	return nil
}
