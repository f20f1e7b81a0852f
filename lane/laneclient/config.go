package laneclient

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// DefaultControl is where the control plane is looked for when nothing says
// otherwise.
const DefaultControl = "http://127.0.0.1:7700"

// Limits of [Config.TTL].
const (
	DefaultTTL = 10 * time.Second
	MinTTL     = 5 * time.Second
	MaxTTL     = 5 * time.Minute
)

// Environment variables that [FromEnv] reads.
const (
	EnvControl   = "LANEWAY_CONTROL"    // URLs of the control plane, separated by commas
	EnvService   = "LANEWAY_SERVICE"    // service that the process is an instance of
	EnvLane      = "LANEWAY_LANE"       // its lane; empty: the baseline
	EnvRoom      = "LANEWAY_ROOM"       // its room
	EnvInstance  = "LANEWAY_INSTANCE"   // its instance, which is registered already
	EnvTokenFile = "LANEWAY_TOKEN_FILE" // file with a bearer token
)

// Config says who this process is and where the control plane is. The zero value
// is a process without a service that reads from [DefaultControl].
type Config struct {
	// Control are base URLs of replicas of the control plane, such as
	// "http://127.0.0.1:7700". Empty: DefaultControl. They are tried in turn.
	Control []string
	// Transport carries all requests. Nil: TCP, never through a proxy of the
	// environment. The client does not close a Transport that it was given.
	Transport http.RoundTripper
	// TokenFile holds a bearer token. It is read for each request, so that it can
	// be replaced. Empty: none is sent.
	TokenFile string

	Service  string // service that this process is an instance of; empty: none
	Lane     string // its lane, and the process's color; empty: the baseline
	Room     string // its room, which routing prefers; may be empty
	Instance string // name of its instance; empty: Service and four hex digits

	// Owned says that somebody else (`laneway run`) registers the instance: the
	// client registers none and opens a session that belongs to it.
	Owned bool
	// Endpoints are where the instance is reached. With Service set and Owned not,
	// an instance with them is registered.
	Endpoints []Endpoint
	// NoListen registers an instance without endpoints: one that only consumes.
	NoListen bool

	Role  string // role of the session; default "gateway" with All, "instance" with Service, else "client"
	Admin string // host:port where this process serves Client.AdminHandler; empty: nowhere, or AdminListen
	// AdminListen has the client serve AdminHandler itself, from Dial to Close, so that
	// `laneway explain --at` can ask this process: a loopback host:port, as in
	// "127.0.0.1:0", where 0 is a free port. Empty: it listens nowhere. Where others
	// should reach it, or where it is a part of a server that is there anyway, mount
	// AdminHandler there and say so in Admin instead.
	AdminListen string

	// All keeps everything that routing needs: all instances, services, routes and
	// rules. For gateways.
	All bool
	// SnapshotFile keeps the last view of a client with All over a restart. It is
	// written at most once a second, and read at the start. Empty: none.
	SnapshotFile string

	TTL    time.Duration     // of the session, MinTTL to MaxTTL; zero: DefaultTTL
	Labels map[string]string // of the instance
	Weight int               // of the instance, 1 to 1000; zero: 1
	Log    *slog.Logger      // nil: discard
}

// FromEnv returns a Config from the environment that `laneway run` and every other
// runtime sets. With LANEWAY_INSTANCE set, the instance is Owned.
func FromEnv() Config {
	cfg := Config{
		Control:   SplitList(os.Getenv(EnvControl)),
		Service:   os.Getenv(EnvService),
		Lane:      os.Getenv(EnvLane),
		Room:      os.Getenv(EnvRoom),
		Instance:  os.Getenv(EnvInstance),
		TokenFile: os.Getenv(EnvTokenFile),
	}
	cfg.Owned = cfg.Instance != ""
	return cfg
}

// SplitList cuts a list as environment variables have it, such as that of URLs in
// EnvControl: at commas, without blanks around its parts and without empty ones.
func SplitList(s string) []string {
	var urls []string
	for u := range strings.SplitSeq(s, ",") {
		if u = strings.TrimSpace(u); u != "" {
			urls = append(urls, u)
		}
	}
	return urls
}

// Validate returns all mistakes of the configuration, joined, or nil. [Dial] calls
// it.
func (c *Config) Validate() error {
	var errs []error
	add := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("laneclient: %s: %w", field, err))
		}
	}
	for n, raw := range c.Control {
		err := CheckControl(raw)
		add(fmt.Sprintf("Control[%d]", n), err)
	}
	if c.Service != "" {
		add("Service", lane.CheckService(c.Service))
	}
	if c.Instance != "" {
		add("Instance", lane.CheckInstance(c.Instance))
	}
	if c.Lane != "" {
		_, err := lane.ParseName(c.Lane)
		add("Lane", err)
	}
	if c.Owned && (c.Service == "" || c.Instance == "") {
		add("Owned", errors.New("needs Service and Instance: set both, or let the client register the instance"))
	}
	if c.AdminListen != "" {
		add("AdminListen", checkAdminListen(c.AdminListen))
		if c.Admin != "" {
			add("Admin", errors.New("is set beside AdminListen: leave out one of them"))
		}
	}
	if c.TTL != 0 && (c.TTL < MinTTL || c.TTL > MaxTTL) {
		add("TTL", fmt.Errorf("is %v: use %v to %v", c.TTL, MinTTL, MaxTTL))
	}
	if c.SnapshotFile != "" && !c.All {
		add("SnapshotFile", errors.New("is for clients with All: others need a part of the registry only"))
	}
	return errors.Join(errs...)
}

// CheckControl says whether raw can be one of Config.Control, and what is wrong where it
// cannot.
func CheckControl(raw string) error {
	_, err := parseControl(raw)
	return err
}

func parseControl(raw string) (*url.URL, error) {
	if host, port, err := net.SplitHostPort(raw); err == nil && host != "" {
		// An address alone, as a server's ready file has it.
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			raw = "http://" + raw
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of a control plane: write it as %s", raw, DefaultControl)
	}
	return u, nil
}

// registers reports whether the client registers an instance of its own.
func (c *Config) registers() bool {
	return c.Service != "" && !c.Owned && (len(c.Endpoints) > 0 || c.NoListen)
}
