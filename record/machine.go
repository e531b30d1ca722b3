package record

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
)

// machine is what finding sites has to know of a machine's instructions and relocations. Its methods take code as bytes
// that lie at an address, and never read beyond them.
type machine interface {
	// siteSize is what a site must have: room for one jump.
	siteSize() int
	// align is what the addresses of instructions are multiples of.
	align() uint64
	// atEntry is where a caller's return address is at a function's first instruction.
	atEntry() RetLoc

	// starts corrects where functions begin that no symbol names.
	starts(im *image) error
	// inst returns the length of an instruction and what it means to one who looks for the beginnings of functions.
	// 0: it is none.
	inst(b []byte) (int, flow)
	// nops returns how many bytes at the start of b are nops.
	nops(b []byte) int
	// hasPad reports whether b begins with a landing pad of indirect branches, padLen bytes.
	hasPad(b []byte) bool
	// isPatchable recognises nops as compilers make them for -fpatchable-function-entry, but not for anything else.
	isPatchable(b []byte) bool
	// jump returns where the jump goes that fentry puts at sites.
	jump(c *code, addr uint64) (uint64, bool)
	// branchInto returns the lowest place in (lo, hi) that a branch in b goes to, b lying at addr. What is in [lo, hi)
	// itself does not count. Where something is no instruction, nothing can be said about what follows: that is lo+1.
	branchInto(b []byte, addr, lo, hi uint64) (uint64, bool)
	// around returns the site of a call before the prologue, of n bytes at addr, with what belongs to it.
	around(c *code, addr uint64, n int) (uint64, int)
	// refuse returns the reason why a function must not be traced by a site at its entry.
	refuse(im *image, s *Site) Reason
	// listed returns where the instruction begins that an entry of __mcount_loc means.
	listed(im *image, entry uint64) uint64
	// sled is the code of an entry sled of -fxray-instrument.
	sled() string

	// reloc classifies a dynamic relocation.
	reloc(t uint32) relocKind
	// profilers are the functions compilers call for -pg.
	profilers() map[string]profClass
	// isProfiler reports whether a function named mcount can be a profiling function, so that its calls may be replaced.
	isProfiler(b []byte) bool
	// profilersIn finds profiling functions that no name tells of, by their code, and adds them to p.
	profilersIn(im *image, p *profiling)
	// stubs finds what linkers put between calls and functions, and adds it to p.
	stubs(im *image, p *profiling)
	// callAt recognises a call at the start of b.
	callAt(p *profiling, b []byte, addr uint64) (call, bool)
	// callsIn appends every place in a region that is a call of a profiling function, in any order. starts tells
	// places where an instruction begins.
	callsIn(p *profiling, r *region, starts func(uint64) bool, out []call) []call

	// prologues is for asking where return addresses are behind prologues.
	prologues(c *code) prologues
}

// prologues answers for places of one function after another, each time with ascending addresses, so that each byte is
// decoded once.
type prologues interface {
	// at tells where the return address is at the call of mcount at address at of the function that begins at start.
	at(start, at uint64) frameInfo
}

// frameInfo is what a prologue has done.
type frameInfo struct {
	ret    RetLoc
	frame  uint32 // Site.Frame
	reason Reason // why it cannot be used, "" when it can
}

// padLen is the length of landing pads on all machines: endbr64, bti.
const padLen = 4

// maxPrologue bounds how far behind a function's first byte a call of mcount is believed. Probing loops for big frames
// and the saving of variable arguments need less than a tenth of it.
const maxPrologue = 4096

// flow is what an instruction means to one who looks for the beginnings of functions.
type flow uint8

const (
	flowOther   flow = iota
	flowPadding      // nops, traps between functions
	flowPad          // a landing pad
	flowEnds         // does not go on to the next one, or is a call, which need not return
)

// relocKind is what a dynamic relocation does, of those that matter here.
type relocKind uint8

const (
	relocOther     relocKind = iota
	relocRelative            // writes the addend, plus where the image is loaded
	relocWord                // writes a symbol's address plus the addend
	relocSlot                // writes a symbol's address to the global offset table
	relocIrelative           // writes what a function returns
)

// machineOf returns the machine of an image, nil for one that is not supported.
func machineOf(f *elfio.File) machine {
	if !f.Is64() {
		return nil
	}
	switch f.Header.Machine {
	case elf.EM_X86_64:
		return amd64Machine{}
	case elf.EM_AARCH64:
		return arm64Machine{}
	}
	return nil
}
