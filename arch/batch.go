package arch

import (
	"errors"
	"fmt"
	"slices"
)

// Batch changes many sites together: either all of them or none.
type Batch struct {
	Ftrace  Ftrace
	Changes []Change
}

// Add puts a change into the batch.
func (b *Batch) Add(c Change) { b.Changes = append(b.Changes, c) }

// Verify checks every site and returns what Run would write, sorted by address.
// It stops at the first site that is wrong, with a *Bug, or where two changes
// touch the same bytes. It writes nothing.
func (b *Batch) Verify(mem Memory) ([]Edit, error) {
	edits := make([]Edit, 0, len(b.Changes))
	for _, c := range b.Changes {
		e, err := b.Ftrace.Prepare(mem, c)
		if err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	slices.SortStableFunc(edits, func(x, y Edit) int {
		if x.Addr < y.Addr {
			return -1
		} else if x.Addr > y.Addr {
			return 1
		}
		return 0
	})
	for i := 1; i < len(edits); i++ {
		if prev := edits[i-1]; edits[i].Addr-prev.Addr < uint64(len(prev.New)) {
			return nil, fmt.Errorf("%#x: changed twice in one batch, also at %#x", edits[i].Addr, prev.Addr)
		}
	}
	return edits, nil
}

// Run verifies every site and then writes all of them in address order. When a
// write fails, those before it get their old bytes back; the error is that
// write's *Bug, joined with one for each site that could not be restored.
func (b *Batch) Run(mem Memory) error {
	edits, err := b.Verify(mem)
	if err != nil {
		return err
	}
	for i, e := range edits {
		if err := write(mem, e.change, e.Addr, e.New); err != nil {
			errs := []error{err}
			for j := i - 1; j >= 0; j-- {
				if err := write(mem, edits[j].change, edits[j].Addr, edits[j].Old); err != nil {
					errs = append(errs, fmt.Errorf("not restored: %w", err))
				}
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

// Do verifies and writes a single change.
func Do(f Ftrace, mem Memory, c Change) error {
	e, err := f.Prepare(mem, c)
	if err != nil {
		return err
	}
	return write(mem, c, e.Addr, e.New)
}

func write(mem Memory, c Change, addr uint64, b []byte) error {
	if err := mem.WriteAt(b, addr); err != nil {
		return c.Bug(WriteFault, nil, nil, err)
	}
	return nil
}
