package patch

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// Windows.
//
// What a plan rewrites in an image's code is windows: runs of bytes with a purpose, old bytes and new ones. A
// function owns a run of windows, sorted by address: today its site, and, where its thunk is out of reach,
// nops behind some function. Windows of one function may touch, and are one window then for all who look at
// them from outside; their old and new bytes lie side by side for that. No two windows share a byte, whoever
// owns them: what both would have to be written as nobody can say.

// Purpose says why bytes are rewritten. It is a set: a window rewritten for several purposes has all of them.
type Purpose uint8

const (
	ToThunk   Purpose = 1 << iota // "trace": a site leads to its thunk
	ToNop                         // "nop": a profiling call becomes nops
	ToLanding                     // "veneer": nops become the way to a thunk that the site's branch does not reach
	ToCall                        // "call": a call through a word becomes one of a thunk
	ToMoved                       // "move": instructions of a function that is recorded in place have gone elsewhere
	ToSwap                        // "swap": a function that swaps pieces of its stack leads to its thunk
)

var purposeNames = [...]string{"trace", "nop", "veneer", "call", "move", "swap"}

func (p Purpose) String() string {
	if p&(p-1) == 0 && p != 0 && bits.TrailingZeros8(uint8(p)) < len(purposeNames) {
		return purposeNames[bits.TrailingZeros8(uint8(p))]
	}
	var names []string
	for i, n := range purposeNames {
		if p&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, "+")
}

// Window is a range of an image's bytes that a plan rewrites. Old and New have the same length.
type Window struct {
	Addr     uint64
	Old, New []byte
	Purpose  Purpose
}

// window is a Window that keeps its bytes among those of all, at an index of layout.before and layout.after.
type window struct {
	addr    uint64
	at      uint32
	n       uint16
	purpose Purpose
}

func (w *window) end() uint64 { return w.addr + uint64(w.n) }

// Windows returns what the plan rewrites of a function, as of the last [Plan.Build], sorted by address. The result is
// read-only.
func (p *Plan) Windows(fn *Func) []Window {
	var out []Window
	own := p.l.windowsOf(fn)
	for len(own) > 0 {
		var w Window
		w, own = p.l.join(own)
		out = append(out, w)
	}
	return out
}

// join returns the window at the beginning of a run, with those that touch it, and the rest of the run.
func (l *layout) join(run []window) (Window, []window) {
	w := run[0]
	n, at := uint64(w.n), uint64(w.at)
	for run = run[1:]; len(run) > 0 && run[0].addr == w.addr+n; run = run[1:] {
		n += uint64(run[0].n)
		w.purpose |= run[0].purpose
	}
	return Window{w.addr, l.before[at : at+n : at+n], l.after[at : at+n : at+n], w.purpose}, run
}

// edits yields the windows of functions from the from-th to before the to-th, in their order.
func (l *layout) edits(from, to int) iter.Seq[*arch.Edit] {
	return func(yield func(*arch.Edit) bool) {
		var e arch.Edit
		for i := from; i < to; i++ {
			fn := &l.p.Functions[i]
			for own := l.windowsOf(fn); len(own) > 0; {
				var w Window
				w, own = l.join(own)
				e = arch.Edit{Addr: w.Addr, Old: w.Old, New: w.New, Func: fn.Display(), Reason: w.Purpose.String()}
				if !yield(&e) {
					return
				}
			}
		}
	}
}

func (l *layout) windowsOf(fn *Func) []window {
	return l.windows[fn.first:][:fn.windows]
}

// cut decides which bytes of the image are rewritten: the site of every function that is not left alone, and
// the pieces in the image's code.
func (l *layout) cut() error {
	islands := map[int][]*piece{}
	for i := range l.pieces {
		if pc := &l.pieces[i]; l.inCode(pc) {
			islands[pc.owner] = append(islands[pc.owner], pc)
		}
	}
	calls := l.calls()
	l.windows = bigslice.Make[window](0, l.edited+len(l.pieces))
	var apart []window // not in the order of functions
	end, at := uint64(0), 0
	var own []window
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		fn.first, fn.windows = uint32(len(l.windows)), 0
		if fn.Action == Leave {
			continue
		}
		if fn.Addr < end {
			return fmt.Errorf("%s: site %#x overlaps the one before", fn.Display(), fn.Addr)
		}
		end = fn.End()
		if fn.Len > math.MaxUint16 {
			return fmt.Errorf("%s: site %#x has %d bytes", fn.Display(), fn.Addr, fn.Len)
		}
		own = own[:0]
		if fn.Len > 0 {
			own = append(own, window{addr: fn.Addr, n: uint16(fn.Len), purpose: ToThunk})
			switch {
			case fn.Action == Nop:
				own[0].purpose = ToNop
			case l.p.flavour().swaps(fn.Site):
				own[0].purpose = ToSwap
			}
		}
		if len(islands)+len(calls)+len(l.movedWindows) > 0 {
			site := len(own)
			for _, pc := range islands[i] {
				own = append(own, window{addr: pc.addr, n: uint16(pc.size), purpose: ToLanding})
			}
			own = append(own, calls[i]...)
			for _, w := range l.movedWindows[i] {
				own = append(own, window{addr: w.addr, n: uint16(len(w.new)), purpose: ToMoved})
			}
			apart = append(apart, own[site:]...)
		}
		for _, w := range sorted(own) {
			w.at = uint32(at)
			at += int(w.n)
			l.windows = append(l.windows, w)
			fn.windows++
		}
	}
	if uint64(at) > math.MaxUint32 {
		return fmt.Errorf("sites of %d bytes", at)
	}
	l.scattered = len(apart) > 0
	l.before, l.after = bigslice.Make[byte](at, at), bigslice.Make[byte](at, at)
	return l.apart(sorted(apart))
}

