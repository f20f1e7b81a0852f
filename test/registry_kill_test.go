package test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// The size of TestRegistryKill.
const (
	kills          = 22
	writers        = 8
	watchers       = 10
	keysEach       = 30  // services per writer
	acksPerLife    = 480 // writes acknowledged before the next kill
	compactEvery   = 3   // kills
	leastAcks      = 10_000
	leastKills     = 20
	storedServices = "laneway/services/" // where the registry keeps them
)

// registryWrite is one request of a writer, as the writer saw it.
type registryWrite struct {
	service string
	owner   string // empty: a deletion
	acked   bool
	rev     uint64 // of an acknowledged put
}

// registryEvent is one change of a service, in the log or in a watch.
type registryEvent struct {
	rev     uint64
	service string
	owner   string // empty: deleted
}

// TestRegistryKill kills a server with -9, again and again, while writers write and
// watchers watch through its API, and compacts its history in between. What was
// acknowledged must be in the registry's log, once; and each watcher must have seen
// every revision once, or have been told that it was compacted.
func TestRegistryKill(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	k := &registryKill{data: data}
	k.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing, watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for i := range writers {
		w := &registryWriter{kill: k, id: i, random: rand.New(rand.NewPCG(uint64(i), 7)), state: map[string]string{}}
		k.writers = append(k.writers, w)
		writing.Go(func() { w.run(t) })
	}
	for i := range watchers {
		w := &registryWatcher{kill: k, random: rand.New(rand.NewPCG(uint64(i), 8))}
		k.watchers = append(k.watchers, w)
		watching.Go(func() { w.run(ctx, t) })
	}
	random := rand.New(rand.NewPCG(1, 9))
	for life := 1; life <= kills; life++ {
		k.waitForAcks(t, int64(life*acksPerLife))
		// Some more, so that the kill comes at any point of a write.
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		k.server.Load().Kill()
		k.killed++
		if life%compactEvery == 0 {
			k.read(t, true)
		}
		k.start(t)
	}
	k.stop.Store(true)
	writing.Wait()
	k.waitForWatchers(t)
	k.server.Load().Kill()
	cancel()
	watching.Wait()
	k.read(t, false)
	k.check(t)
}

type registryKill struct {
	data   string
	server atomic.Pointer[server]
	acks   atomic.Int64
	stop   atomic.Bool

	writers  []*registryWriter
	watchers []*registryWatcher

	killed, compactions int
	revision            uint64 // up to which log is complete
	log                 []registryEvent
}

func (k *registryKill) start(t *testing.T) {
	t.Helper()
	k.server.Store(startServer(t, "--data", k.data))
}

func (k *registryKill) waitForAcks(t *testing.T, n int64) {
	t.Helper()
	poll(t, time.Minute, func() error {
		if got := k.acks.Load(); got < n && !t.Failed() {
			return fmt.Errorf("%d writes acknowledged, want %d", got, n)
		}
		return nil
	})
	if t.Failed() {
		t.FailNow()
	}
}

// waitForWatchers waits until all have reached the last acknowledged revision.
func (k *registryKill) waitForWatchers(t *testing.T) {
	t.Helper()
	var last uint64
	for _, w := range k.writers {
		for _, op := range w.ops {
			last = max(last, op.rev)
		}
	}
	for i, w := range k.watchers {
		poll(t, 30*time.Second, func() error {
			if got := w.reached.Load(); got < last {
				return fmt.Errorf("watcher %d has reached %d of %d", i, got, last)
			}
			return nil
		})
	}
}

