package consume

import (
	"fmt"

	"github.com/laneway-dev/laneway/lane"
)

// Write is one transaction on the record of a partition and the notes of its cursors. It
// takes place only if the record and the notes have the revisions that it names and the
// sessions of Gone do not live; and then whole. A write is never changed once it was given
// out: it is repeated as it is until it is answered.
type Write struct {
	ID        uint64 // of the Core; a repeated write keeps it
	Group     string
	Partition Partition
	Session   string // who writes

	IfRevision uint64 // of the record; 0: there is none
	// Record is put if it is not nil, which changes the revision. Nil: the record stays as
	// it is, with its revision.
	Record *Record
	Notes  []NoteWrite
	// Gone are sessions that must not live: those from which a cursor is taken.
	Gone []string
	// Read asks for the notes of these cursors, as they are after the write.
	Read []lane.Name

	Moves []Move // what it does, for people; empty: it writes notes only
}

// NoteWrite puts or deletes the note of a cursor.
type NoteWrite struct {
	Cursor lane.Name
	Note   *Note // nil: deleted
	// IfRevision is compared where Compare is set; 0: there is no note. A note of a cursor
	// that is run is compared; a split's is not, since it goes over what is there, and nor
	// are those that a reset deletes.
	Compare    bool
	IfRevision uint64
}

// MoveKind is a kind of move.
type MoveKind string

// Kinds of moves.
const (
	Take    MoveKind = "take"
	Release MoveKind = "release"
	Split   MoveKind = "split"
	Merge   MoveKind = "merge"
	Create  MoveKind = "create" // the record and main's note are made
	Rewind  MoveKind = "reset"
)

// Why says why a move is made, or what comes before it. The list is closed.
type Why string

// Reasons of moves.
const (
	WhyFree        Why = "nobody-holds-it"     // take: it has no holder
	WhyGone        Why = "holder-is-gone"      // take: its holder's session ended
	WhyNotRun      Why = "nobody-runs-it"      // take: this process is named, but does not run it
	WhyNewSession  Why = "new-session"         // take: this process held it under a session that it lost
	WhyCaretaker   Why = "caretaker"           // take: of main, while the baseline has no member
	WhyOwner       Why = "owner-changed"       // release: another lane is to have it
	WhyNoMember    Why = "no-member-here"      // release: this process has no member of its lane left
	WhyBalance     Why = "balance"             // release: another process of the owner is to have it
	WhyBaseline    Why = "baseline-is-back"    // release: of main, by a caretaker
	WhyStopping    Why = "stopping"            // release: this process stops
	WhyMainMoves   Why = "main-is-given-up"    // release: of a color run for the baseline, before main
	WhyReset       Why = "reset"               // release, reset: the group begins again elsewhere
	WhyLaneMember  Why = "lane-has-a-member"   // split: the color's own lane has one
	WhyMessage     Why = "message-of-it"       // split: main is at a message of it
	WhyStalled     Why = "main-stands-still"   // split: main might never come to a message of it
	WhyMet         Why = "positions-met"       // merge
	WhyNewGroup    Why = "new-group"           // create: from the group's start
	WhyNewPart     Why = "new-partition"       // create: from the first offset
	WhyStrictEnded Why = "strict-lane-is-over" // take: what is left goes to the dead-letter topic
)

// Move is one move of a write.
type Move struct {
	Kind   MoveKind
	Cursor lane.Name
	Lane   lane.Name // take: for whose members
	From   int64     // split
	Why    Why
}

// String is for people, as in "take green for green: nobody-holds-it".
func (m Move) String() string {
	name := "main"
	if m.Cursor != Main {
		name = string(m.Cursor)
		if name == "main" {
			name = "color main"
		}
	}
	switch m.Kind {
	case Take:
		to := "the baseline"
		if m.Lane != lane.Baseline {
			to = string(m.Lane)
		}
		return fmt.Sprintf("take %s for %s: %s", name, to, m.Why)
	case Split:
		return fmt.Sprintf("split %s from %d: %s", name, m.From, m.Why)
	case Release, Merge, Create, Rewind:
	}
	return fmt.Sprintf("%s %s: %s", m.Kind, name, m.Why)
}

// Outcome is how a write was answered.
type Outcome uint8

// Outcomes.
const (
	Done     Outcome = iota // it took place
	Conflict                // it did not, now: something it compares was different
	Doubt                   // no answer came: it may have taken place, or may still
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Conflict:
		return "conflict"
	case Doubt:
		return "doubt"
	}
	return fmt.Sprintf("Outcome(%d)", o)
}

// StoredNote is a note with its revision. A nil Note: there is none.
type StoredNote struct {
	Cursor   lane.Name
	Note     *Note
	Revision uint64
}

// Answer is what a registry says to a [Write].
type Answer struct {
	Outcome Outcome
	// Ended says that a Conflict is one since the writer's session has ended: no copy of the
	// write will ever take place. One may have done so before.
	Ended bool
	// Revision is that of the record after the write, or as it is (Conflict).
	Revision uint64
	// Record is the record as it is where the outcome is Conflict; nil: there is none.
	Record *Record
	// Notes are those that were asked for by Read and those that were written (Done), or
	// those that Read and Notes name, as they are (Conflict). All are read in the write's
	// own transaction.
	Notes []StoredNote
}
