// Package golang finds what can be traced in programs that Go's own toolchain has linked.
//
// Such a program needs no flags and no symbols: its runtime has a table of all functions, pclntab, which tells for every
// instruction how far the stack pointer is from the frame's beginning, and whether the goroutine may be stopped there.
//
// Two things are different from C's code, and all else follows from them. Stacks move: what is on them is copied when
// they grow, found by that table, so no return address can be replaced by one that the table does not know. And
// goroutines are stopped anywhere, by a signal, and their stacks are read. So a function is traced at both of its ends:
// its entry, and each instruction by which it ends, a return or a jump to another function. There the instructions go
// elsewhere, with code in front of them that records the event. The copies are made known to the runtime as a module of
// their own (package patch), so they may do whatever the originals may: fault, be interrupted, be unwound.
//
// An entry is recorded behind the check for room on the stack: a function that does not find it calls the runtime and
// begins again. Calls move only where there is no other room, and what they return to moves with them. Nothing that the
// runtime goes to by itself is overwritten: where a recovered function returns from (deferreturn), and where tables of
// jumps lead.
//
// What happens to a function without one of these instructions, as it panics or its goroutine ends, is told by the
// functions around it, which end.
package golang
