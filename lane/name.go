package lane

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of names, in bytes.
const (
	MaxNameBytes     = 40 // a lane name or a service name
	MaxInstanceBytes = 64 // an instance name
)

// strictPrefix begins the name of every strict lane and of no other.
const strictPrefix = "strict-"

// Name is the name of a lane, and so a color. The zero Name is the baseline
// where it names an environment, and plain where it names a color.
//
// A Name that did not come from [ParseName] or from this package may be
// malformed; see [Name.Valid].
type Name string

// Baseline is the zero Name.
const Baseline Name = ""

// NameError says why a name is refused. It is returned by [ParseName],
// [CheckService] and [CheckInstance].
type NameError struct {
	Kind   string // "lane", "service" or "instance"
	Name   string // the refused name, cut to 80 bytes
	Reason string // what is wrong and what would be right
}

// Error gives the whole as one sentence.
func (e *NameError) Error() string {
	return fmt.Sprintf("%s name %q: %s", e.Kind, e.Name, e.Reason)
}

func nameError(kind, name, reason string) error {
	const most = 80
	if len(name) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(name[cut]) { // not within a character
			cut--
		}
		name = name[:cut]
	}
	return &NameError{Kind: kind, Name: name, Reason: reason}
}

// ParseName checks that s is a lane name and returns it: 1 to 40 bytes of a-z,
// 0-9 and '-', beginning and ending with a letter or digit, without "--", not
// two bytes long and not beginning with "xn-" (those two would make host labels
// that DNS reserves). The error is a [*NameError].
func ParseName(s string) (Name, error) {
	if reason := nameFault(s); reason != "" {
		return "", nameError("lane", s, reason)
	}
	return Name(s), nil
}

// Valid reports whether n is a lane name by the rules of [ParseName]. The
// baseline is not: it has no name.
func (n Name) Valid() bool { return nameFault(string(n)) == "" }

// Strict reports whether n is the name of a strict lane.
func (n Name) Strict() bool { return strings.HasPrefix(string(n), strictPrefix) }

func nameFault(s string) string {
	switch {
	case len(s) == 2:
		return "two characters make a reserved host label; use one, or three and more"
	case strings.HasPrefix(s, "xn-"):
		return `"xn-" begins a reserved host label; use another prefix`
	}
	return labelFault(s)
}

// CheckService returns nil if s is a service name: a DNS label of at most 40
// bytes (a-z, 0-9, '-'; no '-' at either end) without "--". Otherwise the error
// is a [*NameError].
func CheckService(s string) error {
	if reason := labelFault(s); reason != "" {
		return nameError("service", s, reason)
	}
	return nil
}

func labelFault(s string) string {
	switch {
	case s == "":
		return "is empty; use a-z, 0-9 and '-'"
	case len(s) > MaxNameBytes:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), MaxNameBytes)
	case s[0] == '-' || s[len(s)-1] == '-':
		return "must begin and end with a letter or digit"
	}
	for i := range len(s) {
		c := s[i]
		if c == '-' && s[i-1] == '-' {
			return `must not contain "--", which separates lane and service in a host name`
		}
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Sprintf("has %s; use a-z, 0-9 and '-'", quoteAt(s, i))
		}
	}
	return ""
}

// quoteAt quotes the character of s that begins at byte i.
func quoteAt(s string, i int) string {
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf(`'\x%02x'`, s[i])
	}
	return strconv.QuoteRune(r)
}

// CheckInstance returns nil if s is an instance name: 1 to 64 bytes of letters,
// digits, '.', '_' and '-'. Otherwise the error is a [*NameError].
func CheckInstance(s string) error {
	if s == "" {
		return nameError("instance", s, "is empty; use letters, digits, '.', '_' and '-'")
	}
	if len(s) > MaxInstanceBytes {
		return nameError("instance", s, fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), MaxInstanceBytes))
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return nameError("instance", s, fmt.Sprintf("has %s; use letters, digits, '.', '_' and '-'", quoteAt(s, i)))
		}
	}
	return nil
}
