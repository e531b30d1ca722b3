package arch

import (
	"fmt"

	"github.com/fentry-dev/fentry/internal/format"
)

// ThunkSize is the size and alignment of a thunk in bytes, on all machines. Thunks
// of an image stand one after another in the order of their ids, from 1: the runtime
// finds them all from one.
const ThunkSize = 64

// MaxThunkID is the largest id: greater ones are reserved in traces.
const MaxThunkID = format.IDMax

// A ThunkKind says what a thunk does and how its site gets there.
type ThunkKind uint8

const (
	// ThunkGraph records entry and exit. The site, before the prologue, is a jump
	// to the thunk.
	ThunkGraph ThunkKind = iota
	// ThunkFunc records the entry. The site, before the prologue, is a jump to the thunk.
	ThunkFunc
	// ThunkMcount records entry and exit. The site is behind the prologue, which has
	// set up the frame pointer: a jump to the thunk, on arm64 a call of it. The enter
	// routine replaces the return address in the frame, a word above the frame
	// pointer, by that of the thunk's exit part. That must not be done where the
	// function has signed it.
	ThunkMcount
	// ThunkMcountFunc records the entry at such a site.
	ThunkMcountFunc
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
	}
	return fmt.Sprintf("ThunkKind(%d)", uint8(k))
}

// CheckThunk is what all machines ask of a thunk that is to be encoded to dst.
func CheckThunk(dst []byte, addr uint64, id uint32, kind ThunkKind) error {
	switch {
	case len(dst) < ThunkSize:
		return fmt.Errorf("thunk at %#x: %d bytes, needs %d", addr, len(dst), ThunkSize)
	case addr%ThunkSize != 0:
		return fmt.Errorf("thunk at %#x: not aligned to %d", addr, ThunkSize)
	case id == 0 || id > MaxThunkID:
		return fmt.Errorf("thunk at %#x: id %#x is not in 1..%#x", addr, id, MaxThunkID)
	case kind > ThunkMcountFunc:
		return fmt.Errorf("thunk at %#x: unknown kind %d", addr, uint8(kind))
	}
	return nil
}

// A ThunkRun is N thunks of one kind, one behind the other.
type ThunkRun struct {
	Addr uint64 // of the first one
	N    int
	Kind ThunkKind
}

// AppendThunkRun adds the next thunk by address to runs.
func AppendThunkRun(runs []ThunkRun, addr uint64, kind ThunkKind) []ThunkRun {
	if n := len(runs); n > 0 {
		if r := &runs[n-1]; r.Kind == kind && r.Addr+uint64(r.N)*ThunkSize == addr {
			r.N++
			return runs
		}
	}
	return append(runs, ThunkRun{addr, 1, kind})
}
