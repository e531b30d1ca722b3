package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record"
)

// machine is an instruction set: it makes the code of plans, and what unwinders have to know of it. What is
// the same on all machines is elsewhere. It has no state: several goroutines may use it at once, for several
// plans.
type machine interface {
	// place adds the thunks to the layout, at its beginning, and then whatever sites, thunks and the runtime need to
	// reach what they go to: pieces, in the added memory or in the image's code, and routes. It leaves functions alone
	// that cannot be reached, with a reason, and numbers the others anew.
	place(l *layout) error

	// thunkSize is the number of bytes that a thunk of a kind needs.
	thunkSize(k arch.ThunkKind) int
	// backSize is the number of bytes that a thunk of a kind has apart from it, for what the body returns to; 0: none.
	backSize(k arch.ThunkKind) int
	// thunk encodes a thunk, and back what it has apart.
	thunk(t *thunk, dst []byte) error
	back(t *thunk, dst []byte) error
	// appendSite appends what leads from a site to its thunk, on the way it was given, followed by nops up to the
	// site's end, which only disassemblers see.
	appendSite(dst []byte, s *record.Site, r route) ([]byte, error)
	// appendNops appends n bytes of nops.
	appendNops(dst []byte, n int) []byte
	// thunkOf returns where the code at a patched site goes.
	thunkOf(f *elfio.File, site uint64) (uint64, error)

	// frames is the unwind information of thunks, sorted by address, for .eh_frame
	// at address base. backs is where what they have apart begins. fronts are the thunks without displaced instructions in them.
	frames(base uint64, fronts, runs []arch.ThunkRun, backs uint64) *arch.Frames
	// callers are the changes of an image's own unwind information that make
	// unwinders find a traced function's caller.
	callers() ehframe.Rules
	// reviser does the same by CIEs alone, for most entries; nil: callers' CIEs do.
	reviser() ehframe.Reviser

	facts() facts
}

// A displacer is a machine on which a function's own instructions can be its site.
type displacer interface {
	// displacedLen returns how many bytes appendDisplaced appends.
	displacedLen(s *record.Site) int
	// inThunk returns where in a thunk of a kind there is room for what appendDisplaced appends; false: it is elsewhere.
	inThunk(s *record.Site, k arch.ThunkKind) (int, bool)
	// inThunkCIE is the CIE, a variant of c, by which such a thunk is described; nil: its instructions must be elsewhere.
	inThunkCIE(c *ehframe.CIE, v *ehframe.Variants) *ehframe.CIE
	// displacedBody returns at which of them the function begins. What comes before it leads from the site to the thunk;
	// if nothing does, the site leads there itself.
	displacedBody(s *record.Site) int
	// appendDisplaced appends what goes on at address to in place of the instructions of an image's site, and then behind
	// them.
	appendDisplaced(dst []byte, f *elfio.File, fn *Func, to, thunk uint64) ([]byte, error)
	// displacedAt returns where in that the instruction begins that begins at an offset of the site; false: none does.
	displacedAt(s *record.Site, off int) (int, bool)
	// displacedRows returns the call frame instructions of what comes before the function, for an FDE of a CIE, and up to
	// which byte they have gone on.
	displacedRows(s *record.Site, c *ehframe.CIE) ([]byte, int)
	// unchanged are the registers, a bit for each DWARF number, that are everywhere in displaced instructions what they were in
	// front of them. If in doubt, a register is not among them.
	unchanged(s *record.Site) uint64
	// entryRows are the unwind rows of code at which the frame is as a function's callers leave it, for entries beside
	// those of thunks. hides: see flavour.
	entryRows(hides bool) []byte
	// wordCall returns the address of the word that a call at the beginning of b, at address at, goes through, or a jump.
	wordCall(b []byte, at uint64) (slot uint64, ok bool)
	// appendWordCall appends what goes to address to in place of a call through a word at the beginning of old, or of a
	// jump, at address at: as many bytes.
	appendWordCall(dst, old []byte, at, to uint64) ([]byte, error)
}

// facts are what is to be known of a machine besides its code.
type facts struct {
	// option says how to compile a program so that it can be traced.
	option string
	// irelative is the type of dynamic relocations whose value a function returns.
	irelative uint32
	// processGap is the distance between the end of an image of so many bytes and
	// the memory added to a process at its exec stop.
	processGap func(size uint64) uint64
	// reach is how far instructions of the program and the runtime reach into each other.
	reach uint64
	// odd is where in a thunk of arch.ThunkFunc there is a byte whose bit 0 is set: one whose switch that is is never off.
	odd uint64
}

// A thunk is the code between a traced site and the runtime.
type thunk struct {
	addr     uint64
	back     uint64 // what it has apart; 0: nothing
	switched uint64 // the byte that it tests
	body     uint64 // where the function goes on
	id       uint32
	frame    uint32 // record.Site.Frame
	size     int    // of all of the image's thunks
	kind     arch.ThunkKind
	enterExit
}

// machineFor returns the machine of an image, or says why images of it cannot be
// patched.
func machineFor(f *elfio.File) (machine, error) {
	h := &f.Header
	if f.Is64() && elf.Data(h.Ident[elf.EI_DATA]) == elf.ELFDATA2LSB {
		switch h.Machine {
		case elf.EM_X86_64:
			return amd64Machine{}, nil
		case elf.EM_AARCH64:
			return arm64Machine{}, nil
		}
	}
	return nil, fmt.Errorf("machine %v, %v, %v: only 64-bit little-endian images of x86-64 and AArch64 can be patched",
		h.Machine, elf.Class(h.Ident[elf.EI_CLASS]), elf.Data(h.Ident[elf.EI_DATA]))
}
