package patch

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio/inject"
)

// Pieces.
//
// Whatever a plan adds is a piece: thunks, veneers, the runtime, tables, unwind information. The layout
// decides where each of them is and how many bytes it has, in one list; the writer fills each one's room and
// nothing else; and then it is proved that every piece has used exactly its room, that none overlaps the
// next, and that what lies between two of them is alignment. Linkers work like this (mold's and wild's
// layout), because addresses of late pieces are in the code of early ones: who writes while addresses are
// still being decided has to repair what was written.
//
// Two pieces, the copied unwind information and the extended dynamic relocations, have a size that only making them
// tells. The layout makes those where they stay, and notes how long they have become.
//
// Pieces in the image's own code, which is below all that is added, are in the same list. They are the
// rewritten windows of functions at the same time.

// A piece is a run of bytes that a plan puts somewhere.
type piece struct {
	addr, size, align uint64
	// name is the section's, if it begins with a dot: pieces in a row with one name make one section. Other pieces have
	// sections that are noted apart, or lie in the image's own.
	name  string
	code  bool
	zero  bool   // is read-write memory: nothing is written
	owner int    // index of the function that it serves, in Plan.Functions; nobody: all of them
	rows  []byte // unwind rows of its code, where they do not come with what it is made of

	// What makes its bytes. There is one of these, or none for what the layout has made itself.

	// write appends the whole of it.
	write func(dst []byte) ([]byte, error)
	// part fills one of its equal parts, which it has for the traced functions of the first ids, as many as parts says.
	part  func(fn *Func, r route, dst []byte) (int, error)
	parts int
	// ready has been made already, elsewhere.
	ready []byte

	used uint64 // how many bytes have been written
}

// nobody owns what serves all functions.
const nobody = -1

func (pc *piece) end() uint64 { return pc.addr + pc.size }

// add lays a piece behind those before. Its size is known; its bytes come later.
func (l *layout) add(pc piece) uint64 {
	pc.addr = l.align(pc.align)
	if l.rx == nil {
		l.rx = l.room(pc.size)
	} else {
		l.rx = append(l.rx, make([]byte, pc.size)...)
	}
	l.pieces = append(l.pieces, pc)
	return pc.addr
}

// made notes a piece whose bytes have been appended at addr by the layout itself.
func (l *layout) made(pc piece) {
	pc.size = l.end() - pc.addr
	pc.used = pc.size
	l.pieces = append(l.pieces, pc)
}

// end is the address behind all that has been added so far.
func (l *layout) end() uint64 { return l.base + uint64(len(l.rx)) }

// align returns the next address that is a multiple of n, at most layoutAlign.
func (l *layout) align(n uint64) uint64 {
	for l.end()%n != 0 {
		l.rx = append(l.rx, 0)
	}
	return l.end()
}

// in is the room of a piece in the added memory.
func (l *layout) in(pc *piece) []byte {
	o := pc.addr - l.base
	return l.rx[o : o+pc.size : o+pc.size]
}

// inCode reports whether a piece is in the image's own code.
func (l *layout) inCode(pc *piece) bool { return pc.addr < l.base && !pc.zero }

// sort puts the pieces in the order of their addresses.
func (l *layout) sort() {
	slices.SortStableFunc(l.pieces, func(a, b piece) int { return cmp.Compare(a.addr, b.addr) })
}

// sections returns the sections that the pieces make, in the order of their addresses.
func (l *layout) namedSections() []inject.Section {
	var out []inject.Section
	for i := range l.pieces {
		pc := &l.pieces[i]
		if l.inCode(pc) || pc.zero || !strings.HasPrefix(pc.name, ".") {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Name == pc.name {
			out[n-1].Size = pc.end() - out[n-1].Addr
			continue
		}
		flags := elf.SHF_ALLOC
		if pc.code {
			flags |= elf.SHF_EXECINSTR
		}
		out = append(out, inject.Section{
			Name: pc.name, Type: elf.SHT_PROGBITS, Flags: flags, Addr: pc.addr, Size: pc.size, Align: pc.align,
		})
	}
	return out
}

// An internalError is a mistake of this package, found before anything is applied.
type internalError struct{ what string }

func (e *internalError) Error() string { return "internal error: " + e.what }

func internalf(format string, args ...any) error { return &internalError{fmt.Sprintf(format, args...)} }

// prove checks what has been written against what has been laid out.
func (l *layout) prove() error {
	end, size := uint64(0), uint64(0)
	for i := range l.pieces {
		pc := &l.pieces[i]
		switch {
		case pc.used != pc.size:
			return internalf("%s at %#x: %d bytes written, %d reserved", pc.name, pc.addr, pc.used, pc.size)
		case pc.addr%pc.align != 0:
			return internalf("%s at %#x: not aligned to %d", pc.name, pc.addr, pc.align)
		case pc.addr < end:
			return internalf("%s at %#x: overlaps what ends at %#x", pc.name, pc.addr, end)
		}
		switch {
		case pc.zero:
			if pc.addr < l.rw || pc.end()-l.rw > l.rwSize {
				return internalf("%s at %#x: outside of the memory at %#x", pc.name, pc.addr, l.rw)
			}
		case l.inCode(pc):
			if !l.isWindow(pc) {
				return internalf("%s at %#x: not what its function is to be rewritten with", pc.name, pc.addr)
			}
		default:
			if gap := pc.addr - max(end, l.base); gap >= pc.align {
				return internalf("%s at %#x: %d bytes before it belong to nothing", pc.name, pc.addr, gap)
			}
			size = pc.end() - l.base
		}
		end = pc.end()
	}
	if size != uint64(len(l.rx)) {
		return internalf("pieces of %d bytes in %d", size, len(l.rx))
	}
	return nil
}
