package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/test/command"
)

// Shape of the installation under test.
const (
	replicas       = 3
	producers      = 3
	partitions     = 6               // of the first topic, at first
	grownTo        = 8               // and in the end
	moreParts      = 2               // of the second
	sessionTTL     = 8 * time.Second // of consumers
	sessionMargin  = 3 * time.Second // by which they take it for shorter
	callTimeout    = 6 * time.Second // of calls of the control plane; faults wait for them
	slowDelay      = 5 * time.Millisecond
	slowWindow     = 40
	baselineWindow = 500
)

// ordersTopic belongs to a group that goes on without the registry, auditTopic to an ordered
// one that holds still.
const (
	ordersTopic, ordersGroup = "orders", "billing"
	auditTopic, auditGroup   = "audit", "ledger"
)

// logs are the topics that producers send to, each with its group and partitions.
func logs() map[string]struct {
	group      string
	partitions int32
} {
	return map[string]struct {
		group      string
		partitions int32
	}{ordersTopic: {ordersGroup, grownTo}, auditTopic: {auditGroup, moreParts}}
}

// parents are the lanes that there are.
func parents() map[lane.Name]lane.Name {
	return map[lane.Name]lane.Name{"green": "", "green-kid": "green", "blue": "", "red": "blue", "strict-load": "", "brief": "blue", "strict-brief": ""}
}

// laneNames are the lanes that stay, in their order; those of briefNames end, and come back as
// new generations.
func laneNames() []lane.Name { return []lane.Name{"green", "green-kid", "blue", "red", "strict-load"} }

func briefNames() []lane.Name { return []lane.Name{"brief", "strict-brief"} }

// nowhere is a color that no lane has.
const nowhere = lane.Name("nowhere")

// replica is one server of the control plane, which comes back at the same address.
type replica struct {
	address string
	args    []string
	ready   string // file that it writes when it is ready
	runs    int
	p       *process
	busy    bool // a fault of it is under way
}

// slot is a place for a consumer: one process after the other.
type slot struct {
	name    string
	lane    lane.Name
	control []*proxy
	engine  *proxy
	runs    int
	p       *process // nil: none runs
	stopped bool     // by SIGSTOP
	away    bool     // its lane was stopped
	life    string
	joined  time.Time // of the present life; zero: not yet
}

// running reports whether the slot has a consumer that has begun.
func (s *slot) running() bool { return s.p != nil && !s.p.Ended() && !s.joined.IsZero() }

// site is the installation under test.
type site struct {
	t        *testing.T
	folder   string
	replicas []*replica
	engine   *replica
	api      *laneclient.API // of all replicas
	slots    []*slot
	outlets  []*outlet
}