// read adds to the log what the registry has on disk, with no server there, and
// compacts all of it if asked to.
func (k *registryKill) read(t *testing.T, compact bool) {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Config{Dir: filepath.Join(k.data, "registry")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	present, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for b := range s.Watch(ctx, storedServices, k.revision) {
		if b.Err != nil {
			t.Fatalf("read the log from %d to %d: %v", k.revision, present, b.Err)
		}
		for _, e := range b.Events {
			k.log = append(k.log, k.stored(t, e))
		}
		k.revision = b.Revision
		if k.revision >= present {
			break
		}
	}
	if compact {
		if err := s.Compact(t.Context(), present); err != nil {
			t.Fatal(err)
		}
		k.compactions++
	}
}

func (k *registryKill) stored(t *testing.T, e store.Event) registryEvent {
	t.Helper()
	out := registryEvent{rev: e.ModRevision, service: strings.TrimPrefix(e.Key, storedServices)}
	if !e.Deleted {
		var s laneclient.Service
		if err := json.Unmarshal(e.Value, &s); err != nil {
			t.Fatalf("%s at %d: %v", e.Key, e.ModRevision, err)
		}
		out.owner = s.Owner
	}
	return out
}

// registryWriter writes services of its own, one request after the other.
type registryWriter struct {
	kill   *registryKill
	id, n  int
	random *rand.Rand
	client http.Client
	ops    []registryWrite
	// state is the owner last written to a service; absent or empty if deleted or in
	// doubt. Only what surely exists is deleted, so that the log can be read one way.
	state map[string]string
}

func (w *registryWriter) run(t *testing.T) {
	w.client.Timeout = 10 * time.Second
	for !w.kill.stop.Load() && !t.Failed() {
		op := registryWrite{service: fmt.Sprintf("s%d-%d", w.id, w.random.IntN(keysEach))}
		if w.state[op.service] == "" || w.random.IntN(4) > 0 {
			w.n++
			op.owner = fmt.Sprintf("%d-%d", w.id, w.n)
		}
		w.state[op.service] = ""
		if err := w.send(t.Context(), &op); err != nil {
			t.Errorf("writer %d: %v", w.id, err)
			return
		}
		w.ops = append(w.ops, op)
		if op.acked {
			w.state[op.service] = op.owner
			w.kill.acks.Add(1)
		} else {
			time.Sleep(20 * time.Millisecond) // the server is down
		}
	}
}

// send does one request. No answer, or 503, leaves it in doubt; what else is not a
// success is an error.
func (w *registryWriter) send(ctx context.Context, op *registryWrite) error {
	method, body := http.MethodDelete, []byte(nil)
	if op.owner != "" {
		method, body = http.MethodPut, fmt.Appendf(nil, `{"owner":%q}`, op.owner)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.kill.server.Load().url()+"/v1/services/"+op.service, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return ctx.Err()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ctx.Err()
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		var s laneclient.Service
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		op.acked, op.rev = true, s.Revision
	case http.StatusNoContent:
		op.acked = true
	case http.StatusServiceUnavailable:
	default:
		return fmt.Errorf("%s %s: %s: %s", method, op.service, resp.Status, text)
	}
	return nil
}

// registryWatcher follows services through all lives of the server.
type registryWatcher struct {
	kill    *registryKill
	random  *rand.Rand
	reached atomic.Uint64

	spans     []registrySpan
	compacted int
}

// registrySpan is what a watch saw without a break: first what was there at from, if it
// began with a list, then every change up to to.
type registrySpan struct {
	listed   map[string]registryEvent // nil if it went on from where another watch ended
	from, to uint64
	events   []registryEvent
}

func (w *registryWatcher) run(ctx context.Context, t *testing.T) {
	list := true
	for ctx.Err() == nil && !t.Failed() {
		again, err := w.follow(ctx, list)
		if err != nil {
			t.Errorf("a watcher: %v", err)
			return
		}
		list = again
		// Now and then it stays away for so long that it misses a compaction.
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(w.random.IntN(10)*w.random.IntN(10)) * 10 * time.Millisecond):
		}
	}
}

// follow reads one watch until it breaks. The next one begins with a list if this one
// was compacted, or broke within its own list.
func (w *registryWatcher) follow(ctx context.Context, list bool) (again bool, err error) {
	url := w.kill.server.Load().url() + "/v1/watch?select=services"
	if !list {
		url += fmt.Sprint("&from=", w.reached.Load())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return list, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return list, nil // the server is down
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return list, nil
	default:
		return list, fmt.Errorf("%s: %s", url, resp.Status)
	}
	span := registrySpan{from: w.reached.Load(), to: w.reached.Load()}
	if list {
		span.listed = map[string]registryEvent{}
	}
	for d := json.NewDecoder(resp.Body); ; {
		var e laneclient.Event
		if err := d.Decode(&e); err != nil {
			if list {
				return true, nil // cut off before it was synced: nothing to go by
			}
			w.spans = append(w.spans, span)
			return false, nil // the server was killed
		}
		if e.Type == laneclient.EventCompacted {
			w.compacted++
			if !list {
				w.spans = append(w.spans, span)
			}
			return true, nil
		}
		if list, err = span.add(e, list); err != nil {
			return false, err
		}
		if !list {
			w.reached.Store(span.to)
		}
	}
}

