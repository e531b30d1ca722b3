//go:build linux

package tracee

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// The loader's own system calls. They are recorded by the runtime in the program, where that has been put at the exec
// stop, before the loader has run.

// ways are the addresses, close to the loader, by which its code gets to the runtime's routines for system calls; 0:
// they are not recorded.
type ways struct{ enter, exit uint64 }

// prepareCalls maps memory for the loader's system calls.
func (l *loader) prepareCalls(m *patch.Memory) error {
	if m == nil || m.LoaderCalls == nil {
		return nil
	}
	at, err := l.page(pageUp(m.LoaderCalls.Size()))
	if err != nil {
		return err
	}
	l.calls = span{at, m.LoaderCalls.Size()}
	l.ways = ways{at + patch.LoaderEnter, at + patch.LoaderExit}
	return nil
}

// moveCalls has the loader make its system calls there. Those of its hooks are recorded by these.
func (l *loader) moveCalls(m *patch.Memory) error {
	if l.calls.size == 0 {
		return nil
	}
	bias := l.entry - m.OrigEntry
	code, edits, err := m.LoaderCalls.Build(l.calls.addr, l.from, m, bias, l.hooks)
	if err == nil {
		err = l.t.WriteAt(code, l.calls.addr)
	}
	if err == nil {
		err = arch.Compare(l.t, PageSize, arch.All(edits))
	}
	if err == nil {
		err = arch.Write(l.t, PageSize, edits)
	}
	return err
}

// hooks reports whether the loader has a hook in [lo, hi).
func (l *loader) hooks(lo, hi uint64) bool {
	for _, h := range l.hooked {
		if h.addr < hi && lo < h.addr+h.size {
			return true
		}
	}
	return false
}

// page maps memory close to the loader, below it, where branches reach it.
func (l *loader) page(size uint64) (uint64, error) {
	const tries, step = 64, 1 << 20
	var err error
	for i := range uint64(tries) {
		at := l.from - (i+1)*step
		if err = l.t.maps(anonymous(at, size, unix.PROT_READ|unix.PROT_EXEC)); err == nil {
			return at, nil
		}
	}
	return 0, fmt.Errorf("no memory close to its dynamic loader: %w", err)
}
