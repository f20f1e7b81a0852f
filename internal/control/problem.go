package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// problem makes an error of the API. detail says what to do next.
func problem(status int, detail string, args ...any) *laneclient.Problem {
	return laneclient.NewProblem(status, detail, args...)
}

// typed gives a problem one of the types of laneclient.
func typed(p *laneclient.Problem, problemType string) *laneclient.Problem {
	p.Type = problemType
	return p
}

// invalid is the answer to an object or a query with mistakes.
func invalid(what string, faults []laneclient.FieldError) *laneclient.Problem {
	return laneclient.MistakesProblem(what, faults)
}

func sessionGone(status int, id string) *laneclient.Problem {
	return typed(problem(status, "session %q has ended: open a new one with POST /v1/sessions and register again", id),
		laneclient.ProblemSessionGone)
}

func notFound(r ref) *laneclient.Problem {
	return problem(http.StatusNotFound, "there is no %s named %q: list what there is with GET /v1/%s", r.kind, r.name, r.kind)
}

// toProblem maps every error that a handler can return to an answer. It is the
// only place that does.
func toProblem(err error) *laneclient.Problem {
	var p *laneclient.Problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return problem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes: send a smaller object", tooLarge.Limit)
	case errors.Is(err, store.ErrFull):
		return typed(problem(http.StatusInsufficientStorage,
			"the registry's storage is full: delete what is not needed, or give it more room, and send the request again; reads go on"),
			laneclient.ProblemFull)
	case errors.Is(err, store.ErrLeaseNotFound):
		return typed(problem(http.StatusConflict, "the session has ended: open a new one with POST /v1/sessions and register again"),
			laneclient.ProblemSessionGone)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return typed(problem(http.StatusServiceUnavailable,
			"the registry does not answer: wait as Retry-After says and try again; whether a write took effect is not known, so read the object first"),
			laneclient.ProblemUnavailable)
	case errors.Is(err, store.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, "the request changes too many keys at once: split it")
	}
	return problem(http.StatusInternalServerError, "the control plane failed: its log says more; send the request again, and report it if it stays")
}

// retryAfterSeconds is what an answer with status 503 asks a client to wait.
const retryAfterSeconds = "1"

func writeProblem(w http.ResponseWriter, p *laneclient.Problem) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryAfterSeconds)
	}
	laneclient.WriteProblem(w, p)
}
