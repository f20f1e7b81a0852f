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
package lanegrpc
