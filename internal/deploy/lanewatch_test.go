package deploy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestLaneWatchWarnsOnce(t *testing.T) {
	w := laneWatch{name: "green"}
	own, asked := uint64(1), 0
	var failing error
	look := func(want string, state lane.State, generation uint64) {
		t.Helper()
		there := state != ""
		got, err := w.look(laneclient.Lane{State: string(state), Generation: generation}, there, func() (uint64, error) { asked++; return own, failing })
		if !errors.Is(err, failing) || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s, generation %d: %q and %v, want %q", state, generation, got, err, want)
		}
	}
	look("", lane.Ready, 1)
	look("", lane.Ready, 1)
	look("", lane.Draining, 1)
	look("lane has ended: requests go to the baseline; start it again", lane.Ended, 1)
	look("", "", 0)
	look("", lane.Ready, 2) // told already
	if asked != 2 {
		t.Errorf("asked %d times, want once for each generation", asked)
	}
	failing = errors.New("away")
	look("", lane.Ready, 3)
	failing, own = nil, 3
	look("", lane.Ready, 3) // registered anew
	look("lane has ended and is there anew: ", lane.Ready, 4)
	strict := laneWatch{name: "strict-load"}
	if got, _ := strict.look(laneclient.Lane{}, false, nil); !strings.HasPrefix(got, "lane has ended: requests go to nobody") {
		t.Errorf("strict lane: %q", got)
	}
}

// TestWatchLane deletes the lane of an instance, and makes it anew.
func TestWatchLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		cfg := c.Config()
		var log bytes.Buffer // read only while nobody writes
		s := &supervisor{cfg: Process{
			Service: "mailer", Lane: "green", Instance: "m1", NoListen: true, Control: cfg.Control, Transport: cfg.Transport,
			Log: slog.New(slog.DiscardHandler),
		}, log: slog.New(slog.NewTextHandler(&log, nil))}
		s.reg = newRegistry(&s.cfg)
		s.reg.admin = "" // a listener would stop the bubble's clock
		ctx, cancel := context.WithCancel(t.Context())
		if err := errors.Join(s.reg.prepare(ctx), s.reg.join(ctx, nil)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { s.watchLane(ctx); close(done) }()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("while the lane lives: %s", log.String())
		}
		api := c.API()
		if err := api.Do(ctx, http.MethodDelete, "/v1/lanes/green", nil, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // it drains
		synctest.Wait()
		if !strings.Contains(log.String(), "lane has ended: requests go to the baseline; start it again") {
			t.Errorf("when it has ended: %q", log.String())
		}
		if err := api.Do(ctx, http.MethodPost, "/v1/lanes", laneclient.Lane{Meta: laneclient.Meta{Name: "green"}}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "lane has ended"); n != 1 {
			t.Errorf("warned %d times, want once: %s", n, log.String())
		}
		cancel()
		<-done
		_ = s.reg.leave() // of what is there no more
		_ = api.Close()
	})
}
