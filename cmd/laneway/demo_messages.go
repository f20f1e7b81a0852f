package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/internal/demo"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// What is sent while E2 is in the lane: at first some messages that it can read all, then
// more than it gets to read.
const (
	demoFirstGreen, demoFirstPlain = 20, 5
	demoRestGreen, demoRestPlain   = 80, 5
	demoGlance                     = 10                    // of the rest that E2 has read when it leaves
	demoFirstWork                  = 5 * time.Millisecond  // for one of the first
	demoRestWork                   = 20 * time.Millisecond // for one of the rest: E2 does not get through them while it is asked to end
	demoLook                       = 10 * time.Millisecond // between two looks at how far things are
	demoStopDrain                  = 20 * time.Second      // for E2 to leave when it is asked to
)

// demoMail is what sends the demo's messages and is told who got them.
type demoMail struct {
	stage    *demoStage
	engine   engine
	producer *consume.Producer
	hops     *consume.Hops
	receipts *demo.Receipts

	mu     sync.Mutex
	trials []*demo.Trial
}

// messages has E2 join the lane and leave it in each way, with messages unread, and tells
// what became of them.
func (s *demoStage) messages(ctx context.Context) (trials []*demo.Trial, err error) {
	m := &demoMail{stage: s}
	if m.engine, err = openEngine(ctx, engineAt{engineConfig: engineConfig{Name: defaultEngine, URL: s.server.engine}}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.engine.Close()) }()
	if m.hops, err = consume.NewHops(m.engine, outsider{}, consume.HopsConfig{Share: 1, Service: "demo"}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.hops.Close(ctx)) }()
	m.producer = consume.NewProducer(m.engine, outsider{}, consume.RecordHops(m.hops))
	if m.receipts, err = demo.ListenReceipts(ctx, m.take); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.receipts.Close()) }()
	for _, ending := range []demo.Ending{demo.Stopped, demo.Killed} {
		if err := m.try(ctx, ending); err != nil {
			return m.trials, fmt.Errorf("messages while E2 is %s: %w", ending, err)
		}
	}
	return m.trials, nil
}

// outsider is a producer that is no instance of anything.
type outsider struct{}

func (outsider) Process() lane.Name { return lane.Baseline }
func (outsider) Used(lane.Name)     {}

func (m *demoMail) take(r demo.Receipt) {
	m.mu.Lock()
	trials := m.trials
	m.mu.Unlock()
	for _, t := range trials {
		t.Take(r)
	}
}

// try is one trial.
func (m *demoMail) try(ctx context.Context, ending demo.Ending) error {
	s, t := m.stage, demo.NewTrial(ending)
	m.mu.Lock()
	m.trials = append(slices.Clip(m.trials), t)
	m.mu.Unlock()

	e2, err := s.launch(ctx, demo.Instance{Link: demo.Chain()[len(demo.Chain())-1], Name: "E2", Lane: demo.Green})
	if err != nil {
		return err
	}
	if err := s.registered(ctx, []*demoActor{e2}); err != nil {
		return err
	}
	if err := m.until(ctx, "E2 to be handed what is green", m.laneHolds); err != nil {
		return err
	}
	began, err := m.sessions(ctx)
	if err != nil {
		return err
	}
	if err := m.send(ctx, t, demoFirstGreen, demoFirstPlain, demoFirstWork); err != nil {
		return err
	}
	if err := m.until(ctx, "the first messages to be read", func(context.Context) (bool, error) { return t.Missing() == 0, nil }); err != nil {
		return err
	}
	settled := func(ctx context.Context) (bool, error) {
		now, err := m.positions(ctx)
		return err == nil && t.Settled(demo.Green, now.settled) >= demoFirstGreen, err
	}
	if err := m.until(ctx, "the first messages to be noted as settled", settled); err != nil {
		return err
	}
	s.say("sending %d more green messages, of which E2 reads some", demoRestGreen)
	if err := m.send(ctx, t, demoRestGreen, demoRestPlain, demoRestWork); err != nil {
		return err
	}
	some := func(context.Context) (bool, error) {
		return t.Handed(demo.Green, "E2") >= demoFirstGreen+demoGlance, nil
	}
	if err := m.until(ctx, "E2 to read some of the rest", some); err != nil {
		return err
	}
	if _, err := settled(ctx); err != nil {
		return err
	}
	if now, err := m.sessions(ctx); err == nil && !maps.Equal(now, began) {
		t.Excuse(demoStoodStill)
	}
	if err := m.end(ctx, e2, t); err != nil {
		return err
	}
	s.say("E2 is %s, with %d green messages unread; E1 reads on", ending, demoFirstGreen+demoRestGreen-t.Handed(demo.Green, "E2"))
	err = m.until(ctx, "everything to be settled", m.drained)
	if errors.Is(err, errDemoTooLong) {
		return nil // what is missing then is lost, and the judge says so
	}
	if now, gone := m.sessions(ctx); gone == nil && now[""] != began[""] {
		t.Excuse(demoStoodStill)
	}
	return err
}

// demoStoodStill is why more may come twice than is promised.
const demoStoodStill = "this machine stood still for so long that a lease ran out"

