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

// String writes the hop as a [RouteHeader] value:
// "service=order lane=green instance=order-7f rule=host reason=lane-instance".
func (h Hop) String() string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return "service=" + dash(h.Service) + " lane=" + dash(string(h.Lane)) + " instance=" + dash(h.Instance) +
		" rule=" + dash(string(h.Rule)) + " reason=" + dash(string(h.Reason))
}

// ErrHop is returned by [ParseHop] for a line that is no hop.
var ErrHop = errors.New("not a route line: want service=… lane=… instance=… rule=… reason=…")

// ParseHop reads what [Hop.String] wrote. Fields that it does not know are passed
// over; a line without a service is [ErrHop].
func ParseHop(line string) (Hop, error) {
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
