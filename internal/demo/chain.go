package demo

import (
	"fmt"
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// Green is the lane of the demo.
const Green lane.Name = "green"

// Link is one service of the chain.
type Link struct {
	Service  string
	Protocol string // by which it is called
}

// Chain lists the services in the order in which they are called.
func Chain() []Link {
	return []Link{
		{Service: "a", Protocol: lane.HTTP}, // by the gateway
		{Service: "b", Protocol: lane.GRPC},
		{Service: "c", Protocol: lane.Thrift},
		{Service: "d", Protocol: lane.HTTP},
		{Service: "e", Protocol: Queue},
	}
}

// Instance is one process of the demo.
type Instance struct {
	Link
	Name string
	Lane lane.Name // zero: of the baseline
}

// Instances lists the processes of the demo in the order of the chain.
func Instances() []Instance {
	var all []Instance
	for _, link := range Chain() {
		name := strings.ToUpper(link.Service)
		all = append(all, Instance{Link: link, Name: name + "1"})
		if link.Service == "b" || link.Service == "d" {
			all = append(all, Instance{Link: link, Name: name + "2", Lane: Green})
		}
	}
	return all
}

// Visit is one hop of a request. The instance that served reports it, but for
// Reason, which its caller was told; whoever consumes a message was told it with that.
type Visit struct {
	Service  string      `json:"service"`
	Instance string      `json:"instance"`
	Lane     lane.Name   `json:"lane,omitempty"` // of the instance; zero: the baseline
	Protocol string      `json:"protocol"`
	Color    lane.Name   `json:"color,omitempty"` // that the call carried; zero: plain
	Reason   lane.Reason `json:"reason,omitempty"`
}

// Reply is what a service answers: its own visit, then those further down.
type Reply struct {
	Visits []Visit `json:"visits"`
	Error  string  `json:"error,omitempty"` // what went wrong further down; empty: nothing
}

// Route is the way that a request took.
type Route struct {
	Color lane.Name // that the request was given; zero: plain
	Reply
}

// Promised lists the visits that a request of the given color is to make, which
// is [Green] or zero. It says by hand what lane.Pick is to find out.
func Promised(color lane.Name) []Visit {
	var visits []Visit
	for _, link := range Chain() {
		v := Visit{
			Service:  link.Service,
			Instance: strings.ToUpper(link.Service) + "1",
			Protocol: link.Protocol,
			Color:    color,
			Reason:   lane.ReasonPlain,
		}
		if color == Green {
			v.Reason = lane.ReasonBaseline
			if link.Service == "b" || link.Service == "d" {
				v.Instance, v.Lane, v.Reason = strings.ToUpper(link.Service)+"2", Green, lane.ReasonLane
			}
		}
		visits = append(visits, v)
	}
	return visits
}

// Judge compares a route with what is promised of its color and returns one
// sentence for every hop that differs; nil: all is as promised.
func Judge(r Route) []string {
	var faults []string
	fault := func(format string, args ...any) {
		faults = append(faults, colorName(r.Color)+" request: "+fmt.Sprintf(format, args...))
	}
	want := Promised(r.Color)
	for i, w := range want {
		if i >= len(r.Visits) {
			fault("hop %d: nobody reported it; promised is %s", i+1, w)
			continue
		}
		if got := r.Visits[i]; got != w {
			fault("hop %d: got %s; promised is %s", i+1, got, w)
		}
	}
	for i := len(want); i < len(r.Visits); i++ {
		fault("hop %d: got %s; promised is the end of the chain", i+1, r.Visits[i])
	}
	if r.Error != "" {
		fault("%s", r.Error)
	}
	return faults
}

// String names all that the visit says, for people.
func (v Visit) String() string {
	reason := string(v.Reason)
	if reason == "" {
		reason = "no reason"
	}
	return fmt.Sprintf("%s (service %s, %s) by %s as %s: %s",
		v.Instance, v.Service, laneName(v.Lane), v.Protocol, colorName(v.Color), reason)
}

func colorName(color lane.Name) string {
	if color == lane.Baseline {
		return "plain"
	}
	return string(color)
}

func laneName(name lane.Name) string {
	if name == lane.Baseline {
		return "baseline"
	}
	return "lane " + string(name)
}
