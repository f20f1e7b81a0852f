package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// fuse takes the place of the process: where etcd would end it, because its disk is full
// or its files are broken, the fuse blows, and the goroutine that has come upon the
// trouble ends. What it held stays locked, so that nothing is written after that.
type fuse struct {
	once  sync.Once
	blown chan struct{} // closed once it has blown
	err   error         // set before blown is closed

	holds  sync.Once
	locked chan struct{} // closed once a goroutine has ended in the database and kept its lock
}

func newFuse() *fuse { return &fuse{blown: make(chan struct{}), locked: make(chan struct{})} }

var _ zapcore.CheckWriteHook = (*fuse)(nil)

// options has a logger blow the fuse instead of ending the process.
func (f *fuse) options() []zap.Option {
	return []zap.Option{zap.WithFatalHook(f), zap.WithPanicHook(f)}
}

// closeFailed is etcd's last word when it could not write the rest of its log. All that it
// still does then is to say that it has stopped.
const closeFailed = "failed to close Raft storage"

// OnWrite implements [zapcore.CheckWriteHook]. It does not return, but where etcd can stop
// if it does.
func (f *fuse) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(e.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	f.blow(err)
	if e.Message != closeFailed {
		runtime.Goexit()
	}
}

// blow says why nothing goes on. The first reason counts; that the database is locked, from
// whoever says so, since on a full disk the database can fail after the log.
func (f *fuse) blow(err error) {
	if inBackend() {
		f.keepLock()
	}
	f.once.Do(func() {
		f.err = err
		close(f.blown)
	})
}

// keepLock says that the database's lock is not given back.
func (f *fuse) keepLock() { f.holds.Do(func() { close(f.locked) }) }

// isBlown says whether it has blown.
func (f *fuse) isBlown() bool {
	select {
	case <-f.blown:
		return true
	default:
		return false
	}
}

// inBackend says whether the calling goroutine is in the database's code.
func inBackend() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "server/v3/storage/backend.") {
			return true
		}
		if !more {
			return false
		}
	}
}
