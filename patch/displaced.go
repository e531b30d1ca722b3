package patch

import (
	"debug/elf"
	"fmt"
	"iter"
	"math"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/record"
)

// Displaced instructions.
//
// A site of kind plain is a function's own first instructions. They go on in the added memory, one function's behind the
// other's, each run followed by a jump back; that is what such a function's thunk takes for its body. Which instructions
// can be displaced has been decided by who found the site.
//
// Unwinders find the same frames there as in the original. So what is displaced has entries of its own in the unwind
// tables, with the rows of the displaced instructions at the places where they are now; one entry serves a run of
// functions (ehframe/run.go). It belongs to a CIE of the image's, so the rule that looks behind thunks is added to both.
// It has no language-specific data: personality routines let exceptions pass where there are none, as unwinders do where
// there is no such routine. Displaced calls that have a landing pad are in entries of their own (handlers.go). The
// original entries stay whole, because at the jump to the thunk their first row is right, and nothing ever stops at the
// bytes behind it.
//
// The jumps of stubs for calls of libraries are displaced likewise, but apart from the others: their frame is as callers
// leave it from the first byte to the last, so one entry is right for all, and it is none of the image's own, which can
// be an expression for the whole section of stubs, or missing. A function that is called without a stub (calls.go) has
// such a jump all the same, for its thunk.

// A farJumper is a machine on which a site can have room for a short jump only.
type farJumper interface {
	displacer
	mover
}

// addFar adds, in padding, the jump that a short one of the function owner leads to. The frame is there as callers leave it.
func (l *layout) addFar(m farJumper, owner int, at, to uint64) {
	l.pieces = append(l.pieces, piece{
		addr: at, name: ".fentry.veneers", code: true, size: uint64(m.movedJumpLen()), align: 1, owner: owner,
		rows:  m.entryRows(l.p.flavour().hides()),
		write: func(dst []byte) ([]byte, error) { return m.appendMovedJump(dst, at, to) },
	})
}

// displaces reports whether the site of a traced function displaces its instructions.
func displaces(fn *Func) bool { return fn.ID != 0 && (fn.Moved > 0 || isLibCall(fn)) }

// isLibCall reports whether a traced function is one of another image, of which calls are traced.
func isLibCall(fn *Func) bool { return fn.ID != 0 && fn.Kind == record.KindLibCall }

// body is where a thunk goes on, if the usual way is possible.
func (l *layout) body(fn *Func) uint64 {
	if displaces(fn) {
		return l.displacedTo(fn) + uint64(l.displacer.displacedBody(fn.Site))
	}
	return fn.End()
}

// displacedTo is where the displaced instructions of a function are, with what leads from its site to its thunk.
func (l *layout) displacedTo(fn *Func) uint64 {
	if isLibCall(fn) {
		return l.stubs + uint64(fn.displaced)
	}
	if fn.inThunk {
		return l.thunk(fn.ID) + uint64(fn.displaced)
	}
	return l.displaced + uint64(fn.displaced)
}

// addDisplaced lays out the instructions of all traced functions whose sites displace them.
func (l *layout) addDisplaced(m displacer) error {
	l.displacer = m
	sizes := map[bool]int{} // of stubs, of others
	fl, room, described := l.p.flavour(), l.roomInThunks(), false
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		fn.inThunk = false
		fn.likeThunk = described && l.thunkOf(fn) != 0 && fl.thunk(fn.Site) == arch.ThunkGraph
		if !displaces(fn) {
			continue
		}
		l.displaces, fn.back = true, 0
		if at, ok := room(fn); ok {
			fn.displaced, fn.inThunk, described = uint32(at), true, true
			continue
		}
		size := sizes[isLibCall(fn)]
		fn.displaced = uint32(size)
		sizes[isLibCall(fn)] = size + l.displacer.displacedLen(fn.Site)
	}
	if sizes[false]+sizes[true] > math.MaxUint32 {
		return fmt.Errorf("displaced instructions of %d bytes", sizes[false]+sizes[true])
	}
	l.displaced = l.addCopies(sizes[false], nil, func(fn *Func) bool { return displaces(fn) && !isLibCall(fn) && !fn.inThunk })
	l.stubs = l.addCopies(sizes[true], m.entryRows(l.p.flavour().hides()), isLibCall)
	return nil
}

// roomInThunks returns what says where in its thunk a function's displaced instructions can be. What unwinders have to know
// there is a variant of the function's CIE, which must be one that has variants.
func (l *layout) roomInThunks() func(*Func) (int, bool) {
	fl, variants := l.p.flavour(), l.variants()
	t, err := ehframe.Read(l.p.file)
	if err != nil || variants == nil || !fl.hides() {
		return func(*Func) (int, bool) { return 0, false }
	}
	index, plainest := ehframe.NewIndex(t), t.Plainest()
	return func(fn *Func) (int, bool) {
		if isLibCall(fn) || fn.Untabled || fn.Catches {
			return 0, false
		}
		at, ok := l.displacer.inThunk(fn.Site, fl.thunk(fn.Site))
		if !ok {
			return 0, false
		}
		d, ok := index.Find(fn.Func)
		return at, ok && l.displacer.inThunkCIE(plainest[d.CIE], variants) != nil
	}
}

// addCopies adds the displaced instructions of some functions, of size bytes in all. It returns their address, 0 if there
// are none.
func (l *layout) addCopies(size int, rows []byte, of func(*Func) bool) uint64 {
	if size == 0 {
		return 0
	}
	return l.add(piece{
		name: ".fentry.displaced", code: true, size: uint64(size), align: 16, owner: nobody, rows: rows,
		write: func(dst []byte) ([]byte, error) {
			dst = dst[:size]
			return dst, l.p.overFunctions(func(from, to int) error { return l.writeDisplaced(dst, of, from, to) })
		},
	})
}

