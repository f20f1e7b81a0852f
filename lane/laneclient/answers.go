package laneclient

import (
	"encoding/json"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// SessionHeader names the session on whose behalf a request is made: the watch
// sends progress right after its renewals, and an instance that is written with it
// ends when the session does.
const SessionHeader = "Laneway-Session"

// List is the answer to GET /v1/{kind}. Items are the objects, sorted by name, as
// they were at Revision. Next, if not empty, is the after parameter of the next
// page; pages are read at revisions of their own.
type List struct {
	Items    []json.RawMessage `json:"items"`
	Revision uint64            `json:"revision"`
	Next     string            `json:"next,omitempty"`
}

// Types of problems that a program may want to tell apart; others have none.
const (
	ProblemSessionGone = "urn:laneway:problem:session-gone" // 404, 409: open a new session
	ProblemStaleView   = "urn:laneway:problem:stale-view"   // 409 to a renewal: go to another replica
	ProblemChanged     = "urn:laneway:problem:changed"      // 412: read Current, decide again
	ProblemExists      = "urn:laneway:problem:exists"       // 409: the lane exists already
	ProblemLane        = "urn:laneway:problem:lane"         // 409, 422: the lane is missing, draining or ended
	ProblemFull        = "urn:laneway:problem:full"         // 507: the registry's storage is used up
	ProblemNoRoute     = "urn:laneway:problem:no-route"     // 404 of a gateway, which is no control plane
	ProblemUnavailable = "urn:laneway:problem:unavailable"  // 503: try again after Retry-After
)

// Extension is the body of POST /v1/lanes/{name}/extend: the lane expires a full
// TTL from now.
type Extension struct {
	TTL Duration `json:"ttl,omitempty"` // the new TTL; zero: as before
}

// Hold is the body of POST /v1/lanes/{name}/hold.
type Hold struct {
	Held bool `json:"held"` // false: the lane expires again, a full TTL from now
}

// HTTPRequest is the body of POST /v1/explain/http: a request as the edge would
// get it.
type HTTPRequest struct {
	Host    string              `json:"host"`
	Method  string              `json:"method,omitempty"` // default GET
	Path    string              `json:"path,omitempty"`   // default "/"; decoded
	Query   string              `json:"query,omitempty"`  // without '?'
	Headers map[string][]string `json:"headers,omitempty"`
	Source  string              `json:"source,omitempty"`  // address of the peer
	Trusted bool                `json:"trusted,omitempty"` // a color that came along is believed
	Inside  bool                `json:"inside,omitempty"`  // at the inside listener instead
}

// RegistryStatus says how the storage behind the control plane is.
type RegistryStatus struct {
	OK       bool   `json:"ok"`
	Detail   string `json:"detail,omitempty"` // what is wrong and what to do
	Revision uint64 `json:"revision"`         // the store's, 0 if it does not answer
	Cached   uint64 `json:"cached"`           // what this replica has seen of it
}

// ReplicaStatus is one replica of the control plane.
type ReplicaStatus struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`    // its machine's name
	Address string    `json:"address,omitempty"` // host:port that it listens on there; empty: not told
	Since   time.Time `json:"since,omitzero"`
	Leader  bool      `json:"leader,omitempty"` // runs the life of lanes and the active checks
	Skew    Duration  `json:"skew,omitempty"`   // its clock minus this replica's, as last seen
	Self    bool      `json:"self,omitempty"`   // the one that answers
}

// RoleStatus is the readiness of a role of the process that answers.
type RoleStatus struct {
	Role   string `json:"role"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why not, or what to know all the same
}

// StaleView is a session whose view of the registry lags.
type StaleView struct {
	Session  string   `json:"session"`
	Instance string   `json:"instance,omitempty"`
	Role     string   `json:"role,omitempty"`
	Host     string   `json:"host,omitempty"`
	Reached  uint64   `json:"reached"`
	Behind   Duration `json:"behind"` // how long ago what it has not reached was written
}

// LimitStatus is a limit and how much of it is used.
type LimitStatus struct {
	Name  string `json:"name"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"`
	Near  bool   `json:"near,omitempty"` // over 80 %
}

// Status is the answer to GET /v1/status: what is well and what is not, as seen by
// the replica that answers.
type Status struct {
	Node     string          `json:"node"`
	Version  string          `json:"version,omitempty"`
	Cluster  string          `json:"cluster,omitempty"`
	Domain   string          `json:"domain,omitempty"`
	Time     time.Time       `json:"time"`
	OK       bool            `json:"ok"`                 // no Problems
	Problems []string        `json:"problems,omitempty"` // a sentence each, with what to do
	Registry RegistryStatus  `json:"registry"`
	Replicas []ReplicaStatus `json:"replicas"`
	Roles    []RoleStatus    `json:"roles"`
	Objects  map[Kind]int    `json:"objects"` // how many of each kind
	// NotOK is how many of them do not do what they should: rules whose status is not
	// "ok", and static instances that fail their check.
	NotOK    map[Kind]int   `json:"not_ok,omitempty"`
	Sessions map[string]int `json:"sessions"` // live ones, by role
	Stale    []StaleView    `json:"stale"`    // of sessions that are renewed here
	Limits   []LimitStatus  `json:"limits"`
}

// Health is the answer to GET /healthz and /readyz.
type Health struct {
	OK    bool         `json:"ok"`
	Roles []RoleStatus `json:"roles"`
}

// Routing is what routing needs to know of the instance. One that fails its active
// check is not ready there, whatever its State is.
func (i *Instance) Routing() *lane.Instance {
	r := &lane.Instance{
		Service: i.Service, Name: i.Name, Lane: lane.Name(i.Lane), Generation: i.Generation,
		Room: i.Room, State: lane.State(i.State), Weight: i.Weight,
		Endpoints: make([]lane.Endpoint, len(i.Endpoints)),
	}
	if i.Health == HealthFailing {
		r.State = lane.Draining
	}
	for n, e := range i.Endpoints {
		r.Endpoints[n] = lane.Endpoint(e)
	}
	return r
}

// Results of active checks, in Instance.Health. Empty: none yet, or no check.
const (
	HealthPassing = "passing"
	HealthFailing = "failing"
)

// Routing is what routing needs to know of the lane.
func (l *Lane) Routing() lane.Lane {
	return lane.Lane{Name: lane.Name(l.Name), Parent: lane.Name(l.Parent), Generation: l.Generation, State: lane.State(l.State)}
}
