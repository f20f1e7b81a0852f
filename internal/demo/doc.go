// Package demo holds the services of `laneway demo` and what is promised of
// them.
//
// There are five services, a to e, each of which calls the next one and reports
// who it is, in which lane it runs, by which protocol it was called and what
// color the call carried. The baseline has one instance of each; lane green has
// a second one of b and of d. A request of color green therefore goes
// A1 → B2 → C1 → D2 → E1: into the lane, out of it and in again; a plain one
// goes A1 → B1 → C1 → D1 → E1. [Judge] compares what was reported with that.
//
// D passes requests on to e by a queue: e consumes them and says so in a [Receipt]. A
// [Trial] has a second one of e join the lane and leave with messages unread, and judges by
// the receipts who got which, that none was lost and that none came twice.
//
// A service is written as a user would write one: it uses the SDK (lane, its
// packages and its integrations) and the environment that `laneway run` gives
// it, and knows nothing else of Laneway. Run is called by the hidden command
// `laneway demo-service`; starting the processes is that of `laneway demo`.
//
// demo.proto and demo.thrift describe the calls; the code made of them is in
// demopb and demothrift, and for the service in Python that a test runs, in
// test/py.
package demo

//go:generate sh generate.sh
