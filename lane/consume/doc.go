// Package consume decides who consumes a colored message: exactly one member of the right
// lane, whatever lanes start, stop or crash.
//
// A program consumes, and sends what is consumed elsewhere, like this:
//
//	c, err := consume.Run(ctx, src, lc, "orders", "billing", handle)
//	out := consume.NewProducer(src, lc)
//
// where src is an engine, lc the process's connection to the control plane (laneclient's
// Client), and handle is called with each message that is for the process's lane, its color
// in the context. What is called and sent with that context has the same color. [Run] says
// which topics failed messages go to, and the options what else can be said.
//
// A lane system whose lanes are consumer groups of their own has two positions in one log,
// and loses or doubles what lies between them whenever a lane starts or stops. Here the
// messages of every partition are split between cursors instead, and what moves is who runs
// a cursor, never a message:
//
//   - The main cursor is for plain messages and for all colors that are not split off. A
//     color cursor is for one color that is split off, from an offset on.
//   - A [Record] says, for each partition, which session holds which cursor. A [Note] says,
//     for each cursor, what of its messages is settled. Both are kept in a [Registry], and
//     every write compares the revisions that the writer knows.
//   - There are four moves: take, release, split and merge. A lane that starts is a split
//     and a take; one that stops, cleanly or not, is a release or the end of a session, a
//     take by the next owner, and some time later a merge.
//
// [Core] is the whole of the protocol: [Core.Step] takes one event and gives the actions
// that follow from it. It is pure and deterministic: it has no clock, starts no goroutine,
// does no I/O and writes no log. One Core serves one process and one group. It decides
// nothing about connections, handlers or storage; that is its caller's part, and the events
// say what a caller owes it.
//
// An engine is a [Source] with [Topics]; [NewMemory] makes one that lives in memory and
// [NewMemoryRegistry] a registry beside it. Both are complete, and made for tests. Package
// consumetest has the simulation and the checker by which all of this is shown to hold.
//
// A [Consumer] and a [Producer] may be used from several goroutines at once; all other values
// of this package are for one at a time unless they say otherwise.
package consume
