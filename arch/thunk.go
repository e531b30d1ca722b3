package arch

import (
	"fmt"

	"github.com/fentry-dev/fentry/internal/format"
)

// ThunkSize is the size in bytes of the largest thunks, and what the first one of an image is aligned to, on all machines.
// The thunks of an image are contiguous, of one size, and ordered by id, from 1, so the runtime can find any thunk from
// any other, and its id.
const ThunkSize = 64

// MaxThunkID is the largest id: larger ones are reserved in traces.
const MaxThunkID = format.IDMax

// CountEntry is the size in bytes of a function's entry in a thread's table of counts.
const CountEntry = format.CountEntry

// A ThunkKind says what a thunk does and how its site reaches it.
type ThunkKind uint8

const (
	// ThunkGraph records entry and exit. The site is before the prologue and jumps to the thunk.
	ThunkGraph ThunkKind = iota
	// ThunkFunc records the entry. The site is before the prologue and jumps to the thunk.
	ThunkFunc
	// ThunkMcount records entry and exit. The site is after the prologue, which has set up the frame pointer; it
	// jumps to the thunk, on arm64 it calls it. The enter routine replaces the return address in the frame, one word
	// above the frame pointer, by that of the thunk's exit part. A return address that the function has signed must
	// not be replaced.
	ThunkMcount
	// ThunkMcountFunc records the entry at such a site.
	ThunkMcountFunc
	// ThunkCount counts the entry in the thread's table. The site is before the prologue and jumps to the thunk.
	ThunkCount
	// ThunkMcountCount counts the entry at a site after the prologue.
	ThunkMcountCount

	// ThunkKinds is the number of kinds.
	ThunkKinds
)

func (k ThunkKind) String() string {
	switch k {
	case ThunkGraph:
		return "graph"
	case ThunkFunc:
		return "func"
	case ThunkMcount:
		return "mcount"
	case ThunkMcountFunc:
		return "mcount-func"
	case ThunkCount:
		return "count"
	case ThunkMcountCount:
		return "mcount-count"
	}
	return fmt.Sprintf("ThunkKind(%d)", uint8(k))
}

// CheckThunk makes the checks common to all machines before a thunk of a size is encoded to dst.
func CheckThunk(dst []byte, addr uint64, size int, id uint32, kind ThunkKind) error {
	switch {
	case len(dst) < size:
		return fmt.Errorf("thunk at %#x: %d bytes, needs %d", addr, len(dst), size)
	case addr%uint64(size) != 0:
		return fmt.Errorf("thunk at %#x: not aligned to %d", addr, size)
	case id == 0 || id > MaxThunkID:
		return fmt.Errorf("thunk at %#x: id %#x is not in 1..%#x", addr, id, MaxThunkID)
	case kind >= ThunkKinds:
		return fmt.Errorf("thunk at %#x: unknown kind %d", addr, uint8(kind))
	}
	return nil
}

// A ThunkRun is N contiguous thunks of one kind.
type ThunkRun struct {
	Addr uint64 // of the first one
	N    int
	Size int // of each, in bytes
	Kind ThunkKind
}

// AppendThunkRun appends the thunk of size bytes at addr, the next by address, to runs.
func AppendThunkRun(runs []ThunkRun, addr uint64, size int, kind ThunkKind) []ThunkRun {
	if n := len(runs); n > 0 {
		if r := &runs[n-1]; r.Kind == kind && r.Size == size && r.Addr+uint64(r.N)*uint64(size) == addr {
			r.N++
			return runs
		}
	}
	return append(runs, ThunkRun{addr, 1, size, kind})
}
