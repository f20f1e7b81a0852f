// Package lanehttp carries colors over net/http: [Middleware] takes the color of a
// request into its context, [Transport] sends calls on to the right lane.
//
//	handler := lanehttp.Middleware(mux)
//	client := &http.Client{Transport: lanehttp.Transport(nil, lc)}
//	client.Do(req) // http://order/… goes to the instance that its color asks for
//
// # Services and third parties
//
// Colors go to services, never to third parties. Which of the two a host is, is told from
// its name:
//
//   - One label, such as "order", names a service; so does "<service>.<domain>" for the
//     domain given by [WithDomain]. A port is ignored: the registry knows where the
//     instances listen. Upper case is folded.
//   - localhost, addresses, and all other hosts are third parties, and so is everything
//     that is not plain http: instances are reached inside a cluster, without TLS of
//     their own. Requests to them pass unchanged, without a color, as do redirects to
//     them.
//   - A single label that the registry does not know as a service may still be a host, such
//     as "redis" in a compose file: it is looked up like any other, as a third party. In a
//     strict lane it is not, since such a host may be the baseline under another name.
//
// Where the control plane cannot be reached and nothing is known of a service, a call to it
// fails; no lane is guessed.
package lanehttp
