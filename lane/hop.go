package lane

import (
	"errors"
	"strings"
)

// Rule says what gave a request its color. The list is closed, like that of
// [Reason].
type Rule string

// Rules by which a request got its color. The zero Rule: it has none.
const (
	RuleHost    Rule = "host"
	RuleHeader  Rule = "header"
	RuleCookie  Rule = "cookie"
	RuleQuery   Rule = "query"
	RulePath    Rule = "path"
	RuleMethod  Rule = "method"
	RuleUser    Rule = "user"
	RulePercent Rule = "percent"
	RuleSource  Rule = "source"
	RuleSigned  Rule = "signed"  // came from outside with a good signature
	RuleTrusted Rule = "trusted" // came from a trusted peer, or from the context of a call
	RuleProcess Rule = "process" // the lane of the process that called
)

// Hop is one step of a request: who got it and why. It is the value of one
// [RouteHeader] line.
type Hop struct {
	Service  string
	Lane     Name // the lane that served; zero: the baseline, written as "-"
	Instance string
	Rule     Rule // zero is written as "-"
	Reason   Reason
}

// Hop is the step of a request that goes to t, a target of the choice, and got its color by
// rule. Without a target (nil) the hop names no instance.
func (c Choice) Hop(t *Target, rule Rule) Hop {
	h := Hop{Service: c.Service, Lane: c.Lane, Rule: rule, Reason: c.Reason}
	if t != nil {
		h.Instance = t.Name
	}
	return h
}

// MaxHopBytes is the longest line that [ParseHop] reads. What names of legal length
// give is far below it.
const MaxHopBytes = 512

// String writes the hop as a [RouteHeader] value:
// "service=order lane=green instance=order-7f rule=host reason=lane-instance".
// It is one line of five fields whatever the fields hold: bytes that would break it
// are written as '?', and long fields are cut.
func (h Hop) String() string {
	return "service=" + hopField(h.Service) + " lane=" + hopField(string(h.Lane)) + " instance=" + hopField(h.Instance) +
		" rule=" + hopField(string(h.Rule)) + " reason=" + hopField(string(h.Reason))
}

func hopField(s string) string {
	const longest = MaxInstanceBytes // of all names
	if s == "" {
		return "-"
	}
	s = s[:min(len(s), longest)]
	breaks := func(c byte) bool { return c <= ' ' || c >= 0x7f }
	for i := range len(s) {
		if !breaks(s[i]) {
			continue
		}
		b := []byte(s)
		for i, c := range b {
			if breaks(c) {
				b[i] = '?'
			}
		}
		return string(b)
	}
	return s
}

// ErrHop is returned by [ParseHop] for a line that is no hop.
var ErrHop = errors.New("not a route line: want service=… lane=… instance=… rule=… reason=…")

// ParseHop reads what [Hop.String] wrote. Fields that it does not know are passed
// over; a line without a service, or of more than [MaxHopBytes], is [ErrHop].
func ParseHop(line string) (Hop, error) {
	if len(line) > MaxHopBytes {
		return Hop{}, ErrHop
	}
	var h Hop
	for field := range strings.FieldsSeq(line) {
		key, value, found := strings.Cut(field, "=")
		if !found {
			return Hop{}, ErrHop
		}
		if value == "-" {
			value = ""
		}
		switch key {
		case "service":
			h.Service = value
		case "lane":
			h.Lane = Name(value)
		case "instance":
			h.Instance = value
		case "rule":
			h.Rule = Rule(value)
		case "reason":
			h.Reason = Reason(value)
		}
	}
	if h.Service == "" {
		return Hop{}, ErrHop
	}
	return h, nil
}
