package laneclient

import (
	"errors"
	"net/http"
)

func problemOf(err error) *Problem {
	p, _ := errors.AsType[*Problem](err)
	return p
}

// isSessionGone reports whether an answer to a call on behalf of a session says that
// the session has ended.
func isSessionGone(err error) bool {
	p := problemOf(err)
	return p != nil && p.Type == ProblemSessionGone
}

// isPermanent reports whether the control plane has answered in a way that trying
// again will not change: the request is wrong, or not allowed.
func isPermanent(err error) bool {
	p := problemOf(err)
	switch {
	case p == nil:
		var local *localError
		return errors.As(err, &local)
	case p.Type == ProblemSessionGone || p.Type == ProblemStaleView:
		return false
	case p.Status == http.StatusRequestTimeout || p.Status == http.StatusTooManyRequests:
		return false
	}
	return p.Status >= 300 && p.Status < 500
}