// writeDisplaced writes those of some functions.
func (l *layout) writeDisplaced(room []byte, of func(*Func) bool, from, to int) error {
	for i := from; i < to; i++ {
		fn := &l.p.Functions[i]
		if !of(fn) {
			continue
		}
		b, err := l.putDisplaced(fn, room)
		if err != nil {
			return err
		}
		if err := l.writeCopiedCalls(i, b); err != nil {
			return err
		}
	}
	return nil
}

// putDisplaced writes those of a function to its place in room, and returns them.
func (l *layout) putDisplaced(fn *Func, room []byte) ([]byte, error) {
	at, n := int(fn.displaced), l.displacer.displacedLen(fn.Site)
	b, err := l.displacer.appendDisplaced(room[at:at:at+n], l.p.file, fn, l.displacedTo(fn), l.thunk(fn.ID))
	if err != nil {
		return nil, fmt.Errorf("%s at %#x: %w", fn.Name, fn.Addr, err)
	}
	if len(b) != n {
		return nil, internalf("%s at %#x: %d displaced bytes in %d", fn.Name, fn.Addr, len(b), n)
	}
	return b, nil
}

// displacedSymbols appends names of displaced instructions: those of their functions, so that profilers and debuggers
// count them as what they are.
func (l *layout) displacedSymbols(out []inject.Symbol) []inject.Symbol {
	if !l.displaces || l.p.file.SectionIndex(".symtab") < 0 {
		return out
	}
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; displaces(fn) && fn.Name != "" {
			out = append(out, inject.Symbol{
				Name: fn.Name, Value: l.displacedTo(fn), Size: uint64(l.displacer.displacedLen(fn.Site)),
				Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC),
			})
		}
	}
	return out
}

// displacedFrames yields the entries of displaced instructions, which runs of functions share. An error is left in err.
func (l *layout) displacedFrames(t *ehframe.Table, v *ehframe.Variants, err *error) iter.Seq[*ehframe.FDE] {
	return func(yield func(*ehframe.FDE) bool) {
		if !l.displaces {
			return
		}
		index, plainest := ehframe.NewIndex(t), t.Plainest()
		var rows []byte
		var run, thunks ehframe.Run
		var like *ehframe.CIE
		for i := range l.p.Functions {
			fn := &l.p.Functions[i]
			if fn.likeThunk && !fn.inThunk && !addToRun(&thunks, like, l.thunk(fn.ID), uint64(l.thunkSize), nil, yield) {
				return
			}
			if !displaces(fn) || isLibCall(fn) || fn.Untabled {
				continue
			}
			d, ok := index.Find(fn.Func)
			if !ok {
				*err = internalf("%s at %#x: its unwind information is gone", fn.Name, fn.Func)
				return
			}
			if rows, *err = l.displacedRows(rows[:0], fn, &d); *err != nil {
				return
			}
			at, size := l.displacedTo(fn), uint64(l.displacer.displacedLen(fn.Site))
			c, lsda := plainest[d.CIE], l.lsda[fn.ID]
			if lsda != 0 {
				c = d.CIE
			}
			if fn.inThunk { // the entry is that of the whole thunk
				like = l.displacer.inThunkCIE(c, v)
				if !addToRun(&thunks, like, l.thunk(fn.ID), uint64(l.thunkSize), rows, yield) {
					return
				}
				continue
			}
			if o := v.Leading(c); o != nil && fn.Ret != record.RetSignedLR {
				c = o // nothing has been saved that has been in a register
			}
			if lsda != 0 { // nothing else shares its entry
				if run.Size > 0 && !yield(&run.FDE) {
					return
				}
				run.Reset()
				d.PC, d.Size, d.LSDA, d.CIE, d.Instructions = at, size, lsda, c, rows
				if !yield(&d) {
					return
				}
				continue
			}
			if !addToRun(&run, c, at, size, rows, yield) {
				return
			}
		}
		for _, r := range []*ehframe.Run{&run, &thunks} {
			if r.Size > 0 && !yield(&r.FDE) {
				return
			}
		}
	}
}

// addToRun adds a piece to a run, or to a new one when it has yielded that. It returns what yield does.
func addToRun(run *ehframe.Run, c *ehframe.CIE, at, size uint64, rows []byte, yield func(*ehframe.FDE) bool) bool {
	if run.Add(c, at, size, rows) {
		return true
	}
	if !yield(&run.FDE) {
		return false
	}
	run.Reset()
	return run.Add(c, at, size, rows)
}

// displacedRows appends the rows of the displaced instructions of a function whose entry is d.
func (l *layout) displacedRows(dst []byte, fn *Func, d *ehframe.FDE) ([]byte, error) {
	lead := fn.Addr - d.PC // of rows before the site nothing is displaced
	in := 0                // where in what the entry is for they are
	if fn.inThunk {
		in = int(fn.displaced)
	}
	first, gone := l.displacer.displacedRows(fn.Site, d.CIE)
	dst = append(dst, first...)
	start := len(dst)
	dst, err := d.AppendMoved(dst, lead+uint64(fn.Moved), func(at uint64) (uint64, bool) {
		to, ok := l.displacer.displacedAt(fn.Site, int(max(at, lead)-lead))
		return uint64(in + to - gone), ok
	})
	if err != nil {
		return dst, fmt.Errorf("%s at %#x: %w", fn.Name, fn.Func, err)
	}
	if regs := l.displacer.unchanged(fn.Site); regs != 0 {
		dst = ehframe.AppendUnchanged(dst[:start], dst[start:], regs)
	}
	return dst, nil
}
