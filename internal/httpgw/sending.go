package httpgw

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// sending is a request's body on its way to an upstream, from a goroutine of its own: the
// answer may come before the body has ended, or instead of it. The goroutine ends with the
// connection; where it waits for the client, [upload.stop] ends that at the latest.
type sending struct {
	conn   *poolConn
	u      *upload
	body   io.ReadCloser // of this attempt
	length int64         // of the body; -1: it goes in chunks

	wanted  atomic.Int32  // whether the upstream wants it
	settled chan struct{} // closed when that is known; nil: nobody asked
	last    atomic.Bool   // all has been read, and what is left is to write
	done    chan struct{} // closed at the end
	whole   bool          // all has been written; to be read after done
}

// Values of sending.wanted.
const (
	wantedUnknown = iota
	wantedYes
	wantedNo
)

// chunkRoom is what a chunk takes before and behind its data: 4 hex digits, as the data
// fits a buffer, and two line ends.
const chunkRoom = 4 + 2

func newSending(conn *poolConn, out *http.Request, u *upload) *sending {
	s := &sending{conn: conn, u: u, body: u.attempt(), length: out.ContentLength, done: make(chan struct{})}
	if httpguts.HeaderValuesContainsToken(out.Header["Expect"], "100-continue") {
		s.settled = make(chan struct{})
	}
	return s
}

// settle says whether the upstream wants the body. The first word counts.
func (s *sending) settle(wanted int32) {
	if s != nil && s.settled != nil && s.wanted.CompareAndSwap(wantedUnknown, wanted) {
		close(s.settled)
	}
}

// giveUp leaves the client's body to another attempt.
func (s *sending) giveUp() {
	if s != nil {
		s.settle(wantedNo)
		_ = s.body.Close() // gives no error
	}
}

// ended reports whether all of the body has been written, for who has read the whole of the
// answer. It waits only where nothing can hold the writer up.
func (s *sending) ended() bool {
	if s == nil {
		return true
	}
	if !s.last.Load() {
		return false
	}
	select {
	case <-s.done:
		return s.whole
	default:
	}
	timer := time.NewTimer(writeEndTimeout)
	defer timer.Stop()
	select {
	case <-s.done:
		return s.whole
	case <-timer.C:
		return false
	}
}

// run sends the body. Where the client breaks off it breaks the exchange off: what there is
// of an answer is to half a request.
func (s *sending) run() {
	defer close(s.done)
	defer s.body.Close()
	if !s.wait() {
		return
	}
	buf, _ := s.conn.pool.buffers.Get().(*buffer)
	if buf == nil {
		buf = new(buffer)
	}
	defer s.conn.pool.buffers.Put(buf)
	for sent := int64(0); ; {
		n, err := s.body.Read(buf[chunkRoom : len(buf)-chunkRoom])
		sent += int64(n)
		end := errors.Is(err, io.EOF)
		if err != nil && !end || s.length >= 0 && (sent > s.length || end && sent < s.length) {
			_ = s.conn.SetDeadline(time.Unix(1, 0)) // whoever reads the answer gets an error
			return
		}
		if end || sent == s.length {
			s.last.Store(true)
		}
		if !s.write(buf, n, end) {
			return // there may be an answer all the same
		}
		if end {
			s.whole = true
			return
		}
	}
}

// wait waits until the upstream wants the body, where it was asked, and reports whether it
// does. One that does not say gets it anyway: it may be of before HTTP/1.1.
func (s *sending) wait() bool {
	if s.settled == nil {
		return true
	}
	timer := time.NewTimer(continueTimeout)
	defer timer.Stop()
	select {
	case <-s.settled:
	case <-timer.C:
		s.settle(wantedYes)
	}
	return s.wanted.Load() == wantedYes
}

// write writes the n bytes of the buffer behind chunkRoom and, with end, the end of the
// body, in one piece.
func (s *sending) write(buf *buffer, n int, end bool) bool {
	data := buf[chunkRoom : chunkRoom+n]
	if s.length < 0 {
		if n > 0 {
			var digits [chunkRoom]byte
			size := append(strconv.AppendUint(digits[:0], uint64(n), 16), '\r', '\n')
			start := chunkRoom - len(size)
			copy(buf[start:], size)
			data = append(buf[start:chunkRoom+n], '\r', '\n')
		}
		if end {
			data = s.u.appendTrailers(append(data, '0', '\r', '\n'))
			data = append(data, '\r', '\n')
		}
	}
	if len(data) == 0 {
		return true
	}
	_, err := s.conn.Write(data)
	return err == nil
}
