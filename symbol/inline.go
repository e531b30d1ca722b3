package symbol

// Calls that the compiler has inlined. At one address several functions can be open: the one whose code it is, and
// those that were inlined there, one in the other. Line tables know the innermost place only; where each was called
// from is in the tree of .debug_info, as an inlined subroutine below the function that contains it (DWARF 5, 3.3.8).
//
// Reading a whole tree would take the memory of a compiler, so the functions of one unit, the last one asked about, are
// kept with their place in the tree, and a question reads the subtree of one function.

import (
	"debug/dwarf"
	"errors"
	"sort"
	"strings"

	"github.com/fentry-dev/fentry/internal/mapped"
)

// A Frame is a function active at an address.
type Frame struct {
	Func string // raw name, "" if unknown
	Line Line   // of the address, or of the call of the previous frame; zero if unknown
	// Inlined says that the function has no code of its own here: it was inlined into the next frame.
	Inlined bool
}

// Frames returns the functions active at an address, as in the file: innermost first, the one whose code it is last.
// Without information about inlined calls, it returns the one function of Lookup with the address's line. Errors are
// those of Line.
func (t *Table) Frames(addr uint64) ([]Frame, error) {
	line, _, err := t.Line(addr)
	if err != nil {
		return nil, err
	}
	var fn Func
	var frames []Frame
	err = mapped.Guard(func() error {
		fn, _ = t.Lookup(addr)
		fn.Name = strings.Clone(fn.Name)
		frames, err = t.lines.frames(addr, line)
		return err
	})
	if err != nil || len(frames) == 0 {
		return []Frame{{Func: fn.Name, Line: line}}, err
	}
	// Static functions have no raw name in .debug_info. Of parts that the compiler moved away (main.cold), the
	// function's name is the better one.
	if last := &frames[len(frames)-1]; !Mangled(last.Func) && fn.Name != "" && !strings.HasPrefix(fn.Name, last.Func+".") {
		last.Func = fn.Name
	}
	return frames, nil
}

// A subprogram is code of a function of a unit, whose entry is at off.
type subprogram struct {
	lo, hi uint64
	off    dwarf.Offset
}

// inlineIndex is what is known of one unit.
type inlineIndex struct {
	unit  dwarf.Offset
	valid bool
	data  *dwarf.Data  // of the tree: the file's own, or that of a unit of its own (split.go)
	split *splitUnit   // nil: the file's own
	funcs []subprogram // sorted by lo
	files []*dwarf.LineFile
}

const (
	// maxOrigins is how many references lead from an inlined call to its function's name. Compilers use two.
	maxOrigins = 8
	// maxInlined is how deep inlined calls are nested. Compilers stop much earlier.
	maxInlined = 1 << 10
)

var errRanges = errors.New("malformed debug information: more address ranges than bytes")

// frames is Frames as far as .debug_info knows; line is that of the address.
func (x *lineIndex) frames(addr uint64, line Line) (frames []Frame, err error) {
	// debug/dwarf does not promise to withstand malformed input.
	defer func() {
		if r := recover(); r != nil {
			frames, err = nil, dwarfPanic("debug information", r)
		}
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.ranges), func(i int) bool { return x.ranges[i].lo > addr }) - 1
	if i < 0 || addr >= x.ranges[i].hi {
		return nil, nil
	}
	if off := x.ranges[i].off; !x.inline.valid || x.inline.unit != off {
		x.inline = inlineIndex{unit: off, data: x.data}
		if err := x.readFunctions(&x.inline); err != nil {
			return nil, err
		}
		x.inline.valid = true
	}
	in := &x.inline
	k := sort.Search(len(in.funcs), func(k int) bool { return in.funcs[k].lo > addr }) - 1
	if k < 0 || addr >= in.funcs[k].hi {
		return nil, nil
	}
	return x.inlined(in, in.funcs[k].off, addr, line)
}

