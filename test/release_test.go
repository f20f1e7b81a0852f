package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleasedModules packs what is committed as a file proxy, and from an empty module
// elsewhere installs the command and builds a program on lane and lanegrpc: what a user
// does, who has no checkout and no replace lines.
func TestReleasedModules(t *testing.T) {
	const version = "v0.0.1"
	proxy := t.TempDir()
	runIn(t, "..", nil, "go", "run", "-C", "tools", "./release", "-version", version, "-out", proxy)

	user := t.TempDir()
	bin := filepath.Join(user, "bin")
	base := strings.TrimSpace(runIn(t, user, nil, "go", "env", "GOPROXY"))
	shared := strings.TrimSpace(runIn(t, user, nil, "go", "env", "GOMODCACHE"))
	environment := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(shared, "cache", "download") + "," + base,
		"GONOSUMDB=github.com/laneway-dev", "GOFLAGS=-modcacherw -trimpath", "GOBIN=" + bin,
		// A module cache of its own, so that nothing of this test stays behind; the
		// shared one serves as a proxy for all that is third-party.
		"GOMODCACHE=" + filepath.Join(user, "modules"),
	}

	runIn(t, user, environment, "go", "install", "github.com/laneway-dev/laneway/cmd/laneway@"+version)
	if out := runIn(t, user, nil, filepath.Join(bin, "laneway"), "version"); !strings.Contains(out, version) {
		t.Errorf("laneway version = %q, want %s in it", out, version)
	}

	program := `package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func dial(lc *laneclient.Client) (*grpc.ClientConn, error) {
	options := append(lanegrpc.DialOptions(lc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	return grpc.NewClient("lane:///order", options...)
}

func main() {
	_ = dial
	fmt.Println(lane.From(lane.With(context.Background(), "green")))
}
`
	work := filepath.Join(user, "program")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	runIn(t, work, environment, "go", "mod", "init", "example.com/program")
	runIn(t, work, environment, "go", "get",
		"github.com/laneway-dev/laneway/lane@"+version, "github.com/laneway-dev/laneway/integrations/lanegrpc@"+version)
	runIn(t, work, environment, "go", "mod", "tidy")
	if out := runIn(t, work, environment, "go", "run", "."); strings.TrimSpace(out) != "green" {
		t.Errorf("the program printed %q, want green", out)
	}
	if mod, err := os.ReadFile(filepath.Join(work, "go.mod")); err != nil || strings.Contains(string(mod), "replace") {
		t.Errorf("go.mod has replace lines, or: %v\n%s", err, mod)
	}
}

// runIn runs a command in dir without a workspace and returns what it printed.
func runIn(t *testing.T, dir string, environment []string, name string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Dir = dir
	command.Env = append(append(os.Environ(), "GOWORK=off"), environment...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, out, stderr.String())
	}
	return string(out)
}
