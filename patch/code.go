package patch

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
)

// Code that is changed once.
//
// The kernel copies each page of a program's code that is changed in a process, for this process alone: a compiler has five
// thousand, copies them again in each of a thousand runs, and gives them back at its end. A file in which that is done once is
// mapped in place of the program's, and costs a process nothing. So is the code that is added, which that file has, too.

// codeWindow is how much of a file is changed at a time.
const codeWindow = 64 << 10

// codePage is the size of the smallest pages in which files are mapped.
const codePage = 4 << 10

// CodePages returns how many pages of the image its edits change, of 4 KiB.
func (m *Memory) CodePages() (n int) {
	if m.rest != nil {
		return int(m.rest.pages)
	}
	last := ^uint64(0)
	for i := range m.Edits {
		if page := m.Edits[i].Addr / codePage; page != last {
			n, last = n+1, page
		}
	}
	return n
}

// addedAlign is where what is added to a file begins: at a page of any machine.
const addedAlign = 64 << 10

// AddedAt returns where in a file as [Memory.WriteCode] makes it of one of so many bytes the contents of RX are.
func AddedAt(size int64) int64 { return (size + addedAlign - 1) &^ (addedAlign - 1) }

// WriteCode writes the image, of which f is the file, with the edits of its code made. What else is to be changed is as in the
// file. Behind the file it writes RX, without the path of the recorder's buffer. The error names an edit for which the file has
// not the bytes that it is for.
func (m *Memory) WriteCode(w interface {
	io.Writer
	io.WriterAt
}, f *elfio.File, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return err
	}
	if _, err := w.WriteAt(m.appendRX(nil), AddedAt(int64(len(data)))); err != nil {
		return err
	}
	var buf []byte
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&(elf.PF_X|elf.PF_W) != elf.PF_X || p.Filesz > uint64(len(data)) ||
			p.Off > uint64(len(data))-p.Filesz {
			continue
		}
		first, end := editsIn(m.Edits, p.Vaddr, p.Vaddr+p.Memsz)
		for edits := m.Edits[first:end]; len(edits) > 0; {
			begin := edits[0].Addr
			n := 1
			for n < len(edits) && edits[n].Addr+uint64(len(edits[n].New))-begin <= codeWindow {
				n++
			}
			last := &edits[n-1]
			size := last.Addr + uint64(len(last.New)) - begin
			if begin-p.Vaddr > p.Filesz || size > p.Filesz-(begin-p.Vaddr) {
				return fmt.Errorf("%#x: not in the file", begin)
			}
			off := p.Off + (begin - p.Vaddr)
			buf = append(buf[:0], data[off:off+size]...)
			for i := range edits[:n] {
				e := &edits[i]
				at := buf[e.Addr-begin:][:len(e.New)]
				if !bytes.Equal(at, e.Old) {
					return e.Bug(arch.Mismatch, bytes.Clone(at), nil)
				}
				copy(at, e.New)
			}
			if _, err := w.WriteAt(buf, int64(off)); err != nil {
				return err
			}
			edits = edits[n:]
		}
	}
	return nil
}

// BesideCode returns the edits that are still to be made where the code from lo to hi is as [Memory.WriteCode] has changed it. ok is
// false if none is made there, one lies there in part, or they cannot be had.
func (m *Memory) BesideCode(lo, hi uint64) (left []arch.Edit, ok bool) {
	if r := m.rest; r != nil && r.in.count > 0 && lo <= r.lo && r.hi <= hi {
		if below, in, above, ok := cutEdits(r.edits, lo, hi); ok && len(in) == 0 {
			return slices.Concat(below, above), true
		}
	}
	w, err := m.Whole()
	if err != nil {
		return nil, false
	}
	below, in, above, ok := w.CodeEdits(lo, hi)
	return slices.Concat(below, above), ok && len(in) > 0
}

// CodeEdits cuts the edits into those that lie below, in and above the addresses from lo to hi, of code that [Memory.WriteCode] has
// changed. ok is false if one lies in two of these.
func (m *Memory) CodeEdits(lo, hi uint64) (below, in, above []arch.Edit, ok bool) {
	return cutEdits(m.Edits, lo, hi)
}

// cutEdits is CodeEdits of edits that are sorted.
func cutEdits(edits []arch.Edit, lo, hi uint64) (below, in, above []arch.Edit, ok bool) {
	first, end := editsIn(edits, lo, hi)
	below, in, above = edits[:first:first], edits[first:end], edits[end:]
	ends := func(edits []arch.Edit, at uint64) bool {
		return len(edits) == 0 || edits[len(edits)-1].Addr+uint64(len(edits[len(edits)-1].New)) <= at
	}
	return below, in, above, ends(below, lo) && ends(in, hi)
}

// editsIn says where among edits, which are sorted, those stand that begin in a range of addresses.
func editsIn(edits []arch.Edit, lo, hi uint64) (first, end int) {
	search := func(addr uint64) int {
		i, _ := slices.BinarySearchFunc(edits, addr, func(e arch.Edit, addr uint64) int { return cmp.Compare(e.Addr, addr) })
		return i
	}
	first = search(lo)
	return first, max(first, search(hi))
}
