// Package lanethrift routes Apache Thrift calls by lane.
//
//	client := lanethrift.NewClient(lc, "order")
//	reply, err := orderthrift.NewOrderClient(client).Get(ctx, id)
//
//	server := lanethrift.NewServer(listener, processor)
//	err := server.Serve()
//
// A color travels in THeader info headers. The server's one port also takes framed and
// unframed clients, of the binary protocol and of the compact one; they have no headers,
// so their calls are plain. The client speaks the transport that the endpoint of the
// instance names ([TransportHeader], [TransportFramed], [TransportBuffered]) and keeps a
// pool of connections for each instance.
//
// Where nobody may serve, calls fail with a thrift.TApplicationException of the text of
// lane.NoInstanceError. What may have been sent is never sent again: a call goes on to
// another instance, of the same lane, only where no connection could be made.
//
// A route (lane.ExplainHeader, lane.RouteHeader) is one info header, its lines joined by
// newlines.
//
// A generated client keeps the headers of its last answer in itself, so it is not for
// concurrent calls, though this package's [Client] is: make one for each goroutine, it is
// a struct of two words.
//
// Locks: a Client's mu comes before a pool's mu; neither is held while the directory's
// Subscribe or cancel runs, nor during I/O. A Server's mu comes before
// that of its connections.
package lanethrift
