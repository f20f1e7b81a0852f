package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// What is asked of the control plane is answered as the gateway routes, which has
// header names of its own configuration.
func TestExplainKnowsTheGateway(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "server.yaml")
	if err := os.WriteFile(config, []byte("gateway: {aliases: [x-env]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--config", config)
	s.must(t, "lane", "create", "green")
	const objects = "kind: instances\nname: fixed\nservice: order\nendpoints: [{protocol: http, address: \"127.0.0.1:1\"}]\n"
	if _, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, objects, "apply", "-f", "-"); status != 0 {
		t.Fatal(stderr)
	}
	poll(t, 10*time.Second, func() error { // until the gateway has it
		var e laneclient.Explanation
		out := s.must(t, "explain", "http", "--host", "order", "--inside", "--header", "x-env=green", "-o", "json")
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			return err
		}
		if e.Color != "green" || e.Rule != "trusted" || e.Note != "" || e.Service != "order" {
			return fmt.Errorf("%s: want green by an alias of the gateway", out)
		}
		return nil
	})
}
