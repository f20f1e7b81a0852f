package coloring

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// StatusOK is the status of a rule or route without a mistake.
const StatusOK = "ok"

// Options are what a [Table] is compiled with beside routes and rules.
type Options struct {
	Domain  string   // "<service>.<Domain>" names a service; empty: no host does
	Cluster string   // label that may stand before the domain of a tagged host; may be empty
	Aliases []string // further headers that carry a color
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

// Table is the compiled form of routes and rules. It is immutable.
type Table struct {
	hosts   *hosts
	rules   *rules
	aliases []string
	signing *SignKeys
}

// Compile lays out routes and rules. Those with a mistake are left out;
// [Table.Statuses] tells of them. The slices are kept and must not be changed.
func Compile(routes []laneclient.Route, list []laneclient.Rule, opts Options) *Table {
	t := &Table{signing: opts.Signing, hosts: compileHosts(routes, &opts), rules: compileRules(list, opts.JWT)}
	for _, a := range opts.Aliases {
		t.aliases = append(t.aliases, http.CanonicalHeaderKey(a))
	}
	return t
}

// Decide names service and color of a request. dir says which services and lanes
// exist; nil knows none. It may be called from several goroutines at once.
func (t *Table) Decide(dir *lane.Snapshot, req *Request) Decision {
	f, _ := t.hosts.find(dir, cleanHost(req.Host), req.Path, req.Inside)
	d := Decision{Service: f.service, Route: f.route}
	came, malformed := lane.Extract(lanehttp.Carrier(req.Header), t.aliases...)
	d.Malformed = malformed
	signed := came != lane.Baseline && t.signing != nil && t.signedBy(req, came)
	d.Dropped = !req.Trusted && !signed && (came != lane.Baseline || malformed > 0)
	switch {
	case f.tag != lane.Baseline:
		d.Color, d.Rule = f.tag, lane.RuleHost
	case signed:
		d.Color, d.Rule = came, lane.RuleSigned
	case req.Trusted && came != lane.Baseline:
		d.Color, d.Rule = came, lane.RuleTrusted
	case !req.Inside:
		t.rules.apply(dir, req, &d)
	}
	return d
}

func (t *Table) signedBy(req *Request, color lane.Name) bool {
	v := req.Header[lanehttp.SignatureKey]
	return len(v) == 1 && t.signing.Verify(v[0], color, req.Now) == nil
}

// Statuses gives the status of every rule by its name: [StatusOK], or what is
// wrong.
func (t *Table) Statuses(dir *lane.Snapshot) map[string]string {
	known := func(n lane.Name) bool { return exists(dir, n) }
	out := make(map[string]string, len(t.rules.all))
	for n := range t.rules.all {
		r := &t.rules.all[n]
		out[r.Name] = t.rules.check(r, known)
	}
	return out
}

// exists reports whether a lane is there to color traffic with: known, and not
// over.
func exists(dir *lane.Snapshot, name lane.Name) bool {
	l, ok := dir.Lane(name)
	return ok && l.State != lane.Ended
}
