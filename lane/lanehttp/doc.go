// Package lanehttp carries colors over net/http: [Middleware] takes the color of a
// request into its context, [Transport] sends calls on to the right lane.
//
//	mux = lanehttp.Middleware(mux)
//	client := &http.Client{Transport: lanehttp.Transport(nil, lc)}
//	client.Do(req) // http://order/… goes to the instance that its color asks for
//
// What is a service and what is a third party is told by the host alone: a host of one
// label ("order", with or without a port, which is ignored) is a service, and so is
// "<service>.<domain>" for the domain given by [WithDomain]. localhost, addresses and
// every other host are third parties: requests to them pass as they are, without a color,
// so that nobody outside learns of lanes.
package lanehttp
