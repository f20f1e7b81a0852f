package coloring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// maxPassedOver is how many rules an explanation says this of.
const maxPassedOver = 50

// passedOver says of each rule that came before the one that gave the color, or of all
// where none did, why it gave none. d is what [Table.Decide] has decided; where rules were
// not asked, there is none. At most maxPassedOver are told of; more is how many there are
// beyond.
func (t *rules) passedOver(dir *lane.Snapshot, req *Request, d *Decision) (list []laneclient.PassedRule, more int) {
	if req.Inside || d.Rule != "" && d.RuleName == "" {
		return nil, 0
	}
	all := make([]*laneclient.Rule, len(t.all))
	for n := range t.all {
		all[n] = &t.all[n]
	}
	slices.SortStableFunc(all, inOrder)
	e := newEval(req, t.jwt)
	inUse := t.list // in the same order
	for _, src := range all {
		var reason string
		if len(inUse) > 0 && inUse[0].name == src.Name {
			if d.RuleName == src.Name {
				break
			}
			reason = e.why(dir, inUse[0])
			inUse = inUse[1:]
		} else {
			reason = "is skipped: " + t.check(src, nil)
		}
		if len(list) == maxPassedOver {
			more++
			continue
		}
		list = append(list, laneclient.PassedRule{Name: src.Name, Reason: reason})
	}
	return list, more
}

// why says why a rule gives the request no color.
func (e *eval) why(dir *lane.Snapshot, r *rule) string {
	switch e.unmet(r) {
	case askNothing:
		return e.whyNoShare(dir, r)
	case askMethod:
		return fmt.Sprintf("method is %s, not %s", brief(e.req.Method), strings.Join(r.methods, " or "))
	case askHost:
		if strings.HasPrefix(r.host, "*") {
			return fmt.Sprintf("host %q is not below %q", brief(e.host), r.host)
		}
		return fmt.Sprintf("host is %q, not %q", brief(e.host), r.host)
	case askPath:
		return fmt.Sprintf("path %q is not below %q", brief(e.req.Path), r.path)
	case askSource:
		if !e.req.Source.IsValid() {
			return "the source address is not known"
		}
		return fmt.Sprintf("source %s is not in %s", e.req.Source.Unmap(), r.prefix)
	case askHeader:
		return e.whyOther(source{fromHeader, r.header.Name}, r.header.Value)
	case askQuery:
		return e.whyOther(source{fromQuery, r.query.Name}, r.query.Value)
	case askCookie:
		return e.whyOther(source{fromCookie, r.cookie.Name}, r.cookie.Value)
	case askUser:
		return fmt.Sprintf("no %s that names the user", r.user)
	case askUsers:
		return fmt.Sprintf("user %q is not in the list", brief(e.first(*r.user)))
	}
	return ""
}

// whyOther says of a named value that it is not there, or not the wanted one.
func (e *eval) whyOther(s source, want string) string {
	var got []string
	e.values(s, func(v string) bool {
		got = append(got, fmt.Sprintf("%q", brief(v)))
		return len(got) < 3
	})
	if len(got) == 0 {
		return fmt.Sprintf("no %s", s)
	}
	return fmt.Sprintf("%s is %s, not %q", s, strings.Join(got, " and "), want)
}

// whyNoShare says why a rule that matches gives no color.
func (e *eval) whyNoShare(dir *lane.Snapshot, r *rule) string {
	if color := e.share(r); color != lane.Baseline {
		if l, known := dir.Lane(color); known && l.State == lane.Ended {
			return fmt.Sprintf("lane %s has ended", color)
		}
		return fmt.Sprintf("there is no lane %s", color)
	}
	key := e.first(r.key)
	if key == "" {
		return fmt.Sprintf("no %s to stick to", r.key)
	}
	var of []string
	for n, name := range r.lanes {
		of = append(of, fmt.Sprintf("the %g %% of lane %s", float64(r.slots[n])*100/slotCount, name))
	}
	return fmt.Sprintf("%s %q is not in %s", r.key, brief(key), strings.Join(of, ", nor in "))
}

// String names a value of a request for people.
func (s source) String() string {
	switch s.kind {
	case fromHeader:
		return "header " + strings.ToLower(s.name)
	case fromCookie:
		return "cookie " + s.name
	case fromQuery:
		return "query parameter " + s.name
	case fromClaim:
		return "good bearer token with the claim " + s.name
	case fromSource:
	}
	return "source address"
}
