package laneclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// MaxEventBytes bounds one line of the watch. The control plane takes no object
	// that comes near it.
	MaxEventBytes = 1 << 20
	// streamSilence is how long a watch may be silent: progress is due every second,
	// so one that is silent for so long is dead, whatever its connection says.
	streamSilence = 5 * time.Second
	streamBuffer  = 64 << 10
)

// Errors of [Stream.Next].
var (
	// ErrSilent: nothing came for five seconds, though progress is due every second.
	ErrSilent = errors.New("the watch has gone silent: try another replica")
	// ErrEventTooLong: a line passed MaxEventBytes.
	ErrEventTooLong = errors.New("an event is longer than the API allows")
)

// Stream is an open watch. One goroutine may call Next, any may call Close.
type Stream struct {
	cancel context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // it is the stream's own: Close ends it, and its cause is why Next failed
	alive  *time.Timer
	body   io.ReadCloser
	lines  *bufio.Reader
	long   []byte // a line that is longer than the reader's buffer
	at     int    // which replica
}

// Watch opens a watch of what is selected, such as "lanes" or
// "instances:service=order", from the state after revision from; 0: the present
// state comes first, as puts, then synced. It ends with ctx or [Stream.Close];
// one of them must come.
func (a *API) Watch(ctx context.Context, from uint64, selects []string, opts ...CallOption) (*Stream, error) {
	if a.err != nil {
		return nil, a.err
	}
	first := int(a.current.Load())
	var err error
	for n := range a.urls {
		var s *Stream
		at := (first + n) % len(a.urls)
		if s, err = a.watchAt(ctx, at, from, selects, opts); err == nil {
			return s, nil
		}
		if !tryNext(http.MethodGet, err) || ctx.Err() != nil {
			break
		}
	}
	if isAnswer(err) {
		return nil, err
	}
	return nil, &UnreachableError{Control: a.urls, Err: err}
}

func (a *API) watchAt(ctx context.Context, at int, from uint64, selects []string, opts []CallOption) (*Stream, error) {
	query := url.Values{"select": selects}
	if from > 0 {
		query.Set("from", strconv.FormatUint(from, 10))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{ctx: ctx, cancel: cancel, at: at}
	s.alive = time.AfterFunc(streamSilence, func() { cancel(ErrSilent) })
	resp, err := a.send(ctx, at, http.MethodGet, "/v1/watch?"+query.Encode(), nil, opts) //nolint:bodyclose // the stream keeps it; Close closes it
	if err != nil {
		return nil, s.fail(err)
	}
	s.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		err := readProblem(resp)
		_ = s.Close()
		return nil, err
	}
	s.lines = bufio.NewReaderSize(resp.Body, streamBuffer)
	return s, nil
}

// fail ends the stream and returns why it failed.
func (s *Stream) fail(err error) error {
	if s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	_ = s.Close()
	return err
}

// Next returns the next event. Any error ends the stream: io.EOF where the replica
// ended it, [ErrSilent], [ErrEventTooLong], the context's error, or that of the
// connection. An event is the caller's to keep.
func (s *Stream) Next() (Event, error) {
	line, err := s.line()
	if err != nil {
		return Event{}, s.fail(err)
	}
	s.alive.Reset(streamSilence)
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, s.fail(fmt.Errorf("an event is no JSON: %w", err))
	}
	return e, nil
}

// line reads a line of bounded length; it is valid until the next call. An end
// within a line is an end: half an event is none.
func (s *Stream) line() ([]byte, error) {
	s.long = s.long[:0]
	for {
		part, err := s.lines.ReadSlice('\n')
		switch {
		case err == nil && len(s.long) == 0:
			return part, nil
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			s.long = append(s.long, part...)
		default:
			return nil, err
		}
		if len(s.long) > MaxEventBytes {
			return nil, ErrEventTooLong
		}
		if err == nil {
			return s.long, nil
		}
	}
}

// Close ends the watch. It may be called more than once.
func (s *Stream) Close() error {
	s.alive.Stop()
	s.cancel(context.Canceled)
	if s.body != nil {
		return s.body.Close()
	}
	return nil
}
