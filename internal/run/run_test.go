package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/internal/run"
)

// journal notes what happens in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, s)
}

// part starts and stops as it is told, each taking a second.
func (j *journal) part(name string) run.Func {
	return func(ctx context.Context, ready func()) error {
		j.note("start " + name)
		time.Sleep(time.Second)
		ready()
		ready() // once more is harmless
		<-ctx.Done()
		time.Sleep(time.Second)
		j.note("stop " + name)
		return ctx.Err()
	}
}

func TestGroupOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		j := &journal{}
		var g run.Group
		for _, name := range []string{"a", "b", "c"} {
			g.Add(name, j.part(name))
		}
		if err := g.Run(ctx, func() error { j.note("ready"); cancel(); return nil }); err != nil {
			t.Errorf("got %v, want nil: all ended as asked", err)
		}
		want := []string{"start a", "start b", "start c", "ready", "stop c", "stop b", "stop a"}
		if !slices.Equal(j.lines, want) {
			t.Errorf("got %v\nwant %v", j.lines, want)
		}
	})
}

func TestGroupFailure(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name string
		fail run.Func
		want []string
	}{
		{
			"before it is ready", func(context.Context, func()) error { return boom },
			[]string{"start a", "stop a"},
		},
		{
			"later", func(_ context.Context, ready func()) error { ready(); time.Sleep(time.Minute); return boom },
			[]string{"start a", "start c", "ready", "stop c", "stop a"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				var g run.Group
				g.Add("a", j.part("a"))
				g.Add("b", tt.fail)
				g.Add("c", j.part("c"))
				err := g.Run(t.Context(), func() error { j.note("ready"); return nil })
				if !errors.Is(err, boom) || !strings.Contains(err.Error(), "b: ") {
					t.Errorf("got %v, want boom, of b", err)
				}
				if !slices.Equal(j.lines, tt.want) {
					t.Errorf("got %v\nwant %v", j.lines, tt.want)
				}
			})
		})
	}
}

func TestGroupReadyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		j := &journal{}
		var g run.Group
		g.Add("a", j.part("a"))
		if err := g.Run(t.Context(), func() error { return boom }); !errors.Is(err, boom) {
			t.Errorf("got %v, want boom", err)
		}
		if want := []string{"start a", "stop a"}; !slices.Equal(j.lines, want) {
			t.Errorf("got %v, want %v", j.lines, want)
		}
	})
}

func TestGroupDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		g := run.Group{Drain: 3 * time.Second}
		stopped := false
		g.Add("first", func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			stopped = true
			return nil
		})
		g.Add("stuck", func(_ context.Context, ready func()) error { ready(); <-release; return nil })
		began := time.Now()
		err := g.Run(ctx, func() error { cancel(); return nil })
		if !errors.Is(err, run.ErrDrain) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("got %v, want ErrDrain of stuck", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %s, want the drain deadline of 3s", took)
		}
		close(release)
		synctest.Wait()
		if !stopped {
			t.Error("the part before the stuck one was not told to stop")
		}
	})
}

func TestGroupInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		j := &journal{}
		var g run.Group
		for _, name := range []string{"a", "b", "c"} {
			g.Add(name, j.part(name))
		}
		if err := g.Run(ctx, func() error { j.note("ready"); return nil }); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(j.lines, want) {
			t.Errorf("got %v, want %v: c was never started", j.lines, want)
		}
	})
}

func TestSignals(t *testing.T) {
	ctx, stop := run.Signals(t.Context())
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("TERM did not end the context")
	}
}
