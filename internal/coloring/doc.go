// Package coloring decides, for one HTTP request, which service it is for and
// which color it gets. It is pure: no I/O, no clock (the time comes in with the
// request), no goroutine.
//
// [Compile] lays routes and rules out once; [Table.Decide] then answers per
// request. Its cost does not grow with the number of lanes, nor with the number of
// rules that ask for an exact header, cookie, query value, user, host, path or source.
//
// # Which service
//
// A route's host, exact before wildcard, longest wildcard before shorter; then
// "<service>.<domain>"; then routes without a host. Among routes of one host the
// longest path prefix wins, and where none of its paths fits, the next host is
// tried. The first label of any of these hosts may carry a lane tag,
// "<lane>--<label>", and a cluster label may stand before the domain. Inside, the
// bare name of a service is a host too.
//
// # Which color
//
// The order is fixed, the first that gives a color wins:
//
//  1. the tag of the host;
//  2. a color that came with the request: with a good signature, or from a peer
//     that is believed;
//  3. rules, by priority ascending, then by name (at the edge only).
//
// A rule with a mistake is skipped and has a status that says what is wrong
// ([Check]); the others go on. Of a rule's lanes, one that does not exist gives no
// color; a strict lane always does, since its traffic must not reach the baseline
// for want of a lane.
//
// # Percentages
//
// A percentage sticks to a key of the request. The key and the rule's name are
// hashed to one of 10,000 slots; each lane of the rule owns slots as its share and
// its place in the rule's list say. So all gateways agree without talking, now and
// after a restart; the shares of a rule's lanes are disjoint; a share that is
// raised keeps the slots that it had and takes free ones. See [slots] for when a
// neighbor has to give way.
//
// # Signed colors
//
// See [Sign] for the format of the signature header.
package coloring
