//go:build linux

package session

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// guest is what it takes here to run programs of another machine.
type guest struct {
	emulators []string // names to look for
	// sysroot is where Debian's cross compilers have the machine's libraries.
	sysroot   string
	emulator  string // packages, as Debian calls them
	libraries string
}

var guests = map[elf.Machine]guest{
	elf.EM_AARCH64: {[]string{"qemu-aarch64", "qemu-aarch64-static"}, "/usr/aarch64-linux-gnu", "qemu-user", "libc6-arm64-cross"},
	elf.EM_X86_64:  {[]string{"qemu-x86_64", "qemu-x86_64-static"}, "/usr/x86_64-linux-gnu", "qemu-user", "libc6-amd64-cross"},
}

var hosts = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// FindEmulator returns the command that runs a machine's programs on this one,
// for [Options]; nil for programs that run without, and for machines nothing is
// traced on. interp is the program's interpreter, "" if it has none: where only
// Debian's cross libraries have it, the emulator is told to look there. The
// error wraps [ErrNotFound] and says what to install.
func FindEmulator(m elf.Machine, interp string) ([]string, error) {
	g, ok := guests[m]
	if !ok || m == hosts[runtime.GOARCH] {
		return nil, nil
	}
	machine := strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
	var cmd []string
	for _, name := range g.emulators {
		if path, err := LookPath(name); err == nil {
			cmd = []string{path}
			break
		}
	}
	if cmd == nil {
		return nil, fmt.Errorf("%s: %w; programs for %s need it here (Debian: apt-get install %s)", g.emulators[0], ErrNotFound, machine, g.emulator)
	}
	if interp == "" || exists(interp) {
		return cmd, nil
	}
	// Where qemu looks by itself.
	prefix, set := os.LookupEnv("QEMU_LD_PREFIX")
	if !set {
		prefix = "/etc/qemu-binfmt/" + machine
	}
	switch {
	case exists(prefix + interp):
		return cmd, nil
	case !set && exists(g.sysroot+interp):
		return append(cmd, "-L", g.sysroot), nil
	}
	where := interp
	if set {
		where = prefix + interp
	}
	return nil, fmt.Errorf("%s: %w; the program has this interpreter, for %s (Debian: apt-get install %s)", where, ErrNotFound, machine, g.libraries)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command is what execve gets to run the file at path with the program's
// arguments: the emulator's command in front, if there is one.
func (l *launcher) command(path string) (string, []string) {
	if len(l.o.Emulator) == 0 {
		return path, l.args
	}
	if strings.HasPrefix(path, "-") {
		path = "./" + path // no option of the emulator
	}
	argv := append([]string(nil), l.o.Emulator...)
	// qemu's way to give a program another name than its path.
	if l.args[0] != path && strings.HasPrefix(filepath.Base(argv[0]), "qemu-") {
		argv = append(argv, "-0", l.args[0])
	}
	argv = append(append(argv, path), l.args[1:]...)
	return l.emulator, argv
}

// emulated starts a patched copy under the emulator, which keeps the program's
// own path: the emulator is stopped when it has opened the program, and gets the
// copy in place of it.
func (l *launcher) emulated() (started, error) {
	c, err := l.patchedCopy("under an emulator")
	if err != nil {
		return started{}, err
	}
	defer c.close()
	if l.o.NoPtrace {
		return l.emulatedCopy(c)
	}
	s, err := l.substituted(c)
	var inj *errInject
	if errors.As(err, &inj) {
		l.log("%s: the emulator cannot be given the patched copy in place (%v); it gets it by its path", l.o.Path, inj)
		return l.emulatedCopy(c)
	}
	return s, err
}

// substituted starts the emulator and gives it the copy when it opens the
// program. It keeps signals blocked until then: what it tells the program of
// them it looks up later.
func (l *launcher) substituted(c *patchedCopy) (started, error) {
	want := l.o.File
	if want == nil {
		var err error
		if want, err = os.Stat(l.o.Path); err != nil {
			return started{}, execError(l.o.Path, err)
		}
	}
	path, argv := l.command(l.o.Path)
	pid, err := l.fork(path, argv, true)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return started{}, &errInject{fmt.Errorf("ptrace: %w", err)}
	case err != nil:
		return started{}, execError(path, err)
	}
	t0 := time.Now()
	t, status, ended, err := stopAtExec(pid)
	if ended {
		l.ready(pid)
		return started{pid: pid, ended: true, status: status}, nil
	}
	if err == nil {
		l.ready(pid)
		err = t.substitute(want, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.f.Fd()))
	}
	if err == nil {
		err = t.setSignals(l.in)
	}
	if err == nil {
		err = t.detach()
	}
	var died *errDied
	if errors.As(err, &died) {
		l.log("%s: %s has ended without opening it: nothing was traced", l.o.Path, l.o.Emulator[0])
		return started{pid: pid, ended: true, status: died.status}, nil
	}
	if err != nil {
		t.kill()
		return started{}, err
	}
	return started{pid: pid, copied: true, setup: time.Since(t0)}, nil
}

// emulatedCopy has the emulator run the copy by a path of its own. It must be
// there as long as the program may look at it.
func (l *launcher) emulatedCopy(c *patchedCopy) (started, error) {
	named, err := c.named(l.o.Path)
	if err != nil {
		return started{}, err
	}
	path, argv := l.command(named.exec)
	pid, err := l.fork(path, argv, false)
	if err != nil {
		named.remove()
		return started{}, execError(path, err)
	}
	l.ready(pid)
	return started{pid: pid, copied: true, copy: named}, nil
}
