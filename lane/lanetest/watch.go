package lanetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const progressEvery = time.Second

// selector is one select of a watch.
type selector struct {
	kind         laneclient.Kind
	field, value string
}

func (s selector) selects(o *object) bool {
	return o != nil && o.kind == s.kind && (s.field == "" || slices.Contains(fieldsOf(o.obj)[s.field], s.value))
}

func parseWatch(q url.Values) (from uint64, selected []selector, err error) {
	if s := q.Get("from"); s != "" {
		if from, err = strconv.ParseUint(s, 10, 64); err != nil {
			return 0, nil, invalid("from", "is no revision")
		}
	}
	for _, text := range q["select"] {
		name, cond, conditional := strings.Cut(text, ":")
		field, value, found := strings.Cut(cond, "=")
		s := selector{laneclient.Kind(name), field, value}
		k, known := kindOf(s.kind)
		if known && conditional {
			_, known = fieldsOf(k.empty())[field]
		}
		if !known || conditional && !found {
			return 0, nil, invalid("select", "%q cannot be watched", text)
		}
		if field == "lane" && value == laneclient.BaselineWord {
			s.value = ""
		}
		selected = append(selected, s)
	}
	if len(selected) == 0 {
		return 0, nil, invalid("select", "is missing")
	}
	return from, selected, nil
}

// watcher is one open watch.
type watcher struct {
	r        *Replica
	w        http.ResponseWriter
	selected []selector
	session  string
	at       uint64 // revision that has been sent
	asked    uint64 // renewals that have been answered with progress
	records  bool   // since then it has told of records: how far that is it tells at once
}

func (r *Replica) watch(w http.ResponseWriter, req *http.Request) error {
	from, selected, err := parseWatch(req.URL.Query())
	if err != nil {
		return err
	}
	r.mu.Lock()
	epoch := r.epoch
	r.watches++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.watches--
		r.mu.Unlock()
	}()
	s := &watcher{r: r, w: w, selected: selected, session: req.Header.Get(laneclient.SessionHeader), at: from}
	lines, ok := s.begin(from)
	if !ok {
		s.send(req, marker(laneclient.EventCompacted, s.at))
		return nil
	}
	if !s.send(req, append(lines, marker(laneclient.EventSynced, s.at)...)) {
		return nil
	}
	s.follow(req, epoch)
	return nil
}

// follow sends changes and progress until the watch ends.
func (s *watcher) follow(req *http.Request, epoch chan struct{}) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	due := false
	for {
		lines, asked, advanced, ok := s.next()
		if !ok {
			s.send(req, marker(laneclient.EventCompacted, s.at))
			return
		}
		if due || asked || s.records {
			s.records = false
			lines = append(lines, marker(laneclient.EventProgress, s.at)...)
		}
		if len(lines) > 0 && !s.send(req, lines) {
			return
		}
		due = false
		select {
		case <-req.Context().Done():
			return
		case <-epoch:
			s.send(req, marker(laneclient.EventCompacted, s.at))
			return
		case <-advanced:
		case <-tick.C:
			due = true
		}
	}
}

// visible is what the replica sees: the present, or where it was frozen. The
// registry is locked.
func (r *Replica) visible() *picture {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen != nil {
		return r.frozen
	}
	return &picture{r.reg.objects, r.reg.rev}
}

// begin gives what a watch starts with; false: it cannot start at from.
func (s *watcher) begin(from uint64) (lines []byte, ok bool) {
	reg := s.r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	p := s.r.visible()
	if from > 0 {
		if from > reg.rev || from < reg.from {
			return nil, false
		}
		lines, ok = s.since(p)
		s.records = false // what follows says how far it is
		return lines, ok
	}
	s.at = p.rev
	s.asked = reg.asked[s.session]
	found := slices.SortedFunc(maps.Values(p.objects), func(a, b *object) int { return int(a.rev) - int(b.rev) })
	for _, o := range found {
		if slices.ContainsFunc(s.selected, func(sel selector) bool { return sel.selects(o) }) {
			lines = append(lines, put(o)...)
		}
	}
	return lines, true
}

// next gives what has happened since; false: it is no longer known.
func (s *watcher) next() (lines []byte, asked bool, advanced chan struct{}, ok bool) {
	reg := s.r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	lines, ok = s.since(s.r.visible())
	if n := reg.asked[s.session]; n > s.asked {
		s.asked, asked = n, true
	}
	return lines, asked, reg.advanced, ok
}

// since gives the changes after s.at that the replica sees.
func (s *watcher) since(p *picture) (lines []byte, ok bool) {
	reg := s.r.reg
	if s.at < reg.from && s.at < p.rev {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(reg.history, s.at+1, func(h record, rev uint64) int {
		if h.rev < rev {
			return -1
		}
		return 1
	})
	for _, h := range reg.history[at:] {
		if h.rev > p.rev {
			break
		}
		matches := func(o *object) bool {
			return slices.ContainsFunc(s.selected, func(sel selector) bool { return sel.selects(o) })
		}
		switch {
		case matches(h.after):
			lines = append(lines, put(h.after)...)
			s.records = s.records || h.kind == laneclient.KindCursors
		case matches(h.before):
			lines = append(lines, line(laneclient.Event{Type: laneclient.EventDelete, Revision: h.rev, Kind: h.kind, Name: h.name})...)
		}
	}
	s.at = max(s.at, p.rev)
	return lines, true
}

func line(e laneclient.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("lanetest: an event cannot be encoded: " + err.Error())
	}
	return append(b, '\n')
}

func put(o *object) []byte {
	return line(laneclient.Event{Type: laneclient.EventPut, Revision: o.rev, Kind: o.kind, Name: o.name, Object: o.body()})
}

func marker(t laneclient.EventType, rev uint64) []byte {
	return line(laneclient.Event{Type: t, Revision: rev})
}

// send writes lines after the replica's delay; false: the watch is over.
func (s *watcher) send(req *http.Request, lines []byte) bool {
	if !s.r.wait(req.Context()) {
		return false
	}
	s.w.Header().Set("Content-Type", "application/x-ndjson")
	if _, err := s.w.Write(lines); err != nil {
		return false
	}
	return http.NewResponseController(s.w).Flush() == nil
}

// explain answers who would get a call.
func (r *Replica) explain(w http.ResponseWriter, req *http.Request) error {
	service, color, protocol, faults := laneclient.ParseCall(req.URL.Query())
	if len(faults) > 0 {
		return invalid(faults[0].Field, "%s", faults[0].Detail)
	}
	r.reg.mu.Lock()
	p := r.reg.picture()
	r.reg.mu.Unlock()
	return writeJSON(w, http.StatusOK, viewOf(p).Explain(service, color, protocol, r.host))
}

// viewOf lays a picture out for routing.
func viewOf(p *picture) *laneclient.View {
	v, instances := &laneclient.View{Revision: p.rev}, map[string]*laneclient.Instance{}
	in := lane.Input{Revision: p.rev}
	for at, o := range p.objects {
		switch obj := o.obj.(type) {
		case *laneclient.Lane:
			in.Lanes = append(in.Lanes, obj.Routing())
		case *laneclient.Service:
			in.Services = append(in.Services, at.name)
		case *laneclient.Instance:
			in.Instances = append(in.Instances, obj.Routing())
			instances[at.name] = obj
		}
	}
	v.Snapshot, v.Instances = lane.NewSnapshot(in), laneclient.NewObjects(instances)
	return v
}
