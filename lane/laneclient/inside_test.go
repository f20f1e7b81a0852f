package laneclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	b := backoff{least: 100 * time.Millisecond, most: time.Second}
	for n := range 40 {
		full := min(time.Second, 100*time.Millisecond<<min(n, 10))
		if d := b.next(); d < full/2 || d > full {
			t.Errorf("wait %d is %v, want %v to %v", n, d, full/2, full)
		}
	}
	b.reset()
	if d := b.next(); d > 100*time.Millisecond {
		t.Errorf("after reset it is %v", d)
	}
}

func TestUsedSetIsBoundedAndForgets(t *testing.T) {
	u := newUsedSet()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 5000 {
				u.note(lane.Name(fmt.Sprintf("lane%d", n*(g%2))))
			}
		})
	}
	wg.Wait()
	names := u.take()
	if len(names) > usedSlots || len(names) < usedSlots/2 {
		t.Errorf("%d names are kept of 5000, want up to %d", len(names), usedSlots)
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Errorf("%s stands there twice", n)
		}
		seen[n] = true
	}
	if again := u.take(); len(again) > 0 {
		t.Errorf("%d names are taken twice", len(again))
	}
}

// pieces is a transport whose watch answers with a text, in reads of the given size.
type pieces struct {
	text string
	size int
}

func (p *pieces) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r,
		Body: io.NopCloser(&smallReads{strings.NewReader(p.text), p.size}),
	}, nil
}

type smallReads struct {
	r    io.Reader
	size int
}

func (s *smallReads) Read(b []byte) (int, error) { return s.r.Read(b[:min(len(b), s.size)]) }

func openStream(t *testing.T, text string, size int) *Stream {
	t.Helper()
	api := NewAPI(Config{Transport: &pieces{text, size}})
	s, err := api.Watch(context.Background(), 0, []string{"lanes"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func eventOf(size int) string {
	return `{"type":"put","kind":"lanes","revision":7,"name":"` + strings.Repeat("x", size) + `"}` + "\n"
}

func TestStreamLimitsLines(t *testing.T) {
	for _, size := range []int{1, streamBuffer - 100, streamBuffer, 3 * streamBuffer, MaxEventBytes - 100} {
		s := openStream(t, eventOf(size)+eventOf(3), 4093)
		for _, want := range []int{size, 3} {
			e, err := s.Next()
			if err != nil || len(e.Name) != want || e.Revision != 7 {
				t.Errorf("size %d: got %d bytes (%v), want %d", size, len(e.Name), err, want)
			}
		}
		if _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v, want EOF", err)
		}
	}
	s := openStream(t, eventOf(MaxEventBytes), 4093)
	if _, err := s.Next(); !errors.Is(err, ErrEventTooLong) {
		t.Errorf("got %v, want ErrEventTooLong", err)
	}
	s = openStream(t, eventOf(3)[:20], 4093)
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("half a line: %v, want EOF", err)
	}
}

// FuzzStream: whatever a control plane sends, the client neither panics nor keeps
// more than a line of it.
func FuzzStream(f *testing.F) {
	f.Add([]byte(eventOf(3)), 1)
	f.Add([]byte("\n\n{}\nnull\n[]\n"), 7)
	f.Add([]byte(`{"type":"put","kind":"instances","name":"a/b","revision":1,"object":{"endpoints":[null]}}`+"\n"), 100)
	f.Add([]byte(`{"type":"put","kind":"rules","object":{"match":{"user":{}}}}`+"\n"+`{"type":"synced","revision":18446744073709551615}`+"\n"), 3)
	f.Add([]byte(`{"type":"put","kind":"members","name":"g/m","revision":1,"object":{"topics":null}}`+"\n"+
		`{"type":"put","kind":"groups","name":"g","revision":2,"object":{"reset":{"offsets":{"a/b/c":1,"a/0":-1}}}}`+"\n"+
		`{"type":"put","kind":"cursors","name":"e/g/t/0","revision":3,"object":{"record":{"main":{}}}}`+"\n"+
		`{"type":"delete","kind":"cursors","name":"g/t/0","revision":4}`+"\n"+`{"type":"synced","revision":4}`+"\n"), 50)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		s := openStream(t, string(text), min(max(size, 1), 1<<16))
		m, g := newModel("s", selectInstances), newGroupModel()
		v := &View{}
		for range 10_000 {
			e, err := s.Next()
			if err != nil {
				break
			}
			if ch, known, err := decodeChange(e, readGroup); err == nil && known {
				_ = g.apply(ch) // it fails where there are too many
			}
			ch, known, err := decodeChange(e, readViewed)
			if err != nil || !known {
				continue
			}
			if err := m.apply(ch); err != nil {
				break
			}
		}
		m.markAll()
		m.fill(v, "")
		if u, ok := g.update(); ok {
			g.told(&u)
		}
		if u, ok := g.update(); ok {
			t.Errorf("%+v is told twice", u)
		}
		if cap(s.long) > MaxEventBytes+2*streamBuffer {
			t.Errorf("%d bytes are kept of a line", cap(s.long))
		}
	})
}

