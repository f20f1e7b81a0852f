package lane

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// hostSeparator stands between lane and service in a host label.
	hostSeparator = "--"
	// maxLabelBytes is the longest DNS label: RFC 1035, section 2.3.4.
	maxLabelBytes = 63
	// hostHashBytes is how much of a hash a shortened label carries, in hex digits.
	hostHashBytes = 8
)

// HostLabel returns the first label of the host name by which sub (a service, or
// the first label of a route's host) is reached in a lane: "<lane>--<sub>". One
// that would pass 63 bytes keeps the lane whole and has sub cut and ended with '-'
// and 8 hex digits of its SHA-256.
func HostLabel(name Name, sub string) string {
	if name == Baseline {
		return sub
	}
	label := string(name) + hostSeparator + sub
	if len(label) <= maxLabelBytes || len(name) > MaxNameBytes {
		return label
	}
	sum := sha256.Sum256([]byte(sub))
	hash := hex.EncodeToString(sum[:])[:hostHashBytes]
	keep := maxLabelBytes - len(name) - len(hostSeparator) - 1 - hostHashBytes
	return string(name) + hostSeparator + strings.TrimRight(sub[:keep], "-") + "-" + hash
}

// SplitHostLabel takes a host label, in lower case, apart: "green--api" gives "green"
// and "api".
// A label without a lane tag gives the zero Name and the label itself. Where what
// stands before "--" is no lane name, ok is false. A sub that [HostLabel] has
// shortened is returned as it stands: compare HostLabel(name, candidate) with the
// whole label to find whose it is.
func SplitHostLabel(label string) (name Name, sub string, ok bool) {
	before, after, tagged := strings.Cut(label, hostSeparator)
	if !tagged {
		return Baseline, label, true
	}
	name = Name(before)
	if !name.Valid() || after == "" {
		return Baseline, label, false
	}
	return name, after, true
}
