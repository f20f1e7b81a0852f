package laneclient

import (
	"fmt"
	"net/http"
)

// NewProblem makes a problem of a status of HTTP, which also gives its title. detail
// says what to do next; with args it is a format, without it stands as it is.
func NewProblem(status int, detail string, args ...any) *Problem {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// MistakesProblem is the answer, 422, to an object, a query or a request of which what
// tells, with the mistakes of its fields.
func MistakesProblem(what string, faults []FieldError) *Problem {
	p := NewProblem(http.StatusUnprocessableEntity, "%s has mistakes: correct the fields under errors and send it again", what)
	p.Errors = faults
	return p
}

// WriteProblem answers with p by [WriteAnswer]. Headers that w has already stay.
func WriteProblem(w http.ResponseWriter, p *Problem) { WriteAnswer(w, p.Status, p) }
