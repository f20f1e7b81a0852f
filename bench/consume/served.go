package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	service          = "order"
	watcherProcesses = 4
)

// installation is the built command with its embedded etcd and JetStream, in a process of its
// own, and clients that watch it in others.
type installation struct {
	dir     string
	server  *exec.Cmd
	control string
	api     *laneclient.API
	stops   []func() error
}

func install(ctx context.Context, s settings) (in *installation, err error) {
	in = &installation{}
	if in.dir, err = os.MkdirTemp("", "consume-"); err != nil {
		return nil, err
	}
	in.stops = append(in.stops, func() error { return os.RemoveAll(in.dir) })
	if err := in.start(ctx, s); err != nil {
		return nil, errors.Join(err, in.close())
	}
	return in, nil
}

func (in *installation) start(ctx context.Context, s settings) error {
	ready := filepath.Join(in.dir, "ready.json")
	in.server = exec.CommandContext(ctx, s.binary, "server", "--data", filepath.Join(in.dir, "data"), "--ready-file", ready,
		"--listen", "control=127.0.0.1:0", "--listen", "gateway=127.0.0.1:0", "--listen", "inside=127.0.0.1:0", "--listen", "nats=127.0.0.1:0")
	if err := in.server.Start(); err != nil {
		return fmt.Errorf("start %s (make build makes it): %w", s.binary, err)
	}
	in.stops = append(in.stops, func() error {
		if err := in.server.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		_ = in.server.Wait() // its exit status is of no interest any more
		return nil
	})
	var addresses map[string]string
	err := poll(ctx, func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return fmt.Errorf("the server is not ready: %w", err)
		}
		return json.Unmarshal(text, &addresses)
	})
	if err != nil {
		return err
	}
	in.control = "http://" + addresses["control"]
	in.api = laneclient.NewAPI(laneclient.Config{Control: []string{in.control}})
	in.stops = append(in.stops, in.api.Close)
	return nil
}

func (in *installation) close() error {
	var errs []error
	for _, stop := range slices.Backward(in.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// world appends to the installation's engine.
func (in *installation) world(ctx context.Context, s settings) (*world, error) {
	w := &world{settings: s}
	err := poll(ctx, func() (err error) {
		w.url, err = in.api.Engine(ctx, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	if w.feed, err = w.engine(ctx); err != nil {
		return nil, err
	}
	in.stops = append(in.stops, w.feed.Close)
	return w, nil
}

// watch starts processes with so many clients that watch the service and what decides who
// consumes for groups.
func (in *installation) watch(ctx context.Context, clients int, groups string) error {
	each := clients / watcherProcesses
	if each == 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for range watcherProcesses {
		c := exec.CommandContext(ctx, self, "-watch", strconv.Itoa(each), "-watch-groups", groups)
		c.Env, c.Stderr = append(os.Environ(), laneclient.EnvControl+"="+in.control), os.Stderr
		stdin, err := c.StdinPipe()
		if err != nil {
			return err
		}
		stdout, err := c.StdoutPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		in.stops = append(in.stops, func() error { return errors.Join(stdin.Close(), c.Wait()) })
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			return fmt.Errorf("the watchers are not ready: %w", err)
		}
	}
	return nil
}

// beWatchers keeps clients that watch until standard input ends.
func beWatchers(ctx context.Context, n int, groups string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var clients []*laneclient.Client
	for range n {
		c, err := laneclient.Dial(ctx, laneclient.FromEnv())
		if err != nil {
			return err
		}
		clients = append(clients, c)
		if err := c.Need(ctx, service); err != nil {
			return err
		}
		for group := range strings.FieldsFuncSeq(groups, func(r rune) bool { return r == ',' }) {
			views := c.Views(ctx, group)
			go func() {
				for range views { // they are watched, and no more
				}
			}()
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the measuring process ends
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// processorTime is what the server has used so far.
func (in *installation) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.server.Process.Pid))
	if err != nil {
		return 0, err
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 wherever Linux runs
	rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc tells nothing of the server: %q", text)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// bytes is what the registry has on disk: its database and its log.
func (in *installation) bytes() (database, log int64, err error) {
	err = filepath.WalkDir(in.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
				return nil
			}
			return err
		}
		info, err := d.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case d.Name() == "db":
			database += info.Size()
		case strings.HasSuffix(d.Name(), ".wal"):
			log += info.Size()
		}
		return nil
	})
	return database, log, err
}
