package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// envServer makes the test binary a server over the folder that it names, which can then be
// killed.
const envServer = "LANEWAY_TEST_JETSTREAM_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envServer); dir != "" {
		if err := serve(dir, Durability(os.Getenv(envServer+"_DURABILITY"))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve runs a server with a port until its standard input ends.
func serve(dir string, d Durability) error {
	cfg := Config{Dir: dir, Listen: "127.0.0.1:" + os.Getenv(envServer+"_PORT"), Durability: d}.withDefaults()
	s, err := startServer(context.Background(), &cfg)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.stop()
	return nil
}

// peer is a server that is a process of its own.
type peer struct {
	cmd *exec.Cmd
	in  io.Closer
	url string
}

func startPeer(t testing.TB, dir string, d Durability) *peer {
	t.Helper()
	return startPeerAt(t, dir, d, "0")
}

func startPeerAt(t testing.TB, dir string, d Durability, port string) *peer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envServer+"="+dir, envServer+"_DURABILITY="+string(d), envServer+"_PORT="+port)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the server's address: %v", err)
	}
	return &peer{cmd, in, strings.TrimSpace(line)}
}

// kill ends it as kill -9 does.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.in.Close()
}

// open opens an engine until the test ends. An embedded one is [Fast] where nothing else is
// said: with [Bounded], the server has a race of its own where a stream's first sync, 50 ms after
// it was made, overtakes the making; on a machine under load the detector of races sees it.
func open(t testing.TB, cfg Config) *Engine {
	t.Helper()
	if cfg.Dir != "" && cfg.Durability == "" {
		cfg.Durability = Fast
	}
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// underTest gives the suite what it needs beside an engine.
func underTest(e *Engine) consumetest.Engine {
	return consumetest.Engine{
		Source: e, Topics: e,
		Recreate: func(ctx context.Context, topic string) error {
			spec, err := e.Describe(ctx, topic)
			if err != nil {
				return err
			}
			if err := e.Delete(ctx, topic); err != nil {
				return err
			}
			return e.Ensure(ctx, spec)
		},
		Trim: func(ctx context.Context, p consume.Partition, first int64) error {
			l, err := e.log(ctx, p)
			if err != nil {
				return err
			}
			s, err := e.js.Stream(ctx, l.stream)
			if err != nil {
				return err
			}
			return s.Purge(ctx, natsjs.WithPurgeSequence(uint64(first)))
		},
		Foreign: func(ctx context.Context, group string, p consume.Partition) (func() error, error) {
			l, err := e.log(ctx, p)
			if err != nil {
				return nil, err
			}
			_, err = e.js.CreateConsumer(ctx, l.stream, natsjs.ConsumerConfig{Durable: group, AckPolicy: natsjs.AckExplicitPolicy, MemoryStorage: true})
			return func() error { return e.js.DeleteConsumer(context.WithoutCancel(ctx), l.stream, group) }, err
		},
	}
}

// crashing opens an embedded engine whose Crash goes on with a copy of its folder as it was
// while it ran: what a process leaves that is killed.
func crashing(t *testing.T, cfg Config) consumetest.Engine {
	e := open(t, cfg)
	u := underTest(e)
	u.Crash = func() (consumetest.Engine, error) {
		to := t.TempDir()
		if err := os.CopyFS(filepath.Join(to, "log"), os.DirFS(filepath.Join(cfg.Dir, "log"))); err != nil {
			return u, err
		}
		if err := e.Close(); err != nil {
			return u, err
		}
		cfg.Dir = to
		return crashing(t, cfg), nil
	}
	return u
}

// killed opens an engine over a server of its own process, which Crash kills.
func killed(t *testing.T, dir string, d Durability) consumetest.Engine {
	p := startPeer(t, dir, d)
	t.Cleanup(p.kill)
	e := open(t, Config{URL: p.url, Durability: d})
	u := underTest(e)
	u.Crash = func() (consumetest.Engine, error) {
		p.kill()
		if err := e.Close(); err != nil {
			return u, err
		}
		return killed(t, dir, d), nil
	}
	return u
}

func checkLeaks(t *testing.T) {
	t.Helper()
	lanetest.CheckLeaks(t)
}

// eventually polls until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("within a minute not so: %s", what)
		}
	}
}
