package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/store/etcd"
)

// TestNoPort: an embedded store listens nowhere, so nobody else on the machine can
// reach it. It says so of any socket, and the test's own listener shows that it would.
func TestNoPort(t *testing.T) {
	before := listening(t)
	s := embedded(t, etcd.Config{})
	put(t, s, "k", "")
	<-s.Watch(t.Context(), "", 0)
	for inode, address := range listening(t) {
		if _, old := before[inode]; !old {
			t.Errorf("an embedded store listens on %s", address)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if n := len(listening(t)) - len(before); n != 1 {
		t.Errorf("%d new listeners are seen, want the test's own", n)
	}
}

// listening are the sockets on which this process listens, by inode.
func listening(t *testing.T) map[string]string {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue // closed meanwhile
		}
		if inode, socket := strings.CutPrefix(target, "socket:["); socket {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	out := map[string]string{}
	for _, table := range []struct {
		name         string
		state, inode int
		listen       string
	}{
		{"tcp", 3, 9, "0A"},
		{"tcp6", 3, 9, "0A"},
		{"unix", 5, 6, "01"},
	} {
		file, err := os.Open("/proc/self/net/" + table.name)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			f := strings.Fields(lines.Text())
			if len(f) <= table.inode || f[table.state] != table.listen || !mine[f[table.inode]] {
				continue
			}
			out[f[table.inode]] = fmt.Sprint(table.name, " ", f[1])
		}
		_ = file.Close()
	}
	return out
}
