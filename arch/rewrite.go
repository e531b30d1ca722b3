package arch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// Rewriting.
//
// Whoever rewrites code has planned it for bytes that may have changed since: a file, a process that was
// started from it, a module of the program itself. One half-made change is a crash later, so the old bytes of
// all edits are compared before the first new byte is written, and a write that fails takes back those before
// it. That is the same for every memory, and stands here once. What differs is how much is read and written
// at a time: an image of a file at hand costs nothing a call, a process costs a system call, and code that
// threads may be executing must be written edit by edit, as its instruction set demands. The caller says so
// by a gap.

// An Edit replaces the bytes Old at Addr by New. Both have the same length.
type Edit struct {
	Addr     uint64
	Old, New []byte
	Func     string // raw name of the function, for reports; may be empty
	Reason   string // what it is for, in one word, for people

	change *Change // the request it does, if it comes from one
}

// Bug returns the error for an edit that cannot be made.
func (e *Edit) Bug(class Class, actual []byte, cause error) *Bug {
	var expected []byte
	if class == Mismatch {
		expected = e.Old
	}
	if e.change != nil {
		return e.change.Bug(class, actual, expected, cause)
	}
	c := Change{Action: Rewrite, Site: Site{Addr: e.Addr, Len: len(e.Old), Name: e.Func}}
	return c.Bug(class, actual, expected, cause)
}

func (e *Edit) end() uint64 { return e.Addr + uint64(len(e.Old)) }

// check refuses edits that are none, and such as do not follow end, which is that of the edit before.
func (e *Edit) check(end uint64) error {
	switch {
	case len(e.Old) == 0 || len(e.Old) != len(e.New):
		return fmt.Errorf("edit at %#x replaces %d bytes by %d", e.Addr, len(e.Old), len(e.New))
	case e.Addr < end:
		return fmt.Errorf("edit at %#x overlaps the one before it, or is not in order", e.Addr)
	case e.end() < e.Addr:
		return fmt.Errorf("edit at %#x leaves the address space", e.Addr)
	}
	return nil
}

// Check returns an error if edits are not sorted by address, overlap, or are empty.
func Check(edits []Edit) error {
	end := uint64(0)
	for i := range edits {
		if err := edits[i].check(end); err != nil {
			return err
		}
		end = edits[i].end()
	}
	return nil
}

