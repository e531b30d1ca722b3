package record

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/code"
)

// machine is what finding sites has to know of an instruction set, by who asks. amd64*.go and arm64*.go have the same
// files, one or more for each of these interfaces. Methods take code as bytes that lie at an address, and never read
// beyond them. Of relocations only the numbers differ, so these are data.
type machine struct {
	code.Machine
	siteShapes
	functionShapes
	callFinder
	relocs relocTypes
}

// siteShapes are the places at which compilers leave sites, and how they look.
type siteShapes interface {
	// siteSize is what a site must have: room for one jump.
	siteSize() int
	// atEntry is where a caller's return address is at a function's first instruction.
	atEntry() RetLoc
	// isPatchable recognises nops as compilers make them for -fpatchable-function-entry, but not for anything else.
	isPatchable(b []byte) bool
	// sled is the code of an entry sled of -fxray-instrument.
	sled() string
	// jump returns where the jump goes that fentry puts at sites.
	jump(c *code.Text, addr uint64) (uint64, bool)
	// around returns the site of a call before the prologue, of n bytes at addr, with what belongs to it.
	around(c *code.Text, addr uint64, n int) (uint64, int)
	// listed returns where the instruction begins that an entry of __mcount_loc means.
	listed(im *image, entry uint64) uint64
	// refuse returns the reason why a function must not be traced by a site at its entry.
	refuse(im *image, s *Site) Reason
}

// functionShapes are the beginnings of functions.
type functionShapes interface {
	// starts corrects where functions begin that no symbol names.
	starts(im *image) error
	// prologues is for asking where return addresses are behind prologues.
	prologues(c *code.Text) prologues
}

// callFinder finds the calls of profiling functions.
type callFinder interface {
	// profilers are the functions compilers call for -pg.
	profilers() map[string]profClass
	// isProfiler reports whether a function named mcount can be a profiling function, so that its calls may be replaced.
	isProfiler(b []byte) bool
	// profilersIn finds profiling functions that no name tells of, by their code, and adds them to p.
	profilersIn(im *image, p *profiling)
	// stubs finds what linkers put between calls and functions, and adds it to p.
	stubs(im *image, p *profiling)
	// jumpStubs returns what linkers have made for calls of other images' functions in a region that has nothing else, in
	// the order of addresses.
	jumpStubs(r *code.Region) []stub
	// wordCalls returns what may be calls, and jumps, through words of the image in a region, in the order of addresses.
	// known tells the words that count. Bytes that look like it can be parts of other instructions.
	wordCalls(r *code.Region, known func(slot uint64) bool) []wordCall
	// callAt recognises a call at the start of b.
	callAt(p *profiling, b []byte, addr uint64) (call, bool)
	// callsIn appends every place in a region that is a call of a profiling function, in any order. starts tells
	// places where an instruction begins.
	callsIn(p *profiling, r *code.Region, starts func(uint64) bool, out []call) []call
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

// maxPrologue bounds how far behind a function's first byte a call of mcount is believed. Probing loops for big frames
// and the saving of variable arguments need less than a tenth of it.
const maxPrologue = 4096

// relocTypes are the numbers of the dynamic relocations that matter here, in the machine's psABI.
type relocTypes struct {
	relative  uint32 // writes the addend, plus where the image is loaded
	word      uint32 // writes a symbol's address plus the addend
	gotEntry  uint32 // writes a symbol's address to the global offset table
	pltEntry  uint32 // likewise, perhaps only when it is called
	irelative uint32 // writes what a function returns
}

// machineOf returns the machine of an image, nil for one that is not supported.
func machineOf(f *elfio.File) *machine {
	c := code.MachineOf(f.Header.Machine)
	if !f.Is64() || c == nil {
		return nil
	}
	var m *machine
	if f.Header.Machine == elf.EM_X86_64 {
		amd64 := amd64Machine{c}
		m = &machine{c, amd64, amd64, amd64, amd64Relocs}
	} else {
		arm64 := arm64Machine{c}
		m = &machine{c, arm64, arm64, arm64, arm64Relocs}
	}
	m.relocs.relative = f.RelativeType()
	return m
}
