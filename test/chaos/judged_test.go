package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
)

// TestJudgeSent: what producers have written down is held against the log, each rule for
// itself. Lines are a letter, a second, and for the batch of a life what it says; the log has
// values with the partition that they lie in.
func TestJudgeSent(t *testing.T) {
	window := int(jetstream.DedupWindow.Seconds())
	for name, tt := range map[string]struct {
		books map[string]string // by life
		log   string
		grown int // when the topic grew; 0: not
		want  string
		sent  string // a part of the summary
	}{
		"all is well":           {books: map[string]string{"p0.1": "t 1 p0.1, a 2 p0.1, e 3"}, log: "p0.1:0/0 p0.1:1/1"},
		"a message is missing":  {books: map[string]string{"p0.1": "t 1 p0.1, a 2 p0.1"}, log: "p0.1:0/0", want: "taken by the engine, and not in the log"},
		"nobody has sent it":    {books: map[string]string{"p0.1": "t 1 p0.1, a 2 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:2/1", want: "sent by nobody"},
		"it is there twice":     {books: map[string]string{"p0.1": "t 1 p0.1, a 2 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/1", want: "more than once"},
		"it is in doubt":        {books: map[string]string{"p0.1": "t 1 p0.1"}, log: "p0.1:0/0", want: "still in doubt"},
		"it was given up":       {books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "g 2 p0.1"}, log: "p0.1:0/0", sent: "2 given up in doubt, 1 of them were there"},
		"given up and twice":    {books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "g 2 p0.1"}, log: "p0.1:0/0 p0.1:0/0", want: "more than once"},
		"another one sent it":   {books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "t 3 p0.1, a 4 p0.1"}, log: "p0.1:0/0 p0.1:1/1", sent: "2 messages sent again by another one, 2 of them were there"},
		"it ended and did not":  {books: map[string]string{"p0.1": "t 1 p0.1, e 2", "p0.2": "t 3 p0.1, a 4 p0.1"}, log: "p0.1:0/0 p0.1:1/1", want: "left in doubt by who ended well"},
		"its color has changed": {books: map[string]string{"p0.1": "t 1 p0.1 blue, a 2 p0.1 blue"}, log: "p0.1:0/0 p0.1:1/1", want: "changed on their way"},
		"another one doubled it where it was": {
			books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "t 3 p0.1, a 4 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/1", grown: 2, want: "more than once",
		},
		"its topic grew":              {books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "t 3 p0.1, a 4 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/7", grown: 2, sent: "1 of them since their topic grew"},
		"its topic grew for the same": {books: map[string]string{"p0.1": "t 1 p0.1, a 3 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/7", grown: 2, want: "more than once"},
		"its topic grew before":       {books: map[string]string{"p0.1": "t 101 p0.1", "p0.2": "t 103 p0.1, a 104 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/7", grown: 2, want: "more than once"},
		"its topic grew afterwards":   {books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": "t 3 p0.1, a 4 p0.1"}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/7", grown: 5, want: "more than once"},
		"its ID is forgotten": {
			books: map[string]string{"p0.1": "t 1 p0.1", "p0.2": fmt.Sprintf("t %d p0.1, a %d p0.1", window, window+1)}, log: "p0.1:0/0 p0.1:1/1 p0.1:1/1", sent: "1 too late",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &chaos{site: &site{t: t, folder: t.TempDir(), outlets: []*outlet{{lives: []string{"p0.1", "p0.2"}}}}}
			if tt.grown > 0 {
				at := time.Unix(int64(tt.grown), 0)
				c.grown = span{at, at}
			}
			writeSent(t, c, tt.books)
			got, err := c.judgeSent(logOf(tt.log))
			if err != nil {
				t.Fatal(err)
			}
			wrong := got.errors()
			if tt.want == "" && len(wrong) > 0 || tt.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], tt.want)) {
				t.Errorf("wrong is %q, want %q", wrong, tt.want)
			}
			if !strings.Contains(got.String(), tt.sent) {
				t.Errorf("%s, want %q", got, tt.sent)
			}
		})
	}
}

// writeSent writes books of producers, of batches of two messages.
func writeSent(t *testing.T, c *chaos, books map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(c.folder, "sent"), 0o750); err != nil {
		t.Fatal(err)
	}
	for life, lines := range books {
		var text strings.Builder
		for line := range strings.SplitSeq(lines, ", ") {
			words := append(strings.Fields(line), "-")
			fmt.Fprintf(&text, "%s %s000000000", words[0], words[1])
			if words[0] != string(lineEnded) {
				fmt.Fprintf(&text, " %s", batch{words[2], ordersTopic, undash(words[3]), 0, 1})
			}
			fmt.Fprintln(&text)
		}
		if err := os.WriteFile(c.sentBook(life), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// logOf is a log with values and partitions, all of them from the second after the first.
func logOf(text string) map[string][]copied {
	log := map[string][]copied{}
	for word := range strings.FieldsSeq(text) {
		value, index, _ := strings.Cut(word, "/")
		p := consume.Partition{Topic: ordersTopic, Index: int32(index[0] - '0')}
		log[value] = append(log[value], copied{p, time.Unix(2, 0), &logged{value: value}})
	}
	return log
}
