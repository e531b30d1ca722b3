package record

import (
	"fmt"

	"github.com/fentry-dev/fentry/record/moves"
	"github.com/fentry-dev/fentry/symbol"
)

// Site is a place at the entry of a function where a tracer can be hooked in, or, if Reason is not empty, a function
// that has none.
type Site struct {
	Func uint64 // address of the function
	Size uint64 // size of the function in bytes, 0 if unknown
	Name string // raw symbol name without a version suffix, "" if the image has none
	// Aliases are the other names of the function, sorted; nil: none. Identical functions that a linker has folded are
	// one function with several names. The slice is read-only.
	Aliases []string

	Addr  uint64 // first byte that may be overwritten; Func for a function without a site
	Len   int    // size of the site in bytes, 0 for a function without a site
	Via   uint64 // of [KindPlain]: padding that the jump to the thunk takes, as Len is enough for a short one only; 0: none
	Moved int    // of [KindPlain] and [KindLibCall]: how many of the Len bytes are instructions, which have to go elsewhere
	// Catches: of [KindPlain]: among the instructions that move is a call for which there is a handler, or through which
	// nothing may be thrown.
	Catches bool
	// Untabled: of [KindPlain]: no unwind entry describes the function.
	Untabled bool
	// Swaps: of [KindPlain]: the function copies a piece of its stack elsewhere, and another one in its place, as coroutines
	// that share a stack have it done. Return addresses that have been replaced must be there again when it is called.
	Swaps bool
	// JumpsAway: the function may jump to another image, which has its return address then, so it must be one that unwinders
	// understand there. Of functions that compilers have prepared it is known with [Options].JumpsAway.
	JumpsAway bool
	// BesideSyscall: the function is called right before or behind a system call, where C libraries have threads cancelled at
	// any instruction. It is known of what JumpsAway is.
	BesideSyscall bool

	Kind  Kind   // what the compiler left at Addr
	Ret   RetLoc // where the caller's return address is when execution reaches Addr
	Frame uint32 // on arm64, for RetFP: bytes from the frame pointer up to the caller's stack pointer at its call

	// Of KindLibCall: the address of the word that calls go through, and the calls and jumps in code that was compiled
	// without stubs, in ascending order. A function that has only these has no bytes of its own: Func and Addr are Slot,
	// and Len is 0.
	Slot  uint64
	Calls []uint64

	// Of KindGo and KindOCaml: all that is rewritten of the function, which is in several places. Addr is Func, and Len is 0.
	Moves *moves.Moves

	// Own: of KindGo, and of functions of Go's that are not traced: of package main or of the main module. Patterns name
	// them by [Own].
	Own bool

	Bytes  []byte // the Len bytes at Addr in the file: a sub-slice of the image, read-only
	Source string // the table, symbol table or scan the site came from: one of the Source constants
	Reason Reason // "" if the site can be traced
}

// Traceable reports whether the function can be traced.
func (s *Site) Traceable() bool { return s.Reason == "" }

// Display returns the function's name: the symbol, or [symbol.NameAt] of its address if it has none. It is what filters
// match and what everything that shows the function calls it, before demangling.
func (s *Site) Display() string {
	if s.Name != "" {
		return s.Name
	}
	return symbol.NameAt(s.Func)
}

// End returns the address after the site, where the function's own code continues.
func (s *Site) End() uint64 { return s.Addr + uint64(s.Len) }

// Kind says what a compiler leaves at a function's entry for tracers.
type Kind uint8

// The kinds of sites.
const (
	KindNone       Kind = iota // no site
	KindFentryCall             // call of __fentry__ before the prologue: e8 rel32, ff 15 disp32 or 67 e8 rel32
	KindNopMcount              // a nop in place of a call, listed in __mcount_loc
	KindMcountCall             // call of mcount after the prologue; arm64: bl, or blr
	KindPatchable              // nops of -fpatchable-function-entry
	KindXRay                   // entry sled of -fxray-instrument
	KindPlain                  // the function's own first instructions
	KindLibCall                // calls of a library's function: the jump of the linker's stub, or the calls themselves
	KindGo                     // a function of Go's: the check for room on the stack, and all of its ends
	KindOCaml                  // a function of OCaml's: its first instructions, and all of its ends
)

var kindNames = [...]string{"none", "fentry-call", "nop-mcount", "mcount-call", "patchable", "xray", "plain", "libcall", "go", "ocaml"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// MarshalText returns the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText accepts what MarshalText returns.
func (k *Kind) UnmarshalText(b []byte) error {
	for v, n := range kindNames {
		if n == string(b) {
			*k = Kind(v)
			return nil
		}
	}
	return fmt.Errorf("unknown site kind %q", b)
}

// RetLoc says where the return address of the traced function's caller is when execution reaches a site.
type RetLoc uint8

// Places of a return address.
const (
	RetNone     RetLoc = iota // there is no site
	RetSP                     // at 0(%rsp): nothing has been pushed yet
	RetFP                     // at 8(%rbp), 8(x29): the frame pointer has been set up
	RetLR                     // in x30: nothing has been saved yet
	RetSigned                 // at 8(x29), signed by the function (pac-ret): it must not be replaced
	RetSignedLR               // in x30, signed by the function's first instruction
)

var retNames = [...]string{"none", "sp", "fp", "lr", "fp-signed", "lr-signed"}

func (r RetLoc) String() string {
	if int(r) < len(retNames) {
		return retNames[r]
	}
	return fmt.Sprintf("ret-%d", uint8(r))
}

// MarshalText returns the location's name.
func (r RetLoc) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what MarshalText returns.
func (r *RetLoc) UnmarshalText(b []byte) error {
	for v, n := range retNames {
		if n == string(b) {
			*r = RetLoc(v)
			return nil
		}
	}
	return fmt.Errorf("unknown return address location %q", b)
}

// Where a Site came from. Tables have the names of their sections.
const (
	SourceMcountLoc  = "__mcount_loc"
	SourcePatchable  = "__patchable_function_entries"
	SourceXRay       = "xray_instr_map"
	SourceSymtab     = ".symtab"
	SourceDynsym     = ".dynsym"
	SourceEhFrame    = ".eh_frame"
	SourcePclntab    = ".gopclntab"
	SourceCalls      = "calls"      // a function that no table lists, and that is called
	SourceReferences = "references" // what may be one, as something has its address
	SourceScan       = "scan"       // a call of the profiling function at an entry that no table knows
)
