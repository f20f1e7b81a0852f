// Package lanetest helps to test programs that use lanes, without a control plane
// and without a network:
//
//   - [Directory] is a [lane.Directory] of literal lanes and instances, for code
//     that routes.
//   - [Control] is a control plane in memory, for code that registers, watches,
//     writes and consumes. Its outages, delays and losses are knobs.
//   - [Wire] cuts one process off from it.
//   - [Service] is an HTTP service that reports who it is and what came in.
//   - [CheckLeaks] fails a test that leaves goroutines behind.
//   - [RunAPI] and [RunConsume] are the suites that every control plane has to pass,
//     this one too.
//
// Consumers and producers are tested with Control for the registry and
// [github.com/laneway-dev/laneway/lane/consume.Memory] for the engine: the package's
// example does. [Control.AwaitConsumer] says when a consumer has what is its lane's.
// Who writes a registry or an engine, and not what stands on them, finds their suites
// in consumetest.
//
// Everything but the suites works inside a testing/synctest bubble: waiting for leases
// and time-outs then takes no time.
package lanetest
