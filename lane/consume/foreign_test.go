package consume_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// alarms is a log that counts alarms of foreign consumers.
type alarms struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (a *alarms) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.Write(b)
}

func (a *alarms) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Count(a.buf.String(), "reason="+string(consume.AlarmForeign))
}

// TestForeignConsumerIsTold: of all processes of a group one tells, once, that somebody
// consumes in the group past Laneway, and again when that comes back; nobody tells of other
// groups.
func TestForeignConsumerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2)
		told := &alarms{}
		log := slog.New(slog.NewTextHandler(told, nil))
		for _, name := range []string{"a", "b"} {
			p := s.startWith(name, lane.Baseline, consume.Options{
				Handle: func(context.Context, *consume.Delivery) error { return nil },
				Log:    log,
			})
			defer p.stop(t)
		}
		s.untilRun(lane.Baseline, consume.Main)
		come := func(group string, index int32) (leave func()) {
			leave, err := s.engine.Foreign(consume.ForeignConsumer{Group: group, Partition: consume.Partition{Topic: "orders", Index: index}})
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		defer come("audit", 0)()
		pass(5 * time.Minute)
		if n := told.count(); n != 0 {
			t.Errorf("told %d times of a consumer of another group", n)
		}
		for times := 1; times <= 2; times++ {
			leaves := []func(){come("billing", 0), come("billing", 1), come("billing%green", -1)}
			s.until("the alarm", func() bool { return told.count() >= times })
			pass(5 * time.Minute)
			if n := told.count(); n != times {
				t.Errorf("told %d times, want %d: %s", n, times, told.buf.String())
			}
			if text := told.buf.String(); !strings.Contains(text, "group=billing reason=foreign-consumer topic=orders partition=0 count=3") {
				t.Errorf("the alarm says %s", text)
			}
			for _, leave := range leaves {
				leave()
			}
			pass(2 * time.Minute)
		}
	})
}

// TestFindForeign: an engine that cannot tell is not asked.
func TestFindForeign(t *testing.T) {
	m := consume.NewMemory(consume.MemoryConfig{})
	defer func() { _ = m.Close() }()
	if _, _, err := consume.FindForeign(t.Context(), m, "orders"); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("of a topic that is not there: %v", err)
	}
	if _, _, err := consume.FindForeign(t.Context(), struct{ consume.Source }{m}, "orders"); !errors.Is(err, consume.ErrUnsupported) {
		t.Errorf("where only the ability is claimed: %v", err)
	}
	if _, err := m.Foreign(consume.ForeignConsumer{Partition: consume.Partition{Topic: "orders"}}); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("a consumer of a topic that is not there: %v", err)
	}
}
