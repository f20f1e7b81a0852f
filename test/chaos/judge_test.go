package chaos

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

// leastUnread is how many of its messages a lane has not read where its stop counts.
const leastUnread = 1000

// notesWithin is how soon a note must have been written; notes wait while the control plane
// changes its leader, and longer on a busy machine.
const notesWithin = 30 * time.Second

type span struct{ from, to time.Time }

// verdict is what became of a run.
type verdict struct {
	*consumetest.Verdict
	more      []string // what is wrong beside what the ledger finds
	stops     int      // of lanes with enough messages unread
	sessions  int      // that were lost, or may have been
	twiceSent int      // messages that are in the log more than once
	retried   int      // messages in retry topics
	dead      int      // in dead-letter topics
	buried    int      // of these, because their strict lane had ended
	first     time.Time
	last      time.Time
	still     int                        // messages of the group that holds still, handed out while the registry was gone
	went      map[consume.Partition]bool // partitions of the group that goes on, of which there were some
}

func (v *verdict) Err() error {
	err := v.Verdict.Err()
	for _, m := range v.more {
		err = errors.Join(err, errors.New(m))
	}
	return err
}

// logged is a message as the engine has it.
type logged struct {
	color lane.Name
	value string
	at    time.Time // zero: it is a retry
	first time.Time // when it was handed out first
	life  string    // to whom
}

