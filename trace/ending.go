package trace

import (
	"os"

	"golang.org/x/sys/unix"
)

// An Ending says whether the recording of a trace ended properly.
type Ending uint8

const (
	// EndWritten: the recorder has finished, or there was none: the program wrote its trace alone.
	EndWritten Ending = iota
	// EndPending: a recorder is still writing the trace.
	EndPending
	// EndMissing: the recorder was killed, and so was what keeps its buffer, if there was that already. What was in the memory shared with the program is lost, unless the layout
	// is LayoutSlots: then the file is that memory.
	EndMissing
)

// ending tells how the recording of the trace in f ended. A recorder holds a lock
// on the file until it has written the end.
func (t *Trace) ending(f *os.File) Ending {
	switch {
	case t.Header.Closed:
		return EndWritten
	case t.Info == nil && t.Header.Recorder == 0:
		return EndWritten
	case t.Info != nil && t.Info.Duration > 0:
		return EndWritten
	}
	switch unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) {
	case nil:
		// Kept no longer than needed: a recorder asks for it too.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		return EndMissing
	case unix.EWOULDBLOCK:
		return EndPending
	}
	// The file system knows no locks.
	if pid := t.Header.Recorder; pid > 0 && unix.Kill(pid, 0) != unix.ESRCH {
		return EndPending
	}
	return EndMissing
}
