package lanetest_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

func inMemory(t *testing.T) (string, http.RoundTripper) {
	t.Helper()
	c := lanetest.NewControl(t)
	return c.URLs()[0], c.Transport()
}

func overTCP(t *testing.T) (string, http.RoundTripper) {
	t.Helper()
	return lanetest.NewControl(t).Listen(), nil
}

func TestControlPassesTheSuite(t *testing.T) {
	t.Run("Memory", func(t *testing.T) { lanetest.RunAPI(t, inMemory) })
	t.Run("TCP", func(t *testing.T) { lanetest.RunAPI(t, overTCP) })
}

// TestControlIsARegistry: what consuming rests on holds, through the client that everybody has.
func TestControlIsARegistry(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (string, http.RoundTripper){"Memory": inMemory, "TCP": overTCP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.RunConsume(t, start)
		})
	}
}
