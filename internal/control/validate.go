package control

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits of single fields.
const (
	maxEndpoints  = 16
	maxLabels     = 64
	maxLabelBytes = 255
	maxTextBytes  = 255 // owner, host, room
	maxWeight     = 1000
	maxRuleUsers  = 10_000
	maxMethods    = 16
	maxHostBytes  = 253 // RFC 1035, section 2.3.4
	maxPathBytes  = 2048
	minLaneTTL    = time.Second
	maxLaneTTL    = 10 * 365 * 24 * time.Hour

	defaultCheckInterval = 5 * time.Second
	defaultCheckTimeout  = time.Second
	defaultCheckFailures = 2
	minCheckInterval     = 500 * time.Millisecond
	maxCheckInterval     = time.Hour
	maxCheckFailures     = 100
	maxRouteTimeout      = 24 * time.Hour
)

// Kinds of lanes, as the API shows them.
const (
	laneOrdinary = "ordinary"
	laneStrict   = "strict"
)

func zeroTime() time.Time { return time.Time{} }

func kindOfLane(name lane.Name) string {
	if name.Strict() {
		return laneStrict
	}
	return laneOrdinary
}

func checkText(field, value string, most int, f *faults) {
	if len(value) > most {
		f.add(field, "has %d bytes: at most %d are allowed", len(value), most)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(field, "has a control character: leave it out")
	}
}

// between checks a duration; zero is left for the default.
func between(field string, d laneclient.Duration, least, most time.Duration, f *faults) {
	if v := time.Duration(d); v != 0 && (v < least || v > most) {
		f.add(field, "is %s: want %s to %s", v, least, most)
	}
}

func checkLane(obj any, f *faults) {
	l, _ := obj.(*laneclient.Lane)
	if want := kindOfLane(lane.Name(l.Name)); l.Kind != "" && l.Kind != want {
		f.add("kind", "is %q, but the name makes the lane %s: leave kind out, and begin the names of strict lanes, and of no other, with \"strict-\"", l.Kind, want)
	}
	checkParent(l, f)
	checkText("owner", l.Owner, maxTextBytes, f)
	between("ttl", l.TTL, minLaneTTL, maxLaneTTL, f)
	if l.TTL == 0 {
		l.TTL = laneclient.Duration(laneclient.DefaultLaneTTL)
	}
}

func checkParent(l *laneclient.Lane, f *faults) {
	if l.Parent == "" {
		return
	}
	parent, err := lane.ParseName(l.Parent)
	switch {
	case err != nil:
		f.add("parent", "%s", err.Error())
	case lane.Name(l.Name).Strict():
		f.add("parent", "a strict lane never falls back and has no parent: leave it out")
	case parent.Strict():
		f.add("parent", "%s is strict, which is nobody's parent: choose an ordinary lane", parent)
	case l.Parent == l.Name:
		f.add("parent", "a lane is not its own parent: choose another, or none for the baseline")
	}
}

func checkService(obj any, f *faults) {
	s, _ := obj.(*laneclient.Service)
	checkText("owner", s.Owner, maxTextBytes, f)
	checkEndpoints(s.Endpoints, false, f)
	c := s.Check
	if c == nil {
		return
	}
	switch c.Protocol {
	case "", lane.TCP:
		if c.Path != "" {
			f.add("check.path", "is for protocol http alone: leave it out, or set check.protocol to http")
		}
	case lane.HTTP:
		checkPath("check.path", c.Path, f)
	default:
		f.add("check.protocol", "is %q: want tcp or http", c.Protocol)
	}
	between("check.interval", c.Interval, minCheckInterval, maxCheckInterval, f)
	between("check.timeout", c.Timeout, 10*time.Millisecond, maxCheckInterval, f)
	if c.Failures < 0 || c.Failures > maxCheckFailures {
		f.add("check.failures", "is %d: want 1 to %d", c.Failures, maxCheckFailures)
	}
}

func checkPath(field, path string, f *faults) {
	if path != "" && path[0] != '/' {
		f.add(field, "is %q: begin it with '/'", path)
	}
	checkText(field, path, maxPathBytes, f)
}

// checkEndpoints checks those of an instance, which have an address, or those that
// a service is expected to offer, which have none.
func checkEndpoints(endpoints []laneclient.Endpoint, addressed bool, f *faults) {
	if len(endpoints) > maxEndpoints {
		f.add("endpoints", "has %d entries: at most %d are allowed", len(endpoints), maxEndpoints)
		return
	}
	for n, e := range endpoints {
		at := "endpoints[" + strconv.Itoa(n) + "]"
		if !isToken(e.Protocol) {
			f.add(at+".protocol", "is %q: want http, grpc, thrift, tcp, or another word of a-z, 0-9, '.', '+' and '-'", e.Protocol)
		}
		switch {
		case e.Transport == "":
		case e.Protocol != lane.Thrift:
			f.add(at+".transport", "is for protocol thrift alone: leave it out")
		case e.Transport != "header" && e.Transport != "framed" && e.Transport != "buffered":
			f.add(at+".transport", "is %q: want header, framed or buffered", e.Transport)
		}
		switch {
		case addressed:
			if fault := addressFault(e.Address); fault != "" {
				f.add(at+".address", "%s", fault)
			}
		case e.Address != "":
			f.add(at+".address", "belongs to instances: a service says only which protocols it offers")
		}
	}
}

