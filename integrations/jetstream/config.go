package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Limits of the engine.
const (
	// MaxPartitions is how many partitions a topic may have.
	MaxPartitions = 64
	// MaxTopicBytes is how long a topic's name may be.
	MaxTopicBytes = 249
	// MaxIDBytes is how long a message's ID may be.
	MaxIDBytes = 1024
	// MaxMessageBytes is how big a message may be in an embedded server, with everything
	// that it carries; an external one has its own limit.
	MaxMessageBytes = 8 << 20
	// DedupWindow is how long an engine knows a message's ID.
	DedupWindow = 2 * time.Minute
	// BoundedInterval is how often a server with [Bounded] syncs.
	BoundedInterval = 100 * time.Millisecond

	maxReadMessages = 1024                 // of one batch
	maxReadBytes    = 4 << 20              // of one batch, and one message more
	maxReads        = 8                    // batches on their way at once
	maxAppends      = 16                   // runs of messages without an ack at once
	overheadBytes   = 512                  // that a commit adds to a message at most
	maxRun          = 256                  // messages of a run
	maxCommit       = 500                  // messages of a group commit; the server's limit is 1,000
	maxCommitBytes  = 4 << 20              // and its bytes, and one message more
	maxKnownTopics  = 1 << 14              // whose metadata is remembered
	commitRetry     = 5 * time.Millisecond // where the server has too many batches begun
	unheardRetry    = 20 * time.Millisecond
	reconnectWait   = 250 * time.Millisecond
	knownTopicFor   = 5 * time.Second  // how long it is
	idleWake        = 30 * time.Second // how long a subscription without a reader stays
	maxPendingBytes = 256 << 20        // what an embedded server holds for one slow reader
)

// Defaults of [Config].
const (
	DefaultRequestTimeout = 5 * time.Second
	DefaultFetchWait      = time.Second
	DefaultPrefix         = "laneway"
)

// Durability says what an append has survived when it returns.
type Durability string

// The levels. All of them survive that the process is killed.
const (
	// Fast syncs as the server does by default, about every two minutes: a loss of power
	// takes what was appended since.
	Fast Durability = "fast"
	// Bounded syncs every [BoundedInterval]: a loss of power takes about that much.
	Bounded Durability = "bounded"
	// Sync returns after the disk has it: a loss of power takes nothing. What is appended
	// while a sync runs is committed by the next one together.
	Sync Durability = "sync"
)

// Config says where an engine keeps its messages. One of Dir and URL is needed.
type Config struct {
	// Dir is the folder of an embedded server, made if it is not there. No two processes may
	// use it at once. The server opens no port.
	Dir string
	// URL is an external server or cluster, such as nats://a:4222,nats://b:4222.
	URL string
	// Durability of appends; empty: [Bounded]. An external server syncs as it is configured;
	// there Sync only means that appends are committed in groups.
	Durability Durability
	// Replicas of each partition: 1, 3 or 5; 0: 1. More than 1 needs a cluster.
	Replicas int
	// Prefix of subjects and streams, of letters, digits and dashes; empty:
	// [DefaultPrefix]. Engines of different prefixes do not know each other's topics.
	Prefix string
	// RequestTimeout is how long a request waits for the server; 0: [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// FetchWait is how long a read waits for a message; 0: [DefaultFetchWait].
	FetchWait time.Duration
	Log       *slog.Logger // nil: none
}

// Validate names everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need((c.Dir == "") != (c.URL == ""), "give one of dir (embedded) and url (external)")
	switch c.Durability {
	case "", Fast, Bounded, Sync:
	default:
		need(false, "durability %q: want fast, bounded or sync", c.Durability)
	}
	need(c.Replicas == 0 || c.Replicas == 1 || c.Replicas == 3 || c.Replicas == 5, "replicas %d: want 1, 3 or 5", c.Replicas)
	need(c.Replicas <= 1 || c.URL != "", "replicas %d: an embedded server keeps one", c.Replicas)
	need(plainToken(c.Prefix), "prefix %q: want letters, digits and dashes", c.Prefix)
	need(c.RequestTimeout >= 0 && c.FetchWait >= 0, "request_timeout and fetch_wait cannot be negative")
	return errors.Join(errs...)
}

func plainToken(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 && len(s) <= 32
}

func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-'
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.RequestTimeout, DefaultRequestTimeout)
	set(&c.FetchWait, DefaultFetchWait)
	if c.Durability == "" {
		c.Durability = Bounded
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	c.Replicas = max(c.Replicas, 1)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
