//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// started is a program that runs.
type started struct {
	pid      int
	injected bool
	copied   bool
	setup    time.Duration
	copy     *patchedCopy // to be removed at the end; nil: none

	// The program died before its first instruction.
	ended  bool
	status syscall.WaitStatus
}

// launcher starts the program in the way that works here.
type launcher struct {
	o        *Options
	args     []string
	env      []string
	in       inherited
	mem      *Memory // nil: untraced
	emulator string  // file of o.Emulator
	pool     string  // session path
	log      func(format string, args ...any)
	// ready is called when execve has succeeded and, if the program can be held
	// there, before its first instruction.
	ready func(pid int)
}

// launch starts the program. It locks the goroutine to its thread: ptrace and
// the signal mask are the thread's.
func (l *launcher) launch() (started, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.mem == nil {
		return l.plain()
	}
	if len(l.o.Emulator) > 0 {
		return l.emulated()
	}
	if l.o.NoPtrace {
		return l.patched()
	}
	if losesPrivileges(l.o.Path) {
		// Traced by ptrace it would not have them either, and be told so (AT_SECURE),
		// at which the runtime keeps out.
		l.log("%s: running a patched copy, without the privileges of the file", l.o.Path)
		return l.patched()
	}
	s, err := l.traced()
	var inj *errInject
	if errors.As(err, &inj) {
		l.log("%s: cannot be traced in place (%v); running a patched copy", l.o.Path, inj)
		return l.patched()
	}
	return s, err
}

// traced starts the program stopped, changes it, and lets it go.
func (l *launcher) traced() (started, error) {
	pid, err := l.fork(l.o.Path, l.args, true)
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return l.plain()
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		// Either ptrace or execve is refused; the copy will tell.
		return started{}, &errInject{fmt.Errorf("ptrace: %w", err)}
	case err != nil:
		return started{}, execError(l.o.Path, err)
	}
	t0 := time.Now()
	t, status, ended, err := stopAtExec(pid)
	if ended {
		l.ready(pid)
		return started{pid: pid, ended: true, status: status}, nil
	}
	s := started{pid: pid, injected: true}
	if err == nil {
		err = t.checkFile(l.o.File)
	}
	if err == nil {
		l.ready(pid) // the runtime may want to know
		err = t.inject(l.mem)
	}
	if errors.Is(err, errNotPlanned) {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		l.log("%s: runs as %s, which is not traced", l.o.Path, exe)
		s.injected = false
		err = nil
	}
	if err == nil {
		err = t.setSignals(l.in)
	}
	if err == nil {
		err = t.detach()
	}
	var died *errDied
	if errors.As(err, &died) {
		return started{pid: pid, ended: true, status: died.status}, nil
	}
	if err != nil {
		t.kill()
		var mm *MismatchError
		if errors.As(err, &mm) {
			return started{}, fmt.Errorf("%s: changed since it was read: %w", l.o.Path, err)
		}
		return started{}, err
	}
	s.setup = time.Since(t0)
	return s, nil
}

// plain starts the program as it is.
func (l *launcher) plain() (started, error) {
	path, argv := l.command(l.o.Path)
	pid, err := l.fork(path, argv, false)
	if errors.Is(err, unix.ENOEXEC) && len(l.o.Emulator) == 0 {
		// As execvp does with a script that does not name its interpreter.
		args := append([]string{"/bin/sh", l.o.Path}, l.args[min(1, len(l.args)):]...)
		if l.mem != nil {
			l.log("%s: is a script, which is not traced", l.o.Path)
		}
		pid, err = l.fork(args[0], args, false)
	}
	if err != nil {
		return started{}, execError(path, err)
	}
	l.ready(pid)
	return started{pid: pid}, nil
}

// patchedCopy makes the copy that runs where the program itself cannot be changed.
func (l *launcher) patchedCopy(where string) (*patchedCopy, error) {
	if l.o.PatchedCopy == nil {
		return nil, fmt.Errorf("%s: cannot be traced %s", l.o.Path, where)
	}
	return newCopy(l.o.Path, func(f *os.File) error { return l.o.PatchedCopy(l.pool, f) })
}

// patched starts a patched copy.
func (l *launcher) patched() (started, error) {
	c, err := l.patchedCopy("without ptrace")
	if err != nil {
		return started{}, err
	}
	defer c.close()
	c.link(filepath.Base(l.o.Path))
	pid, err := l.fork(c.exec, l.args, false)
	if err != nil {
		return started{}, execError(l.o.Path, err)
	}
	l.ready(pid)
	return started{pid: pid, copied: true}, nil
}

// fork starts a process with the inherited signal state. Stopped at its exec it
// has all signals blocked: one that came between PTRACE_TRACEME and the end of
// execve would stop it while the parent waits for that end, and nobody would let
// it go on.
func (l *launcher) fork(path string, args []string, stopped bool) (int, error) {
	old := threadMask()
	if stopped {
		setThreadMask(^bit(syscall.SIGTRAP)) // the stop itself is a SIGTRAP
	} else {
		setThreadMask(l.in.blocked)
	}
	defer setThreadMask(old)
	if l.in.ignored&bit(syscall.SIGCHLD) != 0 {
		signal.Ignore(syscall.SIGCHLD)
		defer func() {
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGCHLD)
			signal.Stop(c)
		}()
	}
	return syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env:   l.env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Ptrace: stopped},
	})
}

// errDied: the process ended while it was being changed.
type errDied struct{ status syscall.WaitStatus }

func (e *errDied) Error() string { return "the program ended while it was being started" }

// losesPrivileges tells whether a program would gain privileges from its file,
// but not while this process traces it (execve(2): no set-ID while traced by a
// process without CAP_SYS_PTRACE).
func losesPrivileges(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || hasCapability(unix.CAP_SYS_PTRACE) {
		return false
	}
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && nnp == 1 {
		return false
	}
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Geteuid():
		return true
	case st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0 && int(st.Gid) != os.Getegid():
		return true
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// hasCapability tells whether this process has an effective capability.
func hasCapability(c uint) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}
