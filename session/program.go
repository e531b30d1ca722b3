//go:build linux

package session

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/session/internal/launch"
)

// Errors a caller decides by. Both wrap what the system said.
var (
	// ErrNotFound: there is no such program; a shell's status is 127.
	ErrNotFound = launch.ErrNotFound
	// ErrNotExecutable: the program cannot be executed; a shell's status is 126.
	ErrNotExecutable = launch.ErrNotExecutable
)

// LookPath finds the file execvp would execute for a name: the name itself if it
// holds a slash, else the first executable file of that name in the directories
// of $PATH, where an empty entry is the working directory. The result can be
// relative. The error wraps [ErrNotFound] or [ErrNotExecutable].
func LookPath(name string) (string, error) { return launch.LookPath(name) }

// FindEmulator returns the command that runs a machine's programs on this one,
// for [Options]; nil for programs that run without, and for machines nothing is
// traced on. interp is the program's interpreter, "" if it has none: where only
// Debian's cross libraries have it, the emulator is told to look there. The
// error wraps [ErrNotFound] and says what to install.
func FindEmulator(m elf.Machine, interp string) ([]string, error) {
	return launch.FindEmulator(m, interp)
}
