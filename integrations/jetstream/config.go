package jetstream

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	neturl "net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
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
	maxConnections  = 4096             // to the port of an embedded server; more are refused
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
	// use it at once.
	Dir string
	// Listen is a host:port at which an embedded server takes other processes, which open it
	// with [Engine.URL]; port 0 is a free one. It asks nobody who they are, so it is a
	// loopback address. Empty: the server opens no port.
	Listen string
	// URL is a server somewhere else, or a cluster, such as nats://a:4222,nats://b:4222; with
	// tls:// the connection has TLS or is none. It may say the rest of what those who share an
	// engine must agree on, where the fields here are empty:
	// nats://a:4222?prefix=shop&durability=sync&replicas=3&rooms=east,west. [Engine.URL] gives one that does.
	URL string
	// Room is the room that an embedded server is in; empty: none. A cluster tells where each
	// partition is; see [Engine.Room].
	Room string
	// Rooms are clusters of a supercluster by their names, over which the partitions of a topic
	// are spread that is made here: each next one is put into the next room. Empty: all are
	// in the cluster that the engine is connected to. See [Engine.Room].
	Rooms []string
	// Durability of appends; empty: [Bounded]. An external server syncs as it is configured;
	// there Sync only means that appends are committed in groups.
	Durability Durability
	// Replicas of each partition: 1, 3 or 5; 0: 1. More than 1 needs a cluster.
	Replicas int
	// Prefix of subjects and streams, of letters, digits and dashes; empty:
	// [DefaultPrefix]. Engines of different prefixes do not know each other's topics.
	Prefix string
	// Access is how to get into the servers of URL, which say it themselves if it is wanted;
	// never a part of URL, that everybody reads who asks where the engine is.
	Access Access
	// Options are further ones of the connection to the servers of URL, such as for other ways
	// to say who one is. They go over those that Access makes.
	Options []nats.Option
	// RequestTimeout is how long a request waits for the server; 0: [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// FetchWait is how long a read waits for a message; 0: [DefaultFetchWait].
	FetchWait time.Duration
	Log       *slog.Logger // nil: none
}

// Validate names everything that is wrong.
func (c *Config) Validate() error {
	full, err := c.full()
	if err != nil {
		return err
	}
	return full.check()
}

// full takes apart what the URL says beside its servers.
func (c Config) full() (Config, error) {
	url, query, more := strings.Cut(c.URL, "?")
	if !more {
		return c, nil
	}
	values, err := neturl.ParseQuery(query)
	if err != nil {
		return c, fmt.Errorf("url: what follows the ? cannot be read: %w", err)
	}
	c.URL = url
	for key := range values {
		value := values.Get(key)
		switch key {
		case "prefix":
			c.Prefix = cmp.Or(c.Prefix, value)
		case "durability":
			c.Durability = cmp.Or(c.Durability, Durability(value))
		case "replicas":
			n, err := strconv.Atoi(value)
			if err != nil {
				return c, fmt.Errorf("url: replicas=%q: want 1, 3 or 5", value)
			}
			c.Replicas = cmp.Or(c.Replicas, n)
		case "rooms":
			if len(c.Rooms) == 0 {
				c.Rooms = strings.Split(value, ",")
			}
		default:
			return c, fmt.Errorf("url: %q is no setting: want prefix, durability, replicas and rooms after the ?", key)
		}
	}
	return c, nil
}

// address is a URL that says all that others must agree on, by servers of which it is known.
func (c *Config) address(servers string) string {
	values := neturl.Values{}
	if c.Prefix != DefaultPrefix {
		values.Set("prefix", c.Prefix)
	}
	if c.Durability != Bounded {
		values.Set("durability", string(c.Durability))
	}
	if c.Replicas > 1 {
		values.Set("replicas", strconv.Itoa(c.Replicas))
	}
	if len(c.Rooms) > 0 {
		values.Set("rooms", strings.Join(c.Rooms, ","))
	}
	if len(values) == 0 {
		return servers
	}
	return servers + "?" + values.Encode()
}

func (c *Config) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need((c.Dir == "") != (c.URL == ""), "give one of dir (embedded) and url (external)")
	// Not repeated: there may be a password in it.
	need(!strings.Contains(c.URL, "@"), "url names a user, and everybody sees it who asks where the engine is: leave it out, and give access instead")
	need(c.URL != "" || c.Access == Access{} && len(c.Options) == 0, "access and options are for an external server: leave them out, or name it by url")
	if err := c.Access.check(); err != nil {
		errs = append(errs, err)
	}
	switch c.Durability {
	case "", Fast, Bounded, Sync:
	default:
		need(false, "durability %q: want fast, bounded or sync", c.Durability)
	}
	need(c.Replicas == 0 || c.Replicas == 1 || c.Replicas == 3 || c.Replicas == 5, "replicas %d: want 1, 3 or 5", c.Replicas)
	need(c.Replicas <= 1 || c.URL != "", "replicas %d: an embedded server keeps one", c.Replicas)
	need(c.Listen == "" || c.URL == "", "listen %q: only an embedded server listens; leave it out, or url", c.Listen)
	if c.Listen != "" {
		if _, _, err := listenAddress(c.Listen); err != nil {
			errs = append(errs, fmt.Errorf("listen %w", err))
		}
	}
	need(c.Room == "" || c.URL == "", "room %q: only an embedded server is told its room; a cluster's name is that of its room", c.Room)
	need(plainRoom(c.Room), "room %q: want no spaces, and not _ alone", c.Room)
	need(len(c.Rooms) == 0 || c.URL != "", "rooms %q: an embedded server is in one; leave them out", c.Rooms)
	need(len(c.Rooms) <= MaxPartitions, "rooms: %d of them: want at most %d", len(c.Rooms), MaxPartitions)
	for _, room := range c.Rooms {
		need(room != "" && plainRoom(room) && !strings.Contains(room, ","), "rooms: %q is no name of a cluster: want no spaces and commas", room)
	}
	need(plainToken(c.Prefix), "prefix %q: want letters, digits and dashes", c.Prefix)
	need(c.RequestTimeout >= 0 && c.FetchWait >= 0, "request_timeout and fetch_wait cannot be negative")
	return errors.Join(errs...)
}

// listenAddress cuts a Config.Listen into what the server takes: to it, port 0 is its own
// default, and -1 is a free one.
func listenAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q: want HOST:PORT, as in 127.0.0.1:0", address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port %q is none: want 0 to 65535", address, text)
	}
	if host == "localhost" {
		host = "127.0.0.1" // whatever the resolver makes of it
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return "", 0, fmt.Errorf("%q is not a loopback address, and an embedded server does not ask who connects: listen on 127.0.0.1, or run a NATS server with authentication and name it by url", address)
	}
	if n == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, int(n), nil
}

func plainToken(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 && len(s) <= 32
}

// plainRoom reports whether a room can be a cluster's name.
func plainRoom(s string) bool {
	return s != "_" && strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) < 0
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
