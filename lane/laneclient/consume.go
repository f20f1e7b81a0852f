package laneclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

var _ consume.Connection = (*Client)(nil)

// DefaultEngine is the name of a group's engine where nothing says otherwise.
const DefaultEngine = "default"

// consumption is what a client has of groups.
type consumption struct {
	records, notes mover          // moves, and writes of notes alone
	viewers        sync.WaitGroup // none is added once closed

	mu      sync.Mutex
	closed  bool
	entered consume.Entered
	engines map[string]string // by group: an engine is fixed
}

// close returns when nothing of groups is left that runs. The client's context has ended.
func (g *consumption) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.viewers.Wait()
	g.records.close()
	g.notes.close()
}

// Service is Config.Service.
func (c *Client) Service() string { return c.cfg.Service }

// Room is Config.Room.
func (c *Client) Room() string { return c.cfg.Room }

// lease makes sure that sessions are used as [consume.Registry] says.
func (c *Client) lease() {
	l := c.link
	var leased bool
	if l.read(func() { leased = l.leased }); leased {
		return
	}
	l.update(func() { l.leased = true })
	signal(l.renew) // to be renewed more often from now on
}

// Enter implements [consume.Connection]: it creates the group where it is not there.
func (c *Client) Enter(ctx context.Context, group string, want consume.Settings) (consume.Settings, func(), error) {
	c.lease()
	if err := c.enter(group, want.Topics); err != nil {
		return consume.Settings{}, nil, err
	}
	leave := func() {
		c.groups.mu.Lock()
		defer c.groups.mu.Unlock()
		c.groups.entered.Remove(group, want.Topics)
	}
	retry := backoff{least: retryLeast, most: retryMost}
	for {
		g, err := c.settle(ctx, group, &want)
		var hold consume.Settings
		if err == nil {
			hold, err = settingsOf(g)
		}
		if err == nil {
			c.noteEngine(group, g.Engine)
			return hold, leave, nil
		}
		if isPermanent(err) || errors.Is(err, consume.ErrRefused) {
			leave()
			return hold, nil, refusal(err)
		}
		if !pause.For(ctx, retry.next()) {
			leave()
			return hold, nil, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

func (c *Client) enter(group string, topics []string) error {
	c.groups.mu.Lock()
	defer c.groups.mu.Unlock()
	return c.groups.entered.Add(group, topics)
}

func (c *Client) noteEngine(group, engine string) {
	c.groups.mu.Lock()
	defer c.groups.mu.Unlock()
	if c.groups.engines == nil {
		c.groups.engines = map[string]string{}
	}
	c.groups.engines[group] = engine
}

// settle brings the group to be, with the topics that are wanted.
func (c *Client) settle(ctx context.Context, group string, want *consume.Settings) (*Group, error) {
	g, err := Get[Group](ctx, c.API, group)
	var as CallOption // the group was read
	switch {
	case IsNotFound(err):
		as = IfNoneMatch()
		g, err = c.newGroup(ctx, group, want)
	case err == nil:
		as = IfMatch(g.Revision)
		if !addTopics(g, want) {
			return g, nil
		}
	}
	if err != nil {
		return nil, err
	}
	g, err = Put(ctx, c.API, g, as)
	if p := problemOf(err); p != nil && p.Status == http.StatusPreconditionFailed {
		// Another process was faster: this is no answer that stays the same.
		return nil, &Problem{Status: http.StatusServiceUnavailable, Title: "changed meanwhile", Detail: p.Detail}
	}
	return g, err
}

// addTopics takes in the topics of want that g lacks, and reports whether there were any.
func addTopics(g *Group, want *consume.Settings) (added bool) {
	for _, t := range want.Topics {
		if slices.Contains(g.Topics, t) {
			continue
		}
		added = true
		g.Topics = append(g.Topics, t)
		if n := want.Partitions[t]; n > 0 {
			if g.Partitions == nil {
				g.Partitions = map[string]int{}
			}
			g.Partitions[t] = int(n)
		}
	}
	return added
}

// newGroup is a group as it is wanted.
func (c *Client) newGroup(ctx context.Context, group string, want *consume.Settings) (*Group, error) {
	engine := want.Engine
	if engine == "" {
		var err error
		if engine, err = c.engineOf(ctx, want.Topics); err != nil {
			return nil, err
		}
	}
	g := &Group{
		Meta: Meta{Name: group}, Engine: engine, Ordered: want.Ordered, Start: want.Start.String(),
		HandoverTimeout: Duration(want.HandoverTimeout), OnRegistryLoss: want.OnLoss.String(),
	}
	addTopics(g, want)
	for _, d := range want.RetryDelays {
		g.Retry = append(g.Retry, Duration(d))
	}
	return g, nil
}

// engineOf finds the engine of topics: the one that an object of theirs names, else the
// default one.
func (c *Client) engineOf(ctx context.Context, topics []string) (string, error) {
	for _, name := range topics {
		t, err := Get[Topic](ctx, c.API, name)
		switch {
		case err == nil:
			return t.Engine, nil
		case !IsNotFound(err):
			return "", err
		}
	}
	e, err := FindEngine(ctx, c.API, "")
	if err == nil {
		return e.Name, nil
	}
	if !errors.Is(err, ErrNoEngine) {
		return "", err
	}
	if all, _, err := ListAll[Engine](ctx, c.API, ListOptions{}); err != nil || len(all) == 0 {
		return DefaultEngine, err // one that the control plane was not told of
	}
	return "", fmt.Errorf("which engine has the topics: %w: %w", consume.ErrRefused, err)
}

// groupEngine is the name of a group's engine.
func (c *Client) groupEngine(ctx context.Context, group string) (string, error) {
	c.groups.mu.Lock()
	name := c.groups.engines[group]
	c.groups.mu.Unlock()
	if name != "" {
		return name, nil
	}
	g, err := Get[Group](ctx, c.API, group)
	if err != nil {
		return "", fmt.Errorf("read group %s: %w", group, err)
	}
	c.noteEngine(group, g.Engine)
	return g.Engine, nil
}

// startOf reads what [consume.Start.String] writes.
func startOf(text string) (consume.Start, error) {
	switch text {
	case "", StartEarliest:
		return consume.Start{}, nil
	case StartLatest:
		return consume.Start{Kind: consume.StartLatest}, nil
	}
	if raw, ok := strings.CutPrefix(text, "offset:"); ok {
		n, err := strconv.ParseInt(raw, 10, 64)
		return consume.Start{Kind: consume.StartOffset, Offset: n}, err
	}
	t, err := time.Parse(time.RFC3339, text)
	return consume.Start{Kind: consume.StartTime, Time: t}, err
}

// settingsOf is what a group's object says.
func settingsOf(g *Group) (consume.Settings, error) {
	s := consume.Settings{
		Engine: g.Engine, Topics: g.Topics, Ordered: g.Ordered, HandoverTimeout: time.Duration(g.HandoverTimeout),
	}
	var err error
	if s.Start, err = startOf(g.Start); err != nil {
		return s, fmt.Errorf("group %s: start %q is none that this version knows: %w: %w", g.Name, g.Start, consume.ErrRefused, err)
	}
	switch g.OnRegistryLoss {
	case OnLossContinue:
		s.OnLoss = consume.LossContinue
	case OnLossHold:
		s.OnLoss = consume.LossHold
	case "":
	default:
		return s, fmt.Errorf("group %s: on_registry_loss %q is none that this version knows: %w", g.Name, g.OnRegistryLoss, consume.ErrRefused)
	}
	for _, d := range g.Retry {
		s.RetryDelays = append(s.RetryDelays, time.Duration(d))
	}
	for t, n := range g.Partitions {
		if s.Partitions == nil {
			s.Partitions = map[string]int32{}
		}
		s.Partitions[t] = int32(min(n, MaxPartition))
	}
	return s, nil
}

// refusal marks an answer that will not change.
func refusal(err error) error {
	if errors.Is(err, consume.ErrRefused) {
		return err
	}
	return fmt.Errorf("%w: %w", consume.ErrRefused, err)
}

// Records implements [consume.Registry]. A record that this version cannot read is an error:
// what it says must not be taken for nothing.
func (c *Client) Records(ctx context.Context, group string) ([]consume.Stored, error) {
	cursors, _, err := ListAll[Cursor](ctx, c.API, ListOptions{Group: group})
	if err != nil {
		return nil, fmt.Errorf("read the records of group %s: %w", group, err)
	}
	out := make([]consume.Stored, len(cursors))
	for i := range cursors {
		if out[i], err = storedOf(&cursors[i]); err != nil {
			return nil, fmt.Errorf("read the records of group %s: %w", group, err)
		}
	}
	return out, nil
}

// storedOf is a record as Core knows it.
func storedOf(c *Cursor) (consume.Stored, error) {
	_, _, topic, index, ok := ParseCursorName(c.Name)
	if !ok {
		return consume.Stored{}, fmt.Errorf("%q is no name of a cursor", c.Name)
	}
	s := consume.Stored{Partition: consume.Partition{Topic: topic, Index: int32(index)}, Revision: c.Revision}
	var err error
	if s.Record, err = recordOf(c.Record); err != nil {
		return s, fmt.Errorf("record %s: %w", c.Name, err)
	}
	return s, nil
}

func recordOf(raw json.RawMessage) (*consume.Record, error) {
	if isNull(raw) {
		return nil, nil //nolint:nilnil // nil is a record that is not there
	}
	r := new(consume.Record)
	if err := r.UnmarshalJSON(raw); err != nil { // raw was found to be JSON when it was cut out
		return nil, err
	}
	return r, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Join implements [consume.Registry]: the member joins under m.Session, or, where that is
// empty, under the present session. An answer that will not change, such as that its lane is
// not there, is a [consume.ErrRefused].
func (c *Client) Join(ctx context.Context, group string, m consume.Member) error {
	c.lease()
	id, remaining := c.Session()
	if m.Session == "" {
		m.Session = id
	}
	if m.Session == "" || m.Session == id && remaining <= 0 {
		return fmt.Errorf("join member %s: there is no session that lasts: wait for the control plane", m.ID)
	}
	member := &Member{
		Meta: Meta{Name: m.ID}, Group: group, Topics: m.Topics, Lane: string(m.Lane), Room: m.Room,
		Client: &MemberClient{Name: c.cfg.Instance, Address: hostName()},
	}
	_, err := Put(ctx, c.API, member, InSession(m.Session))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("join member %s of group %s: %w", m.ID, group, err)
	if isPermanent(err) {
		return refusal(err)
	}
	return err
}

// Leave implements [consume.Registry]. A member that is not there has left.
func (c *Client) Leave(ctx context.Context, group, member string, grace time.Duration) error {
	path := PathOf(KindMembers, group+"/"+member)
	if grace > 0 {
		path += "?" + url.Values{GraceParam: {grace.String()}}.Encode()
	}
	id, _ := c.Session()
	err := c.Do(ctx, http.MethodDelete, path, nil, nil, InSession(id))
	if err != nil && !IsNotFound(err) && !isSessionGone(err) {
		return fmt.Errorf("leave group %s as %s: %w", group, member, err)
	}
	return nil
}

// LaneOf is a lane as consumers know it. One that drains gets nothing new, so that its color
// is its parent's by now; but what a strict one has left is its members' to the end.
func LaneOf(l *Lane) consume.Lane {
	state := lane.State(l.State)
	return consume.Lane{
		Parent: lane.Name(l.Parent), Generation: l.Generation,
		Ended: state == lane.Ended || state == lane.Draining && !lane.Name(l.Name).Strict(),
	}
}

// MemberOf is a member of a group as consumers know it. It shares m's topics.
func MemberOf(m *Member) consume.Member {
	return consume.Member{
		ID: m.Name, Session: m.Session, Lane: lane.Name(m.Lane), Generation: m.Generation, Topics: m.Topics, Room: m.Room,
	}
}