// judge holds what was written down against what the engine has.
func (c *chaos) judge(gone span) verdict {
	c.t.Helper()
	v := verdict{went: map[consume.Partition]bool{}}
	ledger := consumetest.NewLedger(consumetest.LedgerConfig{Parents: parents(), NotesWithin: notesWithin})
	log := map[place]*logged{}
	copies := map[string]int{}
	for _, p := range sentTo() {
		err := readLog(c.t.Context(), c.log, p, func(m *consume.Message) {
			ledger.Logged(m)
			log[place{m.Partition, m.Offset}] = &logged{color: m.Color, value: string(m.Value), at: m.Time}
			copies[string(m.Value)]++
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	for _, n := range copies {
		if n > 1 {
			v.twiceSent++
		}
	}
	if v.twiceSent > 0 {
		v.more = append(v.more, fmt.Sprintf("%d messages are in the log more than once, though they had IDs", v.twiceSent))
	}
	c.checkAcked(&v, copies)
	tries, err := readFailed(c.t.Context(), c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range tries.retried {
		ledger.Logged(m)
		log[place{m.Partition, m.Offset}] = &logged{color: m.Color, value: string(m.Value)}
	}
	v.retried, v.dead = len(tries.retried), len(tries.dead)
	// Dead letters are as good as a consumer: who had one of them should not have had it. When
	// they got it the engine does not say.
	end := time.Now()
	for at, m := range tries.buried() {
		v.buried++
		ledger.Handled(consumetest.Handling{
			Partition: at.p, Offset: at.offset, Life: "dead letters", Lane: m.Color, Redelivered: true, Begun: end, Settled: end,
		})
	}
	v.more = append(v.more, tries.check(c.progress.failed)...)
	books, err := filepath.Glob(filepath.Join(c.folder, "books", "*.*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, file := range books {
		if err := c.judgeBook(&v, ledger, log, file, gone); err != nil {
			c.t.Fatal(err)
		}
	}
	if v.still > 0 {
		v.more = append(v.more, fmt.Sprintf("%d messages were handed out of a group that holds still while the registry is gone", v.still))
	}
	if !gone.from.IsZero() && len(v.went) < partitions/2 {
		v.more = append(v.more, fmt.Sprintf("of a group that goes on while the registry is gone, %d partitions of %d did", len(v.went), partitions))
	}
	v.Verdict = ledger.Verdict()
	c.countStops(&v, log)
	return v
}

// checkAcked holds what producers were told against the log.
func (c *chaos) checkAcked(v *verdict, copies map[string]int) {
	c.t.Helper()
	for i := range c.producers {
		name := fmt.Sprintf("p%d", i)
		missing := 0
		err := eachEntry(c.book(name), func(e entry) error {
			first, _ := strconv.Atoi(e.fields[1])
			last, _ := strconv.Atoi(e.fields[2])
			for n := first; n <= last; n++ {
				if copies[name+":"+strconv.Itoa(n)] == 0 {
					missing++
				}
			}
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if missing > 0 {
			v.more = append(v.more, fmt.Sprintf("%d messages that the engine had taken from %s are not in the log", missing, name))
		}
	}
}

func eachEntry(file string, each func(entry) error) error {
	r := reader{file: file}
	return r.next(each)
}

// judgeBook takes in what one life has written down.
func (c *chaos) judgeBook(v *verdict, ledger *consumetest.Ledger, log map[place]*logged, file string, gone span) error {
	life := filepath.Base(file)
	var handlings []consumetest.Handling
	open := map[int64]int{}
	var others []entry
	err := eachEntry(file, func(e entry) error {
		switch e.letter {
		case lineBegun:
			at := e.place()
			open[e.number()] = len(handlings)
			handlings = append(handlings, consumetest.Handling{
				Partition: at.p, Offset: at.offset, Life: life, Lane: undash(e.fields[4]), Redelivered: e.fields[5] == "true", Begun: e.at,
			})
			if m := log[at]; m != nil {
				if m.value != e.fields[6] || m.color != undash(e.fields[3]) {
					v.more = append(v.more, fmt.Sprintf("%s: %s was handed %s %s, the log has %s %s", at, life, e.fields[3], e.fields[6], dash(m.color), m.value))
				}
				if m.first.IsZero() || e.at.Before(m.first) {
					m.first, m.life = e.at, life
				}
			}
			// When they have lost their sessions, and what was handed out before is over.
			if e.at.After(gone.from.Add(sessionTTL+sessionMargin)) && e.at.Before(gone.to) {
				switch at.p.Topic {
				case auditTopic:
					v.still++
				case ordersTopic:
					v.went[at.p] = true
				}
			}
		case lineSettled, lineFailed:
			handlings[open[e.number()]].Settled = e.at
		case lineReturned:
			handlings[open[e.number()]].Returned = true
		default:
			others = append(others, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, h := range handlings {
		if v.first.IsZero() || h.Begun.Before(v.first) {
			v.first = h.Begun
		}
		if h.Begun.After(v.last) {
			v.last = h.Begun
		}
		ledger.Handled(h)
	}
	c.disturb(v, ledger, life, others)
	return nil
}

// disturb tells the ledger when a life was not to be relied on: as it was killed; and from
// the last time that its session was sure to last until it had joined under a new one.
func (c *chaos) disturb(v *verdict, ledger *consumetest.Ledger, life string, others []entry) {
	end := time.Now()
	for _, k := range c.kills {
		if k.name == life {
			ledger.Disturbed(life, k.before, k.after)
			end = k.after
		}
	}
	var lasts time.Time
	for i, e := range others {
		switch e.letter {
		case lineLasts:
			lasts = e.at
		case lineLost:
			v.sessions++
			from := lasts
			for _, h := range c.halts { // nothing was done while it was stopped
				if h.life == life && h.at.After(from) && h.at.Before(e.at) {
					from = h.at
					break
				}
			}
			ledger.Disturbed(life, from, rejoined(others[i:], end))
		}
	}
	killed := slices.ContainsFunc(c.kills, func(k killed) bool { return k.name == life })
	if ended := slices.ContainsFunc(others, func(e entry) bool { return e.letter == lineEnded }); !ended && !killed {
		v.sessions++ // it ended with its session
		ledger.Disturbed(life, lasts, end)
	}
}

// rejoined is when all groups had been joined under another session than the one that was lost
// first.
func rejoined(others []entry, end time.Time) time.Time {
	lost := others[0].fields[0]
	joined := map[string]bool{}
	for _, e := range others {
		if e.letter == lineLost {
			lost = e.fields[0]
			clear(joined)
		}
		if e.letter == lineJoined && e.fields[1] != lost {
			if joined[e.fields[0]] = true; len(joined) == 2 {
				return e.at
			}
		}
	}
	return end
}

// countStops counts the stops of lanes with enough of their messages unread.
func (c *chaos) countStops(v *verdict, log map[place]*logged) {
	for _, s := range c.laneStops {
		unread := 0
		for _, m := range log {
			if m.color == s.lane && !m.at.IsZero() && !m.at.After(s.at) && m.first.After(s.at) && !slices.Contains(s.lives, m.life) {
				unread++
			}
		}
		if unread >= leastUnread {
			v.stops++
		}
		c.tellStory("lane %s was stopped at %s with %d messages unread", s.lane, s.at.Format(clock), unread)
	}
}

const clock = "15:04:05.000000"

// summarize logs what there was.
func (c *chaos) summarize(v *verdict) {
	c.t.Helper()
	var faults []string
	for _, k := range slices.Sorted(maps.Keys(c.counts)) {
		faults = append(faults, fmt.Sprintf("%s %d", k, c.counts[k]))
	}
	c.t.Logf("%d messages, %d of them colored, handed out %d times in %s: %d again; %d kills; %d of %d lanes stopped had %d messages unread; %d sessions lost; %d retries, %d dead, %d of them with their lane; %s",
		v.Messages, v.Colored, v.Handlings, v.last.Sub(v.first).Round(time.Second), v.Redelivered, len(c.kills), v.stops, len(c.laneStops), leastUnread,
		v.sessions, v.retried, v.dead, v.buried, strings.Join(faults, ", "))
}

// report prints all that there is of the messages that were found.
func (c *chaos) report(v *verdict) {
	c.t.Helper()
	var text strings.Builder
	seen := map[string]bool{}
	for _, example := range v.Examples {
		_, rest, _ := strings.Cut(example, " ")
		at, _, _ := strings.Cut(rest, ": ")
		p, offset, ok := strings.Cut(at, "@")
		if !ok || seen[at] || len(seen) == 6 {
			continue
		}
		seen[at] = true
		fmt.Fprintf(&text, "\n%s\n", example)
		lines := c.grep("books", func(line string) bool {
			return strings.Contains(line, " "+p+" "+offset+" ") || strings.HasSuffix(line, " "+p+" "+offset)
		})
		for _, l := range append(lines, c.moves(p, lines)...) {
			fmt.Fprintln(&text, l)
		}
	}
	story, _ := os.ReadFile(filepath.Join(c.folder, "story"))
	c.t.Logf("%s\nthe story:\n%s", text.String(), story)
}

// moves are what consumers logged of moves of a partition around the times of lines of books.
func (c *chaos) moves(p string, lines []string) []string {
	topic, index, _ := strings.Cut(p, "/")
	from, to := time.Now(), time.Time{}
	for _, l := range lines {
		_, l, _ = strings.Cut(l, ": ")
		if e, err := parseEntry(l); err == nil {
			if e.at.Before(from) {
				from = e.at
			}
			if e.at.After(to) {
				to = e.at
			}
		}
	}
	timed := func(line string) (at time.Time) {
		_, line, _ = strings.Cut(line, `"time":"`)
		line, _, _ = strings.Cut(line, `"`)
		at, _ = time.Parse(time.RFC3339Nano, line)
		return at
	}
	moves := c.grep("logs", func(line string) bool {
		return strings.Contains(line, `"topic":"`+topic+`"`) && strings.Contains(line, `"partition":`+index+`,`) &&
			timed(line).After(from.Add(-20*time.Second)) && timed(line).Before(to.Add(5*time.Second))
	})
	slices.SortStableFunc(moves, func(a, b string) int { return timed(a).Compare(timed(b)) })
	return moves
}

// grep gives the lines of files of a folder, by file.
func (c *chaos) grep(sub string, want func(string) bool) (out []string) {
	files, _ := filepath.Glob(filepath.Join(c.folder, sub, "*"))
	slices.SortFunc(files, cmp.Compare[string])
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		in := bufio.NewScanner(f)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if want(in.Text()) {
				out = append(out, filepath.Base(file)+": "+in.Text())
			}
		}
		_ = f.Close()
	}
	return out
}
