package consume

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRunnerTimers: a timer that is armed anew or disarmed tells nothing of what it was before,
// also where that has run out and the loop has not come to it yet.
func TestRunnerTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders"}}})
		if err != nil {
			t.Fatal(err)
		}
		fired := 0
		r := &Runner{
			core: core, timers: map[Timer]*time.Timer{}, box: mailbox{wake: make(chan struct{}, 1)}, life: t.Context(),
			o: Options{Observe: func(e Event, _ []Action) {
				if _, is := e.(*Fired); is {
					fired++
				}
			}},
		}
		timer := Timer{Kind: TimerStall, Partition: Partition{Topic: "orders"}}
		after := func(d time.Duration) (ran int) {
			pass(d)
			synctest.Wait()
			for _, in := range r.box.take() {
				ran++
				in.do()
			}
			return ran
		}
		r.arm(timer, time.Second)
		r.arm(timer, 3*time.Second)
		if ran := after(2 * time.Second); ran > 0 || fired > 0 {
			t.Errorf("armed anew: %d have run out, %d are told", ran, fired)
		}
		pass(2 * time.Second)
		r.arm(timer, 3*time.Second) // it has run out
		if after(time.Second); fired > 0 {
			t.Error("told of one that was armed anew meanwhile")
		}
		pass(3 * time.Second)
		r.act(&Disarm{timer})
		if after(time.Second); fired > 0 {
			t.Error("told of one that was disarmed meanwhile")
		}
		r.arm(timer, time.Second)
		if after(2 * time.Second); fired != 1 || len(r.timers) > 0 {
			t.Errorf("told of %d, want one; %d are armed", fired, len(r.timers))
		}
		r.arm(timer, time.Second)
		r.act(&Disarm{timer})
		if ran := after(2 * time.Second); ran > 0 || len(r.timers) > 0 {
			t.Errorf("disarmed: %d have run out, %d are armed", ran, len(r.timers))
		}
	})
}

// TestOptionsAreChecked: every option that is wrong is named.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := NewRunner(Options{})
	for _, want := range []string{"source", "registry", "members", "handle_batch", "group", "topics"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not name %s", err, want)
		}
	}
	for _, o := range []Options{{Batch: -1}, {Concurrency: -1}, {Deadline: -1}, {Grace: -1}} {
		if err := o.validate(); !strings.Contains(err.Error(), "cannot be negative") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
