package chaos

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// What a line of a book says, by its first letter.
const (
	lineBegun    = 'b' // a message was handed out: number, partition, offset, color, lane, redelivered, value
	lineSettled  = 's' // the consumer is done with it: number, partition, offset
	lineFailed   = 'f' // it could not be worked on: the same
	lineReturned = 'r' // the consumer gave it back, or lost it with its cursor: the same
	lineLasts    = 'l' // the session was renewed, or is new: session
	lineLost     = 'x' // the session may have run out: session
	lineJoined   = 'j' // a member has joined: group, session
	lineEnded    = 'e' // the consumer has given up all that it held, the producer has finished what it had begun, and ends
	linePaused   = 'p' // what is to be told now: group, whether it is paused
	lineQuiet    = 'q' // the consumer has been told that the group is paused, and has nothing in hand any more: group
	lineTried    = 't' // a producer is about to send a batch: life that made it, topic, color, first and last number
	lineAcked    = 'a' // the engine has a batch: the same
	lineForgot   = 'g' // nobody will send a batch again that may be there: the same
	lineBurst    = 'u' // a burst is over: color
)

// book is what a process writes down, in a file of its own. Each line is one write, so that
// nothing of what was written is lost when the process is killed. It may be written to at once.
type book struct {
	f    *os.File
	next atomic.Int64
}

func openBook(file string) (*book, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	return &book{f: f}, err
}

// write adds a line: its letter, the time, and what it says.
func (b *book) write(letter byte, format string, args ...any) {
	line := make([]byte, 0, 128)
	line = append(line, letter, ' ')
	line = strconv.AppendInt(line, time.Now().UnixNano(), 10)
	line = append(line, ' ')
	line = fmt.Appendf(line, format, args...)
	if _, err := b.f.Write(append(line, '\n')); err != nil {
		panic(err) // a book that has gaps proves nothing
	}
}

// begun notes that a message was handed out, and gives the number of that.
func (b *book) begun(d *consume.Delivery) int64 {
	n := b.next.Add(1)
	b.write(lineBegun, "%d %s %d %s %s %t %s", n, d.Partition, d.Offset, dash(d.Color), dash(d.Lane), d.Redelivered, d.Value)
	return n
}

func (b *book) over(letter byte, n int64, d *consume.Delivery) {
	b.write(letter, "%d %s %d", n, d.Partition, d.Offset)
}

func dash(l lane.Name) string {
	if l == lane.Baseline {
		return "-"
	}
	return string(l)
}

func undash(s string) lane.Name {
	if s == "-" {
		return lane.Baseline
	}
	return lane.Name(s)
}

// entry is a line of a book.
type entry struct {
	letter byte
	at     time.Time
	fields []string
}

// fieldsOf says how many fields a line has beside letter and time; −1: there is none such.
func fieldsOf(letter byte) int {
	switch letter {
	case lineBegun:
		return 7
	case lineTried, lineAcked, lineForgot:
		return 5
	case lineSettled, lineFailed, lineReturned:
		return 3
	case lineJoined, linePaused:
		return 2
	case lineLasts, lineLost, lineQuiet, lineBurst:
		return 1
	case lineEnded:
		return 0
	default:
		return -1
	}
}

func parseEntry(line string) (entry, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 || len(fields[0]) != 1 {
		return entry{}, fmt.Errorf("line %q is none", line)
	}
	at, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return entry{}, err
	}
	e := entry{letter: fields[0][0], at: time.Unix(0, at), fields: fields[2:]}
	if fieldsOf(e.letter) != len(e.fields) {
		return entry{}, fmt.Errorf("line %q has %d fields", line, len(e.fields))
	}
	return e, nil
}

// number is that of a handling.
func (e *entry) number() (n int64) {
	n, _ = strconv.ParseInt(e.fields[0], 10, 64)
	return n
}

// place is where a line's message lies.
func (e *entry) place() place {
	topic, index, _ := strings.Cut(e.fields[1], "/")
	i, _ := strconv.ParseInt(index, 10, 32)
	offset, _ := strconv.ParseInt(e.fields[2], 10, 64)
	return place{consume.Partition{Topic: topic, Index: int32(i)}, offset}
}

// place is where a message lies.
type place struct {
	p      consume.Partition
	offset int64
}

func (at place) String() string { return fmt.Sprintf("%s@%d", at.p, at.offset) }

// reader reads a book while it is written.
type reader struct {
	file string
	at   int64
	rest []byte
}

// next gives the lines that were written since the last time.
func (r *reader) next(each func(entry) error) error {
	f, err := os.Open(r.file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 256<<10)
	for {
		n, err := f.ReadAt(buf, r.at)
		r.at += int64(n)
		r.rest = append(r.rest, buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(r.rest, []byte{'\n'})
			if !ok {
				break
			}
			e, err := parseEntry(string(line))
			if err != nil {
				return fmt.Errorf("%s: %w", r.file, err)
			}
			if err := each(e); err != nil {
				return err
			}
			r.rest = rest
		}
		r.rest = append([]byte(nil), r.rest...)
		if err != nil || n == 0 {
			return nil // the end, for now
		}
	}
}
