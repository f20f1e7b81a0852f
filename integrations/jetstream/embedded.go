package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a server in this process.
type embedded struct {
	*server.Server
	lock *os.File
}

// startServer starts a server over a folder, with a port where the configuration says so.
func startServer(ctx context.Context, cfg *Config) (*embedded, error) {
	var host string
	var port int
	if cfg.Listen != "" {
		var err error
		if host, port, err = listenAddress(cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen %w", err)
		}
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: "laneway",
		JetStream:  true,
		StoreDir:   filepath.Join(cfg.Dir, "log"),
		NoSigs:     true,
		DontListen: host == "",
		Host:       host,
		Port:       port,
		MaxConn:    maxConnections,
		MaxPayload: MaxMessageBytes,
		MaxPending: maxPendingBytes,
		// By this name clients know the room; the server stays alone, as it has no port for others.
		Cluster: server.ClusterOpts{Name: cfg.Room},
	}
	switch cfg.Durability {
	case Bounded:
		o.SyncInterval = BoundedInterval
	case Sync:
		o.SyncAlways = true
	case Fast:
	}
	s, err := server.NewServer(o)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	fatal := make(chan error, 1)
	s.SetLogger(serverLog{cfg.Log, fatal}, false, false)
	e := &embedded{Server: s, lock: lock}
	started := make(chan struct{})
	go func() { // Start returns, where there is a listener when it is closed
		defer close(started)
		s.Start()
	}()
	for !s.ReadyForConnections(50 * time.Millisecond) {
		err := ctx.Err()
		select {
		case err = <-fatal:
		default:
		}
		if err != nil {
			e.stop()
			<-started
			return nil, fmt.Errorf("the server did not start: %w", err)
		}
	}
	if !s.JetStreamEnabled() {
		e.stop()
		<-started
		return nil, errors.New("the server did not start JetStream: see its log")
	}
	return e, nil
}

// stop returns when nothing of the server runs.
func (e *embedded) stop() {
	e.Shutdown()
	e.WaitForShutdown()
	_ = e.lock.Close()
}

// serverLog passes on what the server has to say, save its small talk.
type serverLog struct {
	log   *slog.Logger
	fatal chan<- error // takes the first thing after which the server cannot go on
}

func (l serverLog) say(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "nats server", "text", fmt.Sprintf(format, v...))
	}
}

func (l serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l serverLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l serverLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }

// Fatalf does not end the process, as the server expects it to: whoever started it hears why.
func (l serverLog) Fatalf(format string, v ...any) {
	l.say(slog.LevelError, format, v)
	select {
	case l.fatal <- fmt.Errorf(format, v...):
	default:
	}
}

func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}
