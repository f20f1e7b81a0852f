// Package lanegrpc routes gRPC calls by lane.
//
//	conn, err := grpc.NewClient("lane:///order", append(lanegrpc.DialOptions(lc), creds)...)
//	server := grpc.NewServer(lanegrpc.ServerOptions()...)
//
// One ClientConn reaches a service in all lanes. Each call is picked for by the color of
// its context (lane.Outgoing, lane.Pick); a connection to an instance is made when the
// first call picks it, so that a service with two hundred lanes does not cost a client two
// hundred connections. Where nobody may serve, calls fail with UNAVAILABLE and the text of
// lane.NoInstanceError; a wait-for-ready call waits instead.
//
// The balancer is registered with grpc's own process-wide registry under [BalancerName];
// that is the only state of this package that is not yours.
//
// Locks are taken in the order laneBalancer.mu, entry.mu. laneBalancer.mu is also held
// while grpc's ClientConn is told of connections and pickers, whose locks come after it; it
// is not held where a subscription is made or ended, since a directory may hold a lock of
// its own while it tells of a change. Neither is held while the lane.Balancer is asked, whose
// locks thus stand alone, nor while an observer runs.
package lanegrpc
