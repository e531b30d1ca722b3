package patch

import (
	"debug/elf"
	"fmt"
	"iter"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/moves"
	"github.com/fentry-dev/fentry/stub"
)

// Functions that are recorded in place, in images that are not Go's: OCaml's.
//
// They have no thunk, as their runtime looks up return addresses. An event is recorded at each of their ends, by a routine of
// the tracer's that puts nothing on their stack (arch/amd64, placeevent.go). Their ids follow those of functions with thunks.
// Unwinders find callers by the rows of the instructions that have moved, as with displaced ones.

// A placeMachine is one on which they can be traced.
type placeMachine interface {
	machine
	farJumper
	placeEventLen() int
	appendPlaceEvent(dst []byte, at uint64, e *arch.PlaceEvent) ([]byte, error)
}

// placeRoutine is the runtime's routine for all of their events.
const placeRoutine = "fentry_place"

// inPlace reports whether a function is one of these, in an image that is not Go's.
func inPlace(s *record.Site) bool { return s.Kind == record.KindOCaml }

// placeMoved lays out the code of all of them.
func (l *layout) placeMoved() error {
	m, ok := l.p.m.(placeMachine)
	if !ok || l.traced == l.thunks {
		return nil
	}
	only := moves.BothEnds
	if t := l.p.Options.Tracer; t == Function || t == Count {
		only = moves.OnlyEntries
	}
	err := l.layMoved(m, only)
	if err != nil {
		return err
	}
	if l.leavePlaced() {
		l.number() // without those that have been left alone
		if err := l.layMoved(m, only); err != nil {
			return err
		}
	}
	l.movedWindows = map[int][]movedWindow{}
	size := uint64(0)
	for _, c := range l.placed {
		code, err := l.placeCode(&l.p.Functions[c.fn])
		if err != nil {
			return err
		}
		if l.movedWindows[c.fn], err = m.movedWindows(c, code); err != nil {
			return fmt.Errorf("%s at %#x: %w", c.name, c.entry, err)
		}
		if rv, ok := l.p.m.(reverter); ok && l.p.Options.Target == Process {
			l.canRevert(rv, c, code)
		}
		l.placeFar(m, c)
		size += uint64(c.size)
	}
	l.sortReturns()
	if size > 0 {
		l.add(piece{name: ".fentry.moved", code: true, size: size, align: placeAlign, owner: nobody, write: l.appendPlaced})
	}
	return nil
}

// layMoved lays out the code of all of them, where it is to be.
func (l *layout) layMoved(m placeMachine, only moves.Ends) error {
	at := l.align(placeAlign)
	l.placed = l.placed[:0]
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		if fn.ID == 0 || !inPlace(fn.Site) {
			continue
		}
		code, err := l.placeCode(fn)
		if err != nil {
			return err
		}
		c := &movedCode{m: m, fn: i, name: fn.Display(), entry: fn.Func, next: fn.Func + fn.Size, moves: fn.Moves, id: fn.ID, at: at}
		if only == moves.OnlyEntries {
			c.moves = fn.Moves.OfEntry()
		}
		if err := c.lay(code, m.placeEventLen(), only, func(int, uint64, bool) {}); err != nil {
			return fmt.Errorf("%s at %#x: %w", fn.Display(), fn.Func, err)
		}
		at += uint64(c.size)
		l.placed = append(l.placed, c)
	}
	return nil
}

// leavePlaced leaves functions alone that jumps do not reach from what is added, or what those jump to. It reports whether there
// are any.
func (l *layout) leavePlaced() (left bool) {
	if len(l.placed) == 0 {
		return false
	}
	last := l.placed[len(l.placed)-1]
	from, to := l.placed[0].at, last.at+uint64(last.size)
	for _, c := range l.placed {
		if !c.reached(from, to) {
			l.p.Functions[c.fn].leave(record.ReasonOutOfReach)
			left = true
		}
	}
	return left
}

const placeAlign = 16

// placeFar adds the jumps that are in padding behind some function, where the function itself has no room for them.
func (l *layout) placeFar(m placeMachine, c *movedCode) {
	for i := range c.moves.Runs {
		if r := &c.moves.Runs[i]; r.Outside {
			l.addFar(m, c.fn, r.Via, c.at+uint64(c.runs[i]))
		}
	}
}

