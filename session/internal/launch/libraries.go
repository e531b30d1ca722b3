//go:build linux

package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// A program whose libraries are traced, too, is not let go at its exec stop, but when it comes to its entry point: its
// dynamic loader is given patched copies meanwhile (tracee.Load). That can take long, because constructors of libraries
// run. So Launch returns at the exec stop as ever, and the thread that traces the program goes on by itself; nobody
// else may wait for the program until it has.

// loading is a program that is still traced.
type loading struct {
	done   chan struct{} // closed when it no longer is
	ended  bool          // it has ended meanwhile, with status
	status syscall.WaitStatus
}

// started is how launch ends: with a program, and if it is still traced, with that too.
type started struct {
	Started
	traced *tracee.Process
	memory *patch.Memory // what was put into it; nil: nothing
}

// Launch starts the program.
func (l *Launcher) Launch() (Started, error) {
	type result struct {
		s   Started
		err error
	}
	back := make(chan result, 1)
	go func() {
		// ptrace and the signal mask are the thread's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		s, err := l.launch()
		s.reaped = make(chan syscall.WaitStatus, 1)
		if s.traced == nil {
			back <- result{s.Started, err}
			return
		}
		at := &loading{done: make(chan struct{})}
		s.Started.loading = at
		back <- result{s.Started, err}
		defer close(at.done)
		l.load(s, at)
	}()
	r := <-back
	return r.s, r.err
}

// load lets the dynamic loader do its work, and then the program go.
func (l *Launcher) load(s started, at *loading) {
	t := s.traced
	var err error
	if len(l.Emulator) > 0 {
		err = l.loadEmulated(t)
	} else {
		err = l.loadHere(t, s.memory)
	}
	var died *tracee.EndedError
	if errors.As(err, &died) {
		at.ended, at.status = true, died.Status
		return
	}
	if err != nil {
		l.Logf("%s: libraries are not traced: %v", l.Path, err)
	}
	if err := t.Detach(); err != nil {
		l.Logf("%s: %v", l.Path, err)
		t.Kill()
	}
}

// loadHere does it for a program that the kernel runs.
func (l *Launcher) loadHere(t *tracee.Process, m *patch.Memory) error {
	return t.Load(m, Substitute(l.Library), func(err error) {
		l.Logf("%s: libraries that it loads later are not traced: %v", l.Path, err)
	}, func(err error) {
		l.Logf("%s: system calls of its dynamic loader are not recorded: %v", l.Path, err)
	})
}

// loadEmulated does it for a program under an emulator.
func (l *Launcher) loadEmulated(t *tracee.Process) error {
	pool, err := os.Stat(l.Pool)
	if err != nil {
		return err
	}
	return t.LoadEmulated(pool, Substitute(l.Library))
}

// Substitute returns what says what a program's loader is given in place of a file that it has opened, as library does:
// see [Launcher].
func Substitute(library func(path string, f *os.File) *os.File) func(tracee.Opened) string {
	return func(o tracee.Opened) string {
		f, err := safefile.Open(o.FD)
		if err != nil {
			return "" // no regular file
		}
		defer f.Close()
		with := library(o.Path, f)
		if with == nil {
			return ""
		}
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), with.Fd())
	}
}
