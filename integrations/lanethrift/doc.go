// Package lanethrift routes Apache Thrift calls by lane.
//
//	client := lanethrift.NewClient(lc, "order")
//	reply, err := orderthrift.NewOrderClient(client).Get(ctx, id)
//
//	server := lanethrift.NewServer(listener, processor)
//	err := server.Serve()
//
// A color travels in THeader info headers. The server's one port also takes framed and
// unframed clients of the strict binary protocol, and of the compact one; they have no
// headers, so their calls are plain. The client speaks the transport that the endpoint of
// the instance names, and keeps a pool of connections for each instance.
//
// A generated client keeps the headers of its last answer in itself, so it is not for
// concurrent calls, though this package's [Client] is: make one for each goroutine, it is
// a struct of two words.
package lanethrift
