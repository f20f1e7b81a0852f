package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// batch is what a producer sends in one call: messages of one color, by numbers that no other
// batch of its life has. Whoever sends it again makes the same messages of it, with the same
// IDs.
type batch struct {
	life        string // that made it
	topic       string
	color       lane.Name
	first, last int
}

func (b batch) String() string {
	return fmt.Sprintf("%s %s %s %d %d", b.life, b.topic, dash(b.color), b.first, b.last)
}

// value is that of a message, and its ID.
func (b batch) value(n int) string { return b.life + ":" + strconv.Itoa(n) }

// messages are those of the batch. One in four has no key, and so no place but by its ID.
func (b batch) messages() []consume.Outgoing {
	ms := make([]consume.Outgoing, 0, b.last-b.first+1)
	for n := b.first; n <= b.last; n++ {
		m := consume.Outgoing{Topic: b.topic, Value: []byte(b.value(n)), ID: b.value(n)}
		if n%4 != 0 {
			m.Key = fmt.Appendf(nil, "k%d", n%997)
		}
		ms = append(ms, m)
	}
	return ms
}

// parseValue reads a message's value: the life that made it, and its number.
func parseValue(value string) (life string, n int) {
	life, number, _ := strings.Cut(value, ":")
	n, _ = strconv.Atoi(number)
	return life, n
}

// batch is that of a producer's line.
func (e *entry) batch() batch {
	b := batch{life: e.fields[0], topic: e.fields[1], color: undash(e.fields[2])}
	b.first, _ = strconv.Atoi(e.fields[3])
	b.last, _ = strconv.Atoi(e.fields[4])
	return b
}

// inDoubt gives, by what is in their books, the batches of which producers do not know whether
// they are there, the oldest first.
func inDoubt(books []string) (out []batch, err error) {
	for _, file := range books {
		err := eachEntry(file, func(e entry) error {
			switch e.letter {
			case lineTried:
				if b := e.batch(); !slices.Contains(out, b) {
					out = append(out, b)
				}
			case lineAcked, lineForgot:
				b := e.batch()
				out = slices.DeleteFunc(out, func(o batch) bool { return o == b })
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
