package lanehttp

import (
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// TagHost returns the host by which host, which may have a port, is reached in a lane:
// "api.example.com:8080" and green give "green--api.example.com:8080". Its first label is
// that of [lane.HostLabel]. The baseline's host is the host itself.
func TagHost(host string, color lane.Name) string {
	label, rest := firstLabel(host)
	return lane.HostLabel(color, label) + rest
}

// SplitHost takes a lane tag off a host, which may have a port:
// "green--api.example.com:8080" gives green and "api.example.com:8080". A host without a
// tag gives the zero Name and itself.
func SplitHost(host string) (color lane.Name, untagged string) {
	label, rest := firstLabel(host)
	color, sub, ok := lane.SplitHostLabel(strings.ToLower(label))
	if !ok || color == lane.Baseline {
		return lane.Baseline, host
	}
	return color, sub + rest
}

// firstLabel cuts a host behind its first label.
func firstLabel(host string) (label, rest string) {
	if end := strings.IndexAny(host, ".:"); end >= 0 {
		return host[:end], host[end:]
	}
	return host, ""
}
