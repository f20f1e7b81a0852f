package control_test

import (
	"net/http"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestConsumeRegistry holds the control plane, through the client that everybody uses, against
// what consuming rests on.
func TestConsumeRegistry(t *testing.T) {
	t.Parallel()
	lanetest.RunConsume(t, func(t *testing.T) (string, http.RoundTripper) {
		t.Helper()
		return "http://control.test", laneclient.InMemory(start(t).c.Handler())
	})
}
