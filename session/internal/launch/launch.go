//go:build linux

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/places"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// Launcher starts a program in the way that works here.
type Launcher struct {
	Path string   // of the program's file, as it is given to execve
	Args []string // its argument vector, Args[0] included
	Env  []string // its environment
	Dir  string   // its working directory; "": this process's
	// Files are its first open files, from descriptor 0; nil: 0 to 2 of this process.
	Files []uintptr
	File  os.FileInfo // the file that was planned; nil: not checked

	// Inherited is the signal state the program starts with.
	Inherited Inherited
	// Memory is what is put into the program; nil: it runs untraced.
	Memory *patch.Memory
	// Copy writes a patched copy of the program; nil: there is none.
	Copy func(*os.File) error
	// Library is asked for each file that the program's dynamic loader opens, by the loader's name for it: what it
	// returns takes the file's place, and must stay open. nil: the file stays, or libraries are left alone altogether.
	// It is called on a goroutine of its own, before and after Launch has returned.
	Library func(path string, f *os.File) *os.File
	// Pool is the path at which the runtime opens the trace's memory.
	Pool string
	// Other is asked for what is put into the program if Memory is nil, or if another file runs: a script's interpreter, or
	// what has replaced the program meanwhile. nil: nothing.
	Other func(pid int) *patch.Memory
	// Again starts the runtime once more when the program begins, with its libraries loaded.
	Again bool
	// NoPtrace runs the patched copy at once.
	NoPtrace bool

	// Emulator is the command that runs the program; empty: the kernel does.
	Emulator     []string
	EmulatorPath string // file of Emulator[0]

	places *places.Probe // where a patched copy can be

	// Logf gets messages for the user.
	Logf func(format string, args ...any)
	// Ready is called when execve has succeeded and, if the program can be held
	// there, before its first instruction.
	Ready func(pid int)
	// Release is called before anything runs in the program, the tracer included, when all else has been done.
	Release func()
	// Observed: it is to be called before the program's first instruction, if that is possible.
	Observed bool
}

// Started is a program that runs.
type Started struct {
	PID      int
	Injected bool          // it was changed at its exec stop
	Copied   bool          // it is a patched copy
	Way      string        // how it is traced, for the user: "in its memory", or where the patched copy is
	Setup    time.Duration // time the exec stop took
	copy     *patchedCopy  // to be removed at the end; nil: none
	loading  *loading      // nil: it runs on its own
	reaped   chan syscall.WaitStatus

	// Ended: the program died before its first instruction, with Status.
	Ended  bool
	Status syscall.WaitStatus
}

// Close removes what has to be there as long as the program may look at it.
func (s *Started) Close() {
	if s.copy != nil {
		s.copy.remove()
	}
}

// traced starts the program stopped, changes it, and lets it go, unless its libraries are to be traced.
func (l *Launcher) traced() (started, error) {
	start := *l
	var room []string
	start.Env, room = withRoom(l.Env)
	pid, err := start.fork(l.Path, l.Args, true)
	switch {
	case errors.Is(err, unix.ENOEXEC) && l.Other != nil:
		shell := l.throughShell()
		return shell.traced()
	case errors.Is(err, unix.ENOEXEC):
		s, err := l.plain()
		return started{Started: s}, err
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		// Either ptrace or execve is refused; the copy will tell.
		return started{}, &tracee.RefusedError{Err: fmt.Errorf("ptrace: %w", err)}
	case err != nil:
		return started{}, execError(l.Path, err)
	}
	t0 := time.Now()
	t, status, ended, err := tracee.StopAtExec(pid)
	if ended {
		l.Ready(pid)
		return started{Started: Started{PID: pid, Ended: true, Status: status}}, nil
	}
	s := started{Started: Started{PID: pid}}
	for _, r := range room {
		if err == nil {
			err = t.ReplaceEnv(r, numbered(r, pid))
		}
	}
	l.Release()
	if err == nil {
		s.memory, err = l.inject(t, pid)
	}
	if s.Injected = s.memory != nil; s.Injected {
		s.Way = "in its memory"
	}
	if err == nil {
		err = t.SetSignals(l.Inherited.Ignored, l.Inherited.Blocked)
	}
	if err == nil && l.Library != nil {
		s.traced = t
	} else if err == nil {
		err = t.Detach()
	}
	var died *tracee.EndedError
	if errors.As(err, &died) {
		return started{Started: Started{PID: pid, Ended: true, Status: died.Status}}, nil
	}
	if err != nil {
		t.Kill()
		var bug *arch.Bug
		if errors.As(err, &bug) && bug.Class == arch.Mismatch {
			return started{}, fmt.Errorf("%s: changed since it was read: %w", l.Path, err)
		}
		return started{}, err
	}
	s.Setup = time.Since(t0)
	return s, nil
}

