package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestWatchChurn: views that come, go, break off anywhere, go on from where they were
// and are read in fits and starts all come to what the registry has.
func TestWatchChurn(t *testing.T) {
	t.Parallel()
	const clients, writers, writes, objects = 24, 3, 150, 12
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := start(t)
	for _, name := range []string{"green", "blue"} {
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"`+name+`","held":true}`)
	}
	var writing, watching sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(n)))
			for range writes {
				path := fmt.Sprintf("/v1/instances/s%d/i%d", rnd.IntN(4), rnd.IntN(objects))
				if rnd.IntN(4) == 0 {
					r.status(http.MethodDelete, path, nil)
					continue
				}
				lane := []string{"", "green", "blue"}[rnd.IntN(3)]
				if s := r.status(http.MethodPut, path, fmt.Sprintf(`{"lane":%q,"weight":%d}`, lane, 1+rnd.IntN(100))); s/100 != 2 {
					t.Errorf("PUT %s: %d", path, s)
				}
			}
		})
	}
	var last uint64 // set when all is written
	done := make(chan struct{})
	for n := range clients {
		watching.Go(func() {
			c := &churner{r: r, rnd: rand.New(rand.NewPCG(seed, uint64(100+n))), view: map[string]string{}, done: done, last: &last}
			c.query = []string{
				"select=instances", "select=instances:lane=green", "select=instances:service=s1&select=instances:lane=-", "select=instances:service=s2",
				"select=instances&select=lanes", "select=instances:lane=blue&select=instances:lane=green",
			}[n%6]
			if err := c.run(t.Context()); err != nil {
				t.Errorf("client %d, %s: %v", n, c.query, err)
				return
			}
			if want := r.watch(c.query).picture(nil); !maps.Equal(c.view, want) {
				t.Errorf("client %d, %s, opened %d times, comes to %v, want %v", n, c.query, c.opened, c.view, want)
			}
		})
	}
	writing.Wait()
	// The control plane writes, too: that a lane has come to be ready. It is the last that it does.
	r.until("the lanes to be ready", func() bool { return r.lane("green").State == "ready" && r.lane("blue").State == "ready" })
	var list laneclient.List
	r.must(http.StatusOK, &list, "GET", "/v1/instances", nil)
	last = list.Revision
	close(done)
	watching.Wait()
	r.until("all watches to be closed", func() bool { return openWatches(r) <= clients }) // those of picture
}

// churner is a client that keeps a view and breaks its watch off again and again.
type churner struct {
	r        *replica
	rnd      *rand.Rand
	query    string
	view     map[string]string
	complete uint64
	opened   int
	done     <-chan struct{}
	last     *uint64 // to be reached; may be read when done is closed
}

func (c *churner) reached() bool {
	select {
	case <-c.done:
		return c.complete >= *c.last
	default:
		return false
	}
}

func (c *churner) run(ctx context.Context) error {
	for !c.reached() {
		if err := c.watch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watch opens a watch and reads some of it.
func (c *churner) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	url := c.r.base + "/v1/watch?" + c.query
	if c.complete > 0 {
		url += fmt.Sprintf("&from=%d", c.complete)
	} else {
		clear(c.view)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	c.opened++
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for left := 1 + c.rnd.IntN(200); left > 0 && !c.reached(); left-- {
		if c.rnd.IntN(20) == 0 {
			time.Sleep(time.Duration(c.rnd.IntN(3)) * time.Millisecond) // it reads in fits and starts
		}
		if !lines.Scan() {
			return errors.Join(errors.New("the watch has ended"), lines.Err(), io.ErrUnexpectedEOF)
		}
		var e laneclient.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		if err := c.apply(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *churner) apply(e laneclient.Event) error {
	key := string(e.Kind) + " " + e.Name
	if e.Revision < c.complete {
		return fmt.Errorf("%s at %d, after %d", e.Type, e.Revision, c.complete)
	}
	c.complete = max(c.complete, e.Revision-1) // of its own there may be more
	switch e.Type {
	case laneclient.EventPut:
		c.view[key] = string(e.Object)
	case laneclient.EventDelete:
		delete(c.view, key)
	case laneclient.EventSynced, laneclient.EventProgress:
		c.complete = e.Revision
	default:
		return fmt.Errorf("%s at %d", e.Type, e.Revision)
	}
	return nil
}
