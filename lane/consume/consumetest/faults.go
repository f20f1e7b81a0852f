package consumetest

// Fault is a kind of fault that a simulation makes.
type Fault string

// Kinds of faults. The list is closed; [Coverage] counts each.
const (
	FaultCrash         Fault = "crash"
	FaultPause         Fault = "pause"         // a process stands still and comes back
	FaultExpiry        Fault = "lease-expiry"  // a session ends while its process lives
	FaultLostRequest   Fault = "lost-request"  // a request to the registry does not arrive
	FaultLostReply     Fault = "lost-reply"    // an answer of the registry does not arrive
	FaultLateWrite     Fault = "late-write"    // a write with moves arrives after its sender stopped waiting
	FaultLateNote      Fault = "late-note"     // the same of notes alone
	FaultLateCopy      Fault = "late-copy"     // a copy of a write that was answered arrives
	FaultDeadWriter    Fault = "dead-writer"   // a write arrives after its sender is gone
	FaultMirror        Fault = "wrong-mirror"  // the engine's own offset is garbage
	FaultSlow          Fault = "slow-registry" // answers take seconds
	FaultGoneAll       Fault = "registry-gone" // for all processes
	FaultGoneOne       Fault = "registry-cut"  // for one process
	FaultGoneContinue  Fault = "lost-continue" // a lease may have run out: the group goes on
	FaultGoneHold      Fault = "lost-hold"     // the same: the group holds
	FaultStale         Fault = "stale-view"    // a picture of the registry is seconds old
	FaultDuplicate     Fault = "duplicate-member"
	FaultGrowth        Fault = "partition-growth"
	FaultRetention     Fault = "retention"     // messages are deleted, read or not
	FaultTruncated     Fault = "truncated-log" // a log loses its end
	FaultRecreated     Fault = "recreated-log" // a log begins again
	FaultFetch         Fault = "failed-fetch"
	FaultSlowConsumer  Fault = "slow-consumer" // one that outlasts the hand-over time-out
	FaultConsumerCrash Fault = "consumer-crash"
	FaultZombie        Fault = "zombie-dispatch" // a process that was cut off hands out what another one took
)

// Faults lists all kinds.
func Faults() []Fault {
	return []Fault{
		FaultCrash, FaultPause, FaultExpiry, FaultLostRequest, FaultLostReply, FaultLateWrite, FaultLateNote,
		FaultLateCopy, FaultDeadWriter, FaultMirror, FaultSlow, FaultGoneAll, FaultGoneOne, FaultGoneContinue,
		FaultGoneHold, FaultStale, FaultDuplicate, FaultGrowth, FaultRetention, FaultTruncated, FaultRecreated,
		FaultFetch, FaultSlowConsumer, FaultConsumerCrash, FaultZombie,
	}
}

// rates are how often things go wrong, in a thousand, where they could.
type rates struct {
	lostRequest, lostReply, late, copies, slow int // of requests to the registry
	stale                                      int // of pictures
	fetch                                      int // of fetches
	mirror                                     int
	slowConsumer, giveBack, fail               int // of messages handed out
}
