package coloring

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Options are what a [Table] is compiled with beside routes and rules.
type Options struct {
	Domain  string   // "<service>.<Domain>" names a service; empty: no host does
	Cluster string   // label that may stand before the domain of a tagged host; may be empty
	Aliases []string // further headers that carry a color, in lower case
	// Services are the services that exist. The table needs them to find the owner
	// of a shortened host label; whether a service exists is asked of the snapshot.
	Services []string
	JWT      *JWTKeys  // checks tokens of rules with user.from "jwt:…"; nil: such rules are skipped
	Signing  *SignKeys // checks signed colors; nil: no signature is good
}

// Request is what a decision rests on. Header is not changed.
type Request struct {
	Host    string // as sent, with or without a port
	Method  string
	Path    string // decoded, beginning with '/'
	Query   string // as sent, without '?'
	Header  http.Header
	Source  netip.Addr // the peer, or whom a trusted peer names
	Trusted bool       // a color that came with the request is believed
	Inside  bool       // bare service names are hosts; rules are not applied
	Now     time.Time  // for tokens and signatures
}

// Decision is the answer to a [Request].
type Decision struct {
	Service   string            // empty: no route and no service has this host and path
	Route     *laneclient.Route // the route that named the service; nil: its own name did
	Color     lane.Name         // zero: plain
	Rule      lane.Rule         // what gave the color; zero where it has none
	RuleName  string            // of the coloring rule, where one gave the color
	Dropped   bool              // a color came with the request and was not believed
	Malformed int               // values that came where a color would be and are no lane names
}

// Compile lays out routes and rules. Routes and rules with a mistake are left out;
// [Table.Statuses] tells of them. The slices are kept and must not be changed.
func Compile(routes []laneclient.Route, rules []laneclient.Rule, opts Options) *Table {
	return &Table{}
}

// Table is the compiled form of routes and rules. It is immutable.
type Table struct{}

// Decide names service and color of a request. dir says which services and lanes
// exist; nil knows none. It may be called from several goroutines at once.
func (t *Table) Decide(dir *lane.Snapshot, req *Request) Decision {
	return Decision{}
}

// Statuses gives the status of every rule by name: "ok", or what is wrong.
func (t *Table) Statuses(dir *lane.Snapshot) map[string]string { return nil }

// Check returns "ok", or what is wrong with a rule and what would be right. known
// says whether a lane exists; nil: lanes are not checked.
func Check(rule *laneclient.Rule, known func(lane.Name) bool) string { return "ok" }

// CheckRoute returns "ok", or what is wrong with a route and what would be right.
func CheckRoute(route *laneclient.Route) string { return "ok" }
