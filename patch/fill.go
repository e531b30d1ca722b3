package patch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/internal/sitetable"
)

// placeThunks decides which thunk every traced function has, and where.
func (p *Plan) placeThunks() (err error) {
	if p.armed, err = p.symbol("fentry_armed"); err != nil {
		return err
	}
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.Action != Trace {
			continue
		}
		k := p.thunkKind(fn.Site)
		if p.routines[k].enter == 0 {
			if p.routines[k], err = p.routinesOf(k); err != nil {
				return err
			}
		}
		fn.Thunk = p.RXAddr + uint64(fn.ID-1)*arch.ThunkSize
		p.runs = arch.AppendThunkRun(p.runs, fn.Thunk, k)
	}
	return nil
}

// fill writes the thunks, the rows of the table of sites and the edits of all
// sites, in one pass on all processors.
func (p *Plan) fill(thunks, rows []byte) (badThunk, badEdit error) {
	p.before = bigslice.Make[byte](p.editBytes, p.editBytes)
	p.after = bigslice.Make[byte](p.editBytes, p.editBytes)
	if p.Options.Target == File {
		const others = 64 // at most, usually: what Injection appends
		p.sites = bigslice.Make[elfio.RawEdit](p.edited, p.edited+others)
	}
	const piece = 4096 // functions
	errs := make([][2]error, (len(p.Functions)+piece-1)/piece)
	parallel.Ranges(len(p.Functions), piece, func(from, to int) {
		e := &errs[from/piece]
		ed := editor{p: p, end: p.editEnd(from)}
		for i := from; i < to; i++ {
			fn := &p.Functions[i]
			if fn.Action == Leave {
				continue
			}
			if e[0] == nil {
				e[0] = ed.edit(fn)
			}
			if fn.Action != Trace {
				continue
			}
			at := int(fn.ID - 1)
			sitetable.Row{Func: fn.Func, Site: fn.Addr}.Put(rows[sitetable.RowSize*at:])
			k := p.thunkKind(fn.Site)
			t := thunk{addr: fn.Thunk, armed: p.armed, enterExit: p.routines[k], body: fn.End(), id: fn.ID, frame: fn.Frame, kind: k}
			if err := p.m.thunk(&t, thunks[at*arch.ThunkSize:(at+1)*arch.ThunkSize]); err != nil {
				e[1] = fmt.Errorf("%s at %#x: %w", fn.Name, fn.Addr, err)
				break
			}
		}
	})
	for _, e := range errs {
		badEdit, badThunk = cmp.Or(badEdit, e[0]), cmp.Or(badThunk, e[1])
	}
	return badThunk, badEdit
}

// editEnd is the end of the last edited site before function i.
func (p *Plan) editEnd(i int) uint64 {
	for i--; i >= 0; i-- {
		if fn := &p.Functions[i]; fn.Action != Leave {
			return fn.End()
		}
	}
	return 0
}

// editor makes edits in the order of addresses. It remembers the segment of the
// last one.
type editor struct {
	p          *Plan
	end        uint64 // of the site before
	start, off uint64 // of the segment
	data       []byte
}

// edit plans the change of a site: what leads to its thunk, or nops.
func (ed *editor) edit(fn *Func) error {
	p, s := ed.p, fn.Site
	if s.Addr < ed.end {
		return fmt.Errorf("%s: site %#x overlaps the one before", s.Name, s.Addr)
	}
	ed.end = s.End()
	n := uint64(s.Len)
	if d := s.Addr - ed.start; d >= uint64(len(ed.data)) || n > uint64(len(ed.data))-d {
		ed.start, ed.off, ed.data, _ = p.file.Segment(s.Addr)
	}
	var old []byte
	d := s.Addr - ed.start
	off := ed.off + d
	if d < uint64(len(ed.data)) && n <= uint64(len(ed.data))-d {
		old = ed.data[d : d+n]
	} else {
		var err error
		if old, err = p.file.Bytes(s.Addr, s.Len); err != nil {
			return fmt.Errorf("%s: site %#x: %w", s.Name, s.Addr, err)
		}
		off, _ = p.file.Offset(s.Addr)
	}
	if string(old) != string(s.Bytes) {
		return &MismatchError{Addr: s.Addr, Func: s.Name, Actual: old, Expected: s.Bytes}
	}
	copy(p.before[fn.at:], old) // the plan's own copy: the file may change under it
	b, err := p.after[fn.at:fn.at:fn.at+s.Len], error(nil)
	if fn.Action == Nop {
		b = p.m.appendNops(b, s.Len)
	} else if b, err = p.m.appendSite(b, fn); err != nil {
		return fmt.Errorf("%s: site %#x: %w", s.Name, s.Addr, err)
	}
	if len(b) != s.Len {
		return fmt.Errorf("%s: site %#x: %d bytes for a site of %d", s.Name, s.Addr, len(b), s.Len)
	}
	if p.sites != nil {
		p.sites[fn.edit] = elfio.RawEdit{Off: off, New: b}
	}
	return nil
}

// Edits returns all changes of what is loaded, sorted by address.
func (p *Plan) Edits() []Edit {
	out := make([]Edit, 0, p.edited+len(p.hidden))
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.Action != Leave {
			from, to := fn.at, fn.at+fn.Len
			out = append(out, Edit{Addr: fn.Addr, Old: p.before[from:to:to], New: p.after[from:to:to], Func: fn.Name, Reason: fn.Action.String()})
		}
	}
	out = append(out, p.hidden...)
	slices.SortFunc(out, func(a, b Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}
