// Package consumetest is how consuming is put to the test.
//
// For engines: [RunEngine] is the suite that every engine passes, ours and others'. It
// checks from outside what the protocol rests on. For registries: [RunRegistry] is theirs.
//
// For the protocol: [Simulate] plays a history of several processes, lanes, groups and
// partitions over fakes of the engine, the registry, the network and the clock, in one
// thread and in virtual time. A seed decides everything: the shape, the order in which
// things happen, and the faults. A checker that knows nothing of how a core works counts
// every message of every color and holds the history against what is promised. A seed that
// fails is printed with the command that replays it, a trace, and a shorter history that
// fails alike.
//
// What drives the protocol, [consume.Runner], is judged by the same checker: a test plays real
// runners in virtual time, over an engine and a registry in memory with faults on the way.
//
// The folder scenario has histories as text, with what happens after each command. The
// folder testdata/mutants has the protocol broken in each known way; every one of them has to
// be caught.
//
// Functions that take a testing.T are for one test at a time; simulations may run at once.
package consumetest
