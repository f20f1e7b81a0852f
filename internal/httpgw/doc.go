// Package httpgw is the HTTP gateway: it routes HTTP/1.1, HTTP/2 (h2c and TLS),
// gRPC, WebSocket and other upgrades to the instances of a service by lane.
//
// It has two sides. The edge faces callers from outside: a color that comes with a
// request is dropped, in every carrier, unless the peer is trusted or the color is
// signed; then host tags and coloring rules give one. The inside is for calls from
// service to service: colors are believed. It is also a forward proxy, so that a
// program with a proxy setting needs no SDK: a request in absolute form for a host
// that is no service and no route goes out as it is, without color, and CONNECT is
// tunneled. It therefore serves loopback only, unless peers have to show a
// certificate.
//
// Where a request goes is decided by internal/coloring (service and color) and
// [lane.Pick] (lane and instances), on the view that Config.Views gives at that
// moment; the gateway has no rule of its own. One instance of the set is chosen by a
// [lane.Balancer].
//
// # What it promises
//
//   - No body is held whole: requests and responses stream in both directions at
//     once, and what has come is passed on at once where the length is not known.
//   - A request is sent again only where that is safe: nothing of it was sent, or
//     its method is idempotent and its body is still at hand; at most
//     [MaxAttempts] times, never to the same instance, and within a budget.
//   - Each wait has a bound; see the constants. A slow or hanging peer, on either
//     side, costs its own request alone.
//   - When its Run is told to end, it takes no new connection, finishes what is
//     under way within the drain deadline, and cuts off the rest.
//
// # What it refuses
//
// It changes no body, keeps no cache and logs no payload.
//
// A Gateway may be used from several goroutines at once.
package httpgw
