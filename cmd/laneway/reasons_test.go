package main

import (
	"os"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// TestGuideExplainsWords has the guide say of every reason what the command says, and
// something of every way to get a color.
func TestGuideExplainsWords(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/coloring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, words, found := strings.Cut(string(text), "## What the words mean\n")
	if !found {
		t.Fatal("the guide has no section on the words")
	}
	for _, reason := range []lane.Reason{
		lane.ReasonPlain, lane.ReasonLane, lane.ReasonParent, lane.ReasonBaseline, lane.ReasonUnknown,
		lane.ReasonEnded, lane.ReasonStrict, lane.ReasonStrictNo, lane.ReasonNone,
	} {
		row := "| `" + string(reason) + "` | " + reasonText(string(reason)) + " |"
		if !strings.Contains(words, row) {
			t.Errorf("the guide lacks the row %s", row)
		}
	}
	for _, rule := range []lane.Rule{
		lane.RuleHost, lane.RuleHeader, lane.RuleCookie, lane.RuleQuery, lane.RulePath, lane.RuleMethod, lane.RuleUser,
		lane.RulePercent, lane.RuleSource, lane.RuleSigned, lane.RuleTrusted, lane.RuleProcess,
	} {
		if !strings.Contains(words, "`"+string(rule)+"`") {
			t.Errorf("the guide says nothing of %s", rule)
		}
	}
}
