package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// process is a process under test.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when it has ended
}

// start runs a command. What it writes to standard error, and to standard output if out is
// nil, goes to a file of its name.
func start(t *testing.T, folder, name string, out *os.File, env []string, command string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p := &process{name: name, cmd: exec.Command(command, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if out != nil {
		p.cmd.Stdout = out
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
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

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// kill ends the process as a crash would.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// firstPort is the first of the ports that servers get, which have to have the same one when
// they come back. Linux gives outgoing connections those from 32768 on, and one of them might
// have it by then.
const firstPort, ports = 21_000, 11_000

// freeAddress is one on loopback that was free just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports)))
		if err == nil {
			address := l.Addr().String()
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
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
