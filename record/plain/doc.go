// Package plain finds where a function can be traced that no compiler has prepared for it: its own first instructions
// are moved elsewhere, and a jump takes their place.
//
//	f, err := plain.New(image, text, funcs, refs)   // reads all code and all that can point into it
//	for i := range funcs {
//		e := f.Entry(i)
//		if e.Refusal == "" {
//			// e.Addr, e.Len: what may be overwritten; e.Moved: how much of it is instructions, which go elsewhere
//		}
//	}
//
// Soundness comes first. A function that cannot be proven safe is refused, with a code that says why. The proof takes
// the whole image, because anything in it can jump into the middle of what would be overwritten. It stands on three
// things that compilers keep to, and on nothing else: unwind tables, where there are any, are right about the stack pointer;
// every address of code is in a relocation, an instruction, a jump table or, in images that cannot be moved, in an aligned
// word of data; and a jump table consists of 32-bit distances from an address that an instruction names.
//
//   - marks.go: what is known about every byte of code
//   - sweep.go: one decode of all code, function by function
//   - pointers.go, tables.go: targets that no branch shows
//   - unwind.go: where the stack pointer is
//   - follow.go: the same, of functions without unwind tables
//   - unlisted.go: functions that neither symbols nor unwind tables tell of
//   - entry.go: the rules
//   - amd64pads.go: where jumps go that are too short for a thunk
//   - foreign.go: images that are left alone
//   - ocaml.go, *ocaml*.go: OCaml's functions, no return address of which can be replaced
//   - swap.go, amd64swap.go, arm64swap.go: functions that swap pieces of their stack
//   - machine.go: what the rules have to know of an instruction set; amd64*.go and arm64*.go mirror each other, but for
//     flags (amd64flags.go)
//
// Not seen are tables of differences between labels, an extension of GNU C. They matter only if such a label is within
// the first bytes of a function.
//
// # Machines
//
// x86-64, and AArch64, little-endian. Images of Go and of other languages whose runtimes look up return addresses have no
// entry that can be used.
//
// # Security
//
// New takes time and memory linear in the size of the image, whatever is in it. It does not promise that a hostile
// image runs as before: its unwind tables may lie.
package plain
