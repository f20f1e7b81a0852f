package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// TestJudgeFailed: what consumers said had failed is held against retry and dead-letter topics,
// each rule for itself. Messages are a color, how often they have failed, and the offset of
// their first place.
func TestJudgeFailed(t *testing.T) {
	brief := string(briefNames()[1])
	last := len(retries()) + 1
	for name, tt := range map[string]struct {
		said          []int64 // offsets of first places
		retried, dead string
		want          string
		missing       int
	}{
		"all is well":                     {said: []int64{1, 2}, retried: "green/1/1 green/1/2"},
		"it went no further":              {said: []int64{1, 2}, retried: "green/1/1", want: "neither retried nor dead", missing: 1},
		"it was retried twice":            {said: []int64{1}, retried: "green/1/1 green/1/1", want: "retried or dead 2 times"},
		"nobody said so":                  {retried: "green/1/1", want: "nobody said that it had failed"},
		"it is dead too early":            {said: []int64{1}, dead: "green/1/1", want: "dead too early"},
		"it is retried too often":         {said: []int64{1}, retried: fmt.Sprintf("green/1/1 green/%d/1", last), want: "retried too often"},
		"its lane has ended":              {dead: brief + "/0/1"},
		"its lane ended as it had failed": {said: []int64{1}, dead: brief + "/0/1"},
		"its lane never ended":            {dead: "strict-load/0/1", want: "never ended"},
		"it is dead twice":                {dead: brief + "/0/1 " + brief + "/0/1", want: "is dead 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failed{tries: map[try]int{}}
			f.retried = f.take(consume.RetryTopic(ordersTopic, "g"), tt.retried)
			f.dead = f.take(consume.DeadTopic(ordersTopic, "g"), tt.dead)
			p := &progress{failed: map[place]bool{}}
			for _, o := range tt.said {
				p.failed[place{consume.Partition{Topic: ordersTopic}, o}] = true
			}
			wrong := f.check(p.failed)
			if tt.want == "" && len(wrong) > 0 || tt.want != "" && !strings.Contains(strings.Join(wrong, ", "), tt.want) {
				t.Errorf("found %q, want %q", wrong, tt.want)
			}
			if _, missing := f.outstanding(p); missing != tt.missing+len(f.retried) {
				t.Errorf("%d are missing, want %d and those that wait", missing, tt.missing)
			}
		})
	}
}

// take reads messages as they lie in a topic.
func (f *failed) take(topic, text string) (out []*consume.Message) {
	for n, word := range strings.Fields(text) {
		color, rest, _ := strings.Cut(word, "/")
		m := &consume.Message{
			Partition: consume.Partition{Topic: topic}, Offset: int64(n), Color: lane.Name(color),
			Origin: &consume.Origin{Partition: consume.Partition{Topic: ordersTopic}},
		}
		if _, err := fmt.Sscanf(rest, "%d/%d", &m.Attempt, &m.Origin.Offset); err != nil {
			panic(err)
		}
		out = append(out, m)
		f.tries[tryOf(m)]++
	}
	return out
}
