package jetstream

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func FuzzMeta(f *testing.F) {
	add := func(m consume.Message) {
		header, payload := pack(&m)
		f.Add(header, payload)
	}
	add(consume.Message{})
	add(consume.Message{Key: []byte("k"), Value: []byte("v")})
	add(consume.Message{Key: bytes.Repeat([]byte("k"), maxMetaHeader), Value: []byte("v")})
	add(consume.Message{
		Key: []byte{0}, Attempt: 3, Error: "bad", Time: time.Unix(1, 2),
		Headers: []consume.Header{{Name: "a", Value: []byte("b")}, {Name: "a"}},
		Origin:  &consume.Origin{Partition: consume.Partition{Topic: "t", Index: 1}, Offset: 1 << 40, Group: "g", Lane: "green"},
	})
	add(consume.Message{Origin: &consume.Origin{Partition: consume.Partition{Topic: "t"}, Group: "g", Replay: "again", Only: "green"}})
	f.Add("+9", []byte("short"))
	f.Add("+-1", []byte("x"))
	f.Fuzz(func(t *testing.T, header string, payload []byte) {
		var m consume.Message
		if unpack(header, payload, &m) == nil {
			if h, p := pack(&m); h != "" {
				var again consume.Message
				if err := unpack(h, p, &again); err != nil || !same(&m, &again) {
					t.Fatalf("%+v became %+v: %v", m, again, err)
				}
			}
		} else if !reflect.DeepEqual(m, consume.Message{}) {
			t.Fatalf("what is malformed set %+v", m)
		}
		in := consume.Message{Key: payload, Error: header, Attempt: len(payload), Value: payload, Headers: []consume.Header{{Name: header, Value: payload}}}
		var out consume.Message
		h, p := pack(&in)
		if h == "" {
			t.Fatal("a message with a header needs no block")
		}
		if err := unpack(h, p, &out); err != nil || !same(&in, &out) {
			t.Fatalf("%+v became %+v: %v", in, out, err)
		}
	})
}

func same(a, b *consume.Message) bool {
	if len(a.Headers) != len(b.Headers) || (a.Origin == nil) != (b.Origin == nil) || a.Origin != nil && *a.Origin != *b.Origin {
		return false
	}
	for i, h := range a.Headers {
		if h.Name != b.Headers[i].Name || !bytes.Equal(h.Value, b.Headers[i].Value) {
			return false
		}
	}
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.Attempt == b.Attempt && a.Error == b.Error && a.Time.Equal(b.Time)
}

func TestEncode(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a.b", "a_b", "a_2eb", "A", "a b", "é", "a*", "a>", "a_5fb"} {
		got := encode(name)
		for _, c := range got {
			if !plain(c) && c != '_' {
				t.Errorf("%q becomes %q", name, got)
			}
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q both become %q", name, other, got)
		}
		seen[got] = name
	}
}