// isToken reports whether s is a word that names a protocol or a role.
func isToken(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '+' && r != '.'
	})
}

func addressFault(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(address) > maxHostBytes+6 || strings.ContainsAny(host, " /?#@") {
		return strconv.Quote(clip(address)) + " is no address: want host:port"
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return strconv.Quote(clip(address)) + " has no port that can be called: want 1 to 65535"
	}
	return ""
}

// clip bounds what of a client's text an answer repeats.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most]
	}
	return s
}

func checkInstance(obj any, f *faults) {
	i, _ := obj.(*laneclient.Instance)
	if i.Lane != "" {
		if _, err := lane.ParseName(i.Lane); err != nil {
			f.add("lane", "%s", err.Error())
		}
	}
	checkText("room", i.Room, maxTextBytes, f)
	checkEndpoints(i.Endpoints, true, f)
	switch lane.State(i.State) {
	case "":
		i.State = string(lane.Ready)
	case lane.Ready, lane.Draining:
	default:
		f.add("state", "is %q: want ready or draining", i.State)
	}
	if i.Weight == 0 {
		i.Weight = 1
	}
	if i.Weight < 1 || i.Weight > maxWeight {
		f.add("weight", "is %d: want 1 to %d", i.Weight, maxWeight)
	}
	if len(i.Labels) > maxLabels {
		f.add("labels", "has %d entries: at most %d are allowed", len(i.Labels), maxLabels)
		return
	}
	for key, value := range i.Labels {
		if key == "" {
			f.add("labels", "has an entry without a name: give it one")
		}
		checkText("labels."+clip(key), key, maxLabelBytes, f)
		checkText("labels."+clip(key), value, maxLabelBytes, f)
	}
}

func checkRoute(obj any, f *faults) {
	r, _ := obj.(*laneclient.Route)
	r.Host = strings.ToLower(r.Host)
	if fault := coloring.HostFault(r.Host); fault != "" {
		f.add("host", "%s", fault)
	}
	checkPath("path", r.Path, f)
	if err := lane.CheckService(r.Service); err != nil {
		f.add("service", "%s", err.Error())
	}
	if r.Cluster != "" && lane.CheckService(r.Cluster) != nil {
		f.add("cluster", "%q is no host label: use a-z, 0-9 and '-'", clip(r.Cluster))
	}
	if r.Rewrite != nil {
		checkPath("rewrite.prefix", r.Rewrite.Prefix, f)
		if r.Rewrite.Host != "" && !coloring.PlainHost(strings.TrimSuffix(r.Rewrite.Host, ".")) {
			f.add("rewrite.host", "%q is no host: want one such as api.example.com, without a port", clip(r.Rewrite.Host))
		}
	}
	if r.Timeouts != nil {
		between("timeouts.request", r.Timeouts.Request, time.Millisecond, maxRouteTimeout, f)
		between("timeouts.idle", r.Timeouts.Idle, time.Millisecond, maxRouteTimeout, f)
	}
	// A route has no status: what gateways would leave out is not let in.
	if status := coloring.CheckRoute(r); status != coloring.StatusOK && len(f.list) == 0 {
		field, detail, _ := strings.Cut(status, ": ")
		f.add(field, "%s", detail)
	}
}

// checkRule refuses what can never become right. What can, a lane that is not there
// yet, is said by the rule's status.
func checkRule(obj any, f *faults) {
	r, _ := obj.(*laneclient.Rule)
	if len(r.Match.Method) > maxMethods {
		f.add("match.method", "has %d entries: at most %d are allowed", len(r.Match.Method), maxMethods)
	}
	if u := r.Match.User; u != nil && len(u.List) > maxRuleUsers {
		f.add("match.user.list", "has %d entries: at most %d are allowed; use a header or a cookie for more", len(u.List), maxRuleUsers)
	}
	checkText("match.path", r.Match.Path, maxPathBytes, f)
	for _, fault := range coloring.Faults(r) {
		f.add(fault.Field, "%s", fault.Detail)
	}
}

func checkSession(obj any, f *faults) {
	s, _ := obj.(*laneclient.Session)
	if s.Name != "" {
		f.add("name", "is given by the control plane: leave it out")
	}
	if s.Instance != "" {
		if err := checkInstanceName(s.Instance); err != nil {
			f.add("instance", "%s", err.Error())
		}
	}
	checkText("host", s.Host, maxTextBytes, f)
	if s.Admin != "" {
		if fault := addressFault(s.Admin); fault != "" {
			f.add("admin", "%s", fault)
		}
	}
	if s.Role != "" && !isToken(s.Role) {
		f.add("role", "is %q: want a word of a-z, 0-9, '.', '+' and '-'", clip(s.Role))
	}
	between("ttl", s.TTL, laneclient.MinTTL, laneclient.MaxTTL, f)
	if s.TTL == 0 {
		s.TTL = laneclient.Duration(laneclient.DefaultTTL)
	}
}

// sortedFields orders mistakes by field, for lists that come from a map.
func sortedFields(list []laneclient.FieldError) {
	slices.SortStableFunc(list, func(a, b laneclient.FieldError) int { return strings.Compare(a.Field, b.Field) })
}