// add takes one line. It says whether the list goes on.
func (s *registrySpan) add(e laneclient.Event, list bool) (bool, error) {
	change := registryEvent{rev: e.Revision, service: e.Name}
	switch e.Type {
	case laneclient.EventPut:
		var object laneclient.Service
		if err := json.Unmarshal(e.Object, &object); err != nil {
			return list, err
		}
		change.owner = object.Owner
	case laneclient.EventSynced:
		if list {
			s.from = e.Revision
		}
		s.to = max(s.to, e.Revision)
		return false, nil
	case laneclient.EventProgress:
		s.to = max(s.to, e.Revision)
		return list, nil
	case laneclient.EventDelete:
	case laneclient.EventCompacted:
		return list, errors.New("is not for a span")
	}
	if list {
		s.listed[e.Name] = change
		return true, nil
	}
	if change.rev <= s.to && len(s.events) > 0 && s.events[len(s.events)-1].rev >= change.rev {
		return false, fmt.Errorf("an event of %d after one of %d", change.rev, s.events[len(s.events)-1].rev)
	}
	s.events = append(s.events, change)
	s.to = max(s.to, change.rev)
	return false, nil
}

// check compares what writers and watchers saw with the log.
func (k *registryKill) check(t *testing.T) {
	acked, doubt, applied := k.checkWrites(t)
	seen, told, spans := 0, 0, 0
	least := len(k.log)
	for i, w := range k.watchers {
		n := k.checkWatcher(t, i, w)
		seen, least, told, spans = seen+n, min(least, n), told+w.compacted, spans+len(w.spans)
	}
	t.Logf("%d kills, %d compactions, %d writes acknowledged, %d in doubt of which %d took effect, %d changes in the log, lost 0",
		k.killed, k.compactions, acked, doubt, applied, len(k.log))
	t.Logf("%d watchers saw %d changes in %d watches, at least %d each, and were told of a compaction %d times",
		watchers, seen, spans, least, told)
	if k.killed < leastKills || acked < leastAcks || k.compactions < 5 {
		t.Errorf("%d kills, %d acknowledged writes, %d compactions: want %d, %d, 5", k.killed, acked, k.compactions, leastKills, leastAcks)
	}
	if least == 0 || told == 0 {
		t.Errorf("a watcher saw %d changes, compactions were told %d times: the test has not tested", least, told)
	}
}

// checkWrites finds each acknowledged write in the log once, in the writer's order, and
// nothing in the log that nobody wrote.
func (k *registryKill) checkWrites(t *testing.T) (acked, doubt, applied int) {
	t.Helper()
	byService := map[string][]registryEvent{}
	for _, e := range k.log {
		byService[e.service] = append(byService[e.service], e)
	}
	for _, w := range k.writers {
		for _, op := range w.ops {
			events := byService[op.service]
			matches := len(events) > 0 && events[0].owner == op.owner && (op.rev == 0 || events[0].rev == op.rev)
			switch {
			case op.acked && !matches:
				t.Fatalf("lost: %+v was acknowledged, the log goes on with %+v", op, events[:min(3, len(events))])
			case op.acked:
				acked++
			default:
				doubt++
				if matches {
					applied++
				}
			}
			if matches {
				byService[op.service] = events[1:]
			}
		}
	}
	for service, events := range byService {
		if len(events) > 0 {
			t.Errorf("%s has %d changes that no writer made, or twice: %+v", service, len(events), events[:min(3, len(events))])
		}
	}
	return acked, doubt, applied
}

// checkWatcher compares each span with the same part of the log.
func (k *registryKill) checkWatcher(t *testing.T, id int, w *registryWatcher) (seen int) {
	t.Helper()
	reached := uint64(0)
	for _, s := range w.spans {
		if s.listed != nil {
			k.checkList(t, id, s)
		} else if s.from != reached {
			t.Errorf("watcher %d went on from %d, it had reached %d", id, s.from, reached)
		}
		reached = s.to
		first, _ := slices.BinarySearchFunc(k.log, s.from+1, byRevision)
		end, _ := slices.BinarySearchFunc(k.log, s.to+1, byRevision)
		if want := k.log[first:end]; !slices.Equal(s.events, want) {
			t.Errorf("watcher %d saw %d changes from %d to %d, the log has %d", id, len(s.events), s.from, s.to, len(want))
		}
		seen += len(s.events)
	}
	return seen
}

func byRevision(e registryEvent, revision uint64) int { return cmp.Compare(e.rev, revision) }

// checkList compares a list with the state that the log leads to at its revision.
func (k *registryKill) checkList(t *testing.T, id int, s registrySpan) {
	t.Helper()
	want := map[string]registryEvent{}
	for _, e := range k.log {
		if e.rev > s.from {
			break
		}
		want[e.service] = e
		if e.owner == "" {
			delete(want, e.service)
		}
	}
	if len(want) != len(s.listed) {
		t.Errorf("watcher %d was listed %d services at %d, there were %d", id, len(s.listed), s.from, len(want))
	}
	for service, e := range want {
		if s.listed[service] != e {
			t.Errorf("watcher %d was listed %+v at %d, it was %+v", id, s.listed[service], s.from, e)
		}
	}
}
