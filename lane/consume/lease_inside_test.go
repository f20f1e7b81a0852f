package consume

import (
	"slices"
	"testing"
	"time"
)

// oneSession is a registry of which only the session is asked.
type oneSession struct {
	Registry
	id   string
	left time.Duration
}

func (s oneSession) Session() (string, time.Duration) { return s.id, s.left }

// told runs something with a runner whose session is s1, and gives what its Core is told by that.
func told(t *testing.T, present oneSession, leaving bool, do func(*Runner)) (events []Event) {
	t.Helper()
	core, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders"}}})
	if err != nil {
		t.Fatal(err)
	}
	do(&Runner{
		core: core, session: "s1", lost: true, opening: true, leaving: leaving, counts: newStats("billing"), life: t.Context(),
		o: Options{Registry: present, Observe: func(e Event, _ []Action) { events = append(events, e) }},
	})
	return events
}

// TestJoinedTooLate: a member that joined under a session that is over, or when the process leaves
// already, is none.
func TestJoinedTooLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		session string
		leaving bool
		want    int
	}{{"s1", false, 1}, {"s1", true, 0}, {"s0", false, 0}} {
		got := told(t, oneSession{}, c.leaving, func(r *Runner) { r.joined(Member{ID: "e1", Session: c.session}) })
		if len(got) != c.want {
			t.Errorf("joined under %s, leaving %v: told %v", c.session, c.leaving, got)
		}
	}
}

// TestReopenedTooLate: records that were read for a session which is over by then say nothing.
func TestReopenedTooLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		present oneSession
		goesOn  bool
	}{
		{oneSession{id: "s2", left: time.Second}, true},
		{oneSession{id: "s2"}, false},
		{oneSession{id: "s3", left: time.Second}, false},
	} {
		got := told(t, c.present, false, func(r *Runner) {
			if r.reopened("s2", []Stored{{Partition: Partition{Topic: "orders"}}}); r.opening {
				t.Errorf("%+v: it still opens", c.present)
			}
		})
		opened := slices.ContainsFunc(got, func(e Event) bool { o, is := e.(*Opened); return is && o.Session == "s2" })
		if opened != c.goesOn || (len(got) == 2) != c.goesOn {
			t.Errorf("%+v: told %v", c.present, got)
		}
	}
}
