// Package lanetest helps to test programs that use lanes, without a control plane
// and without a network:
//
//   - [Directory] is a [lane.Directory] of literal lanes and instances, for code
//     that routes.
//   - [Control] is a control plane in memory, for code that registers, watches and
//     writes. Its outages, delays and losses are knobs.
//   - [Service] is an HTTP service that reports who it is and what came in.
//   - [CheckLeaks] fails a test that leaves goroutines behind.
//   - [RunAPI] is the suite that every control plane has to pass, this one too.
//
// Control keeps no engines, topics, groups, members or cursors: consumption is tested over
// [github.com/laneway-dev/laneway/lane/consume.MemoryRegistry], whose Connect gives each
// process its own access.
//
// Everything but RunAPI works inside a testing/synctest bubble: waiting for leases
// and time-outs then takes no time.
package lanetest
