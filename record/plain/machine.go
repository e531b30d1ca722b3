package plain

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record/moves"
)

// machine is what the proof has to know of an instruction set. amd64*.go and arm64*.go have the same files.
type machine interface {
	// sweeper decodes units, one after another, for one goroutine.
	sweeper() sweeper

	// follower follows functions that no unwind entry describes; nil: they are left alone.
	follower(f *Finder) follower

	// explorer reads code that nothing lists; nil: that is left alone.
	explorer(f *Finder) explorer
	// padding reports whether code is such.
	padding(code []byte) bool

	// align is what addresses of instructions are multiples of: nothing else is one.
	align() uint64
	// startsAtEntry reports whether a CIE is that of functions that a call enters.
	startsAtEntry(c *ehframe.CIE) bool
	// atEntry reports whether the frame is as callers leave it, and so is the return address.
	atEntry(r *ehframe.Row) bool
	// begin returns how many bytes at a function's beginning stay where they are, because something may look for them
	// there; signed: they have signed the return address.
	begin(f *Finder, b []byte) (n int, signed bool)

	// part reports whether a function without a name that only jumps enter can be a part of another one.
	part(e *entry, facts fact, marks mark) bool
	// live reports whether the function may use what its caller leaves in flags, or in registers that thunks change.
	live(e *entry) bool
	// jumps are the lengths of what can take the place of instructions. The first is that of a jump to a thunk, the others
	// are jumps to one near by.
	jumps() []int
	// window decides how much is displaced, by a jump of e.jump bytes.
	window(e *entry) Refusal
	// begins reports whether an instruction begins at an offset of code, or behind it.
	begins(code []byte, off int) bool
	// ocaml plans how function i is recorded in place, which is OCaml's; see [Finder.OCamlMoves].
	ocaml(f *Finder, i int, pads *Pads) (moves.Moves, Refusal)
	// maySwap looks for the bytes that instructions certainly have by which functions swap pieces of their stack.
	maySwap(code []byte) bool
}

// sweeper is what decodes units.
type sweeper interface {
	// unit decodes the code of d's unit. It marks what it knows of that, and notes what it finds out about others.
	unit(d *decoder, code []byte)
}

// machineOf returns the machine of an image, nil for one that is not supported.
func machineOf(f *elfio.File) machine {
	if !f.Is64() || elf.Data(f.Header.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
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
