package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestExamples does what each example's README.md says, but for its ports.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	runIn(t, filepath.Join("..", "examples"), nil, "go", "build", "-o", bin+string(filepath.Separator), "./...")
	s := startServer(t)
	for _, example := range []string{"http", "grpc", "thrift"} {
		t.Run(example, func(t *testing.T) {
			_, hosts := s.startExample(t, bin, example)
			for i, host := range hosts {
				color, instance := "", "i1"
				if strings.HasPrefix(host, "green--") {
					color, instance = "green", "i2"
				}
				poll(t, 20*time.Second, func() error {
					status, body, err := get(t, s.addresses["gateway"], host, "/")
					if err != nil {
						return err
					}
					want := fmt.Sprintf("from %s, ", instance)
					seen := fmt.Sprintf("of color %q", color)
					if status != 200 || !strings.HasPrefix(body, "front i0 says: hello") ||
						!strings.Contains(body, want) || !strings.Contains(body, seen) {
						return fmt.Errorf("curl line %d: got %d %q, want front i0, %q and %q in it", i+1, status, body, want, seen)
					}
					return nil
				})
			}
		})
	}
	t.Run("messages", func(t *testing.T) {
		workers, hosts := s.startExample(t, bin, "messages")
		poll(t, 30*time.Second, func() error {
			var g shownGroup
			out, stderr, _ := s.cli(t, "group", "show", "example-workers", "-o", "json")
			if err := json.Unmarshal([]byte(out), &g); err != nil || len(g.Members) != 2 {
				return fmt.Errorf("%d workers, want 2: %s (%w)", len(g.Members), stderr, err)
			}
			return nil
		})
		plain := s.orderFrom(t, hosts[0], "", workers[0])
		s.showsOrder(t, s.orderFrom(t, hosts[1], "green", workers[1]), "i1")
		s.must(t, "group", "replay", "example-workers", "example.orders", "--lane", "green", "--since", "1h")
		s.worksOn(t, plain, "green", workers[1])
		if err := syscall.Kill(workers[1].child(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.orderFrom(t, hosts[1], "green", workers[0])
	})
}

// orderFrom orders something of the example with a queue, waits until a worker has it, and
// gives its number.
func (s *server) orderFrom(t *testing.T, host, color string, worker *process) (order string) {
	t.Helper()
	poll(t, 20*time.Second, func() error {
		status, body, err := get(t, s.addresses["gateway"], host, "/")
		if err != nil {
			return err
		}
		if _, err := fmt.Sscanf(body, "order %s is on its way\n", &order); err != nil || status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	s.worksOn(t, order, color, worker)
	return order
}

// worksOn waits until a worker has worked on an order.
func (s *server) worksOn(t *testing.T, order, color string, worker *process) {
	t.Helper()
	want := fmt.Sprintf(" works on order %s of color %q\n", order, color)
	poll(t, 30*time.Second, func() error {
		if out := worker.stdout.String(); !strings.Contains(out, want) {
			return fmt.Errorf("%s says %q, want %q", worker.Cmd, out, want)
		}
		return nil
	})
}

// showsOrder waits until it is known of an order that an instance has worked on it.
func (s *server) showsOrder(t *testing.T, order, instance string) {
	t.Helper()
	var listed []struct{ ID string }
	if err := json.Unmarshal([]byte(s.must(t, "message", "list", "example.orders", "--key", order, "-o", "json")), &listed); err != nil || len(listed) != 1 {
		t.Fatalf("orders: %+v, %v", listed, err)
	}
	poll(t, 30*time.Second, func() error {
		hops := s.showMessage(t, listed[0].ID).Hops
		if len(hops) != 3 || hops[0].Kind != consume.HopProduced || hops[2].Kind != consume.HopSettled || hops[2].Instance != instance {
			return fmt.Errorf("got %+v, want it produced, dispatched and settled by %s", hops, instance)
		}
		return nil
	})
}

// startExample runs what the README.md of an example says, as instances i0 to i2, and
// returns the hosts that it asks.
func (s *server) startExample(t *testing.T, bin, example string) (started []*process, hosts []string) {
	t.Helper()
	runs, hosts := readExample(t, filepath.Join("..", "examples", example, "README.md"))
	if len(runs) != 3 || len(hosts) != 2 {
		t.Fatalf("README.md has %d run lines and %d curl lines, want 3 and 2", len(runs), len(hosts))
	}
	for i, args := range runs {
		for n, arg := range args {
			if rest, ok := strings.CutPrefix(arg, "bin/"); ok {
				args[n] = filepath.Join(bin, rest)
			}
		}
		args = append([]string{"run", "--instance", fmt.Sprintf("i%d", i)}, args...)
		started = append(started, startProcess(t, []string{"LANEWAY_CONTROL=" + s.url()}, args...))
	}
	return started, hosts
}

// readExample takes the arguments of `laneway run` and the hosts that are asked out
// of a README.
func readExample(t *testing.T, file string) (runs [][]string, hosts []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		line := strings.TrimSpace(scan.Text())
		if rest, ok := strings.CutPrefix(line, "laneway run "); ok {
			runs = append(runs, strings.Fields(rest))
		}
		if rest, ok := strings.CutPrefix(line, "curl http://"); ok {
			host, _, _ := strings.Cut(rest, ":")
			hosts = append(hosts, host)
		}
	}
	return runs, hosts
}
