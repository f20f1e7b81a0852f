package consume

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRecordKeepsWhatItDoesNotKnow(t *testing.T) {
	const stored = `{"v":1,"hue":7,"main":{"holder":{"session":"s1"},"why":"x"},` +
		`"colors":{"green":{"from":5,"holder":null,"age":3},"red":{"from":9,"holder":{"session":"s2","lane":"red"}}},"epoch":"e"}`
	var r Record
	if err := json.Unmarshal([]byte(stored), &r); err != nil {
		t.Fatal(err)
	}
	if r.Main != (Holder{Session: "s1"}) || r.Epoch != "e" || r.Colors["green"].From != 5 || !r.Colors["green"].Holder.None() ||
		r.Colors["red"].Holder != (Holder{"s2", "red"}) {
		t.Errorf("read %+v", r)
	}
	c := r.Clone()
	c.setHolder("green", Holder{"s3", "green"})
	c.setHolder(Main, Holder{})
	if !r.Colors["green"].Holder.None() || r.Main.None() {
		t.Error("a clone shares its colors")
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{`"hue":7`, `"why":"x"`, `"age":3`, `"session":"s3"`, `"v":1`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s lacks %s", out, kept)
		}
	}
}

func TestRecordOfALaterVersion(t *testing.T) {
	var r Record
	var n Note
	if err := json.Unmarshal([]byte(`{"v":2,"main":{}}`), &r); !errors.Is(err, ErrVersion) {
		t.Errorf("record: %v", err)
	}
	if err := json.Unmarshal([]byte(`{"v":2,"pos":1}`), &n); !errors.Is(err, ErrVersion) {
		t.Errorf("note: %v", err)
	}
	for _, bad := range []string{
		`{}`, `{"v":0,"pos":1}`, `{"v":1,"pos":-1}`, `{"v":1,"pos":2,"left":[2]}`, `{"v":1,"pos":9,"left":[3,3]}`,
		`{"v":1,"pos":9,"left":[-1]}`, `null`, `[]`,
	} {
		if err := json.Unmarshal([]byte(bad), &n); err == nil {
			t.Errorf("note %s is taken as %+v", bad, n)
		}
	}
	for _, bad := range []string{`{}`, `{"v":1,"main":{},"colors":{"No Lane":{"from":1}}}`, `{"v":1,"colors":{"green":{"from":-2}}}`} {
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("record %s is taken as %+v", bad, r)
		}
	}
}

// TestPlainRecord: a record without fields that are not known is read and written by a shorter
// way, to the same.
func TestPlainRecord(t *testing.T) {
	for _, stored := range []string{
		`{"v":1,"main":{"holder":null}}`,
		`{"v":1,"main":{"holder":{"session":"s1"}},"epoch":"e","reset":"r"}`,
		`{"v":1,"main":{"holder":{"session":"s1","lane":"blue"}},"colors":{"blue":{"from":0,"holder":null},"green":{"from":5,"holder":{"session":"s2","lane":"green"}}}}`,
	} {
		var short, long Record
		if err := short.UnmarshalJSON([]byte(stored)); err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if err := long.unmarshalAny([]byte(stored)); err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if !reflect.DeepEqual(short, long) {
			t.Errorf("%s is read as %+v, and the long way as %+v", stored, short, long)
		}
		out, err := short.MarshalJSON()
		if err != nil || string(out) != stored {
			t.Errorf("%s is written as %s (%v)", stored, out, err)
		}
		short.extra = fields{"z": json.RawMessage(`1`)}
		out, err = short.MarshalJSON()
		if want := strings.TrimSuffix(stored, "}") + `,"z":1}`; err != nil || !sameJSON(t, out, []byte(want)) {
			t.Errorf("with a field that is not known it is written as %s (%v), want %s", out, err, want)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"main":{"holder":{"session":"s1"}},"colors":{"green":{"from":5}},"epoch":"e","more":[1]}`))
	f.Add([]byte(`{"v":1,"pos":6,"left":[1,4],"more":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Record
		if json.Unmarshal(data, &r) == nil {
			sameAgain(t, &r, &Record{})
		}
		var n Note
		if json.Unmarshal(data, &n) == nil {
			sameAgain(t, &n, &Note{})
		}
	})
}

func sameAgain(t *testing.T, v, into any) {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%+v: %v", v, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	again, err := json.Marshal(into)
	if err != nil || string(again) != string(out) {
		t.Errorf("%s became %s (%v)", out, again, err)
	}
}

func TestNoteSettled(t *testing.T) {
	n := Note{Pos: 6, Left: []int64{2, 4}}
	for o, want := range map[int64]bool{0: true, 2: false, 3: true, 4: false, 5: true, 6: false, 7: false} {
		if got := n.Settled(o); got != want {
			t.Errorf("offset %d settled: %v", o, got)
		}
	}
}
