package lanetest

import (
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func (r *Replica) createLane(w http.ResponseWriter, req *http.Request) error {
	l := &laneclient.Lane{}
	if err := decode(w, req, l); err != nil {
		return err
	}
	at := ref{laneclient.KindLanes, l.Name}
	if err := checkLane(l.Name); err != nil {
		return invalid("name", "%v", err)
	}
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	if old := r.reg.lane(l.Name); old != nil && alive(old) {
		p := problem(http.StatusConflict, laneclient.ProblemExists, "lane %q exists already", l.Name)
		p.Current = r.reg.objects[at].body()
		return p
	}
	if _, err := r.reg.putLane(l); err != nil {
		return err
	}
	return writeObject(w, http.StatusCreated, r.reg.objects[at])
}

// putLane creates a lane, or changes what can be changed of one.
func (r *registry) putLane(l *laneclient.Lane) (created bool, err error) {
	kind := "ordinary"
	if lane.Name(l.Name).Strict() {
		kind = "strict"
	}
	if l.Kind != "" && l.Kind != kind {
		return false, invalid("kind", "the name makes the lane %s", kind)
	}
	if l.TTL == 0 {
		l.TTL = laneclient.Duration(laneclient.DefaultLaneTTL)
	}
	if time.Duration(l.TTL) < time.Second {
		return false, invalid("ttl", "is %s: want 1s or more", time.Duration(l.TTL))
	}
	old := r.lane(l.Name)
	if old != nil && old.State != string(lane.Ended) {
		return false, r.changeLane(old, l)
	}
	if err := r.checkParent(l); err != nil {
		return false, err
	}
	now := time.Now()
	c := &laneclient.Lane{
		Meta: laneclient.Meta{Name: l.Name}, Kind: kind, Parent: l.Parent, Owner: l.Owner, TTL: l.TTL, Held: l.Held,
		Generation: r.generations[l.Name] + 1, State: string(lane.Creating), Created: now, Expires: now.Add(time.Duration(l.TTL)),
	}
	if old != nil {
		c.Generation = old.Generation + 1
	}
	r.commit(mutation{ref{laneclient.KindLanes, l.Name}, c})
	return true, nil
}

func (r *registry) changeLane(old, l *laneclient.Lane) error {
	if !alive(old) {
		return laneOver(old)
	}
	if l.Parent != old.Parent {
		return invalid("parent", "is fixed at creation and is %q", old.Parent)
	}
	c := *old
	if c.TTL != l.TTL || c.Held != l.Held {
		c.TTL, c.Held = l.TTL, l.Held
		renew(&c)
	}
	c.Owner = l.Owner
	if c != *old {
		r.commit(mutation{ref{laneclient.KindLanes, l.Name}, &c})
	}
	return nil
}

func renew(l *laneclient.Lane) {
	l.Expires, l.WarnedAt = time.Now().Add(time.Duration(l.TTL)), time.Time{}
}

func laneOver(l *laneclient.Lane) error {
	return problem(http.StatusConflict, laneclient.ProblemLane, "lane %q is %s: create it again when it has ended", l.Name, l.State)
}

// enterLane is the generation of a lane that something comes to be in, and what else is
// written then: with the first that is ready the lane is. The zero name is the baseline's.
func (r *registry) enterLane(name string, ready bool) (generation uint64, writes []mutation, err error) {
	if name == "" {
		return 0, nil, nil
	}
	l := r.lane(name)
	switch {
	case l == nil:
		p := invalid("lane", "lane %q does not exist: create it first", name)
		p.Type = laneclient.ProblemLane
		return 0, nil, p
	case !alive(l):
		return 0, nil, laneOver(l)
	}
	if ready && l.State == string(lane.Creating) {
		c := *l
		c.State = string(lane.Ready)
		writes = append(writes, mutation{ref{laneclient.KindLanes, name}, &c})
	}
	return l.Generation, writes, nil
}

func (r *registry) checkParent(l *laneclient.Lane) error {
	if l.Parent == "" {
		return nil
	}
	parent := r.lane(l.Parent)
	switch {
	case lane.Name(l.Name).Strict() || lane.Name(l.Parent).Strict():
		return invalid("parent", "a strict lane has no parent and is none")
	case parent == nil || !alive(parent):
		p := invalid("parent", "there is no living lane %q", l.Parent)
		p.Type = laneclient.ProblemLane
		return p
	}
	return nil
}

func (r *registry) drainLane(l *laneclient.Lane) error {
	if !alive(l) {
		return nil
	}
	if child := r.livingChild(l.Name); child != "" {
		return problem(http.StatusConflict, "", "lane %q is the parent of %q: delete that first", l.Name, child)
	}
	c := *l
	c.State, c.DrainingAt = string(lane.Draining), time.Now()
	r.commit(mutation{ref{laneclient.KindLanes, l.Name}, &c})
	return nil
}

func (r *Replica) extendLane(w http.ResponseWriter, req *http.Request) error {
	body := &laneclient.Extension{}
	if err := decode(w, req, body); err != nil {
		return err
	}
	return r.editLane(w, req, func(l *laneclient.Lane) {
		if body.TTL != 0 {
			l.TTL = body.TTL
		}
		renew(l)
	})
}

func (r *Replica) holdLane(w http.ResponseWriter, req *http.Request) error {
	body := &laneclient.Hold{}
	if err := decode(w, req, body); err != nil {
		return err
	}
	return r.editLane(w, req, func(l *laneclient.Lane) {
		l.Held = body.Held
		renew(l)
	})
}

func (r *Replica) editLane(w http.ResponseWriter, req *http.Request, edit func(*laneclient.Lane)) error {
	at := ref{laneclient.KindLanes, req.PathValue("name")}
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	l := r.reg.lane(at.name)
	switch {
	case l == nil:
		return notFound(at)
	case !alive(l):
		return laneOver(l)
	}
	c := *l
	edit(&c)
	r.reg.commit(mutation{at, &c})
	return writeObject(w, http.StatusOK, r.reg.objects[at])
}
