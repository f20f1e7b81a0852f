package test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// applies gives apply a text and returns what it wrote to stderr and its exit status.
func (s *server) applies(t *testing.T, text string, flags ...string) (stderr string, status int) {
	t.Helper()
	_, stderr, status = cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, text, append([]string{"apply", "-f", "-"}, flags...)...)
	return stderr, status
}

// TestApplyRefusesWhatCanNeverBeRight applies rules with a mistake over a good one, which
// has to stay; a lane that is not there yet is none.
func TestApplyRefusesWhatCanNeverBeRight(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "lane", "create", "blue")
	const head = "kind: rules\nname: fifth\n"
	if stderr, status := s.applies(t, head+"match: {path: /}\nlanes: [{lane: blue, percent: 20}]\nkey: header:x-user\n"); status != 0 {
		t.Fatal(stderr)
	}
	for text, field := range map[string]string{
		"match: {path: /}\nlanes: [{lane: blue, percent: 200}]\n":             "lanes[0].percent: ",
		"match: {path: /}\nlanes: [{lane: blue, percent: 20}]\nkey: x-user\n": "key: ",
		"match: {path: /}\n":      "lanes: ",
		"lanes: [{lane: blue}]\n": "match: ",
		"match: {path: /}\nlanes: [{lane: blue, percent: 60}, {lane: green}]\n": "lanes: ",
	} {
		for _, flags := range [][]string{nil, {"--dry-run"}} {
			stderr, status := s.applies(t, head+text, flags...)
			if status != 1 || !strings.Contains(stderr, "rules/fifth: "+field) {
				t.Errorf("%q %v: exit status %d, want 1 and %q: %s", text, flags, status, field, stderr)
			}
		}
	}
	var rule laneclient.Rule
	if err := json.Unmarshal([]byte(s.must(t, "rule", "show", "fifth", "-o", "json")), &rule); err != nil {
		t.Fatal(err)
	}
	if rule.Status != "ok" || len(rule.Lanes) != 1 || rule.Lanes[0].Percent != 20 {
		t.Errorf("the rule is %+v, want the good one", rule)
	}
	stderr, status := s.applies(t, head+"match: {path: /}\nlanes: [{lane: bleu}]\n")
	if status != 0 || !strings.Contains(stderr, "warning: ") || !strings.Contains(stderr, "there is no lane bleu") {
		t.Errorf("exit status %d, want 0 and a warning: %s", status, stderr)
	}
}
