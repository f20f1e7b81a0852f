package jetstream

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func TestList(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	if got, err := e.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("a new engine has %v, %v", got, err)
	}
	want := []consume.TopicSpec{
		{Name: "a.b_c", Partitions: 3}, {Name: "orders", Partitions: 1, Retention: time.Hour}, {Name: "ä%", Partitions: 1},
	}
	for _, spec := range want {
		ensure(t, e, spec)
	}
	if got, err := e.List(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if err := e.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"_", "_6frders", "a_2Eb_5Fc"} { // of somebody else: no name, none of a topic, and one once more
		if _, err := e.js.Publish(t.Context(), e.cfg.Prefix+".topics."+token, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := e.List(t.Context()); err != nil || !slices.Equal(got, []consume.TopicSpec{want[0], want[2]}) {
		t.Errorf("after a delete: got %v, %v; want two", got, err)
	}
}

// TestCountAndRemove: counts are those of what a reader would get, by color, from anywhere,
// without what is not due yet and without what was removed.
func TestCountAndRemove(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	var ms []*consume.Message
	for i := range 30 {
		m := &consume.Message{Partition: orders, Value: []byte{byte(i)}}
		if i%3 == 0 {
			m.Color = "green"
		}
		ms = append(ms, m)
	}
	ms = append(ms, &consume.Message{Partition: orders, Delay: time.Hour, Color: "green"})
	if err := e.Append(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	all, green := consume.Filter{All: true}, consume.Filter{Color: "green"}
	check := func(from int64, f consume.Filter, want int64) {
		t.Helper()
		if got, err := e.Count(t.Context(), orders, from, f); err != nil || got != want {
			t.Errorf("count from %d of %+v: got %d, %v; want %d", from, f, got, err, want)
		}
	}
	check(0, all, 30)
	check(0, green, 10)
	check(0, consume.Filter{}, 20)
	check(0, consume.Filter{Color: "blue"}, 0)
	check(16, all, 15)
	check(17, green, 4)
	check(31, all, 0)
	check(1000, green, 0)
	if err := e.Remove(t.Context(), orders, 1, 2, 28); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), orders, 1, 500); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	check(0, all, 27)
	check(0, green, 8)
	b, err := e.Read(t.Context(), orders, 0, green, 1)
	if err != nil || len(b.Messages) != 1 || b.Messages[0].Offset != 4 {
		t.Errorf("got %+v, %v; want offset 4 first", b, err)
	}
	if _, err := e.Count(t.Context(), consume.Partition{Topic: "none"}, 0, all); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("count of no topic: %v", err)
	}
	if err := e.Remove(t.Context(), consume.Partition{Topic: "none"}, 1); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("remove from no topic: %v", err)
	}
}

func TestDecodeName(t *testing.T) {
	for _, name := range []string{"a", "orders.retry", "_", "__2e", "ä ö", "a%b"} {
		if got, ok := decodeName(encode(name)); !ok || got != name {
			t.Errorf("%q: got %q, %v", name, got, ok)
		}
	}
	for _, token := range []string{"_", "a_2", "_zz"} {
		if got, ok := decodeName(token); ok {
			t.Errorf("%q: got %q, want nothing", token, got)
		}
	}
}

// TestDrop: nothing of a prefix is left, and nothing of others is touched.
func TestDrop(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	other := open(t, Config{URL: e.URL(), Prefix: "demo-1"})
	for _, name := range []string{"orders", "more", "and", "again", "one"} {
		ensure(t, other, consume.TopicSpec{Name: name, Partitions: 3})
	}
	if err := other.drop(t.Context(), 2); err != nil { // as with 25,000 topics
		t.Fatal(err)
	}
	var left []string
	names := e.js.StreamNames(t.Context())
	for name := range names.Name() {
		left = append(left, name)
	}
	if err := names.Err(); err != nil || len(left) != 2 {
		t.Errorf("streams are left: %q %v, want the topics and one partition of the other prefix", left, err)
	}
	if got, err := e.List(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("topics of the other prefix: %v %v", got, err)
	}
}
