package lanetest_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

func TestControlPassesTheSuite(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		lanetest.RunAPI(t, func(t *testing.T) (string, http.RoundTripper) {
			c := lanetest.NewControl(t)
			return c.URLs()[0], c.Transport()
		})
	})
	t.Run("TCP", func(t *testing.T) {
		lanetest.RunAPI(t, func(t *testing.T) (string, http.RoundTripper) {
			return lanetest.NewControl(t).Listen(), nil
		})
	})
}
