package httpgw

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// errUploadOver is what a read of a request's body gets after the answer is done.
var errUploadOver = errors.New("the request is over")

// upload is the body of a request on its way to an upstream. It keeps the first
// bytes of what may be sent again, and makes sure that nobody reads the body after
// the handler has returned: transports read it from goroutines of their own, which
// may outlive the round trip.
type upload struct {
	r     *http.Request
	rc    *http.ResponseController
	body  io.ReadCloser
	keep  int  // how many bytes to keep for another attempt
	grpc  bool // the transport counts on Close to end a Read
	watch *watch

	untouched atomic.Bool // nothing has been read
	done      atomic.Bool // EOF has been read
	broken    atomic.Bool // another error has been read
	cut       atomic.Bool // the client's connection cannot be read any more

	mu       sync.Mutex // held while reading
	kept     []byte
	overflow bool // more than keep has been read: it cannot be sent again
	stopped  bool
	err      error // of body; final

	from, to http.Header // trailers of the client, and those passed on
}

// newUpload takes the body of r. It returns nil where there is none.
func newUpload(r *http.Request, rc *http.ResponseController, keep int) *upload {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	u := &upload{r: r, rc: rc, body: r.Body, keep: keep}
	u.untouched.Store(true)
	if len(r.Trailer) > 0 {
		u.from, u.to = r.Trailer, http.Header{}
		for key := range r.Trailer {
			if !unfitTrailer(key) {
				u.to[key] = nil
			}
		}
	}
	return u
}

// unfitTrailer reports whether a field must not come behind a body: what routing
// and framing rest on has been decided by then, and a color may not slip in.
func unfitTrailer(key string) bool {
	switch key {
	case headerColor, headerSignature, "Baggage", headerExplain, headerRoute,
		"Transfer-Encoding", "Content-Length", "Host", "Trailer", "Connection", "Te", "Via":
		return true
	}
	return false
}

// replayable reports whether another attempt could send the body from its start.
func (u *upload) replayable() bool {
	if u == nil || u.untouched.Load() {
		return true
	}
	if u.keep == 0 || !u.mu.TryLock() { // a reader is waiting for the client: it will be told to go on
		return u != nil && u.keep > 0
	}
	defer u.mu.Unlock()
	return !u.overflow
}

// attempt is the body as one attempt reads it.
func (u *upload) attempt() io.ReadCloser { return &attemptBody{u: u} }

type attemptBody struct {
	u      *upload
	off    int
	closed atomic.Bool
}

// Read gives what has been kept, then what the client sends.
func (a *attemptBody) Read(p []byte) (int, error) {
	if a.closed.Load() {
		return 0, errUploadOver
	}
	u := a.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if a.off < len(u.kept) {
		n := copy(p, u.kept[a.off:])
		a.off += n
		return n, nil
	}
	switch {
	case u.stopped || a.closed.Load():
		return 0, errUploadOver
	case u.err != nil:
		return 0, u.err
	}
	n, err := u.body.Read(p)
	if n > 0 {
		u.untouched.Store(false)
		u.watch.touch()
		u.save(p[:n])
		a.off += n
	}
	if err != nil {
		u.err = err
		u.broken.Store(!errors.Is(err, io.EOF))
		if errors.Is(err, io.EOF) {
			u.done.Store(true)
			for key := range u.to {
				u.to[key] = u.from[key]
			}
		}
	}
	return n, err
}

// Close ends this attempt's reading and leaves the client's body to the server. The
// transport of HTTP/2 waits for a read that is under way, which is therefore broken
// off; that of HTTP/1.1 does not, and the client may go on for another attempt.
func (a *attemptBody) Close() error {
	a.closed.Store(true)
	if !a.u.grpc {
		return nil
	}
	if !a.u.mu.TryLock() {
		a.u.interrupt()
		return nil
	}
	a.u.mu.Unlock()
	return nil
}

// interrupt makes a read of the client that is under way return.
func (u *upload) interrupt() {
	if u.r.ProtoMajor == 2 {
		_ = u.body.Close() // of its stream alone
		return
	}
	u.cut.Store(true)
	if conn, ok := u.r.Context().Value(connKey{}).(*serverConn); ok {
		conn.cut()
		return
	}
	_ = u.rc.SetReadDeadline(time.Unix(1, 0))
}

func (u *upload) save(p []byte) {
	switch {
	case u.keep == 0 || u.overflow || len(u.kept)+len(p) > u.keep:
		u.overflow, u.kept = true, nil
	default:
		u.kept = append(u.kept, p...)
	}
}

// failed reports whether the client's side broke off or was not well formed.
func (u *upload) failed() bool { return u != nil && u.broken.Load() }

// stop ends all reading and returns when nobody reads any more. safe says that the
// server may go on with the client's connection, or will find that it cannot.
func (u *upload) stop() (safe bool) {
	if u == nil || u.done.Load() {
		return true
	}
	if !u.mu.TryLock() { // a transport still waits for the client
		u.interrupt()
		u.mu.Lock()
	}
	u.stopped = true
	u.mu.Unlock()
	_, ours := u.r.Context().Value(connKey{}).(*serverConn)
	return ours || !u.cut.Load()
}
