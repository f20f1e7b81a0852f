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

// startServer starts a server over a folder. addr is where it listens; empty: it opens no
// port.
func startServer(ctx context.Context, cfg *Config, addr string, port int) (*embedded, error) {
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: "laneway",
		JetStream:  true,
		StoreDir:   filepath.Join(cfg.Dir, "log"),
		NoSigs:     true,
		DontListen: addr == "",
		Host:       addr,
		Port:       port,
		MaxPayload: MaxMessageBytes,
		MaxPending: maxPendingBytes,
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
	s.SetLogger(serverLog{cfg.Log}, false, false)
	e := &embedded{Server: s, lock: lock}
	started := make(chan struct{})
	go func() { // Start returns, where there is a listener when it is closed
		defer close(started)
		s.Start()
	}()
	for !s.ReadyForConnections(50 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
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
type serverLog struct{ log *slog.Logger }

func (l serverLog) say(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "nats server", "text", fmt.Sprintf(format, v...))
	}
}

func (l serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l serverLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l serverLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l serverLog) Fatalf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l serverLog) Debugf(string, ...any)           {}
func (l serverLog) Tracef(string, ...any)           {}
