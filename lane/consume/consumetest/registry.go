package consumetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Registry is a registry that is put to the test by [RunRegistry].
type Registry struct {
	// Connect lets one more process in, in a lane or in the baseline, until the test ends.
	// Its session should outlast the moments for which a busy machine may forget it.
	Connect func(ctx context.Context, in lane.Name) (consume.Connection, error)
	// Brief is Connect, in the baseline, with a session that surely lasts for some seconds
	// only, so that it can be seen to run out.
	Brief func(ctx context.Context) (consume.Connection, error)
	// CreateLane and EndLane do what operators do with lanes.
	CreateLane func(ctx context.Context, name, parent lane.Name) error
	EndLane    func(ctx context.Context, name lane.Name) error
	// SetGroup does what operators do with a group that is there.
	SetGroup func(ctx context.Context, name string, to consume.Group) error
	// End ends a session behind its process's back, as when its lease runs out.
	End func(ctx context.Context, session string) error
	// Cut takes the registry out of a process's reach until Mend.
	Cut, Mend func(consume.Connection)
	// LoseAnswers lets the next n calls of a process's Move take place and stay without an
	// answer.
	LoseAnswers func(r consume.Connection, n int)
}

// RunRegistry is the conformance suite of registries: what the protocol rests on, each as a
// subtest. open gives a registry without lanes and groups. One that passes keeps every
// promise in the docs of [consume.Registry] and [consume.Connection] that can be seen from
// outside; one that compares less than a write says, gives an old record for the present one,
// a session again that may have run out, or steps out of order does not pass.
func RunRegistry(t *testing.T, open func(t *testing.T) Registry) {
	for _, c := range registryChecks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := c.run(ctx, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckRegistry runs the checks of these names, or all, and returns what failed by the name
// of the check. It is for trying what the suite catches.
func CheckRegistry(ctx context.Context, open func() (Registry, error), names ...string) map[string]error {
	failed := map[string]error{}
	for _, c := range registryChecks {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		r, err := open()
		if err == nil {
			check, cancel := context.WithCancel(ctx)
			err = c.run(check, r)
			cancel()
		}
		if err != nil {
			failed[c.name] = err
		}
	}
	return failed
}

var registryChecks = []struct {
	name string
	run  func(context.Context, Registry) error
}{
	{"Moves", checkMoves},
	{"MovesAtOnce", checkMovesAtOnce},
	{"Doubt", checkDoubt},
	{"Records", checkRecords},
	{"FirstUpdate", checkFirstUpdate},
	{"Updates", checkUpdates},
	{"Progress", checkProgress},
	{"ViewsStay", checkViewsStay},
	{"Groups", checkGroups},
	{"Lanes", checkLanes},
	{"Members", checkMembers},
	{"Grace", checkGrace},
	{"EndedSession", checkEndedSession},
	{"LostSession", checkLostSession},
	{"Settings", checkSettings},
}

// Names that the suite uses.
const (
	registryGroup = "billing"
	registryTopic = "orders"
	// registryPatience is how long something may take that should take no time.
	registryPatience = 20 * time.Second
)

func part(i int) consume.Partition { return consume.Partition{Topic: registryTopic, Index: int32(i)} }

// entrant is a process that has entered a group.
type entrant struct {
	consume.Connection
	group string
	id    string // the session that it entered with
}

// enter connects a process of the baseline, and lets it enter the group.
func (r *Registry) enter(ctx context.Context, group string) (*entrant, error) {
	c, err := r.Connect(ctx, lane.Baseline)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return entered(ctx, c, group)
}

// entered lets a process enter the group.
func entered(ctx context.Context, c consume.Connection, group string) (*entrant, error) {
	_, _, err := c.Enter(ctx, group, consume.Settings{Topics: []string{registryTopic}, Partitions: map[string]int32{registryTopic: 64}})
	if err != nil {
		return nil, fmt.Errorf("enter group %s: %w", group, err)
	}
	p := &entrant{Connection: c, group: group}
	p.id, err = p.session(ctx)
	return p, err
}

// two are two processes of the baseline.
func (r *Registry) two(ctx context.Context) (a, b *entrant, err error) {
	if a, err = r.enter(ctx, registryGroup); err != nil {
		return nil, nil, err
	}
	b, err = r.enter(ctx, registryGroup)
	return a, b, err
}

// session is the process's session, once it has one that lasts.
func (p *entrant) session(ctx context.Context) (string, error) {
	var id string
	err := poll(ctx, "a session that lasts", func() bool {
		var left time.Duration
		id, left = p.Session()
		return id != "" && left > 0
	})
	return id, err
}

// move makes a write under the present session. While no answer comes it repeats it.
func (p *entrant) move(ctx context.Context, w consume.Write) (consume.Answer, error) {
	if w.Session == "" {
		var err error
		if w.Session, err = p.session(ctx); err != nil {
			return consume.Answer{}, err
		}
	}
	w.Group = p.group
	for {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		a, err := p.Move(call, &w)
		cancel()
		if !errors.Is(err, consume.ErrDoubt) || ctx.Err() != nil {
			return a, err
		}
	}
}

// done makes a write that has to take place.
func (p *entrant) done(ctx context.Context, what string, w consume.Write) (consume.Answer, error) {
	a, err := p.move(ctx, w)
	if err == nil && a.Outcome != consume.Done {
		err = fmt.Errorf("it is answered %s: record %+v at %d, notes %+v", a.Outcome, a.Record, a.Revision, a.Notes)
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// create makes a partition's record, held by the process, and main's note.
func (p *entrant) create(ctx context.Context, at consume.Partition) (consume.Answer, error) {
	a, err := p.done(ctx, "create the record of "+at.String(), consume.Write{
		Partition: at, Session: p.id, Record: heldBy(p.id), Read: []lane.Name{consume.Main},
		Notes: []consume.NoteWrite{putNote(consume.Main, 4, 0)},
		Moves: []consume.Move{{Kind: consume.Create, Why: consume.WhyNewGroup}, {Kind: consume.Take, Why: consume.WhyFree}},
	})
	if err == nil && (a.Revision == 0 || len(a.Notes) != 1 || a.Notes[0].Note == nil || a.Notes[0].Note.Pos != 4 || a.Notes[0].Revision == 0) {
		err = fmt.Errorf("create is answered %+v: want the record's revision, and the note once", a)
	}
	return a, err
}

func heldBy(session string) *consume.Record {
	return &consume.Record{Main: consume.Holder{Session: session}, Epoch: "e1"}
}

// putNote is a note that is compared.
func putNote(cursor lane.Name, pos int64, ifRevision uint64) consume.NoteWrite {
	return consume.NoteWrite{Cursor: cursor, Note: &consume.Note{Pos: pos}, Compare: true, IfRevision: ifRevision}
}

// poll waits for what comes about by itself.
func poll(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}

// picture is what a process's updates come to. It holds every step against what a step must
// be.
type picture struct {
	mu       sync.Mutex
	view     *consume.View
	records  map[consume.Partition]consume.Stored
	revision uint64
	first    *consume.Update
	steps    int
	err      error
	changed  chan struct{}
	ended    bool
}

// watch takes in a process's updates until ctx ends.
func (p *entrant) watch(ctx context.Context) *picture {
	out := &picture{records: map[consume.Partition]consume.Stored{}, changed: make(chan struct{}, 1)}
	updates := p.Views(ctx, p.group)
	go func() {
		for u := range updates {
			out.take(&u)
		}
		out.mu.Lock()
		out.ended = true
		out.mu.Unlock()
	}()
	return out
}

func (p *picture) take(u *consume.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = p.check(u)
	}
	if p.first == nil {
		p.first = u
	}
	p.steps++
	if u.View != nil {
		p.view = u.View
		p.revision = max(p.revision, u.View.Revision)
	}
	for _, s := range u.Records {
		p.records[s.Partition] = s
	}
	p.revision = max(p.revision, u.Revision)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *picture) check(u *consume.Update) error {
	if p.first == nil && u.View == nil {
		return errors.New("the first update has no view")
	}
	if u.View != nil && p.view != nil && u.View.Revision < p.view.Revision {
		return fmt.Errorf("a view as of %d comes after one as of %d", u.View.Revision, p.view.Revision)
	}
	if u.Revision != 0 && u.Revision < p.revision {
		return fmt.Errorf("an update as of %d comes after one as of %d", u.Revision, p.revision)
	}
	for _, s := range u.Records {
		if was := p.records[s.Partition]; s.Revision < was.Revision {
			return fmt.Errorf("record %s at %d comes after it at %d", s.Partition, s.Revision, was.Revision)
		}
		if s.Record != nil && s.Revision == 0 {
			return fmt.Errorf("record %s has no revision", s.Partition)
		}
	}
	return nil
}

// await waits until the picture is as it should be. cond must not keep it.
func (p *picture) await(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	for {
		p.mu.Lock()
		ok, err := p.view != nil && cond(), p.err
		p.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			return fmt.Errorf("no update shows %s: the view is %+v, the records %v as of %d", what, p.view, p.names(), p.revision)
		}
	}
}

func (p *picture) names() []string {
	var out []string
	for at, s := range p.records {
		out = append(out, fmt.Sprintf("%s@%d", at, s.Revision))
	}
	slices.Sort(out)
	return out
}

// sameRecords holds two readings of records against each other.
func sameRecords(got, want []consume.Stored) error {
	order := func(a, b consume.Stored) int { return comparePartitions(a.Partition, b.Partition) }
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Partition != want[i].Partition || got[i].Revision != want[i].Revision || got[i].Record.Main != want[i].Record.Main {
			return fmt.Errorf("record %+v, want %+v", got[i], want[i])
		}
	}
	return nil
}

// values are the records of a picture.
func (p *picture) values() []consume.Stored { return slices.Collect(maps.Values(p.records)) }