// sorted sorts windows by address, in place.
func sorted(w []window) []window {
	slices.SortFunc(w, func(a, b window) int { return cmp.Compare(a.addr, b.addr) })
	return w
}

// apart checks that windows that are not in the order of functions share no byte with each other, or with a site.
func (l *layout) apart(list []window) error {
	for i := range list {
		if i > 0 && list[i].addr < list[i-1].end() {
			return internalf("windows at %#x and %#x overlap", list[i-1].addr, list[i].addr)
		}
	}
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		if len(list) == 0 {
			break
		}
		if fn.Action == Leave {
			continue
		}
		for len(list) > 0 && list[0].end() <= fn.Addr {
			list = list[1:]
		}
		if len(list) > 0 && list[0].addr < fn.End() {
			return internalf("window at %#x overlaps the site at %#x", list[0].addr, fn.Addr)
		}
	}
	return nil
}

// isWindow reports whether a piece in the image's code is a window of its owner.
func (l *layout) isWindow(pc *piece) bool {
	w := l.windowOf(pc)
	return w != nil && uint64(w.n) == pc.size && w.purpose == ToLanding
}

// windowOf is the window that a piece in the image's code is.
func (l *layout) windowOf(pc *piece) *window {
	if pc.owner == nobody {
		return nil
	}
	own := l.windowsOf(&l.p.Functions[pc.owner])
	i := slices.IndexFunc(own, func(w window) bool { return w.addr == pc.addr })
	if i < 0 {
		return nil
	}
	return &own[i]
}

// perTask is how many functions are handled at a time when all processors share them.
const perTask = 4096

// overFunctions calls do for ranges of functions on all processors and returns the first error by address.
func (p *Plan) overFunctions(do func(from, to int) error) error {
	errs := make([]error, (len(p.Functions)+perTask-1)/perTask)
	parallel.Ranges(len(p.Functions), perTask, func(from, to int) { errs[from/perTask] = do(from, to) })
	return cmp.Or(errs...)
}

// keep compares the sites with what record has found and keeps what all windows had: the file may change
// while the plan is in use. It notes where windows are in a file.
func (l *layout) keep() error {
	if l.p.Options.Target == File {
		const others = 64 // at most, usually: what Injection appends
		l.raw = bigslice.Make[elfio.RawEdit](len(l.windows), len(l.windows)+others)
	}
	return l.p.overFunctions(func(from, to int) error {
		in := segment{f: l.p.file}
		for i := from; i < to; i++ {
			fn := &l.p.Functions[i]
			own := l.windowsOf(fn)
			for k := range own {
				w := &own[k]
				old, off, err := in.bytes(w.addr, int(w.n))
				if err != nil {
					return fmt.Errorf("%s: site %#x: %w", fn.Display(), w.addr, err)
				}
				if w.purpose == ToCall {
					if err := l.checkCall(fn, w, old); err != nil {
						return err
					}
				} else if w.purpose&(ToLanding|ToMoved) == 0 && string(old) != string(fn.Bytes) {
					e := arch.Edit{Addr: w.addr, Old: fn.Bytes, Func: fn.Display()}
					return e.Bug(arch.Mismatch, bytes.Clone(old), nil)
				}
				copy(l.before[w.at:], old)
				if l.raw != nil {
					at := w.at
					l.raw[int(fn.first)+k] = elfio.RawEdit{Off: off, New: l.after[at : at+uint32(w.n)]}
				}
			}
		}
		return nil
	})
}

// segment reads an image's loaded bytes. It remembers where the last ones were.
type segment struct {
	f          *elfio.File
	start, off uint64 // address and file offset of data
	data       []byte
}

// bytes returns n bytes at an address, in place, and their offset in the file.
func (s *segment) bytes(addr uint64, n int) (b []byte, off uint64, err error) {
	d := addr - s.start
	if d >= uint64(len(s.data)) || uint64(n) > uint64(len(s.data))-d {
		s.start, s.off, s.data, _ = s.f.Segment(addr)
		d = addr - s.start
	}
	if d < uint64(len(s.data)) && uint64(n) <= uint64(len(s.data))-d {
		return s.data[d : d+uint64(n)], s.off + d, nil
	}
	if b, err = s.f.Bytes(addr, n); err != nil {
		return nil, 0, err
	}
	off, _ = s.f.Offset(addr)
	return b, off, nil
}

// ReadAt reads loaded bytes of the image: it is what edits are compared with.
func (s *segment) ReadAt(p []byte, addr uint64) error {
	b, _, err := s.bytes(addr, len(p))
	copy(p, b)
	return err
}

// ReasonHeaders is the Reason of edits of the ELF header.
const ReasonHeaders = "headers"

// ReasonUnwind is the Reason of edits of unwind tables.
const ReasonUnwind = "unwind"

// Edits returns all changes to loaded memory, sorted by address. Their Reason is that of a [Purpose], "unwind" for an
// entry of an unwind table, or "headers" for the ELF header.
func (p *Plan) Edits() ([]arch.Edit, error) {
	if err := p.Build(); err != nil {
		return nil, err
	}
	return p.l.allEdits(), nil
}

func (l *layout) allEdits() []arch.Edit {
	out := make([]arch.Edit, 0, len(l.windows)+len(l.tables))
	for e := range l.edits(0, len(l.p.Functions)) {
		out = append(out, *e)
	}
	out = append(out, l.tables...)
	slices.SortFunc(out, func(a, b arch.Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}
