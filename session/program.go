//go:build linux

package session

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// Errors that callers may handle. Both wrap the system's error.
var (
	// ErrNotFound: there is no such program; a shell exits with status 127.
	ErrNotFound = launch.ErrNotFound
	// ErrNotExecutable: the program cannot be executed; a shell exits with status 126.
	ErrNotExecutable = launch.ErrNotExecutable
)

// Warm has the kernel begin with what takes it a while, and what a session waits for otherwise. Who is certain to begin one,
// and has something else to do before, calls it first.
func Warm() {
	go clock.Hz()
	go pool.Warm()
	go launch.Warm()
}

// LookPath returns the file that execvp would execute for a name: the name itself if it contains a slash, else the
// first executable file of that name in the directories of $PATH, where an empty entry means the working directory.
// The result can be relative. The error wraps [ErrNotFound] or [ErrNotExecutable].
func LookPath(name string) (string, error) { return launch.LookPath(name) }

// FindEmulator returns the command that runs a machine's programs on this one, for [Options].Emulator, or nil if they
// need none or fentry does not support the machine. interp is the program's interpreter, "" if it has none: if only
// Debian's cross libraries have it, the command tells the emulator to look there. The error wraps [ErrNotFound] and
// says what to install.
func FindEmulator(m elf.Machine, interp string) ([]string, error) {
	return launch.FindEmulator(m, interp)
}
