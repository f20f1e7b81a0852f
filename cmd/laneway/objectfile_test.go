package main

import (
	"strings"
	"testing"
)

func TestReadObjectsReportsAllMistakes(t *testing.T) {
	const file = `kind: lanes
name: green
ttl: 1h
---
kind: lane
name: x
---
name: x
---
# empty documents are fine
---
kind: routes
name: r
servce: order
---
kind: rules
name: r
priority: high
lanes: [{lane: green}]
---
- kind: services
  name: order
- kind: instances
  name: i
---
just text
`
	objects, err := readObjects("f.yaml", strings.NewReader(file))
	if err == nil {
		t.Fatal("got no error")
	}
	want := []string{
		`f.yaml:5: kind "lane": want one of lanes, services,`, "f.yaml:8: kind is missing", "f.yaml:14: servce: is not known: ",
		"f.yaml:18: priority: want a whole number", "f.yaml:23: service is missing", "f.yaml:26: is no object",
	}
	got := flatten(err)
	if len(got) != len(want) {
		t.Errorf("got %d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i, prefix := range want {
		if i < len(got) && !strings.HasPrefix(got[i].Error(), prefix) {
			t.Errorf("mistake %d is %q, want one of %q", i, got[i], prefix)
		}
	}
	for text, want := range map[string]string{
		"": "f: is empty: ", "# nothing\n---\n": "f: is empty: ", "[]": "",
		"kind: lanes\nname: [": "f:2: ", "kind: x\n\tname: y": "f:2: ",
		"kind: services\nname: s\ncheck:\n  interval: 5\n":                                  "f:4: check.interval: want a duration such as ",
		"kind: rules\nname: r\nlanes:\n  - lane: green\n  - lane: blue\n    percent: ten\n": "f:6: lanes[1].percent: want a number",
		"kind: instances\nname: i\nservice: s\nlabels: {a.b: c,\n  a: 7}\n":                 "f:5: labels.a: want a string",
	} {
		_, err := readObjects("f", strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if len(objects) != 2 || objects[0].String() != "lanes/green" || objects[1].String() != "services/order" {
		t.Errorf("got %v, want the two objects without a mistake", objects)
	}
}

func TestOrdered(t *testing.T) {
	const file = `[{"kind":"rules","name":"r","lanes":[]},{"kind":"lanes","name":"aaa","parent":"mmm"},{"kind":"lanes","name":"mmm","parent":"zzz"},
{"kind":"instances","name":"i","service":"s"},{"kind":"lanes","name":"zzz"},{"kind":"services","name":"s"},
{"kind":"lanes","name":"loop","parent":"pool"},{"kind":"lanes","name":"pool","parent":"loop"}]`
	objects, err := readObjects("f.json", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range ordered(objects) {
		got = append(got, o.String())
	}
	order := strings.Join(got, " ")
	for _, pair := range [][2]string{{"lanes/zzz", "lanes/mmm"}, {"lanes/mmm", "lanes/aaa"}, {"lanes/aaa", "services/s"}, {"services/s", "instances/s/i"}, {"instances/s/i", "rules/r"}} {
		if strings.Index(order, pair[0]) > strings.Index(order, pair[1]) {
			t.Errorf("%s comes after %s in %s", pair[0], pair[1], order)
		}
	}
	if len(got) != 8 {
		t.Errorf("got %v, want all 8", got)
	}
}

func TestPlan(t *testing.T) {
	read := func(text string) []*object {
		objects, err := readObjects("f", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	have := present{map[string]*object{}, map[string]uint64{}}
	for _, o := range read(`[{"kind":"lanes","name":"same"},{"kind":"lanes","name":"changed","ttl":"1h"},{"kind":"lanes","name":"gone"},{"kind":"lanes","name":"gone-child","parent":"gone"}]`) {
		have.objects[o.String()] = o
	}
	want := read(`[{"kind":"lanes","name":"same","ttl":"72h","generation":7},{"kind":"lanes","name":"changed","ttl":"60m","owner":"ann"},{"kind":"lanes","name":"new"}]`)
	text := func(prune bool) (string, int) {
		steps, same := plan(ordered(want), have, prune)
		var b strings.Builder
		for _, s := range steps {
			if err := s.write(&b, false); err != nil {
				t.Fatal(err)
			}
		}
		return b.String(), same
	}
	const changes = "~ lanes/changed\n    owner: - -> \"ann\"\n+ lanes/new\n"
	if got, same := text(false); got != changes || same != 1 {
		t.Errorf("got\n%s%d the same; want\n%s1 the same", got, same, changes)
	}
	if got, _ := text(true); got != changes+"- lanes/gone-child\n- lanes/gone\n" {
		t.Errorf("with prune got\n%s", got)
	}
}

func TestToYAML(t *testing.T) {
	got, err := toYAML(map[string]any{"name": "yes", "n": "01", "empty": "", "list": []any{}, "t": "a: b", "lines": "a\nb", "num": 1.5})
	if err != nil {
		t.Fatal(err)
	}
	const want = "empty: \"\"\nlines: |-\n  a\n  b\nlist: []\n\"n\": \"01\"\nname: \"yes\"\nnum: 1.5\nt: 'a: b'\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
