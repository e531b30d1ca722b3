package plain

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/moves"
)

// OCaml's own functions.
//
// No return address of theirs can be replaced, so a call's end is recorded where it is: in front of each instruction by which
// the function ends (package moves). What makes that possible is their convention, the same in all of OCaml 4: no register
// is kept for a caller but the domain's and the heap's (r14, r15; arm64 x26 to x28), ten registers have arguments and one a
// result. So r10 and r11 are free at both ends, and xmm12 to xmm15. OCaml 5 moves stacks, which the trace would not know.
//
// OCaml catches the fault at which a stack ends, and makes it an exception if the instruction is one of OCaml's own code. So
// what is the first to touch a stack that grows must not move: what pushes or writes there. What reads from there does,
// as something has been written before. What records puts nothing on the stack.
//
// A raise ends the call, and those that it was called from up to the handler, without an event, as longjmp does.

// Refusals of OCaml's functions.
const (
	OCamlRuntime Refusal = "ocaml-runtime"
	OCamlNoRoom  Refusal = "ocaml-no-room"
)

// OCaml reports whether a function is OCaml's, and of an image whose functions are traced.
func (f *Finder) OCaml(i int) bool {
	return f.foreign == "" && f.ml.traced && !f.guarded && f.ml.has(f.funcs[i].Addr)
}

// OCamlMoves returns how a function of OCaml's is traced, or why it is not. Without pads it may be called by several goroutines at
// once; those that have no room then may have some with padding.
func (f *Finder) OCamlMoves(i int, pads *Pads) (moves.Moves, Refusal) {
	fn := &f.funcs[i]
	if f.ml.assembly.has(fn.Addr) {
		return moves.Moves{}, OCamlRuntime
	}
	return f.m.ocaml(f, i, pads)
}

// ocamlVersion5 are names of the runtime's of which one is in every program of OCaml 5: there, stacks move.
var ocamlVersion5 = []string{"caml_try_realloc_stack", "caml_runstack", "caml_alloc_main_stack"}

// ocamlPlugin is what the header of a plug-in begins with, and ocamlPluginLast the number behind it of OCaml 4.14.
const (
	ocamlPlugin     = "Caml1999D"
	ocamlPluginLast = 31
)

// version4 reports whether an image is of OCaml 4: a program with its runtime, or a plug-in. assembly is what of that it has.
func version4(f *elfio.File, assembly span, has func(name string) bool) bool {
	if assembly.lo < assembly.hi {
		return !slices.ContainsFunc(ocamlVersion5, has)
	}
	for b := range loaded(f, 0) {
		if _, header, ok := bytes.Cut(b, []byte(ocamlPlugin)); ok && len(header) >= 3 {
			n, err := strconv.Atoi(string(header[:3]))
			return err == nil && n <= ocamlPluginLast
		}
	}
	return false
}
