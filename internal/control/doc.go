// Package control is the control plane: the API over the registry, and the life of
// what is in it. It is the only writer of the registry, and other roles talk to it
// by HTTP alone, in one process through [laneclient.InMemory].
//
// # What it promises
//
// Every write is one transaction that compares what it rests on: the object's
// revision, the session that it is bound to, the generation of its lane. Reads and
// the first state of a watch hold every write that was answered before they were
// asked for. A watch delivers every change of what it selects, in one revision
// order, or says "compacted" and ends. Fields that a newer version stored survive.
//
// # How it is built
//
// A replica has one copy of the registry (cache), kept by one watch of the store.
// The copy is what lists and watches are served from, and a change is encoded once
// for all clients (hub). The last changes are kept in one history that all watches
// share; a watch has a place in it, and no queue. A change looks up, by what they
// select, the watches that have been told everything, and they write in turn, a few
// at once, so that a request does not stand behind thousands of them. A watch whose
// client takes nothing is not looked up again: it costs nothing until it is cut off.
// One whose place is no longer in the history gets "compacted" and lists again. A
// replica that starts fills its history from the store's (backfill), so that clients
// go on where they were; what an object was like before is not known then, and a
// watch may be told of the deletion of an object that it never had.
//
// Replicas share nothing but the store. Under a lease, one of them leads: it alone
// moves lanes from creating to ready, draining and ended, and probes static
// instances. Each of its writes compares its lead, so one that was replaced while
// it slept writes nothing.
//
// What changes by itself is kept apart from what a person wrote: the use of a lane
// and the health of a static instance have keys of their own, and an object's
// revision and ETag are those of its spec. A watch shows the whole, at the revision
// of the change.
//
// # Locks
//
// cache.mu comes before hub.mu; no other two are held together. No I/O is done
// under any but storeHealth's, which is there for it.
//
// Only cmd imports this package.
package control
