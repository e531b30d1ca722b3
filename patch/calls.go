package patch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
)

// Calls without stubs.
//
// Code that was compiled with -fno-plt calls functions of libraries through words. Each such call becomes one of the
// function's thunk, in a window of its own that belongs to the function; so a function can have many windows, between
// those of others. A call can also be among the instructions that the site of another function displaces. Then the place
// where it is rewritten is in the copy, and where that function is not traced, it is where it was. So what becomes of a
// call is decided when it is known what is traced.

// wordCallLen is how many bytes a call through a word has, and the one that takes its place.
const wordCallLen = 6

// copiedCall is a call among displaced instructions.
type copiedCall struct {
	off    int    // from the site
	callee uint32 // id of the function that is called
}

// calls are the windows of traced library functions that are at calls, by function. Calls among displaced instructions
// are kept in l.copied.
func (l *layout) calls() map[int][]window {
	type place struct {
		addr uint64
		fn   int
	}
	var all []place
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; isLibCall(fn) {
			for _, addr := range fn.Calls {
				all = append(all, place{addr, i})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.addr, b.addr) })
	out := map[int][]window{}
	l.copied, l.firstCall = map[int][]copiedCall{}, map[uint32]uint64{}
	next := 0
	for _, c := range all {
		for next < len(l.p.Functions) && !l.displacesBehind(next, c.addr) {
			next++
		}
		callee, at := l.p.Functions[c.fn].ID, c.addr
		if next < len(l.p.Functions) && l.p.Functions[next].Addr <= c.addr {
			fn := &l.p.Functions[next]
			off := int(c.addr - fn.Addr)
			to, _ := l.displacer.displacedAt(fn.Site, off)
			at = l.displacedTo(fn) + uint64(to)
			l.copied[next] = append(l.copied[next], copiedCall{off, callee})
		} else {
			out[c.fn] = append(out[c.fn], window{addr: c.addr, n: wordCallLen, purpose: ToCall})
		}
		if l.firstCall[callee] == 0 {
			l.firstCall[callee] = at
		}
	}
	return out
}

// displacesBehind reports whether function i displaces instructions that end behind an address.
func (l *layout) displacesBehind(i int, addr uint64) bool {
	fn := &l.p.Functions[i]
	return displaces(fn) && !isLibCall(fn) && fn.Addr+uint64(fn.Moved) > addr
}

// checkCall compares what a window at a call had with the call that record has found.
func (l *layout) checkCall(fn *Func, w *window, old []byte) error {
	if slot, ok := l.displacer.wordCall(old, w.addr); ok && slot == fn.Slot {
		return nil
	}
	e := arch.Edit{Addr: w.addr, Func: fn.Display(), Reason: ToCall.String()}
	return e.Bug(arch.Mismatch, slices.Clone(old), nil)
}

// writeCopiedCalls rewrites the calls among the displaced instructions of function i, in the copy.
func (l *layout) writeCopiedCalls(i int, b []byte) error {
	fn := &l.p.Functions[i]
	for _, c := range l.copied[i] {
		to, ok := l.displacer.displacedAt(fn.Site, c.off)
		if !ok || to+wordCallLen > len(b) || c.off+wordCallLen > fn.Moved {
			return internalf("%s at %#x: a call at +%d is not among what is displaced", fn.Name, fn.Addr, c.off)
		}
		at := l.displacedTo(fn) + uint64(to)
		room := b[to : to : to+wordCallLen]
		if _, err := l.displacer.appendWordCall(room, fn.Bytes[c.off:], at, l.thunk(c.callee)); err != nil {
			return fmt.Errorf("%s at %#x: %w", fn.Name, fn.Addr, err)
		}
	}
	return nil
}
