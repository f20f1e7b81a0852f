package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestFront shows how a service is tested without a control plane: lanetest stands in
// for the others.
func TestFront(t *testing.T) {
	baseline := lanetest.NewService(t, "hello", "hello-1", lane.Baseline)
	green := lanetest.NewService(t, "hello", "hello-2", "green")
	dir := lanetest.NewDirectory([]lane.Lane{{Name: "green"}}, baseline.Routing(), green.Routing())
	handler := lanehttp.Middleware(front{client: &http.Client{Transport: lanehttp.Transport(nil, dir)}})

	for color, want := range map[string]string{"": "hello-1", "green": "hello-2"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if color != "" {
			req.Header.Set(lane.Header, color)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, `"instance":"`+want+`"`) {
			t.Errorf("color %q: got %d %s, want an answer of %s", color, answer.Code, body, want)
		}
	}
}
