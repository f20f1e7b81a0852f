package laneclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Limits of calls.
const (
	callTimeout     = 10 * time.Second // where the caller's context has no deadline
	attemptTimeout  = 3 * time.Second  // of one replica while others are left to try
	dialTimeout     = 3 * time.Second
	maxAnswerBytes  = 64 << 20 // one answer; a page of a list is the longest
	maxProblemBytes = 512 << 10
	maxTokenBytes   = 64 << 10
)

// ProblemMediaType is the media type of a [Problem]: RFC 9457, section 3.
const ProblemMediaType = "application/problem+json"

// API makes single calls to the control plane. Make one with [NewAPI].
type API struct {
	urls      []string // without a '/' at the end
	err       error    // of the configuration; every call returns it
	current   atomic.Int32
	client    *http.Client
	own       *http.Transport // nil if the transport was given
	tokenFile string
}

// NewAPI returns an API that uses Control, Transport and TokenFile of cfg. It does
// no I/O; a Control that is no URL is an error of each call.
func NewAPI(cfg Config) *API {
	a := &API{tokenFile: cfg.TokenFile, client: &http.Client{
		Transport: cfg.Transport,
		// A token never follows to another host, and the API redirects nobody.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	control := cfg.Control
	if len(control) == 0 {
		control = []string{DefaultControl}
	}
	for _, raw := range control {
		u, err := parseControl(raw)
		if err != nil {
			a.err = err
			return a
		}
		a.urls = append(a.urls, strings.TrimRight(u.String(), "/"))
	}
	if cfg.Transport == nil {
		a.own = newTransport()
		a.client.Transport = a.own
	}
	return a
}

func newTransport() *http.Transport {
	return &http.Transport{
		// A proxy of the environment may be the gateway itself (`laneway run
		// --proxy`), which is for services and needs the control plane first.
		Proxy:                 nil,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: callTimeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   2,
		ForceAttemptHTTP2:     true,
	}
}

// Close closes idle connections of the API's own transport. Calls may still be
// made.
func (a *API) Close() error {
	if a.own != nil {
		a.own.CloseIdleConnections()
	}
	return nil
}

// CallOption changes one call.
type CallOption func(http.Header)

// IfMatch makes a write conditional: the object must be at this revision, else the
// error is a [*Problem] with status 412.
func IfMatch(revision uint64) CallOption {
	return func(h http.Header) { h.Set("If-Match", `"`+strconv.FormatUint(revision, 10)+`"`) }
}

// IfNoneMatch makes a write conditional: the object must not exist, else the error
// is a [*Problem] with status 412.
func IfNoneMatch() CallOption { return func(h http.Header) { h.Set("If-None-Match", "*") } }

// InSession makes the call on behalf of a session. The empty id changes nothing.
func InSession(id string) CallOption {
	return func(h http.Header) {
		if id != "" {
			h.Set(SessionHeader, id)
		}
	}
}

// UnreachableError says that no replica of the control plane answered.
type UnreachableError struct {
	Control []string // URLs that were tried
	Err     error    // of the last one
}

// Error says where the control plane was looked for and what to do.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from the control plane at %s: check that it runs and that --control or %s names it: %v",
		strings.Join(e.Control, ", "), EnvControl, e.Err)
}

// Unwrap returns the error of the last try.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Do makes a call: in, if not nil, is sent as JSON; the answer is read into out, if
// not nil. path begins with "/v1/" and may have a query.
//
// Replicas are tried in turn where that is safe: any call that did not get
// through, and those that read, put or delete. An answer of status 300 and up is a
// [*Problem]; no answer at all an [*UnreachableError]; see [Doer] for these and for others.
// Without a deadline in ctx it takes 10 s at most.
func (a *API) Do(ctx context.Context, method, path string, in, out any, opts ...CallOption) error {
	if a.err != nil {
		return a.err
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	first := int(a.current.Load())
	var err error
	for n := range a.urls {
		at := (first + n) % len(a.urls)
		err = a.try(ctx, at, n == len(a.urls)-1, method, path, body, out, opts)
		if !tryNext(method, err) {
			a.current.CompareAndSwap(int32(first), int32(at))
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err == nil || isAnswer(err) {
		return err
	}
	return &UnreachableError{Control: a.urls, Err: err}
}

// isAnswer reports whether err is more than silence: an answer, or a fault of this
// side.
func isAnswer(err error) bool {
	var local *localError
	return problemOf(err) != nil || errors.As(err, &local)
}

// moveOn makes the next call begin with another replica than at.
func (a *API) moveOn(at int) {
	a.current.CompareAndSwap(int32(at), int32((at+1)%len(a.urls)))
}

// localError is a fault of this side: no replica would do better.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// tryNext reports whether another replica may be asked after err.
func tryNext(method string, err error) bool {
	var local *localError
	var p *Problem
	switch {
	case err == nil || errors.As(err, &local):
		return false
	case errors.As(err, &p):
		// A replica without its store; another one may have it. A write may have
		// taken effect, which only the reader can do nothing about.
		return p.Status == http.StatusServiceUnavailable && method == http.MethodGet
	}
	if method != http.MethodPost {
		return true
	}
	// A POST that has not left can be made elsewhere.
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// try makes the call at one replica.
func (a *API) try(ctx context.Context, at int, last bool, method, path string, body []byte, out any, opts []CallOption) error {
	if !last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	resp, err := a.send(ctx, at, method, path, body, opts)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return readProblem(resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	answer, err := readBounded(resp.Body, maxAnswerBytes)
	if err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &localError{fmt.Errorf("the answer of %s to %s %s is not what the API says; is it a control plane of this version? %w", a.urls[at], method, path, err)}
	}
	return nil
}

func (a *API) send(ctx context.Context, at int, method, path string, body []byte, opts []CallOption) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.urls[at]+path, bytes.NewReader(body))
	if err != nil {
		return nil, &localError{err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body, req.ContentLength = nil, 0
	}
	for _, set := range opts {
		set(req.Header)
	}
	if a.tokenFile != "" {
		token, err := readToken(a.tokenFile)
		if err != nil {
			return nil, &localError{err}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return a.client.Do(req)
}

// readToken reads the token anew each time: whoever rotates it replaces the file.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := readBounded(f, maxTokenBytes)
	if err != nil {
		return "", fmt.Errorf("read the token in %s: %w", path, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("the file %s holds no token: put the bearer token, and nothing else, into it", path)
	}
	return token, nil
}

var errTooLong = errors.New("it is longer than any that the API gives")

func readBounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errTooLong
	}
	return b, err
}

// readProblem makes a Problem of an answer that is an error, whoever wrote it.
func readProblem(resp *http.Response) error {
	p := &Problem{}
	body, err := readBounded(resp.Body, maxProblemBytes)
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if err != nil || strings.TrimSpace(media) != ProblemMediaType || json.Unmarshal(body, p) != nil {
		p = &Problem{Detail: fmt.Sprintf("%s answered %s, and not as a control plane does: check the address", resp.Request.URL.Host, resp.Status)}
	}
	p.Status = resp.StatusCode // what the answer says of itself may differ; this is what happened
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	return p
}
