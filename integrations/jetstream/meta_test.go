package jetstream

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func FuzzMeta(f *testing.F) {
	f.Add("", []byte(nil))
	f.Add(encodeMeta(&consume.Message{Key: []byte("k")}), []byte("k"))
	f.Add(encodeMeta(&consume.Message{
		Key: []byte{0}, Attempt: 3, Error: "bad", Time: time.Unix(1, 2),
		Headers: []consume.Header{{Name: "a", Value: []byte("b")}, {Name: "a"}},
		Origin:  &consume.Origin{Partition: consume.Partition{Topic: "t", Index: 1}, Offset: 1 << 40, Group: "g", Lane: "green"},
	}), []byte("x"))
	f.Fuzz(func(t *testing.T, block string, key []byte) {
		var m consume.Message
		if decodeMeta(block, &m) == nil {
			var again consume.Message
			if text := encodeMeta(&m); text != "" {
				if err := decodeMeta(text, &again); err != nil || !reflect.DeepEqual(m, again) {
					t.Fatalf("%+v became %+v: %v", m, again, err)
				}
			}
		} else if !reflect.DeepEqual(m, consume.Message{}) {
			t.Fatalf("a malformed block set %+v", m)
		}
		in := consume.Message{Key: key, Error: block, Attempt: len(key), Headers: []consume.Header{{Name: block, Value: key}}}
		var out consume.Message
		if err := decodeMeta(encodeMeta(&in), &out); err != nil || !bytes.Equal(out.Key, key) || out.Error != block || out.Attempt != len(key) ||
			out.Headers[0].Name != block || !bytes.Equal(out.Headers[0].Value, key) {
			t.Fatalf("%+v became %+v: %v", in, out, err)
		}
	})
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
