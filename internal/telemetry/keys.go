package telemetry

// Keys of log attributes: all that there are, of all modules. Messages are constant;
// facts stand under these keys. The SDK and its integrations import nothing of this
// module and write them out; a test compares.
const (
	KeyAddress      = "address"  // host:port
	KeyAttempts     = "attempts" // how often a request was sent
	KeyBatch        = "batch"    // of messages
	KeyBytes        = "bytes"
	KeyColor        = "color"
	KeyComponent    = "component" // a library that logs by itself
	KeyControl      = "control"   // URL of a replica of the control plane
	KeyCount        = "count"
	KeyCursor       = "cursor"
	KeyDelay        = "delay"  // until the next try
	KeyDrain        = "drain"  // how long something may take to stop
	KeyEngine       = "engine" // name of a message log
	KeyEpoch        = "epoch"  // of a partition's offsets
	KeyError        = "error"
	KeyFreeBytes    = "free_bytes" // of a disk
	KeyGeneration   = "generation" // of a lane
	KeyGroup        = "group"      // of consumers
	KeyHolder       = "holder"     // of a cursor: a session
	KeyHost         = "host"       // of a request, or of a process
	KeyInstance     = "instance"
	KeyLane         = "lane"
	KeyLeft         = "left" // what was given up and still runs
	KeyLeftMax      = "left_max"
	KeyListener     = "listener" // edge or inside
	KeyMember       = "member"   // of a group
	KeyMethod       = "method"   // of HTTP
	KeyMove         = "move"     // of a cursor
	KeyName         = "name"     // of an object
	KeyOffset       = "offset"
	KeyOwner        = "owner"  // of a partition
	KeyPanic        = "panic"  // value of one
	KeyParent       = "parent" // of a lane
	KeyPart         = "part"   // of a process, as run.Group starts it
	KeyPartition    = "partition"
	KeyPath         = "path"  // of a file or a URL
	KeyPause        = "pause" // before the next try, where a library says it so
	KeyPeer         = "peer"  // address of the other end
	KeyPort         = "port"
	KeyQuotaBytes   = "quota_bytes"
	KeyReason       = "reason"        // a word of a closed list, or why something is so
	KeyReserveBytes = "reserve_bytes" // of a disk: writes are refused below it
	KeyRevision     = "revision"
	KeyRole         = "role" // of a process
	KeyRoom         = "room"
	KeyRule         = "rule" // of coloring
	KeyService      = "service"
	KeySession      = "session" // id
	KeyStack        = "stack"   // of a panic
	KeyStatus       = "status"  // of HTTP, or of an exit
	KeyStream       = "stream"  // of a message log
	KeyTook         = "took"    // how long something has taken
	KeyTopic        = "topic"
	KeyURL          = "url"    // by which people reach something
	KeyWanted       = "wanted" // revision that a view should have reached
)
