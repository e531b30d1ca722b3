//go:build linux

package launch

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// FindEmulator returns the command that runs a machine's programs on this one,
// for [Options]; nil for programs that run without, and for machines nothing is
// traced on. interp is the program's interpreter, "" if it has none: where only
// Debian's cross libraries have it, the emulator is told to look there. The
// error wraps [ErrNotFound] and says what to install.
func FindEmulator(m elf.Machine, interp string) ([]string, error) {
	guest, ok := machine.Of(m)
	if host, _ := machine.Host(); !ok || guest == host {
		return nil, nil
	}
	name := machine.Name(m)
	var cmd []string
	for _, emulator := range []string{guest.Emulator(), guest.Emulator() + "-static"} {
		if path, err := LookPath(emulator); err == nil {
			cmd = []string{path}
			break
		}
	}
	if cmd == nil {
		return nil, fmt.Errorf("%s: %w; programs for %s need it here (Debian: apt-get install qemu-user)",
			guest.Emulator(), ErrNotFound, name)
	}
	if interp == "" || exists(interp) {
		return cmd, nil
	}
	// Where qemu looks by itself.
	prefix, set := os.LookupEnv("QEMU_LD_PREFIX")
	if !set {
		prefix = "/etc/qemu-binfmt/" + name
	}
	switch {
	case exists(prefix + interp):
		return cmd, nil
	case !set && exists(guest.Sysroot()+interp):
		return append(cmd, "-L", guest.Sysroot()), nil
	}
	where := interp
	if set {
		where = prefix + interp
	}
	return nil, fmt.Errorf("%s: %w; the program has this interpreter, for %s (Debian: apt-get install %s)",
		where, ErrNotFound, name, guest.Libraries())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command is what execve gets to run the file at path with the program's
// arguments: the emulator's command in front, if there is one.
func (l *Launcher) command(path string) (string, []string) {
	if len(l.Emulator) == 0 {
		return path, l.Args
	}
	if strings.HasPrefix(path, "-") {
		path = "./" + path // no option of the emulator
	}
	argv := append([]string(nil), l.Emulator...)
	// qemu's way to give a program another name than its path.
	if l.Args[0] != path && strings.HasPrefix(filepath.Base(argv[0]), "qemu-") {
		argv = append(argv, "-0", l.Args[0])
	}
	argv = append(append(argv, path), l.Args[1:]...)
	return l.EmulatorPath, argv
}

// emulated starts a patched copy under the emulator, which keeps the program's
// own path: the emulator is stopped when it has opened the program, and gets the
// copy in place of it. If libraries are traced, it stays traced.
func (l *Launcher) emulated() (started, error) {
	l.warnService()
	var c *patchedCopy
	if l.Copy != nil {
		var err error
		if c, err = l.patchedCopy("under an emulator"); err != nil {
			return started{}, err
		}
		defer c.close()
	}
	if l.NoPtrace {
		s, err := l.emulatedCopy(c)
		return started{Started: s}, err
	}
	s, err := l.substituted(c)
	var refused *tracee.RefusedError
	if !errors.As(err, &refused) {
		return s, err
	}
	if l.Library != nil {
		l.Logf("%s: libraries are not traced: %v", l.Path, refused)
	}
	if c == nil {
		s.Started, err = l.plain()
		return s, err
	}
	l.Logf("%s: the emulator cannot be given the patched copy in place (%v); it gets it by its path", l.Path, refused)
	s.Started, err = l.emulatedCopy(c)
	return s, err
}

// substituted starts the emulator and gives it the copy when it opens the
// program; nil: it stays. It keeps signals blocked until then: what it tells the
// program of them it looks up later.
func (l *Launcher) substituted(c *patchedCopy) (started, error) {
	want := l.File
	if want == nil {
		var err error
		if want, err = os.Stat(l.Path); err != nil {
			return started{}, execError(l.Path, err)
		}
	}
	path, argv := l.command(l.Path)
	pid, err := l.fork(path, argv, true)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return started{}, &tracee.RefusedError{Err: fmt.Errorf("ptrace: %w", err)}
	case err != nil:
		return started{}, execError(path, err)
	}
	t0 := time.Now()
	t, status, ended, err := tracee.StopAtExec(pid)
	s := started{Started: Started{PID: pid}}
	if ended {
		l.Ready(pid)
		s.Ended, s.Status = true, status
		return s, nil
	}
	with := ""
	if c != nil {
		s.Copied, s.Way = true, "as a patched copy in "+c.where
		with = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.f.Fd())
	}
	if err == nil {
		l.Ready(pid)
		err = t.Substitute(want, with)
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
		l.Logf("%s: %s has ended without opening it: nothing was traced", l.Path, l.Emulator[0])
		return started{Started: Started{PID: pid, Ended: true, Status: died.Status}}, nil
	}
	if err != nil {
		t.Kill()
		return started{}, err
	}
	s.Setup = time.Since(t0)
	return s, nil
}

// emulatedCopy has the emulator run the copy by a path of its own. It must be
// there as long as the program may look at it.
func (l *Launcher) emulatedCopy(c *patchedCopy) (Started, error) {
	named, err := c.named(l.Path)
	if err != nil {
		return Started{}, err
	}
	path, argv := l.command(named.exec)
	pid, err := l.fork(path, argv, false)
	if err != nil {
		named.remove()
		return Started{}, execError(path, err)
	}
	l.Ready(pid)
	return Started{PID: pid, Copied: true, Way: "as a patched copy in " + named.exec, copy: named}, nil
}
