package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/session/internal/limits"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// How much memory the runtime takes in a process at least, with the first chunks of the buffer and what the kernel needs for
// mappings, and for each of its threads. Measured: 1.6 MiB, of a program with one.
const (
	startRoom  = 1536 << 10
	threadRoom = 32 << 10
)

// roomFor returns an error if control groups would not let the process have the memory that images take: the kernel would kill
// it, or another process of its group.
func (ts *threads) roomFor(images []*image, edits []arch.Edit) error {
	l := limits.Room(os.DirFS("/"), ts.pid)
	if l.Bytes == limits.None {
		return nil
	}
	added := int64(0)
	for _, im := range images {
		added += int64(len(im.m.RX))
	}
	page := ^uint64(0)
	for _, e := range edits { // by address
		if p := e.Addr / PageSize; p != page {
			page, added = p, added+int64(PageSize)
		}
	}
	need := added + added/4 // page tables, and the tables of functions
	if images[0].home() {
		tids, _ := procfs.Threads(ts.pid)
		need += startRoom + int64(len(tids))*threadRoom
	}
	if l.Bytes < need {
		return fmt.Errorf("the tracer would take %d KiB of its memory, and %s leaves it %d KiB", need>>10, l.From, l.Bytes>>10)
	}
	return nil
}
