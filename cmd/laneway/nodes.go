package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// maxAsked is how many nodes a status asks, gateways first.
	maxAsked = 200
	// askedAtOnce is how many of them are asked at a time.
	askedAtOnce = 16
	// nodeTimeout bounds asking one node.
	nodeTimeout = 2 * time.Second
	// skewLimit is how far the clock of a node may be off.
	skewLimit = 2 * time.Second
)

// nodeStatus is how a node says that it is: a process with an admin address, or a
// replica of the control plane.
type nodeStatus struct {
	Name     string                  `json:"name"`              // instance, role or replica
	Role     string                  `json:"role"`              // of its session, or control
	Host     string                  `json:"host,omitempty"`    // empty: not known
	Address  string                  `json:"address,omitempty"` // that was asked, or would be
	Asked    bool                    `json:"asked"`             // false: it cannot be reached from here, or there are too many
	OK       bool                    `json:"ok"`                // asked, and well
	Fault    string                  `json:"fault,omitempty"`   // why it is not, or was not asked
	Revision uint64                  `json:"revision,omitempty"`
	Roles    []laneclient.RoleStatus `json:"roles,omitempty"`
	Skew     laneclient.Duration     `json:"skew,omitempty"` // its clock minus that of the first replica that answers; where it is not negligible
	Listen   map[string]string       `json:"listen,omitempty"`
	Rules    map[string]string       `json:"rules,omitempty"` // of a gateway: the status of those that are not ok there
}

// nodesOf lists what sessions name, those that route for others first.
func nodesOf(sessions []laneclient.Session) []nodeStatus {
	host, _ := os.Hostname() // without it, no loopback address is this host's
	out := []nodeStatus{}    // empty, not null, in JSON
	for _, s := range sessions {
		if s.Admin == "" {
			continue
		}
		n := nodeStatus{Name: cmp.Or(s.Instance, s.Role), Role: s.Role, Host: s.Host, Address: s.Admin}
		n.reach(host)
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b nodeStatus) int {
		if a, b := a.Role == laneclient.RoleGateway, b.Role == laneclient.RoleGateway; a != b {
			if a {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name+" "+a.Role, b.Name+" "+b.Role)
	})
	for i := maxAsked; i < len(out); i++ {
		out[i].Asked, out[i].Fault = false, fmt.Sprintf("not asked: there are more than %d", maxAsked)
	}
	return out
}

// reach finds out whether a node can be asked from the host here, and by which address: it
// is known by the one that it listens on.
func (n *nodeStatus) reach(here string) {
	n.Asked = true
	listens, err := netip.ParseAddrPort(n.Address)
	local := n.Host == here && here != ""
	switch {
	case err != nil: // a name is the same everywhere
	case listens.Addr().IsLoopback() && !local:
		n.Asked, n.Fault = false, "not asked: it listens on the loopback address of its host alone"
	case listens.Addr().IsUnspecified() && n.Host != "":
		host := n.Host
		if local {
			host = "localhost"
		}
		n.Address = net.JoinHostPort(host, strconv.Itoa(int(listens.Port())))
	}
}

// nodeTransport is for nodes that the registry names. It takes no token: that is for the
// control plane that a person names, not for whoever names an address.
func nodeTransport() *http.Transport { return &http.Transport{MaxResponseHeaderBytes: 64 << 10} }

// askNodes asks all nodes that can be asked. offset is that of the control plane's
// clock, to which theirs are compared.
func askNodes(ctx context.Context, nodes []nodeStatus, offset time.Duration) {
	transport := nodeTransport()
	defer transport.CloseIdleConnections()
	turn := make(chan struct{}, askedAtOnce)
	var asking sync.WaitGroup
	for i := range nodes {
		if n := &nodes[i]; n.Asked {
			asking.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				n.ask(ctx, transport, offset)
			})
		}
	}
	asking.Wait()
}

