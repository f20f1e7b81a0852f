package test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is requests that go on until it is stopped. One that fails is a failure of
// the test.
type load struct {
	done chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	sent    int
	failed  []string
	by      map[string]int // answers by instance
	slowest time.Duration
}

// loaders is how many requests are under way at once.
const loaders = 4

// load sends requests through the edge, of one method and host.
func (s *server) load(t *testing.T, method, host string) *load {
	t.Helper()
	l := &load{done: make(chan struct{}), by: map[string]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: loaders}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	for range loaders {
		l.wg.Go(func() {
			for {
				select {
				case <-l.done:
					return
				default:
					l.note(one(t, client, method, "http://"+s.addresses["gateway"]+"/", host))
				}
			}
		})
	}
	t.Cleanup(func() { l.end(); transport.CloseIdleConnections() })
	return l
}

type sample struct {
	instance string
	took     time.Duration
	err      error
}

func one(t *testing.T, client *http.Client, method, url, host string) sample {
	began := time.Now()
	instance, err := func() (string, error) {
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader("body")
		}
		req, err := http.NewRequestWithContext(t.Context(), method, url, body)
		if err != nil {
			return "", err
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return "", err
		}
		if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		var r serviceReport
		err = json.Unmarshal(text, &r)
		return r.Instance, err
	}()
	return sample{instance, time.Since(began), err}
}

func (l *load) note(s sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	l.slowest = max(l.slowest, s.took)
	if s.err != nil {
		l.failed = append(l.failed, s.err.Error())
		return
	}
	l.by[s.instance]++
}

// await waits for n more requests.
func (l *load) await(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	until := l.sent + n
	l.mu.Unlock()
	poll(t, 30*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sent < until {
			return fmt.Errorf("%d requests of %d", l.sent, until)
		}
		return nil
	})
}

func (l *load) end() {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	l.wg.Wait()
}

// stop ends the load and fails the test where a request has failed.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.end()
	t.Logf("%d requests, slowest %s, by %v", l.sent, l.slowest, l.by)
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(l.failed), l.sent, l.failed[0])
	}
	if l.sent == 0 {
		t.Error("no request was sent")
	}
}

// who lists the instances that have answered.
func (l *load) who() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.by))
}
