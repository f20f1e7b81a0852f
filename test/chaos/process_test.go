package chaos

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/test/command"
)

// process is a process under test.
type process struct {
	*command.Process
	name string
	in   io.WriteCloser
}

// start runs a command. What it writes to standard error, and to standard output if out is
// nil, goes to a file of its name.
func start(t *testing.T, folder, name string, out *os.File, env []string, program string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p := &process{name: name}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = file, file
	if out != nil {
		cmd.Stdout = out
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.Process, err = command.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// startMode runs this binary as one of the processes under test.
func startMode(t *testing.T, folder, name, mode string, out *os.File, settings any) *process {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, folder, name, out, []string{modeVar + "=" + mode, settingsVar + "=" + string(text)}, os.Args[0])
}

// poll calls check until it returns nil, and fails the test with its last error when that
// takes too long.
func poll(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
	}
}
