package httpgw

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// failure is an answer of the gateway itself: RFC 9457, with what it knows of the
// routing, which [laneclient.Problem] has no place for.
type failure struct {
	Type    string      `json:"type"`
	Title   string      `json:"title"`
	Status  int         `json:"status"`
	Detail  string      `json:"detail"`
	Service string      `json:"service,omitempty"`
	Color   lane.Name   `json:"color,omitempty"`
	Lane    lane.Name   `json:"lane,omitempty"`
	Reason  lane.Reason `json:"reason,omitempty"`
}

// Codes of gRPC that answers of the gateway map to:
// https://grpc.github.io/grpc/core/md_doc_statuscodes.html
const (
	grpcDeadline      = 4
	grpcExhausted     = 8
	grpcUnimplemented = 12
	grpcInternal      = 13
	grpcUnavailable   = 14
)

// grpcCode is the one place where a status of ours becomes a code of gRPC.
func grpcCode(status int) int {
	switch status {
	case http.StatusNotFound:
		return grpcUnimplemented
	case http.StatusGatewayTimeout:
		return grpcDeadline
	case http.StatusRequestHeaderFieldsTooLarge:
		return grpcExhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return grpcUnavailable
	}
	return grpcInternal
}

// write answers with f; a gRPC call gets it as its status.
func (f *failure) write(w http.ResponseWriter, grpc bool) {
	f.Type, f.Title = cmp.Or(f.Type, "about:blank"), http.StatusText(f.Status)
	h := w.Header()
	if grpc {
		h["Content-Type"] = []string{"application/grpc"}
		h["Grpc-Status"] = []string{strconv.Itoa(grpcCode(f.Status))}
		h["Grpc-Message"] = []string{grpcMessage(f.Detail)}
		w.WriteHeader(http.StatusOK)
		return
	}
	h["Content-Type"] = []string{laneclient.ProblemMediaType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	laneclient.WriteAnswer(w, f.Status, f)
}

// grpcMessage encodes a status message: percent signs and what is not printable
// ASCII (gRPC over HTTP2, "Status-Message").
func grpcMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
