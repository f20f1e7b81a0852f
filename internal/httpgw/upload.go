package httpgw

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// errUploadOver is what a read of a request's body gets after the answer is done.
var errUploadOver = errors.New("the request is over")

// upload is the body of a request on its way to an upstream. It keeps the first
// bytes of what may be sent again, and makes sure that nobody reads the body after
// the handler has returned: it is read from goroutines that may outlive the round trip.
//
// A body that is not read to its end costs an HTTP/1.1 connection (see
// [call.unfinished]): what comes next on it would be the rest of the body.
type upload struct {
	r     *http.Request
	rc    *http.ResponseController
	keep  int  // how many bytes to keep for another attempt; set before the first
	grpc  bool // the transport counts on Close to end a Read; set before the first attempt
	watch *watch

	untouched atomic.Bool // nothing has been read
	done      atomic.Bool // EOF has been read
	broken    atomic.Bool // the client's side broke off, or was not well formed
	garbled   atomic.Bool // it was not well formed; set before broken
	ours      atomic.Bool // we have broken reading off

	mu       sync.Mutex // held while reading
	read     int        // bytes of the body so far
	kept     []byte
	overflow bool // more than keep has been read: it cannot be sent again
	stopped  bool
	err      error // of the client's body; final

	breaking sync.Mutex // guards over, and interrupt as a whole
	over     bool

	from, to http.Header // trailers of the client, and those passed on
	names    []string    // keys of to, which is written while the body is read
}

// newUpload takes the body of r. It returns nil where there is none; all methods
// take that.
func newUpload(r *http.Request, rc *http.ResponseController, aliases []string) *upload {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	u := &upload{r: r, rc: rc}
	u.untouched.Store(true)
	if len(r.Trailer) > 0 {
		u.from, u.to = r.Trailer, http.Header{}
		for key := range r.Trailer {
			if fitTrailer(key, r.Header["Connection"], aliases) {
				u.to[key] = nil
				u.names = append(u.names, key)
			}
		}
	}
	return u
}

// replayable reports whether another attempt could send the body from its start.
func (u *upload) replayable() bool {
	if u == nil || u.untouched.Load() {
		return true
	}
	if u.keep == 0 || u.ours.Load() {
		return false
	}
	if !u.mu.TryLock() {
		return true // a reader waits for the client; what it gets is kept, if it fits
	}
	defer u.mu.Unlock()
	return !u.overflow
}

// unfinished reports whether the client still has something to send.
func (u *upload) unfinished() bool { return u != nil && !u.done.Load() }

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
	case a.off != u.read:
		return 0, errUploadOver // what this attempt had yet to read has been given up
	case u.stopped || a.closed.Load():
		return 0, errUploadOver
	case u.err != nil:
		return 0, u.err
	}
	n, err := u.r.Body.Read(p)
	if errors.Is(err, io.EOF) && !u.validTrailers() {
		err = errTrailer
	}
	if n > 0 {
		u.untouched.Store(false)
		u.watch.touch()
		u.read += n
		u.save(p[:n])
		a.off += n
	}
	if err != nil {
		u.err = err
		if failed := !errors.Is(err, io.EOF) && !u.ours.Load(); failed {
			u.garbled.Store(!gone(err))
			u.broken.Store(true)
		}
		if errors.Is(err, io.EOF) {
			u.done.Store(true)
			for _, key := range u.names {
				u.to[key] = u.from[key]
			}
		}
	}
	return n, err
}

// errTrailer is what a read gets at the end of a body whose trailers are not well formed.
var errTrailer = errors.New("a trailer has bytes that no field may have")

// validTrailers looks at what net/http does not.
func (u *upload) validTrailers() bool {
	for _, key := range u.names {
		for _, v := range u.from[key] {
			if !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}

// appendTrailers appends the lines of the trailers, once the body has been read to its end.
func (u *upload) appendTrailers(b []byte) []byte {
	for _, key := range u.names {
		for _, v := range u.from[key] {
			b = append(append(append(append(b, key...), ": "...), v...), "\r\n"...)
		}
	}
	return b
}

// Close ends this attempt's reading and leaves the client's body to the server. The
// transport of HTTP/2 waits for a read that is under way, which is therefore broken off.
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

// interrupt makes a read of the client that is under way return. It does nothing
// after stop.
func (u *upload) interrupt() {
	u.breaking.Lock()
	defer u.breaking.Unlock()
	if u.over || u.done.Load() {
		return // the connection may serve another request by now
	}
	u.ours.Store(true)
	if u.r.ProtoMajor == 2 {
		_ = u.r.Body.Close() // of its stream alone
		return
	}
	if conn, ok := u.r.Context().Value(connKey{}).(*serverConn); ok {
		conn.linger()
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

// fault says how the client's body was not well formed; nil: it broke off at the most.
func (u *upload) fault() error {
	if u == nil || !u.garbled.Load() {
		return nil
	}
	u.mu.Lock() // not for long: all further reads give the error
	defer u.mu.Unlock()
	return u.err
}

// gone reports whether an error of reading a body says that its client is gone, or has
// ended its direction. All others are of what it sent.
func gone(err error) bool {
	var network net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}

// stop ends all reading and returns when nobody reads any more.
func (u *upload) stop() {
	if u == nil {
		return
	}
	if u.unfinished() {
		locked := u.mu.TryLock()
		if !locked || u.r.ProtoMajor == 1 {
			// A transport still waits for the client; and the server, once the handler
			// has returned, would.
			u.interrupt()
		}
		if !locked {
			u.mu.Lock()
		}
		u.stopped = true
		u.mu.Unlock()
	}
	u.breaking.Lock()
	u.over = true
	u.breaking.Unlock()
}

// discard reads the rest of a small body that nobody wants, if it is there already,
// so that the connection can be used again. No attempt may have been made.
func (u *upload) discard() {
	if !u.unfinished() || u.r.ProtoMajor != 1 || len(u.r.Header["Expect"]) > 0 || u.rc.SetReadDeadline(time.Now().Add(discardTimeout)) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, u.r.Body, replayBytes); errors.Is(err, io.EOF) {
		u.done.Store(true)
	}
	_ = u.rc.SetReadDeadline(time.Time{})
}