// newSite starts the servers, creates the lanes, and starts no consumer yet.
func newSite(t *testing.T, folder string) *site {
	t.Helper()
	for _, sub := range []string{"logs", "books", "sent", "data"} {
		if err := os.MkdirAll(filepath.Join(folder, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{t: t, folder: folder}
	peers := make([]string, replicas)
	for i := range peers {
		peers[i] = command.FreeAddress(t)
	}
	var urls []string
	for i, peer := range peers {
		r := &replica{address: command.FreeAddress(t), ready: filepath.Join(folder, fmt.Sprintf("control-%d.ready", i))}
		r.args = []string{
			"server", "--roles", "control", "--listen", "control=" + r.address, "--registry-peers", strings.Join(peers, ","),
			"--listen", "registry=" + peer, "--data", filepath.Join(folder, "data", fmt.Sprintf("control-%d", i)), "--ready-file", r.ready,
		}
		s.replicas = append(s.replicas, r)
		urls = append(urls, "http://"+r.address)
		s.launch(r, fmt.Sprintf("control-%d", i))
	}
	for _, r := range s.replicas {
		s.await(r)
	}
	s.api = laneclient.NewAPI(laneclient.Config{Control: urls})
	t.Cleanup(func() { _ = s.api.Close() })
	address := command.FreeAddress(t)
	s.engine = &replica{address: address, ready: filepath.Join(folder, "engine.ready"), args: []string{
		"server", "--roles", "engine", "--control", strings.Join(urls, ","), "--engine", "main=embedded", "--listen", "nats=" + address,
		"--data", filepath.Join(folder, "data", "engine"), "--ready-file", filepath.Join(folder, "engine.ready"),
	}}
	s.launch(s.engine, "engine")
	s.await(s.engine)
	for _, name := range append(laneNames(), briefNames()...) {
		poll(t, time.Minute, func() error { return s.createLane(name) })
	}
	return s
}

// createLane creates a lane, or a new generation of one that has ended.
func (s *site) createLane(name lane.Name) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	_, err := laneclient.Put(ctx, s.api, &laneclient.Lane{Meta: laneclient.Meta{Name: string(name)}, Parent: string(parents()[name])})
	return err
}

func (s *site) endLane(name lane.Name) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	return laneclient.Delete[laneclient.Lane](ctx, s.api, string(name))
}

// launch starts a server, and does not wait.
func (s *site) launch(r *replica, name string) {
	s.t.Helper()
	if err := os.Remove(r.ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	r.runs++
	r.p = start(s.t, s.folder, name, nil, nil, built, r.args...)
	r.p.name = name
}

// isReady reports whether a server has come up since it was launched.
func (r *replica) isReady() bool {
	_, err := os.Stat(r.ready)
	return err == nil && !r.p.Ended()
}

func (s *site) await(r *replica) {
	s.t.Helper()
	poll(s.t, 2*time.Minute, func() error {
		if r.p.Ended() {
			s.t.Fatalf("%s has ended: %s", r.p.name, tail(s.folder, r.p.name))
		}
		if !r.isReady() {
			return fmt.Errorf("%s is not ready: %s", r.p.name, tail(s.folder, r.p.name))
		}
		return nil
	})
}

// healthy reports whether a replica is ready to be used.
func (s *site) healthy(r *replica) bool {
	if !r.isReady() || r.busy {
		return false
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// tail is the end of a process's log.
func tail(folder, name string) string {
	text, _ := os.ReadFile(filepath.Join(folder, "logs", name+".log"))
	return string(text[max(0, len(text)-3000):])
}

// addSlots makes places for consumers, each with proxies of its own.
func (s *site) addSlots(name string, l lane.Name, n int) {
	for i := range n {
		c := &slot{name: fmt.Sprintf("%s-%d", name, i), lane: l, engine: startProxy(s.t, s.engine.address)}
		for _, r := range s.replicas {
			c.control = append(c.control, startProxy(s.t, r.address))
		}
		s.slots = append(s.slots, c)
	}
}

// consume starts the next consumer of a slot.
func (s *site) consume(c *slot) {
	s.t.Helper()
	c.runs++
	c.life = fmt.Sprintf("%s.%d", c.name, c.runs)
	c.joined, c.stopped, c.away = time.Time{}, false, false
	settings := consumerSettings{
		Life: c.life, Lane: string(c.lane), Engine: "nats://" + c.engine.address(), Book: s.book(c.life), TTL: sessionTTL,
		Window: baselineWindow,
		Groups: []groupSettings{{Topic: ordersTopic, Group: ordersGroup}, {Topic: auditTopic, Group: auditGroup, Ordered: true}},
	}
	if c.lane != lane.Baseline {
		settings.Delay, settings.Window, settings.Concurrency = slowDelay, slowWindow, 1
	}
	for _, p := range c.control {
		settings.Control = append(settings.Control, "http://"+p.address())
	}
	c.p = startMode(s.t, s.folder, c.life, "consumer", nil, settings)
}

func (s *site) book(name string) string { return filepath.Join(s.folder, "books", name) }

// stopConsuming asks all consumers to end, and waits for them.
func (s *site) stopConsuming() {
	s.t.Helper()
	for _, c := range s.slots {
		if c.p != nil {
			c.p.Signal(syscall.SIGTERM)
		}
	}
	for _, c := range s.slots {
		if c.p == nil {
			continue
		}
		select {
		case <-c.p.Done:
		case <-time.After(3 * handover):
			s.t.Errorf("%s does not end: %s", c.life, tail(s.folder, c.life))
			c.p.Signal(syscall.SIGQUIT) // which tells where it stands
			select {
			case <-c.p.Done:
			case <-time.After(10 * time.Second):
				c.p.Kill()
			}
		}
	}
}
