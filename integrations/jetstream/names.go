package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// baselineToken stands for no color in a subject; it is no lane name.
const baselineToken = "_"

// encode makes a topic's name a token of subjects and streams: letters, digits and dashes
// stay, other bytes become _ and two hex digits, so that no two names become one.
func encode(topic string) string {
	var b strings.Builder
	for i := range len(topic) {
		if c := topic[i]; plain(rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// decodeName is the reverse of encode.
func decodeName(token string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '_' {
			b.WriteByte(token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", false
		}
		c, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), true
}

// log is one partition's stream.
type log struct {
	p      consume.Partition
	stream string
	base   string // of its subjects
	ack    string // how the answer to an append begins
}

func newLog(prefix, topic, incarnation string, index int32) log {
	name := encode(topic)
	// The name is for people, the incarnation makes it unique.
	stream := fmt.Sprintf("%s_%s_%s_%d", prefix, name[:min(len(name), 120)], incarnation, index)
	return log{
		p:      consume.Partition{Topic: topic, Index: index},
		stream: stream,
		base:   prefix + ".log." + incarnation + "." + strconv.Itoa(int(index)),
		ack:    `{"stream":"` + stream + `","seq":`,
	}
}

func colorToken(c lane.Name) string {
	if c == lane.Baseline {
		return baselineToken
	}
	return string(c)
}

// subject of messages of a color.
func (l log) subject(c lane.Name) string { return l.base + ".m." + colorToken(c) }

// filter is the subject of messages that a read wants.
func (l log) filter(f consume.Filter) string {
	if f.All {
		return l.base + ".m.*"
	}
	return l.subject(f.Color)
}

// gives reports whether a subject is one of messages that are given out, not one of those
// that wait.
func (l log) gives(subject string) bool { return strings.HasPrefix(subject, l.base+".m.") }

// delayed is the subject of one message that waits: no other has it.
func (l log) delayed(id string) string { return l.base + ".s." + id }

// wakeToken is what a read that waits listens to.
func wakeToken(f consume.Filter) string {
	if f.All {
		return "*"
	}
	return colorToken(f.Color)
}

// wake is the subject on which those that wait for messages hear of them. No stream has it.
func (l log) wake(token string) string {
	return strings.Replace(l.base, ".log.", ".wake.", 1) + "." + token
}

// colorOf is the color of a subject. A token that is no lane name is none: somebody else put
// the message there.
func colorOf(subject string) lane.Name {
	c := lane.Name(subject[strings.LastIndexByte(subject, '.')+1:])
	if c == baselineToken || !c.Valid() {
		return lane.Baseline
	}
	return c
}
