// Package jetstream keeps messages in NATS JetStream: it is a [consume.Source] and
// [consume.Topics] over a server that runs in the process ([Config.Dir]) or over a cluster
// somewhere else ([Config.URL]). Other processes reach the embedded one where it listens
// ([Config.Listen]), by [Engine.URL]. Nothing of JetStream shows above it.
//
// # How it is laid out
//
// A partition is a stream of its own, so an offset is the stream's sequence: ascending and
// never used again. A message's color is a token of its subject, so that the server filters
// and a reader of one color costs what that color costs. Subjects and streams carry the
// incarnation of their topic, a random name that a topic gets when it is created: after
// delete and create the epoch is another one, and whoever still reads the old log finds that
// it is gone, rather than messages of the new one. What topics there are is kept in a stream
// with one message for each.
//
// A message's payload is its value. Everything else that it carries is one block in the
// header [HeaderMeta], or, where it is more than a header may have, before the value. A message
// that another program put on a partition's subject is read as it is: its own headers are its
// headers.
//
// # Reading
//
// A read asks the stream's leader for its ends, then takes a batch: whoever reads everything,
// or a color of which there is much, and goes on from where they were, from a consumer in
// memory without acks, which costs the server half; all others by direct get. A direct get
// that finds less than was asked for has examined everything up to the end that was known
// before; where a topic has replicas, and a lagging one may have answered, only after the
// leader said that there is nothing left. Whoever appends tells those that wait.
//
// # What an append survives
//
// See [Durability]. Every level survives the end of the process by any signal; they differ in
// what the loss of the machine's power takes.
//
// # What it cannot do
//
// There is no place in JetStream for offsets of others, short of a consumer for each group,
// partition and color that is reset at each note, and looks like one that has stopped: Mirror
// does nothing. Time of [Engine.At] is that of the log, not the one that a producer set. A
// message's ID is known for [DedupWindow].
//
// All of an engine's methods may be called at once.
package jetstream
