package control_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestAPISuite runs the suite that lanetest's control plane passes too, so that a
// program tested against that one meets no surprise here.
func TestAPISuite(t *testing.T) {
	start := func(t *testing.T) *control.Control {
		t.Helper()
		s := mem.New()
		c, err := control.New(control.Config{Store: s, Node: "suite"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil && ctx.Err() == nil {
				t.Errorf("run: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
		return c
	}
	t.Run("Memory", func(t *testing.T) {
		lanetest.RunAPI(t, func(t *testing.T) (string, http.RoundTripper) {
			t.Helper()
			return "http://control.test", laneclient.InMemory(start(t).Handler())
		})
	})
	t.Run("TCP", func(t *testing.T) {
		lanetest.RunAPI(t, func(t *testing.T) (string, http.RoundTripper) {
			t.Helper()
			c := start(t)
			server := httptest.NewServer(c.Handler())
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			return server.URL, nil
		})
	})
}
