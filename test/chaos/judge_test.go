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
	more              []string // what is wrong beside what the ledger finds
	stops             int      // of lanes with enough messages unread
	sessions          int      // that were lost, or may have been
	sent              *sent
	again             int      // messages that were settled, and came again since their group was reset
	anew, anewColored int      // these, and those that had not been settled then
	stood             int      // times that a consumer stood still since it knew that its group was paused
	paused            []string // messages that were handed out in spite of that
	retried           int      // messages in retry topics
	dead              int      // in dead-letter topics
	buried            int      // of these, because their strict lane had ended
	first             time.Time
	last              time.Time
	still             int                        // messages of the group that holds still, handed out while the registry was gone
	went              map[consume.Partition]bool // partitions of the group that goes on, of which there were some
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
	color   lane.Name
	value   string
	at      time.Time // zero: it is a retry
	first   time.Time // when it was handed out first
	life    string    // to whom
	settled bool      // before its group was reset
	anew    bool      // it comes again by that
}

// judge holds what was written down against what the engine has.
func (c *chaos) judge(gone span) verdict {
	c.t.Helper()
	v := verdict{went: map[consume.Partition]bool{}}
	ledger := consumetest.NewLedger(consumetest.LedgerConfig{Parents: parents(), NotesWithin: notesWithin})
	log := map[place]*logged{}
	copies := map[string][]copied{}
	for _, p := range sentTo() {
		err := readLog(c.t.Context(), c.log, p, func(m *consume.Message) {
			ledger.Logged(m)
			l := &logged{color: m.Color, value: string(m.Value), at: m.Time}
			at := place{m.Partition, m.Offset}
			log[at] = l
			if from, ok := c.reset.from[m.Partition]; ok && m.Offset >= from {
				l.anew = true
				ledger.Logged(&consume.Message{Partition: anew(at).p, Offset: m.Offset, Color: m.Color})
			}
			copies[l.value] = append(copies[l.value], copied{m.Partition, m.Time, l})
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	var err error
	if v.sent, err = c.judgeSent(copies); err != nil {
		c.t.Fatal(err)
	}
	v.more = append(v.more, v.sent.errors()...)
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
		if l := log[at]; l != nil {
			l.settled = true
		}
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
	c.judgeReset(&v, ledger, log)
	if v.still > 0 {
		v.more = append(v.more, fmt.Sprintf("%d messages were handed out of a group that holds still while the registry is gone", v.still))
	}
	if !gone.from.IsZero() && len(v.went) < partitions/2 {
		v.more = append(v.more, fmt.Sprintf("of a group that goes on while the registry is gone, %d partitions of %d did", len(v.went), partitions))
	}
	if n := len(v.paused); n > 0 {
		v.more = append(v.more, fmt.Sprintf("%d messages were handed out by who knew the group to be paused: %v", n, v.paused[:min(n, 10)]))
	}
	v.Verdict = ledger.Verdict()
	c.countStops(&v, log)
	return v
}

// judgeReset takes a reset for as good as a consumer: what was not settled when its group began
// again nobody is to hand out but as what comes again.
func (c *chaos) judgeReset(v *verdict, ledger *consumetest.Ledger, log map[place]*logged) {
	for at, m := range log {
		if m.anew {
			v.anew++
			if m.color != lane.Baseline {
				v.anewColored++
			}
		}
		switch {
		case m.anew && m.settled:
			v.again++
		case m.anew:
			ledger.Handled(consumetest.Handling{
				Partition: at.p, Offset: at.offset, Life: "reset", Lane: m.color, Redelivered: true, Begun: c.reset.at, Settled: c.reset.at,
			})
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
	quiet := map[string]bool{} // groups that it knows to be paused, with nothing in hand
	var begun []entry          // in spite of that
	var others []entry
	end := time.Now()
	err := eachEntry(file, func(e entry) error {
		switch e.letter {
		case lineBegun:
			at := e.place()
			open[e.number()] = len(handlings)
			if quiet[groupOf(at.p.Topic)] {
				begun = append(begun, e)
			}
			lies := at
			if c.reset.again(at, e.at) {
				lies = anew(at)
			}
			handlings = append(handlings, consumetest.Handling{
				Partition: lies.p, Offset: lies.offset, Life: life, Lane: undash(e.fields[4]), Redelivered: e.fields[5] == "true", Begun: e.at,
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
			h := &handlings[open[e.number()]]
			if h.Settled = e.at; e.letter == lineFailed {
				// That is when its next try is stored, of which nobody writes down when: the engine may
				// be away, or slow.
				h.Settled = end
			}
			if m := log[e.place()]; m != nil && h.Partition == e.place().p {
				m.settled = true
			}
		case lineReturned:
			handlings[open[e.number()]].Returned = true
		case linePaused:
			delete(quiet, e.fields[0])
		case lineQuiet:
			quiet[e.fields[0]] = true
			v.stood++
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
	disturbed := c.disturb(v, life, others)
	for _, s := range disturbed {
		ledger.Disturbed(life, s.from, s.to)
	}
	for _, e := range begun {
		// What it had lost with its session it may have begun just then.
		if !slices.ContainsFunc(disturbed, func(s span) bool { return !e.at.Before(s.from) && !e.at.After(s.to) }) {
			v.paused = append(v.paused, fmt.Sprintf("%s to %s at %s", e.place(), life, e.at.Format(clock)))
		}
	}
	return nil
}

// disturb says when a life was not to be relied on: as it was killed; and from the last time
// that its session was sure to last until it had joined under a new one.
func (c *chaos) disturb(v *verdict, life string, others []entry) (out []span) {
	end := time.Now()
	for _, k := range c.kills {
		if k.name == life {
			out = append(out, span{k.before, k.after})
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
			out = append(out, span{from, rejoined(others[i:], end)})
		}
	}
	killed := slices.ContainsFunc(c.kills, func(k killed) bool { return k.name == life })
	if ended := slices.ContainsFunc(others, func(e entry) bool { return e.letter == lineEnded }); !ended && !killed {
		v.sessions++ // it ended with its session
		out = append(out, span{lasts, end})
	}
	return out
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
	c.t.Logf("%d messages, %d of them colored, handed out %d times in %s: %d again, %d by a reset; %d kills; %d of %d lanes stopped had %d messages unread; %d sessions lost; %d times a consumer stood still in a pause; %d retries, %d dead, %d of them with their lane; %s; %s",
		v.Messages-v.anew, v.Colored-v.anewColored, v.Handlings, v.last.Sub(v.first).Round(time.Second), v.Redelivered, v.again, len(c.kills), v.stops, len(c.laneStops), leastUnread,
		v.sessions, v.stood, v.retried, v.dead, v.buried, v.sent, strings.Join(faults, ", "))
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
