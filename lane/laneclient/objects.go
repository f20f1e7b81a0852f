package laneclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind names a kind of object, as in the API's paths ("/v1/lanes") and in the
// kind field of files for apply. It is always plural.
type Kind string

// Kinds that the control API stores.
const (
	KindLanes     Kind = "lanes"
	KindServices  Kind = "services"
	KindInstances Kind = "instances"
	KindRoutes    Kind = "routes"
	KindRules     Kind = "rules"
	KindSessions  Kind = "sessions"
)

// Duration is a time.Duration that JSON writes as Go does ("72h0m0s").
type Duration time.Duration

// MarshalText writes d as time.Duration's String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 30s or 72h: %w", text, err)
	}
	*d = Duration(v)
	return nil
}

// Meta stands first in every object. Revision is the registry revision of the
// object's last change; on a write it is ignored (use If-Match instead).
type Meta struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision,omitempty"`
}

func (m *Meta) objectMeta() *Meta { return m }

// MetaOf is the part that all objects have, for code that knows no kind. It panics where obj is
// no pointer to an [Object].
func MetaOf(obj any) *Meta {
	o, ok := obj.(interface{ objectMeta() *Meta })
	if !ok {
		panic(fmt.Sprintf("laneclient: %T is no object", obj))
	}
	return o.objectMeta()
}

// DefaultLaneTTL is the TTL of a lane that names none.
const DefaultLaneTTL = 72 * time.Hour

// Lane is an object of kind lanes.
type Lane struct {
	Meta
	Kind       string    `json:"kind,omitempty"`   // "ordinary" or "strict"; follows from the name
	Parent     string    `json:"parent,omitempty"` // fixed at creation; empty: the baseline
	Generation uint64    `json:"generation,omitempty"`
	State      string    `json:"state,omitempty"` // creating, ready, draining, ended
	Owner      string    `json:"owner,omitempty"`
	TTL        Duration  `json:"ttl,omitempty"` // default DefaultLaneTTL; renewed by use
	Created    time.Time `json:"created,omitzero"`
	Expires    time.Time `json:"expires,omitzero"`
	WarnedAt   time.Time `json:"warned_at,omitzero"`   // when 10 % of the TTL was left
	DrainingAt time.Time `json:"draining_at,omitzero"` // since when it drains, or did
	EndedAt    time.Time `json:"ended_at,omitzero"`
	Held       bool      `json:"held,omitempty"` // a held lane does not expire
	LastUse    time.Time `json:"last_use,omitzero"`
}

// Endpoint is an address of an instance, or, without Address, what a service is
// expected to offer.
type Endpoint struct {
	Protocol  string `json:"protocol"`            // http, grpc, thrift, tcp, …
	Transport string `json:"transport,omitempty"` // thrift only: header (default), framed, buffered
	Address   string `json:"address,omitempty"`   // host:port
}

// Check is how the control plane probes a static instance.
type Check struct {
	Protocol string   `json:"protocol,omitempty"` // "tcp" (default) or "http"
	Path     string   `json:"path,omitempty"`     // http only; default "/"
	Interval Duration `json:"interval,omitempty"` // default 5s
	Timeout  Duration `json:"timeout,omitempty"`  // default 1s
	Failures int      `json:"failures,omitempty"` // in a row before it counts as down; default 2
}

// Service is an object of kind services. One exists from its first instance, or
// from being written, until it is deleted.
type Service struct {
	Meta
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Check     *Check     `json:"check,omitempty"` // for its static instances; nil: none
	Owner     string     `json:"owner,omitempty"`
}

// FieldCallable is the field by which a watch selects the instances of a service that routing
// can choose, those with endpoints: "instances:callable=order". Who calls the service need not
// hear of its processes that only consume, which may come and go often.
const FieldCallable = "callable"

