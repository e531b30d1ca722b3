package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// ErrExecuted: the process has executed another program since it was looked at. It has not been changed.
var ErrExecuted = errors.New("it has executed another program meanwhile")

// A Program is what a process runs, from when it is opened until the process executes another program, or ends.
type Program struct{ ts *threads }

// OpenProgram opens what a process runs. The caller must close it.
func OpenProgram(pid int) (*Program, error) {
	ts, err := openThreads(pid)
	if err != nil {
		return nil, err
	}
	return &Program{ts}, nil
}

// Close closes it. It is not in use in the process, which goes on.
func (p *Program) Close() { p.ts.close() }

// Executed tells whether the process runs another program by now.
func (p *Program) Executed() bool {
	aux, err := auxOf(p.ts.pid)
	if err != nil {
		return false // it has ended
	}
	// The same program, started once more, has the same vector if addresses are not random.
	return !bytes.Equal(aux, p.ts.aux) || errors.Is(p.ts.memory().ReadAt(make([]byte, 1), auxValue(p.ts.aux, atPhdr)), ErrEnded)
}

// executePatience is for how long a process is waited for that seems to have ended: one that is about to execute a program has
// no threads and no memory for a moment.
const executePatience = 200 * time.Millisecond

// ExecutedBy tells whether a process that could not be attached to, for a reason, runs another program by now.
func (p *Program) ExecutedBy(err error) bool {
	deadline := time.Now().Add(executePatience)
	for errors.Is(err, ErrEnded) && !p.Executed() && time.Now().Before(deadline) {
		if s, serr := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", p.ts.pid)); serr != nil || s.Dead() {
			return false
		}
		time.Sleep(loadedPause)
	}
	return p.Executed()
}

// loadedPause is between two looks whether a program's libraries are there.
const loadedPause = time.Millisecond

// AwaitLoaded waits until the dynamic loader has brought a program's libraries, until when no C library may be there, or for as
// long as is given.
func (p *Program) AwaitLoaded(patience time.Duration) {
	for deadline := time.Now().Add(patience); p.loads() && time.Now().Before(deadline); {
		time.Sleep(loadedPause)
	}
}

// loads tells whether a dynamic loader is at work, as far as that can be seen.
func (p *Program) loads() bool {
	ts := p.ts
	bias, ok := ts.bias()
	if !ok || auxValue(ts.aux, atBase) == 0 {
		return false
	}
	debug, err := ts.debug(bias)
	if errors.Is(err, errNoDebug) {
		return true
	}
	state := make([]byte, 4)
	return err == nil && ts.memory().ReadAt(state, debug+debugState) == nil && le.Uint32(state) != 0
}
