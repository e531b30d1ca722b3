package plain

import (
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
)

// Functions without unwind tables.
//
// What unwind tables say of a function's frame is found out by following its instructions from the first one, with the
// distance of the stack pointer from where it was: through branches, jump tables and calls, which leave it as it is. A
// function is understood if all ways to an instruction agree, and if all ways out, returns and jumps to other functions,
// leave the stack as it came. If anything is in doubt the function is left alone. Nothing goes into the unwind tables:
// unwinders stop at such a function whether it is traced or not.
//
// Jumps to such a function must have their frame as callers leave it, too, or it is a part of another one.

// joins are where functions without unwind tables jump to, out of themselves.
type joins struct {
	framed []uint64 // with another frame than callers leave
	maybe  []uint64 // likewise, for all that is known
}

// follow finds out which functions without unwind tables are understood.
func (f *Finder) follow() {
	var mu sync.Mutex
	var all joins
	parallel.Ranges(len(f.funcs), perTask, func(from, to int) {
		w := f.m.follower(f)
		if w == nil {
			return
		}
		for i := from; i < to; i++ {
			if !f.untabled(i) {
				continue
			}
			if facts, ok := w.follow(i); ok {
				// A jump back to the beginning has the frame that is known there.
				f.facts[i] = f.facts[i]&^loopsFramed | facts | followed
			}
		}
		mu.Lock()
		defer mu.Unlock()
		j := w.joined()
		all.framed, all.maybe = append(all.framed, j.framed...), append(all.maybe, j.maybe...)
	})
	join := func(to []uint64, unless mark) {
		for _, addr := range to {
			if k := f.function(addr); k >= 0 && f.marks.get(addr)&unless == 0 {
				f.facts[k] |= joined
			}
		}
	}
	join(all.framed, 0)
	join(all.maybe, called|pointed)
}

// begins reports whether a function begins at an address.
func (f *Finder) begins(addr uint64) bool { return f.function(addr) >= 0 }

// function is the index of the function that begins at an address; -1: there is none.
func (f *Finder) function(addr uint64) int {
	if k := f.containing(addr); k >= 0 && f.funcs[k].Addr == addr {
		return k
	}
	return -1
}

// untabled reports whether no unwind entry describes a function, and there is one to be described: what linkers put
// together of the pieces of several files, and start files have, is no function of the program's.
func (f *Finder) untabled(i int) bool {
	fn := &f.funcs[i]
	if _, ok := f.index.Find(fn.Addr); ok || fn.Part || startFile(fn.Name) {
		return false
	}
	text := *f.text
	r := text.Region(fn.Addr)
	return r != nil && !together(r.Name)
}

// together tells sections that linkers put together of pieces, or make.
func together(section string) bool {
	switch section {
	case ".init", ".fini", ".plt", ".plt.got", ".plt.sec", ".plt.bnd", ".iplt":
		return true
	}
	return false
}

// startFile tells functions that each program and library has from its compiler's crtbegin.o and from its C library.
func startFile(name string) bool {
	switch name {
	case "_start", "_start_c", "_dlstart", "_dlstart_c", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux",
		"frame_dummy", "_init", "_fini":
		return true
	}
	return false
}

// follower follows the instructions of functions, one function after another, for one goroutine.
type follower interface {
	// follow returns facts about function i that are found out so; false: it is not understood.
	follow(i int) (fact, bool)
	// joined is where they jump to.
	joined() joins
}

// maxOutside bounds how many instructions are followed that are no function's, or another one's.
const maxOutside = 512

// unknown is more than a frame has.
const unknown = 1 << 40

// frame is what is known of the stack and the return address before an instruction.
type frame[S any] interface {
	comparable
	// atEntry reports whether the stack and the return address are as callers leave them.
	atEntry() bool
	// common is what two ways to an instruction have in common; false: they cannot both lead there.
	common(S) (S, bool)
}

// following is the following of one function after another, on any machine.
type following[S frame[S]] struct {
	f     *Finder
	text  code.Text
	joins joins

	start, end uint64
	seen       map[uint64]S // of instructions
	todo       []uint64
	facts      fact
}

func (w *following[S]) joined() joins { return w.joins }

// begin is at the first instruction of a function.
func (w *following[S]) begin(i int, s S) {
	w.start, w.end, w.facts = w.f.funcs[i].Addr, w.f.end(i), 0
	w.seen, w.todo = map[uint64]S{w.start: s}, append(w.todo[:0], w.start)
}

// run follows all instructions that have been reached.
func (w *following[S]) run(inst func(pc uint64) bool) bool {
	for bound := int(w.end-w.start) + maxOutside; len(w.todo) > 0; {
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if len(w.seen) > bound || !inst(at) {
			return false
		}
	}
	return true
}

// leaves notes that a function which is not understood jumps to an address: whatever its frame is there.
func (w *following[S]) leaves(to uint64) {
	if !w.inside(to) {
		w.joins.maybe = append(w.joins.maybe, to)
	}
}

func (w *following[S]) inside(addr uint64) bool { return addr >= w.start && addr < w.end }

// reach notes that an instruction is reached with a frame. Two ways to it must agree.
func (w *following[S]) reach(addr uint64, s S) bool {
	if addr != w.start && w.f.begins(addr) {
		if s.atEntry() {
			return true // a tail call
		}
		w.joins.framed = append(w.joins.framed, addr)
	}
	if had, ok := w.seen[addr]; ok {
		if s, ok = s.common(had); !ok || s == had {
			return ok
		}
	}
	w.seen[addr] = s
	w.todo = append(w.todo, addr)
	return true
}

// endsBehind reports whether a function, or a part of it, ends behind a call: then that does not return.
func (w *following[S]) endsBehind(next uint64) bool {
	k := w.f.containing(next - 1)
	return k >= 0 && next == w.f.end(k)
}