// Instance is an object of kind instances. Name is unique in Service.
type Instance struct {
	Meta
	Service    string            `json:"service"`
	Lane       string            `json:"lane,omitempty"`       // empty: the baseline
	Generation uint64            `json:"generation,omitempty"` // of the lane; set by the control plane at registration
	Room       string            `json:"room,omitempty"`
	Session    string            `json:"session,omitempty"` // ends with it
	Static     bool              `json:"static,omitempty"`  // has no session; stays until it is deleted
	Endpoints  []Endpoint        `json:"endpoints,omitempty"`
	State      string            `json:"state,omitempty"`  // ready or draining
	Health     string            `json:"health,omitempty"` // of an active check: "", passing, failing
	Weight     int               `json:"weight,omitempty"` // default 1; 1 to 1000
	Labels     map[string]string `json:"labels,omitempty"`
	Since      time.Time         `json:"since,omitzero"`
}

// Roles of sessions that this module and `laneway` open.
const (
	RoleInstance = "instance" // of an instance; also what an empty role means
	RoleGateway  = "gateway"
	RoleRun      = "run"    // a process that runs another, which is the instance
	RoleClient   = "client" // one that calls only
)

// Session is an object of kind sessions: one run of a process under a lease.
type Session struct {
	Meta               // Name is the session's id
	Instance string    `json:"instance,omitempty"` // "service/name" that it belongs to
	Host     string    `json:"host,omitempty"`
	Admin    string    `json:"admin,omitempty"` // host:port of its explain and health endpoint
	Role     string    `json:"role,omitempty"`  // RoleInstance, RoleGateway, …
	TTL      Duration  `json:"ttl,omitempty"`   // default 10s; 5s to 5m
	Reached  uint64    `json:"reached,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// Renewal is the body of POST /v1/sessions/{id}/renew.
type Renewal struct {
	Reached uint64   `json:"reached"`         // the last revision that the sender's view has seen
	Lanes   []string `json:"lanes,omitempty"` // lanes used since the last renewal
}

// Renewed is the answer to a Renewal. Revision was read linearizably: a view that
// does not reach it within a second reads from a replica that lags.
type Renewed struct {
	Revision uint64   `json:"revision"`
	TTL      Duration `json:"ttl"`
}

// Rewrite changes a request on its way to a route's service.
type Rewrite struct {
	Prefix string `json:"prefix,omitempty"` // replaces the route's path prefix
	Host   string `json:"host,omitempty"`   // replaces the Host header
}

// Timeouts bound a request. Zero fields have the gateway's defaults.
type Timeouts struct {
	Request Duration `json:"request,omitempty"` // until the response's headers
	Idle    Duration `json:"idle,omitempty"`    // without a byte in either direction
}

// Route is an object of kind routes: it maps hosts and path prefixes to a
// service. The longest match wins.
type Route struct {
	Meta
	Host     string    `json:"host,omitempty"` // exact, or "*.example.com"; empty: any
	Path     string    `json:"path,omitempty"` // prefix, cut at '/'; default "/"
	Service  string    `json:"service"`
	Cluster  string    `json:"cluster,omitempty"` // cluster label of tagged hosts
	Rewrite  *Rewrite  `json:"rewrite,omitempty"`
	Timeouts *Timeouts `json:"timeouts,omitempty"`
}

// ValueMatch matches a named value. Value empty: any value, so long as it is there.
type ValueMatch struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// UserMatch finds the user id of a request. From is "header:NAME", "cookie:NAME"
// or "jwt:CLAIM" (a claim of a bearer token whose signature the gateway checks).
type UserMatch struct {
	From string   `json:"from"`
	List []string `json:"list,omitempty"` // empty: any user
}

// Match selects requests. All fields that are set must match.
type Match struct {
	Host   string      `json:"host,omitempty"` // exact, or "*.example.com"; without a port
	Header *ValueMatch `json:"header,omitempty"`
	Cookie *ValueMatch `json:"cookie,omitempty"`
	Query  *ValueMatch `json:"query,omitempty"`
	Path   string      `json:"path,omitempty"` // prefix, cut at '/'
	Method []string    `json:"method,omitempty"`
	User   *UserMatch  `json:"user,omitempty"`
	Source string      `json:"source,omitempty"` // address or CIDR
}

// LaneShare gives a percentage of what a rule matches to a lane.
type LaneShare struct {
	Lane    string  `json:"lane"`
	Percent Percent `json:"percent,omitempty"` // over 0 to 100; left out: 100
}

// Percent is a share, over 0 to 100. Zero is one that was left out, and means all.
type Percent float64

// UnmarshalJSON reads a number. It refuses 0: who writes that means nothing, and would give
// everything.
func (p *Percent) UnmarshalJSON(text []byte) error {
	var v float64
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if v == 0 && string(text) != "null" {
		return errors.New("is 0: use a number over 0 up to 100, and leave the lane out where it is to get nothing")
	}
	*p = Percent(v)
	return nil
}

// Rule is an object of kind rules: it colors requests at the edge.
type Rule struct {
	Meta
	Priority int         `json:"priority,omitempty"` // lower first; equals by name
	Match    Match       `json:"match,omitzero"`
	Lanes    []LaneShare `json:"lanes"`
	// Key is what a percentage sticks to: "header:NAME", "cookie:NAME",
	// "query:NAME", "user" (of Match.User) or "source". Default: user where
	// Match.User is set, else source.
	Key    string `json:"key,omitempty"`
	Status string `json:"status,omitempty"` // "ok", or what is wrong; such a rule is skipped
}

// EventType is the type of a line of the watch.
type EventType string

// Types of events.
const (
	EventPut       EventType = "put"       // an object was created or changed
	EventDelete    EventType = "delete"    // an object is gone
	EventSynced    EventType = "synced"    // all that was there at Revision has been sent
	EventProgress  EventType = "progress"  // nothing selected happened up to Revision
	EventCompacted EventType = "compacted" // the stream cannot go on: list again
)

// Event is one line of GET /v1/watch. Object is set for put alone; its concrete
// type follows from Kind. Name is as in the path below the kind
// ("service/instance" for instances).
type Event struct {
	Type     EventType       `json:"type"`
	Revision uint64          `json:"revision"`
	Kind     Kind            `json:"kind,omitempty"`
	Name     string          `json:"name,omitempty"`
	Object   json.RawMessage `json:"object,omitempty"`
}

// FieldError is one entry of a Problem's errors.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Problem is an error of the control API: RFC 9457, application/problem+json.
// Detail says what to do next. Current carries the present object on a 412.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Type    string          `json:"type,omitempty"` // default about:blank
	Title   string          `json:"title"`
	Status  int             `json:"status"`
	Detail  string          `json:"detail,omitempty"`
	Errors  []FieldError    `json:"errors,omitempty"`
	Current json.RawMessage `json:"current,omitempty"`
}

// Error gives the detail, or the title where there is none, and the field errors.
func (p *Problem) Error() string {
	s := p.Detail
	if s == "" {
		s = p.Title
	}
	for _, f := range p.Errors {
		s += "; " + f.Field + ": " + f.Detail
	}
	return s
}

// PassedRule is a coloring rule that gave a request no color, and why it did not, for
// people.
type PassedRule struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Explanation is the answer to GET /v1/explain: who would get a call, and why, by
// the snapshot of the process that was asked.
type Explanation struct {
	Service  string `json:"service"`
	Protocol string `json:"protocol"`
	Color    string `json:"color"`
	Rule     string `json:"rule,omitempty"` // what gave the color (explain http)
	RuleName string `json:"rule_name,omitempty"`
	// Dropped says why a color that came with the request is not believed (explain http).
	Dropped string `json:"dropped,omitempty"`
	// PassedOver are the rules that gave no color before one did, or all, in their order,
	// and MorePassedOver how many there are beyond those (explain http).
	PassedOver     []PassedRule `json:"passed_over,omitempty"`
	MorePassedOver int          `json:"more_passed_over,omitempty"`
	Lane           string       `json:"lane"`
	Reason         string       `json:"reason"`
	Instances      []Instance   `json:"instances"`
	Error          string       `json:"error,omitempty"`
	Note           string       `json:"note,omitempty"` // what else to know of the answer
	Node           string       `json:"node"`
	Revision       uint64       `json:"revision"`
}