// inject changes the program at its exec stop, if it is the one that was planned, or another one for which there is a
// plan. It returns what it has put into it, nil if nothing.
func (l *Launcher) inject(t *tracee.Process, pid int) (*patch.Memory, error) {
	m, err := l.Memory, tracee.ErrNotPlanned
	if m != nil {
		err = t.CheckFile(l.File)
	}
	l.Ready(pid) // the runtime may want to know
	if err == nil {
		err = t.Inject(m, l.Again)
	}
	if errors.Is(err, tracee.ErrNotPlanned) {
		if err = nil; l.Other == nil {
			if m != nil {
				exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
				l.Logf("%s: runs as %s, which is not traced", l.Path, exe)
			}
			return nil, nil
		}
		if m = l.Other(pid); m != nil {
			err = t.Inject(m, l.Again)
		}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// throughShell is how execvp starts a script that does not name its interpreter.
func (l *Launcher) throughShell() *Launcher {
	shell := *l
	shell.Path, shell.Memory = "/bin/sh", nil
	shell.Args = append([]string{shell.Path, l.Path}, l.Args[min(1, len(l.Args)):]...)
	return &shell
}

// plain starts the program as it is.
func (l *Launcher) plain() (Started, error) {
	l.warnService()
	path, argv := l.command(l.Path)
	pid, err := l.fork(path, argv, false)
	if errors.Is(err, unix.ENOEXEC) && len(l.Emulator) == 0 {
		shell := l.throughShell()
		if l.Memory != nil {
			l.Logf("%s: is a script, which is not traced", l.Path)
		}
		pid, err = shell.fork(shell.Path, shell.Args, false)
	}
	if err != nil {
		return Started{}, execError(path, err)
	}
	l.Ready(pid)
	return Started{PID: pid}, nil
}

// patchedCopy makes the copy that runs where the program itself cannot be changed.
func (l *Launcher) patchedCopy(where string) (*patchedCopy, error) {
	if l.Copy == nil {
		return nil, fmt.Errorf("%s: cannot be traced %s", l.Path, where)
	}
	if l.places == nil {
		l.places = places.Of(filepath.Dir(l.Path))
	}
	return newCopy(l.Path, l.places, l.Copy)
}

// patched starts a patched copy; why says why the program is not changed in its memory.
func (l *Launcher) patched(why error) (Started, error) {
	c, err := l.patchedCopy("without ptrace")
	if err != nil {
		return Started{}, err
	}
	defer c.close()
	l.warnService()
	c.link(filepath.Base(l.Path))
	pid, err := l.fork(c.exec, l.Args, false)
	if err != nil {
		return Started{}, execError(l.Path, err)
	}
	l.Ready(pid)
	way := fmt.Sprintf("as a patched copy in %s; not in place, because %v", c.where, why)
	return Started{PID: pid, Copied: true, Way: way}, nil
}

// fork starts a process with the inherited signal state. Stopped at its exec it
// has all signals blocked: one that came between PTRACE_TRACEME and the end of
// execve would stop it while the parent waits for that end, and nobody would let
// it go on.
func (l *Launcher) fork(path string, args []string, stopped bool) (int, error) {
	old := threadMask()
	if stopped {
		setThreadMask(^bit(syscall.SIGTRAP)) // the stop itself is a SIGTRAP
	} else {
		setThreadMask(l.Inherited.Blocked)
	}
	defer setThreadMask(old)
	if l.Inherited.Ignored&bit(syscall.SIGCHLD) != 0 {
		signal.Ignore(syscall.SIGCHLD)
		defer func() {
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGCHLD)
			signal.Stop(c)
		}()
	}
	files := l.Files
	if files == nil {
		files = []uintptr{0, 1, 2}
	}
	return syscall.ForkExec(path, args, &syscall.ProcAttr{
		Dir:   l.Dir,
		Env:   l.Env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Ptrace: stopped},
	})
}