func (n *nodeStatus) ask(ctx context.Context, transport http.RoundTripper, offset time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	api := laneclient.NewAPI(laneclient.Config{Control: []string{"http://" + n.Address}, Transport: transport})
	defer func() { _ = api.Close() }()
	var h laneclient.NodeHealth
	began := time.Now()
	err := api.Do(ctx, http.MethodGet, "/healthz", nil, &h)
	took := time.Since(began)
	if err != nil {
		n.Fault = "no answer: " + sentence(reasonOf(err))
		return
	}
	n.OK, n.Revision, n.Roles, n.Listen = h.OK, h.Revision, h.Roles, h.Listen
	if !h.Time.IsZero() {
		n.Skew = negligible(h.Time.Sub(began.Add(took/2))-offset, took)
	}
	var faults []string
	for _, r := range h.Roles {
		if r.Reason != "" {
			faults = append(faults, r.Reason)
		}
	}
	if skew := time.Duration(n.Skew); skew.Abs() > skewLimit {
		faults = append(faults, fmt.Sprintf("its clock is off by %s: synchronize it", skew.Round(time.Millisecond)))
	}
	n.OK, n.Fault = n.OK && len(faults) == 0, strings.Join(faults, "; ")
	if n.Role == laneclient.RoleGateway {
		n.askRules(ctx, api)
	}
}

// askRules asks a gateway for the rules that are not ok there. It alone has the keys that
// some of them need; what else is wrong with them is known without it.
func (n *nodeStatus) askRules(ctx context.Context, api *laneclient.API) {
	var status map[string]string
	if err := api.Do(ctx, http.MethodGet, "/v1/rules/status", nil, &status); err != nil {
		return // one without a view, which is among its faults, or of another version
	}
	maps.DeleteFunc(status, func(_, text string) bool { return text == coloring.StatusOK })
	n.Rules = status
}

// about tells of a node that was asked, in a line.
func (n *nodeStatus) about() string {
	text := n.Address
	if n.Host != "" {
		text += " on " + n.Host
	}
	if n.Role != n.Name && n.Role != "control" {
		text = n.Role + " at " + text
	}
	if n.Revision > 0 {
		text += fmt.Sprintf(", revision %d", n.Revision)
	}
	if n.Skew != 0 {
		text += ", its clock is off by " + time.Duration(n.Skew).String()
	}
	if n.Fault != "" {
		text += ": " + n.Fault
	}
	return text
}

// negligible leaves out a skew that may well be the time that asking took.
func negligible(skew, took time.Duration) laneclient.Duration {
	if skew.Abs() <= took/2+100*time.Millisecond {
		return 0
	}
	return laneclient.Duration(skew.Round(time.Millisecond))
}

// reasonOf is why a call got no answer, without what has been said already.
func reasonOf(err error) error {
	if none, ok := errors.AsType[*laneclient.UnreachableError](err); ok {
		err = none.Err
	}
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it has not said anything within %s", nodeTimeout)
	}
	return err
}

// hostOf is the host of a service in a lane, or in the baseline.
func hostOf(s *laneclient.Status, name lane.Name, service string) string {
	labels := []string{lane.HostLabel(name, service), s.Cluster, s.Domain}
	return strings.Join(slices.DeleteFunc(labels, func(l string) bool { return l == "" }), ".")
}

// edgeOf is the URL by which a host is reached at the gateway, as far as a gateway that
// can be asked says where it listens; without one, the host alone.
func edgeOf(host string, nodes []nodeStatus) string {
	for _, n := range nodes {
		u, err := url.Parse(n.Listen["gateway"])
		if err != nil || u.Host == "" {
			continue
		}
		_, port, err := net.SplitHostPort(u.Host)
		if err != nil {
			continue
		}
		if usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]; port != usual {
			host = net.JoinHostPort(host, port)
		}
		return u.Scheme + "://" + host + "/"
	}
	return host
}
