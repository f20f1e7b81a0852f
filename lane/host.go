package lane

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
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
	keep := maxLabelBytes - len(name) - len(hostSeparator) - 1 - hostHashBytes
	return string(name) + hostSeparator + strings.TrimRight(sub[:keep], "-") + "-" + hostHash(sub)
}

func hostHash(sub string) string {
	sum := sha256.Sum256([]byte(sub))
	return hex.EncodeToString(sum[:])[:hostHashBytes]
}

// SplitHostLabel takes a host label, in lower case, apart: "green--api" gives "green"
// and "api".
// A label without a lane tag gives the zero Name and the label itself. Where what
// stands before "--" is no lane name, ok is false. A sub that [HostLabel] has
// shortened is returned as it stands: [HostLabels] tell whose it is.
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

// HostLabels tell whose a host label is that [HostLabel] has shortened. The zero value knows
// nobody. [HostLabels.Add] may not be called at once with other methods.
type HostLabels struct {
	byHash map[string][]string // what may be cut, by how it ends then
}

// Add notes a sub, where there is a lane in which its label is shortened.
func (h *HostLabels) Add(sub string) {
	if MaxNameBytes+len(hostSeparator)+len(sub) <= maxLabelBytes {
		return
	}
	hash := hostHash(sub)
	if slices.Contains(h.byHash[hash], sub) {
		return
	}
	if h.byHash == nil {
		h.byHash = map[string][]string{}
	}
	h.byHash[hash] = append(h.byHash[hash], sub)
}

// Whose returns the subs whose label in the lane is label, in lower case, and shortened;
// nearly always it is one at the most.
func (h *HostLabels) Whose(label string) []string {
	name, sub, ok := SplitHostLabel(label)
	cut := len(sub) - hostHashBytes
	if !ok || name == Baseline || len(h.byHash) == 0 || cut <= 0 || sub[cut-1] != '-' {
		return nil
	}
	var out []string
	for _, candidate := range h.byHash[sub[cut:]] {
		if candidate != sub && HostLabel(name, candidate) == label {
			out = append(out, candidate)
		}
	}
	return out
}
