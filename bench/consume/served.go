package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	service          = "order"
	watcherProcesses = 4
)

// installation is the built command with its embedded etcd and JetStream, in a process of its
// own, and clients that watch it in others.
type installation struct {
	*programs.Server
	api   *laneclient.API
	stops []func() error
}

func install(ctx context.Context, s settings) (*installation, error) {
	server, err := programs.Serve(ctx, s.binary)
	if err != nil {
		return nil, err
	}
	api := laneclient.NewAPI(laneclient.Config{Control: []string{server.Control}})
	return &installation{Server: server, api: api, stops: []func() error{server.Stop, api.Close}}, nil
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
	err := programs.Poll(ctx, patience, func() (err error) {
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
func (in *installation) watch(ctx context.Context, s settings, groups string) error {
	each := s.watchers / watcherProcesses
	if each == 0 {
		return nil
	}
	for range watcherProcesses {
		end, err := programs.Again(ctx, []string{laneclient.EnvControl + "=" + in.Control}, "-watch", strconv.Itoa(each),
			"-watch-groups", groups, "-watch-yield="+strconv.FormatBool(s.yield))
		if err != nil {
			return err
		}
		in.stops = append(in.stops, end)
	}
	return nil
}

// beWatchers keeps clients that watch until standard input ends.
func beWatchers(ctx context.Context, n int, groups string, yields bool) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if yields {
		if err := yield(); err != nil {
			return err
		}
	}
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
	errs := []error{programs.UntilEnd()}
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// bytes is what the registry has on disk: its database and its log.
func (in *installation) bytes() (database, log int64, err error) {
	err = filepath.WalkDir(in.Dir, func(path string, d fs.DirEntry, err error) error {
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
