//go:build linux

package session

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/launch"
)

// watched are the signals a session has an opinion on. The terminal sends SIGINT
// and SIGQUIT to the program itself; SIGXFSZ must come as an error of write.
var watched = []syscall.Signal{
	syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGXFSZ,
}

// watch starts delivery of the watched signals, but for those that were ignored
// when this process was started. A shell's script has background jobs ignore
// SIGINT, which a program that is started goes on ignoring. One that was attached
// to has nothing to do with it, and that would record on when the script is gone.
func watch(in launch.Inherited, attached bool) (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 16)
	for _, s := range watched {
		if !in.Ignores(s) || attached && s == syscall.SIGINT {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// inForeground tells whether this process is in the foreground of its terminal,
// which then sends SIGHUP to the program too.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	pgrp, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// interrupts decides what signals mean for a session.
type interrupts struct {
	count      int  // signals that asked to end
	leaderGone bool // the program has ended, others are waited for
	attached   bool // the program was there before, and goes on
}

// got says what to do about a signal: pass it on to the program, end the
// session, or neither.
func (i *interrupts) got(s syscall.Signal, foreground bool) (forward, end bool) {
	if s == syscall.SIGXFSZ {
		return false, false
	}
	i.count++
	if i.leaderGone || i.attached || i.count > 1 {
		return false, true
	}
	switch s {
	case syscall.SIGTERM:
		return true, false
	case syscall.SIGHUP:
		return !foreground, false
	}
	return false, false // SIGINT, SIGQUIT: the terminal's, who asks the whole group
}
