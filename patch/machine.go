package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
)

// machine makes the code of one plan, and what unwinders have to know of it. What
// is the same on all machines is in the plan. Several goroutines may use it at once.
type machine interface {
	// reach decides how sites get to their thunks, whose addresses are known. It
	// takes the traced functions away that cannot be reached, with a reason. It is
	// called once, before the others and alone.
	reach(p *Plan)
	// entry is where the runtime goes on to, after it has started: the image's own
	// entry point, or what leads there.
	entry(orig uint64) uint64
	// veneers is the room in bytes, behind the thunks, for what reach needs there;
	// encodeVeneers fills it, and islands are the edits of the code.
	veneers() int
	encodeVeneers(p *Plan, dst []byte) error
	islands(p *Plan) ([]Edit, error)

	// thunk encodes a thunk, arch.ThunkSize bytes.
	thunk(t *thunk, dst []byte) error
	// frames is the unwind information of thunks, sorted by address, for .eh_frame
	// at address base.
	frames(base uint64, runs []arch.ThunkRun) *arch.Frames
	// callers are the changes of an image's own unwind information that make
	// unwinders find a traced function's caller.
	callers() elfio.FrameRules

	// appendSite appends what leads from a site to its thunk, followed by nops up
	// to the site's end, which only disassemblers see.
	appendSite(dst []byte, fn *Func) ([]byte, error)
	// appendNops appends n bytes of nops.
	appendNops(dst []byte, n int) []byte
	// thunkOf returns where the code at a patched site goes.
	thunkOf(f *elfio.File, site uint64) (uint64, error)

	// option says how to compile a program so that it can be traced.
	option() string
	// irelative is the type of dynamic relocations whose value a function returns.
	irelative() uint32
	// processGap is the distance between the end of an image of so many bytes and
	// the memory added to a process at its exec stop.
	processGap(size uint64) uint64
}

// A thunk is the code between a traced site and the runtime.
type thunk struct {
	addr  uint64
	armed uint64 // of the runtime's word that arms all thunks
	body  uint64 // first byte behind the site
	id    uint32
	frame uint32 // record.Site.Frame
	kind  arch.ThunkKind
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
			return &arm64Machine{}, nil
		}
	}
	return nil, fmt.Errorf("machine %v, %v, %v: only 64-bit little-endian images of x86-64 and AArch64 can be patched",
		h.Machine, elf.Class(h.Ident[elf.EI_CLASS]), elf.Data(h.Ident[elf.EI_DATA]))
}