// sessions are those of the group's consumers, by lane.
func (m *demoMail) sessions(ctx context.Context) (map[string]string, error) {
	members, err := list[laneclient.Member](ctx, m.stage.server.api, laneclient.ListOptions{Group: demo.Group})
	out := map[string]string{}
	for _, one := range members {
		out[one.Lane] = one.Session
	}
	return out, err
}

// end takes E2 out of the lane.
func (m *demoMail) end(ctx context.Context, e2 *demoActor, t *demo.Trial) error {
	if t.Ending == demo.Killed {
		if err := e2.running.Signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill E2: %w", err)
		}
	} else if exit, err := e2.running.Stop(demoStopDrain); err != nil || exit.Code != 0 {
		t.Excuse("it could not leave in time, as on a machine that is overloaded")
	}
	select {
	case gone := <-m.stage.ended:
		if gone != e2 {
			return fmt.Errorf("%s ended: %s", gone.Name, gone.fate())
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	m.stage.forget(e2)
	return nil
}

// send sends messages, plain ones among green ones.
func (m *demoMail) send(ctx context.Context, t *demo.Trial, green, plain int, work time.Duration) error {
	for n := range green + plain {
		color := demo.Green
		if n*plain/(green+plain) != (n+1)*plain/(green+plain) {
			color = lane.Baseline
		}
		id := fmt.Sprintf("%s-%d-%d", map[demo.Ending]string{demo.Stopped: "stop", demo.Killed: "kill"}[t.Ending], green, n)
		t.Send(id, color)
		colored := lane.Plain(ctx)
		if color != lane.Baseline {
			colored = lane.With(ctx, color)
		}
		if err := m.producer.Send(colored, demo.Order(id, m.receipts.URL(), work)); err != nil {
			return err
		}
	}
	return nil
}

// errDemoTooLong is in the error of until where something did not come to be.
var errDemoTooLong = errors.New("takes too long")

// demoPatience is how long one step with messages may take.
const demoPatience = 30 * time.Second

// until waits until something holds.
func (m *demoMail) until(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	tick := time.NewTicker(demoLook)
	defer tick.Stop()
	late := time.NewTimer(demoPatience)
	defer late.Stop()
	for {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, errDemoTooLong), err)
		case gone := <-m.stage.ended:
			return fmt.Errorf("%s ended: %s", gone.Name, gone.fate())
		case err := <-m.stage.server.ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// demoPositions are the group's records and notes, by partition.
type demoPositions map[int]demoPosition

type demoPosition struct {
	record consume.Record
	notes  map[lane.Name]consume.Note
}

// positions reads how far the group is, from the registry itself.
func (m *demoMail) positions(ctx context.Context) (demoPositions, error) {
	out := demoPositions{}
	for i := range demo.TopicPartitions {
		c, err := laneclient.Get[laneclient.Cursor](ctx, m.stage.server.api, laneclient.CursorName(defaultEngine, demo.Group, demo.Topic, i))
		if laneclient.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		at := demoPosition{}
		if at.record, at.notes, err = readRecord(c); err != nil {
			return nil, err
		}
		out[i] = at
	}
	return out, nil
}

// settled reports whether a green message is noted as settled.
func (p demoPositions) settled(partition int, offset int64) bool {
	at, ok := p[partition]
	if !ok {
		return false
	}
	cursor := consume.Main
	if at.record.Owns(demo.Green, offset) {
		cursor = demo.Green
	}
	note, noted := at.notes[cursor]
	return noted && note.Settled(offset)
}

// laneHolds reports whether the lane's consumer has the green cursors of all partitions.
func (m *demoMail) laneHolds(ctx context.Context) (bool, error) {
	now, err := m.positions(ctx)
	if err != nil || len(now) < demo.TopicPartitions {
		return false, err
	}
	for _, at := range now {
		if h, ok := at.record.Holder(demo.Green); !ok || h.None() || h.Lane != demo.Green {
			return false, nil
		}
	}
	return true, nil
}

// drained reports whether all that there is has been settled.
func (m *demoMail) drained(ctx context.Context) (bool, error) {
	now, err := m.positions(ctx)
	if err != nil || len(now) < demo.TopicPartitions {
		return false, err
	}
	for i, at := range now {
		b, err := m.engine.Bounds(ctx, consume.Partition{Topic: demo.Topic, Index: int32(i)})
		if err != nil {
			return false, err
		}
		for cursor, note := range at.notes {
			if _, there := at.record.Holder(cursor); there && (note.Pos < b.End || len(note.Left) > 0) {
				return false, nil
			}
		}
	}
	return true, nil
}

// printTrials tells of the messages where people read it.
func (a *app) printTrials(w io.Writer, trials []*demo.Trial) error {
	if _, err := io.WriteString(w, demoMailMeaning); err != nil {
		return err
	}
	return demo.WriteTrials(w, trials, bool(a.painter()))
}

// demoMailMeaning says what the table of messages shows.
const demoMailMeaning = `
The hop from d to e is a queue. E2 joined lane green as its consumer, read some green
messages and left, with the others unread: those went to E1, and only those.

`
