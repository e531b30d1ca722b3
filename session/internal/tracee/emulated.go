//go:build linux

package tracee

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Libraries of a program that runs under an emulator.
//
// The emulator makes the system calls of the program's dynamic loader itself, at addresses that say nothing, and the
// program's entry point is nowhere. What can be seen is when libraries are loaded: the loader has mapped all of them
// when it relocates the first, and relocating one that is traced starts the runtime, which opens the trace's memory
// first. So until then every file that is opened is the loader's, or the emulator's.

// LoadEmulated lets an emulator run, once it has opened the program, until the program's runtime opens pool, or until
// it executes another program. give says what takes the place of each file that is opened, as for [Process.Load].
func (t *Process) LoadEmulated(pool os.FileInfo, give func(Opened) string) error {
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEEXEC
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return &RefusedError{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
	}
	l := &loader{t: t, to: math.MaxUint64, entry: math.MaxUint64, pool: pool}
	_, err := l.run(give)
	return err
}
