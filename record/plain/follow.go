package plain

import (
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
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
			if f.begins(addr) && f.marks.get(addr)&unless == 0 {
				f.facts[f.containing(addr)] |= joined
			}
		}
	}
	join(all.framed, 0)
	join(all.maybe, called|pointed)
}

// begins reports whether a function begins at an address.
func (f *Finder) begins(addr uint64) bool {
	k := f.containing(addr)
	return k >= 0 && f.funcs[k].Addr == addr
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
