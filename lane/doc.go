// Package lane holds the vocabulary and the routing rules of Laneway. It
// imports nothing but the standard library and does no I/O.
//
// The words, used alike in code, logs, API and documentation:
//
//   - A service is a named program that others call; an instance is one running
//     copy of it, in the baseline or in a lane.
//   - The baseline is the shared, untagged environment. A lane is a named
//     environment laid over it: all instances, of any service, that carry its
//     name.
//   - A color is the lane name that a request carries; plain traffic has none.
//   - An ordinary lane falls back to its parent and, in the end, to the baseline.
//     A strict lane never falls back. Its name begins with "strict-", and no
//     other lane's does, so that a program that has never heard of a lane still
//     knows whether its traffic may reach the baseline.
//   - A generation tells a lane that was created again from its predecessor of
//     the same name: instances of an older generation do not count.
//
// [Pick] is the one place that decides where a request goes. It is a pure
// function of a [Snapshot], and it gives a [Reason] for every choice. SDK,
// gateway and control plane all call it; none of them has a rule of its own.
// A [Balancer] then picks one instance of the set that it gives, by room, weight, load and
// health.
//
// A color travels in a carrier (see [Carrier], [Extract], [Inject]) and, inside
// a process, in a context (see [With], [From], [Go], [Detach]).
//
// Everything in this package may be called from several goroutines at once
// unless its documentation says otherwise.
//
// Locks are taken in the order Balancer.mu, laneSets.mu, set.mu, of each kind one at a
// time; a later one is never held when an earlier one is taken. Trail.mu stands alone. No
// function of a caller's runs with any of them held.
package lane
