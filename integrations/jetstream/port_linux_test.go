package jetstream

import (
	"os"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestNoPort: the embedded server listens nowhere.
func TestNoPort(t *testing.T) {
	before := listening(t)
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	if err := e.Append(t.Context(), &consume.Message{Partition: orders}); err != nil {
		t.Fatal(err)
	}
	if after := listening(t); after != before {
		t.Errorf("the process listens on %d sockets, on %d without an engine", after, before)
	}
}

// listening counts the TCP sockets of this process that listen.
func listening(t *testing.T) (n int) {
	t.Helper()
	mine := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // no such protocol here
		}
		for line := range strings.Lines(string(text)) {
			const state, inode = 3, 9
			if f := strings.Fields(line); len(f) > inode && f[state] == "0A" && mine[f[inode]] {
				n++
			}
		}
	}
	return n
}