// readFunctions finds the functions of a unit: those at the top of its tree, and in namespaces and types.
func (x *lineIndex) readFunctions(in *inlineIndex) error {
	r := x.data.Reader()
	r.Seek(in.unit)
	unit, err := r.Next()
	if err != nil || unit == nil {
		return err
	}
	x.alt.resolve(unit)
	if in.split = x.split(unit); in.split != nil {
		if in.files, err = in.split.files(); err != nil {
			return err
		}
	}
	if in.files == nil {
		if lr, err := x.data.LineReader(unit); err == nil && lr != nil {
			in.files = lr.Files()
		}
	}
	if in.split != nil {
		in.data = in.split.data
		r = in.data.Reader()
		r.Seek(in.split.root)
		if unit, err = r.Next(); err != nil || unit == nil {
			return err
		}
	}
	budget := x.size
	for depth := 0; unit.Children; {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		switch e.Tag {
		case 0:
			if depth--; depth < 0 {
				unit.Children = false
			}
			continue
		case dwarf.TagSubprogram:
			rs, err := x.rangesOf(in, e)
			if err != nil {
				return err
			}
			if budget -= len(rs); budget < 0 {
				return errRanges
			}
			for _, p := range rs {
				if p[0] < p[1] {
					in.funcs = append(in.funcs, subprogram{p[0], p[1], e.Offset})
				}
			}
			r.SkipChildren()
		case dwarf.TagNamespace, dwarf.TagClassType, dwarf.TagStructType, dwarf.TagModule:
			if e.Children {
				depth++
			}
		default:
			r.SkipChildren()
		}
	}
	sort.Slice(in.funcs, func(i, j int) bool {
		a, b := in.funcs[i], in.funcs[j]
		return a.lo < b.lo || a.lo == b.lo && a.off < b.off
	})
	return nil
}

// rangesOf returns the code of an entry. In a unit of its own, ranges can be relative to an address that only the
// skeleton has: those that are none of the unit's are.
func (x *lineIndex) rangesOf(in *inlineIndex, e *dwarf.Entry) ([][2]uint64, error) {
	rs, err := in.data.Ranges(e)
	if err != nil || in.split == nil || in.split.low == 0 {
		return rs, err
	}
	for i, r := range rs {
		if low := in.split.low; !x.inUnit(in.unit, r[0]) && x.inUnit(in.unit, r[0]+low) {
			rs[i] = [2]uint64{r[0] + low, r[1] + low}
		}
	}
	return rs, nil
}

// inUnit tells whether a unit has code at an address.
func (x *lineIndex) inUnit(unit dwarf.Offset, addr uint64) bool {
	i := sort.Search(len(x.ranges), func(i int) bool { return x.ranges[i].lo > addr }) - 1
	return i >= 0 && addr < x.ranges[i].hi && x.ranges[i].off == unit
}

// inlined follows the inlined calls that contain an address from the function at off inwards.
func (x *lineIndex) inlined(in *inlineIndex, off dwarf.Offset, addr uint64, line Line) ([]Frame, error) {
	r := in.data.Reader()
	r.Seek(off)
	fn, err := r.Next()
	if err != nil || fn == nil {
		return nil, err
	}
	open := []*dwarf.Entry{fn} // the outermost first
	budget := x.size
	for depth := 1; fn.Children && depth > 0; {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		into := false
		switch e.Tag {
		case 0:
			depth--
			continue
		case dwarf.TagInlinedSubroutine, dwarf.TagLexDwarfBlock:
			rs, err := x.rangesOf(in, e)
			if err != nil {
				return nil, err
			}
			if budget -= len(rs); budget < 0 {
				return nil, errRanges
			}
			for _, p := range rs {
				into = into || p[0] <= addr && addr < p[1]
			}
		}
		if !into {
			r.SkipChildren()
			continue
		}
		if e.Tag == dwarf.TagInlinedSubroutine {
			if open = append(open, e); len(open) > maxInlined {
				return nil, errors.New("malformed debug information: inlined calls are nested too deep")
			}
		}
		if !e.Children {
			break
		}
		depth = 1 // nothing beside it contains the address
	}
	frames := make([]Frame, len(open))
	for i := range open {
		e := open[len(open)-1-i]
		frames[i] = Frame{Func: x.nameOf(in.data, e), Line: line, Inlined: e.Tag == dwarf.TagInlinedSubroutine}
		line = in.caller(e)
	}
	return frames, nil
}

// caller is the place that an inlined function was called from.
func (in *inlineIndex) caller(e *dwarf.Entry) (l Line) {
	file, _ := e.Val(dwarf.AttrCallFile).(int64)
	num, ok := e.Val(dwarf.AttrCallLine).(int64)
	if !ok || num < 0 || num > 1<<31-1 || file < 0 || file >= int64(len(in.files)) || in.files[file] == nil {
		return l
	}
	return Line{in.files[file].Name, int(num)}
}

// nameOf is the raw name of a function, which can be in the declaration that it refers to.
func (x *lineIndex) nameOf(data *dwarf.Data, e *dwarf.Entry) string {
	plain := ""
	x.alt.resolve(e)
	for range maxOrigins {
		if s, ok := e.Val(dwarf.AttrLinkageName).(string); ok && s != "" {
			return s
		}
		if s, ok := e.Val(dwarf.AttrName).(string); ok && plain == "" {
			plain = s
		}
		in, next := x.alt.entry(data, e, dwarf.AttrAbstractOrigin)
		if next == nil {
			in, next = x.alt.entry(data, e, dwarf.AttrSpecification)
		}
		if next == nil {
			break
		}
		data, e = in, next
	}
	return plain
}
