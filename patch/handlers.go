package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// Handlers of displaced calls.
//
// A displaced call is no longer where its function's table of exception handlers has it. Most displaced calls have no
// handler, and a copy without such a table lets exceptions pass. Copies of the others get a table of their own, which
// leads to the landing pads of the original (ehframe/movelsda.go), and an unwind entry of their own, whose CIE names the
// function's personality routine.

// handlers lays out these tables.
func (l *layout) handlers() error {
	var index *ehframe.Index
	size := 0
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		if !fn.Catches || !displaces(fn) {
			continue
		}
		if index == nil {
			t, err := ehframe.Read(l.p.file)
			if err != nil {
				return err
			}
			index, l.lsda = ehframe.NewIndex(t), map[uint32]uint64{}
		}
		d, ok := index.Find(fn.Func)
		if !ok {
			return internalf("%s at %#x: its unwind information is gone", fn.Name, fn.Func)
		}
		lead := fn.Addr - d.PC
		b, err := d.AppendMovedLSDA(nil, l.p.file, l.align(4), lead, lead+uint64(fn.Moved),
			l.p.file.Header.Type == elf.ET_EXEC, func(off uint64) (uint64, bool) {
				to, ok := l.displacer.displacedAt(fn.Site, int(off-lead))
				return uint64(to), ok
			})
		if err != nil {
			return fmt.Errorf("%s at %#x: %w", fn.Name, fn.Func, err)
		}
		if size += len(b); size > len(l.p.file.Raw()) {
			return fmt.Errorf("tables of exception handlers of %d bytes", size)
		}
		l.lsda[fn.ID] = l.add(piece{name: ".fentry.lsda", size: uint64(len(b)), align: 4, owner: nobody, ready: b})
	}
	return nil
}
