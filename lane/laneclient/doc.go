// Package laneclient is the client of Laneway's control plane: it registers this
// process, keeps its session alive, and holds a picture of the registry that
// survives the control plane's absence.
//
//	lc, err := laneclient.Dial(ctx, laneclient.FromEnv())
//	if err != nil { … }
//	defer lc.Close()
//
// A [Client] has one session. It watches lanes, services, and the instances of
// those services that [Client.Need] was called for (all of them, and routes and
// rules, with [Config.All]). [Client.View] reads the picture without a lock.
//
// While the control plane cannot be reached the last picture stays, marked as
// stale; nothing is taken out of it. The client tries again with jittered
// back-off, over all URLs, and registers anew where its session was lost. If the
// session was lost, other sessions may have been, too: instances that the registry
// then no longer has are held for a while, so that they can come back.
//
// With [Config.AdminListen] the process can be asked who would get its calls, and how it
// is: by `laneway explain call --at` and `laneway status`.
//
// What it refuses to do: guess. What is not in the view is not there.
//
// A Client is also what package consume needs of the control plane: its session is the one
// that holds cursors, [Client.Views] tells a group's consumers of each other, and
// [Client.Move] writes records and notes. In a process that consumes, a session that may have
// run out is replaced by a new one and never used again.
//
// [API] is the plain side: single calls, typed by kind, without a session.
//
// Everything here may be used from several goroutines at once.
package laneclient