// Sort sorts edits by address. It returns an error if any overlap.
func Sort(edits []Edit) error {
	slices.SortStableFunc(edits, func(a, b Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return Check(edits)
}

// window bounds what is read or written at a time, in bytes, unless one edit is longer.
const window = 1 << 20

// Compare compares the old bytes of edits, which must be sorted, with memory. Edits less than gap bytes apart are
// read together; with gap 0 each is read on its own. The iterator may reuse the Edit it yields.
//
// The error is a *[Bug] of class Fault or Mismatch for the first edit that does not match, or says that the edits are
// not sorted.
func Compare(mem Reader, gap uint64, edits iter.Seq[*Edit]) error {
	c := comparer{mem: mem}
	var run []Edit
	end := uint64(0)
	for e := range edits {
		if err := e.check(end); err != nil {
			return err
		}
		if gap == 0 {
			if err := c.edit(e); err != nil {
				return err
			}
		} else {
			if len(run) > 0 && !joins(run, e, gap, window) {
				if err := c.run(run); err != nil {
					return err
				}
				run = run[:0]
			}
			run = append(run, *e)
		}
		end = e.end()
	}
	return c.run(run)
}

// joins reports whether an edit is read and written with those before it.
func joins(run []Edit, e *Edit, gap, window uint64) bool {
	last := &run[len(run)-1]
	return e.Addr-last.end() < gap && e.end()-run[0].Addr <= window
}

// comparer reads into one buffer.
type comparer struct {
	mem Reader
	buf []byte
}

func (c *comparer) room(n int) []byte {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	return c.buf[:n]
}

func (c *comparer) edit(e *Edit) error {
	b := c.room(len(e.Old))
	if err := c.mem.ReadAt(b, e.Addr); err != nil {
		return e.Bug(Fault, nil, err)
	}
	if !bytes.Equal(b, e.Old) {
		return e.Bug(Mismatch, bytes.Clone(b), nil)
	}
	return nil
}

// run compares edits that are read together. Where that cannot be, because of what lies between them, each is
// read alone.
func (c *comparer) run(run []Edit) error {
	if len(run) == 0 {
		return nil
	}
	addr := run[0].Addr
	b := c.room(int(run[len(run)-1].end() - addr))
	if c.mem.ReadAt(b, addr) != nil {
		for i := range run {
			if err := c.edit(&run[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return match(run, b)
}

// match compares edits with what is at the first of them.
func match(run []Edit, b []byte) error {
	for i := range run {
		e := &run[i]
		if have := b[e.Addr-run[0].Addr:][:len(e.Old)]; !bytes.Equal(have, e.Old) {
			return e.Bug(Mismatch, bytes.Clone(have), nil)
		}
	}
	return nil
}

// Write writes edits that have been compared, in order. Edits less than gap bytes apart are written together with the
// bytes between them, which are read first: nothing else may write there meanwhile. With gap 0 each is written on its
// own.
//
// If a write fails, the edits written before it are reverted. The error is that write's *[Bug], joined with one for
// each edit that could not be reverted.
func Write(mem Memory, gap uint64, edits []Edit) error {
	return write(writer{comparer: comparer{mem: mem}, to: mem}, gap, edits)
}

// Replace is [Apply] for memory that nothing else uses: what is read to be compared is not read again to be written. So edits
// are written before others are compared, and reverted if one of these does not match.
//
// each calls do(0) to do(n-1), at the same time if memory can be read and written so, and returns when all have returned; nil: one
// after another.
func Replace(mem Memory, gap uint64, edits []Edit, each func(n int, do func(int))) error {
	if err := Check(edits); err != nil {
		return err
	}
	if each == nil {
		each = func(n int, do func(int)) {
			for i := range n {
				do(i)
			}
		}
	}
	runs := slices.Collect(runs(edits, gap, piece))
	begun := make([]int, len(runs)) // how many edits of each run may have been written
	errs := make([]error, len(runs))
	var failed atomic.Bool
	writers := sync.Pool{New: func() any { return &writer{comparer: comparer{mem: mem}, to: mem, compares: true} }}
	each(len(runs), func(i int) {
		if failed.Load() {
			return
		}
		w := writers.Get().(*writer)
		if begun[i], errs[i] = w.write(runs[i]); errs[i] != nil {
			failed.Store(true)
		}
		writers.Put(w)
	})
	if !failed.Load() {
		return nil
	}
	first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	var left []error
	for i := len(runs) - 1; i >= 0; i-- {
		left = append(left, restore(mem, runs[i][:begun[i]])...)
	}
	return reverted(errs[first], left)
}

// reverted is the error of a rewriting that has been reverted, but for what is left.
func reverted(err error, left []error) error {
	if len(left) > 0 {
		return errors.Join(append([]error{err}, left...)...)
	}
	return err
}

// piece bounds what Replace reads and writes at a time: there are to be several pieces, and they are to fit into a cache.
const piece = 256 << 10

// runs yields edits that are read and written together.
func runs(edits []Edit, gap, window uint64) iter.Seq[[]Edit] {
	return func(yield func([]Edit) bool) {
		for left := edits; len(left) > 0; {
			n := 1
			for n < len(left) && gap > 0 && joins(left[:n], &left[n], gap, window) {
				n++
			}
			if !yield(left[:n]) {
				return
			}
			left = left[n:]
		}
	}
}

func write(w writer, gap uint64, edits []Edit) error {
	if err := Check(edits); err != nil {
		return err
	}
	done := 0
	for run := range runs(edits, gap, window) {
		begun, err := w.write(run)
		if err != nil {
			return reverted(err, restore(w.to, edits[:done+begun]))
		}
		done += len(run)
	}
	return nil
}

type writer struct {
	comparer
	to       Memory
	compares bool // the old bytes first
}

// write writes a run of edits. After an error the first ones, begun of them, may have been written.
func (w *writer) write(run []Edit) (begun int, err error) {
	first := &run[0]
	if len(run) == 1 {
		if w.compares {
			if err := w.edit(first); err != nil {
				return 0, err
			}
		}
		if err := w.to.WriteAt(first.New, first.Addr); err != nil {
			return 1, first.Bug(WriteFault, nil, err)
		}
		return 1, nil
	}
	b := w.room(int(run[len(run)-1].end() - first.Addr))
	if err := w.mem.ReadAt(b, first.Addr); err != nil {
		// Something between them cannot be read, and is not to be written then.
		for i := range run {
			if begun, err := w.write(run[i : i+1]); err != nil {
				return i + begun, err
			}
		}
		return len(run), nil
	}
	if w.compares {
		if err := match(run, b); err != nil {
			return 0, err
		}
	}
	for i := range run {
		copy(b[run[i].Addr-first.Addr:], run[i].New)
	}
	if err := w.to.WriteAt(b, first.Addr); err != nil {
		return len(run), first.Bug(WriteFault, nil, err)
	}
	return len(run), nil
}

// restore gives edits their old bytes back, the last one first, and returns what could not be restored.
func restore(mem Memory, edits []Edit) (errs []error) {
	c := comparer{mem: mem}
	for i := len(edits) - 1; i >= 0; i-- {
		e := &edits[i]
		if c.edit(e) == nil {
			continue // not written
		}
		if err := mem.WriteAt(e.Old, e.Addr); err != nil {
			errs = append(errs, fmt.Errorf("not restored: %w", e.Bug(WriteFault, nil, err)))
		}
	}
	return errs
}

// Apply compares all edits, which must be sorted, and then writes all of them or none. See [Compare] and [Write].
func Apply(mem Memory, gap uint64, edits []Edit) error {
	if err := Compare(mem, gap, All(edits)); err != nil {
		return err
	}
	return Write(mem, gap, edits)
}

// All yields edits.
func All(edits []Edit) iter.Seq[*Edit] {
	return func(yield func(*Edit) bool) {
		for i := range edits {
			if !yield(&edits[i]) {
				return
			}
		}
	}
}
