//go:build unix

package deploy

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that a child reads from. A process group of its own
// would be in the background there, and stopped by its first read, so the terminal
// is lent to it. The zero terminal is none.
type terminal struct{ file *os.File }

// terminalOf is the terminal behind stdin, if this process has it in the
// foreground and so can lend it.
func terminalOf(stdin *os.File) terminal {
	t := terminal{stdin}
	if stdin == nil || !t.ours() {
		return terminal{}
	}
	return t
}

// ours reports whether the terminal's foreground is this process's group.
func (t terminal) ours() bool {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// lend has the child take the terminal as it starts.
func (t terminal) lend(attr *syscall.SysProcAttr) {
	if t.file != nil {
		attr.Foreground, attr.Ctty = true, int(t.file.Fd())
	}
}

// takeBack brings this process's group into the foreground again.
func (t terminal) takeBack() {
	if t.file != nil {
		t.give(syscall.Getpgrp())
	}
}

// give makes a group the foreground. To change that from the background gets a
// process the signal TTOU, which would stop it.
func (t terminal) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // one that has hung up needs none
}

// suspend does what a shell's user expects when the child was stopped at the
// terminal: this process stops too, and when it goes on, so does the child.
func (t terminal) suspend(child int) {
	if t.file == nil {
		return
	}
	t.takeBack()
	// This thread may run on for a moment after the signal was sent: only the one
	// that continues the process says that it has been stopped.
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	<-continued
	signal.Stop(continued)
	if t.ours() {
		t.give(child)
	}
	_ = syscall.Kill(-child, syscall.SIGCONT)
}