// placeCode is a function's own code, as far as it is rewritten.
func (l *layout) placeCode(fn *Func) ([]byte, error) {
	end := fn.Func
	for i := range fn.Moves.Runs {
		r := &fn.Moves.Runs[i]
		end = max(end, r.Addr+uint64(r.Len))
	}
	for i := range fn.Moves.Branches {
		b := &fn.Moves.Branches[i]
		end = max(end, b.Addr+uint64(b.Len))
	}
	return l.p.file.Bytes(fn.Func, int(end-fn.Func))
}

// appendPlaced appends it.
func (l *layout) appendPlaced(dst []byte) ([]byte, error) {
	m := l.p.m.(placeMachine)
	routine, err := l.symbol(placeRoutine)
	if err != nil {
		return dst, err
	}
	for _, c := range l.placed {
		code, err := l.placeCode(&l.p.Functions[c.fn])
		if err != nil {
			return dst, err
		}
		start := len(dst)
		dst, err = c.append(dst, code, func(dst []byte, at uint64, i int) ([]byte, error) {
			e := arch.PlaceEvent{ID: c.eventID(i), Switch: l.switches + uint64(c.id-1), Routine: routine}
			return m.appendPlaceEvent(dst, at, &e)
		})
		if err == nil {
			err = c.proveSize(len(dst) - start)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// ownCode says where an image's code is that has no C function in it: OCaml's, and what of its runtime calls C.
func (l *layout) ownCode(m *stub.Image) {
	set := func(from, to uint64, runtime bool) {
		switch d := int64(from - l.runtime.image); {
		case runtime && to-from > m.OCamlSize:
			m.OCaml, m.OCamlSize = d, to-from
		case !runtime && to-from > m.GoSize:
			m.GoCode, m.GoSize = d, to-from
		}
	}
	fns := l.p.Functions
	kind := func(s *record.Site) (own, runtime bool) {
		runtime = s.Reason == record.ReasonOCamlRuntime
		return runtime || inPlace(s) || s.Reason == record.ReasonOCamlNoRoom, runtime
	}
	for i := 0; i < len(fns); {
		own, runtime := kind(fns[i].Site)
		k := i + 1
		for ; k < len(fns); k++ {
			if o, r := kind(fns[k].Site); o != own || r != runtime {
				break
			}
		}
		if last := &fns[k-1]; own {
			set(fns[i].Func, last.Func+last.Size, runtime)
		}
		i = k
	}
}

// placedFrames yields the unwind entries of their runs. An error is left in err.
func (l *layout) placedFrames(t *ehframe.Table, err *error) iter.Seq[*ehframe.FDE] {
	return func(yield func(*ehframe.FDE) bool) {
		if len(l.placed) == 0 {
			return
		}
		index, plainest := ehframe.NewIndex(t), t.Plainest()
		var rows []byte
		for _, c := range l.placed {
			d, ok := index.Find(c.entry)
			if !ok {
				continue
			}
			for i := range c.moves.Runs {
				first := c.moves.Runs[i].Addr - d.PC
				to := c.runs[i]
				rows, *err = d.AppendMoved(rows[:0], first+uint64(c.moves.Runs[i].Len), func(at uint64) (uint64, bool) {
					o, ok := c.place(i, d.PC+max(at, first))
					return uint64(o - to), ok
				})
				if *err != nil {
					return
				}
				e := d
				e.PC, e.Size, e.LSDA, e.CIE, e.Instructions = c.at+uint64(to), uint64(c.runEnd(i)-to), 0, plainest[d.CIE], rows
				if !yield(&e) {
					return
				}
			}
		}
	}
}

// movedSymbols appends names of the functions' added code: their own.
func (l *layout) movedSymbols(out []inject.Symbol) []inject.Symbol {
	if l.p.file.SectionIndex(".symtab") < 0 {
		return out
	}
	add := func(c *movedCode) {
		out = append(out, inject.Symbol{
			Name: c.name, Value: c.at, Size: uint64(c.size), Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC),
		})
	}
	for _, c := range l.goCodes {
		add(&c.movedCode)
	}
	for _, c := range l.placed {
		add(c)
	}
	return out
}
