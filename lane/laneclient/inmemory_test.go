package laneclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func roundTrip(t *testing.T, ctx context.Context, h http.HandlerFunc, method, body string) (*http.Response, error) { //nolint:revive // the context is the subject
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://control/v1/x?y=1", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: laneclient.InMemory(h)}).Do(req)
}

func TestInMemoryStreams(t *testing.T) {
	t.Parallel()
	step := make(chan string)
	resp, err := roundTrip(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "control" || r.RequestURI != "/v1/x?y=1" || r.RemoteAddr == "" {
			t.Errorf("request: %s %s %s", r.Host, r.RequestURI, r.RemoteAddr)
		}
		w.Header().Set("X-A", "b")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "c")
		for s := range step {
			_, _ = io.WriteString(w, s)
		}
	}, "GET", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-A") != "b" || resp.Header.Get("X-Late") != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, want := range []string{"one", "two"} {
		step <- want
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("%s %v", got, err)
		}
	}
	close(step)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
}

func TestInMemoryEchoesAndEnds(t *testing.T) {
	t.Parallel()
	resp, err := roundTrip(t, t.Context(), func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, "POST", "hello")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(got) != "hello" || err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%q %v %d", got, err, resp.StatusCode)
	}
	resp, err = roundTrip(t, t.Context(), func(http.ResponseWriter, *http.Request) {}, "GET", "")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	resp, err = roundTrip(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") }, "HEAD", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); len(got) != 0 || err != nil {
		t.Errorf("HEAD has a body: %q %v", got, err)
	}
	resp.Body.Close()
}

// TestInMemoryEnds: a canceled request and a closed body end the handler, whether
// it waits or writes.
func TestInMemoryEnds(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"waits": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
		"writes": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
	} {
		for _, how := range []string{"cancel", "close"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				resp, err := roundTrip(t, ctx, func(w http.ResponseWriter, r *http.Request) { defer close(done); handle(w, r) }, "GET", "")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if how == "cancel" {
					cancel()
					if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.Canceled) {
						t.Errorf("body ends with %v", err)
					}
				} else {
					resp.Body.Close()
					if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
						t.Error("a closed body can be read")
					}
				}
				select {
				case <-done:
				case <-time.NewTimer(5 * time.Second).C:
					t.Error("the handler goes on")
				}
			})
		}
	}
}

func TestInMemoryBeforeAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	resp, err := roundTrip(t, ctx, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "GET", "")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if resp != nil {
		resp.Body.Close()
	}
	for _, v := range []any{"boom", http.ErrAbortHandler} {
		resp, err = roundTrip(t, t.Context(), func(http.ResponseWriter, *http.Request) { panic(v) }, "GET", "")
		if err == nil {
			resp.Body.Close()
			t.Errorf("panic %v is no error", v)
		}
	}
	resp, err = roundTrip(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic("late")
	}, "GET", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a body that was cut off ends well")
	}
	resp.Body.Close()
}
