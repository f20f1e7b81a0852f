package etcdtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// mounts is the environment variable of a process that is there to mount.
const mounts = "TEST_MOUNTS"

// SmallDisk gives a test, which is no subtest, a directory on a disk of its own, of that many
// megabytes, in memory, and true. Where the test may not mount one, another process runs it
// from its beginning, in namespaces in which it may, and the result is false: this process has
// nothing left to do. So it is where the system has no such namespaces, which the log tells.
func SmallDisk(t *testing.T, megabytes int) (dir string, here bool) {
	t.Helper()
	dir = t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes))
	switch {
	case err == nil:
		t.Cleanup(func() {
			// Detached: an etcd that failed and was left behind has files open.
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		return dir, true
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES), os.Getenv(mounts) != "":
		t.Fatalf("mount: %v", err)
	}
	if out, err := inNamespaces(t, "mount", "-t", "tmpfs", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Logf("no disk can be mounted here, in namespaces neither: %v %s", err, out)
		return "", false
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run=^" + regexp.QuoteMeta(t.Name()) + "$"}
	if deadline, limited := t.Deadline(); limited {
		args = append(args, "-test.timeout="+time.Until(deadline).String())
	}
	out, err := inNamespaces(t, self, args...).CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		err = errors.New("it did not run")
	}
	if err != nil {
		t.Errorf("in namespaces: %v", err)
	}
	t.Logf("in namespaces:\n%s", out)
	return "", false
}

// inNamespaces is a command that is root of its own mounts, and nobody's beyond what this
// process is.
func inNamespaces(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), mounts+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWUSER,
		Unshareflags: syscall.CLONE_NEWNS, // so that mounts do not spread to this process's
		UidMappings:  []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings:  []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	return cmd
}
