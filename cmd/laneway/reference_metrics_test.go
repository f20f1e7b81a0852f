package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestMetricsReference: the page lists every metric that there is, those of consumers with their
// labels, and no other.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	page := read("../../docs/reference/metrics.md")
	names := func(text []byte, form string) (out []string) {
		for _, m := range regexp.MustCompile(form).FindAllSubmatch(text, -1) {
			out = append(out, string(bytes.Join(m[1:], []byte(" "))))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	var consumers bytes.Buffer
	if err := consume.WriteMetrics(&consumers, consume.Stats{
		Dead: map[consume.BuryReason]int64{"": 1}, Alarms: map[consume.AlarmKind]int64{"": 1}, Writes: map[string]int64{"": 1},
		Moves: map[consume.MoveKind]map[consume.Why]int64{"": {"": 1}}, Cursors: []consume.CursorStats{{Behind: 1}},
	}); err != nil {
		t.Fatal(err)
	}
	listed := names(page, `(?m)^\| .(laneway_\w+). \|`)
	there := slices.Concat(names(read("../../internal/telemetry/metrics.go"), `= "(laneway_\w+)"`), names(consumers.Bytes(), `(?m)^# TYPE (\w+) `))
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("docs/reference/metrics.md lists\n%q\nand there are\n%q", listed, there)
	}
	for _, series := range names(consumers.Bytes(), `(?m)^(laneway_\w+)\{(.*)\}`) {
		name, labels, _ := bytes.Cut([]byte(series), []byte(" "))
		row := regexp.MustCompile(`(?m)^\| .` + string(name) + `. \| (.*?) \|`).FindSubmatch(page)
		if row == nil {
			continue
		}
		if got, want := names(row[1], "`(\\w+)`"), names(labels, `(\w+)="`); !slices.Equal(got, want) {
			t.Errorf("%s: labels on the page are %q, and it has %q", name, got, want)
		}
	}
}