// FuzzSnapshotFile: a file that was touched is refused, one that was not is read as
// it was written.
func FuzzSnapshotFile(f *testing.F) {
	good, err := encodeView(sampleView(), time.Unix(1, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(`{"version":1,"sha256":"","view":{}}`))
	f.Add([]byte(`{"version":1,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","view":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeView(data)
		if err != nil {
			if !errors.Is(err, errFile) {
				t.Errorf("error is %v, want errFile", err)
			}
			return
		}
		v := &View{}
		m.fill(v, "")
		v.Revision = m.complete
		again, err := encodeView(v, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		m2, err := decodeView(again)
		if err != nil {
			t.Fatalf("what was read cannot be written and read: %v", err)
		}
		v2 := &View{}
		m2.fill(v2, "")
		if !sameObjects(v, v2) {
			t.Error("what was read is not what was written")
		}
	})
}

// sameObjects reports whether two views have the same lanes, services and instances.
func sameObjects(a, b *View) bool {
	return reflect.DeepEqual(maps.Collect(a.Instances.All()), maps.Collect(b.Instances.All())) &&
		reflect.DeepEqual(maps.Collect(a.Lanes.All()), maps.Collect(b.Lanes.All())) &&
		reflect.DeepEqual(maps.Collect(a.Services.All()), maps.Collect(b.Services.All()))
}

// viewOf is the view of a model, which does not notice.
func viewOf(m *model) *View {
	v := &View{}
	m.clone().fill(v, "")
	return v
}

func sampleView() *View {
	v := &View{
		Revision:  42,
		Lanes:     NewObjects(map[string]*Lane{"green": {Meta: Meta{Name: "green", Revision: 7}, State: "ready", Generation: 2}}),
		Services:  NewObjects(map[string]*Service{"order": {Meta: Meta{Name: "order"}}}),
		Instances: NewObjects(map[string]*Instance{"order/o1": {Meta: Meta{Name: "o1"}, Service: "order", Lane: "green", Generation: 2, Endpoints: []Endpoint{{Protocol: "http", Address: "127.0.0.1:1"}}, State: "ready"}}),
		Routes:    []Route{{Meta: Meta{Name: "api"}, Host: "<b>&.example.com", Service: "order"}},
		Rules:     []Rule{{Meta: Meta{Name: "r"}, Lanes: []LaneShare{{Lane: "green", Percent: 12.5}}}},
	}
	return v
}

func TestFileRoundTrip(t *testing.T) {
	want := sampleView()
	data, err := encodeView(want, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeView(data)
	if err != nil {
		t.Fatal(err)
	}
	got := &View{}
	m.fill(got, "")
	got.Revision = m.complete
	if !sameObjects(got, want) || got.Revision != want.Revision || !reflect.DeepEqual(got.Routes, want.Routes) || !reflect.DeepEqual(got.Rules, want.Rules) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for n := range data { // any one byte that is lost or changed is noticed, or does no harm
		for _, touched := range [][]byte{data[:n], append(append(bytes.Clone(data[:n]), data[n]^1), data[n+1:]...)} {
			m, err := decodeView(touched)
			if err != nil {
				continue
			}
			v := &View{}
			m.fill(v, "")
			if !sameObjects(v, want) {
				t.Fatalf("a change at byte %d was believed", n)
			}
		}
	}
}

// TestModelIsPure: a model that is given the changes again, or in other pieces, is
// the same; a clone goes its own way.
func TestModelIsPure(t *testing.T) {
	put := func(rev uint64, kind Kind, name string, obj any) change {
		raw, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		ch, known, err := decodeChange(Event{Type: EventPut, Revision: rev, Kind: kind, Name: name, Object: raw}, readViewed)
		if err != nil || !known {
			t.Fatal(err, known)
		}
		return ch
	}
	changes := []change{
		{Event: Event{Type: EventSynced, Revision: 10}},
		put(11, KindLanes, "green", &Lane{Meta: Meta{Name: "green"}, State: "ready", Generation: 1}),
		put(12, KindServices, "order", &Service{Meta: Meta{Name: "order"}}),
		put(12, KindInstances, "order/o1", &Instance{Meta: Meta{Name: "o1"}, Service: "order", Lane: "green", Generation: 1, State: "ready"}),
		{Event: Event{Type: EventDelete, Revision: 13, Kind: KindLanes, Name: "green"}},
	}
	m := newModel("s", selectInstances)
	var completes []uint64
	for _, ch := range changes {
		if err := m.apply(ch); err != nil {
			t.Fatal(err)
		}
		completes = append(completes, m.complete)
	}
	if want := []uint64{10, 10, 11, 11, 12}; !reflect.DeepEqual(completes, want) {
		t.Errorf("complete goes %v, want %v: a revision is whole when the next begins", completes, want)
	}
	c := m.clone()
	for _, ch := range changes[1:] {
		if err := c.apply(ch); err != nil {
			t.Fatal(err)
		}
	}
	if !sameObjects(viewOf(c), viewOf(m)) || c.seen != m.seen {
		t.Errorf("taken in twice: %+v, want %+v", c, m)
	}
	c.remove(KindInstances, "order/o1")
	if m.inst.Get("order/o1") == nil {
		t.Error("a clone's change is seen in the original")
	}
}

// TestRoutingIsRebuiltOnlyForRouting: what routing does not know of makes no new
// snapshot.
func TestRoutingIsRebuiltOnlyForRouting(t *testing.T) {
	m := newModel("s", selectInstances)
	l := &Lane{Meta: Meta{Name: "green"}, State: "ready", Generation: 1}
	if err := m.apply(change{Event: Event{Type: EventPut, Kind: KindLanes, Name: "green"}, obj: l}); err != nil {
		t.Fatal(err)
	}
	v := &View{}
	m.fill(v, "")
	used := *l
	used.LastUse = time.Now()
	if err := m.apply(change{Event: Event{Type: EventPut, Kind: KindLanes, Name: "green"}, obj: &used}); err != nil {
		t.Fatal(err)
	}
	next := *v
	m.fill(&next, "")
	if next.Snapshot != v.Snapshot {
		t.Error("the use of a lane made a new snapshot")
	}
	if next.Lanes.Get("green").LastUse.IsZero() || !v.Lanes.Get("green").LastUse.IsZero() {
		t.Error("the use of a lane is not in the new view, or changed the old one")
	}
}

// BenchmarkView is what a view costs when one instance changes among 1, 100 and 10,000
// lanes, each with an instance.
func BenchmarkView(b *testing.B) {
	for _, lanes := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			m := newModel("s", selectInstances)
			instance := func(name string, weight int) change {
				return change{Event: Event{Type: EventPut, Kind: KindInstances, Name: "order/" + name}, obj: &Instance{
					Meta: Meta{Name: name}, Service: "order", Lane: name, Generation: 1, State: "ready", Weight: weight,
					Endpoints: []Endpoint{{Protocol: "http", Address: "127.0.0.1:1"}},
				}}
			}
			for n := range lanes {
				name := fmt.Sprintf("lane%d", n)
				m.lanes.Put(name, &Lane{Meta: Meta{Name: name}, State: "ready", Generation: 1})
				if err := m.apply(instance(name, 1)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			v := &View{}
			for n := 2; b.Loop(); n++ {
				if err := m.apply(instance("lane0", n)); err != nil {
					b.Fatal(err)
				}
				next := *v
				m.fill(&next, "")
			}
		})
	}
}

func BenchmarkUsed(b *testing.B) {
	u := newUsedSet()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			u.note("green")
		}
	})
}

// TestMetaOf: every kind of object has its part, and what is none is a mistake of the caller's.
func TestMetaOf(t *testing.T) {
	t.Parallel()
	for _, obj := range []any{
		&Lane{}, &Service{}, &Instance{}, &Route{}, &Rule{}, &Session{}, &Engine{}, &Topic{}, &Group{}, &Member{}, &Cursor{},
	} {
		MetaOf(obj).Name = "a"
		if m := reflect.ValueOf(obj).Elem().FieldByName("Name"); m.String() != "a" {
			t.Errorf("%T: its name is %q", obj, m)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("what is no object has one, too")
		}
	}()
	MetaOf(new(int))
}
