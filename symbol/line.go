package symbol

// Source lines. Package debug/dwarf decodes them; what it does not promise is kept in bounds here: a panic becomes an
// error, headers that make it take much memory are refused beforehand (units.go), and lists of ranges that units share
// are counted against the size of the file. Decoding all line tables of a large program takes seconds and gigabytes, so
// that of a unit is decoded when one of its addresses is asked for, and only the last maxRows rows are kept.

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
)

// Line is a place in a program's source.
type Line struct {
	File string // as given to the compiler, joined with the directory it ran in
	Line int
}

func (l Line) String() string { return fmt.Sprintf("%s:%d", l.File, l.Line) }

// ErrNoLines is returned by Table.Line for images without line information, in the file or in a debug file.
var ErrNoLines = errors.New("no line information")

// Line returns the source line of an address, as in the file. ok is false if the line is unknown. The debug
// information is read at the first call, the line table of a unit when one of its addresses is looked up; a limited
// number is kept. Errors are ErrNoLines and those of malformed debug information; later calls return the same error.
func (t *Table) Line(addr uint64) (l Line, ok bool, err error) {
	t.lines.once.Do(func() { t.lines.err = mapped.Guard(func() error { return t.lines.load(t) }) })
	if t.lines.err != nil {
		return Line{}, false, t.lines.err
	}
	err = mapped.Guard(func() (err error) {
		l, ok, err = t.lines.find(addr)
		return err
	})
	return l, ok, err
}

// DWARF returns the debug information of the image, which is good until Close. Errors are those of Line. Nothing of it
// has been checked but the headers of its units: debug/dwarf can panic over the rest, and reads a file that may be
// truncated meanwhile.
func (t *Table) DWARF() (*dwarf.Data, error) {
	if _, _, err := t.Line(0); err != nil {
		return nil, err
	}
	return t.lines.data, nil
}

// lineIndex finds the line table an address is in.
type lineIndex struct {
	once sync.Once
	err  error

	data   *dwarf.Data
	alt    *altDWARF   // what data refers to in another file; nil: nothing
	owner  *Table      // keeps the files that are opened for its units
	info   []byte      // .debug_info
	addr   []byte      // .debug_addr
	line   []byte      // .debug_line
	ranges []unitRange // sorted by lo

	mu     sync.Mutex
	tables map[dwarf.Offset]*lineTable // by unit
	order  []dwarf.Offset              // of tables, the one used last at the end
	rows   int                         // of all tables
	limit  int                         // for rows, 0: maxRows

	size   int // bytes of the file and its .debug_info, which bounds what a question costs
	inline inlineIndex
}

// unitRange is code [lo, hi) of the compilation unit whose entry is at off.
type unitRange struct {
	lo, hi uint64
	off    dwarf.Offset
}

// maxRows is how many rows of line tables are kept: 24 MB of them.
const maxRows = 1 << 20

// lineRow says that the code from addr to the next row's comes from a line; file -1 ends a sequence.
type lineRow struct {
	addr uint64
	file int32
	line int32
}

type lineTable struct {
	files []string
	rows  []lineRow
	err   error
}

func (x *lineIndex) load(t *Table) error {
	f := t.debugFile()
	if f == nil {
		return ErrNoLines
	}
	err := x.fill(f)
	if err != nil {
		return err
	}
	x.alt = loadAlt(t.altFile(f, t.debugPath()))
	x.owner = t
	if x.addr, err = DebugSection(f, "addr"); err != nil {
		x.addr = nil // lines need none
	}
	return nil
}

// dwarfPanic is the error of a panic in debug/dwarf, or of a file that has changed.
func dwarfPanic(what string, r any) error {
	if f := mapped.AsFault(r); f != nil {
		return f
	}
	return fmt.Errorf("malformed %s: %v", what, r)
}

// fill reads what code each compilation unit has.
func (x *lineIndex) fill(f *elfio.File) (err error) {
	// debug/dwarf does not promise to withstand malformed input.
	defer func() {
		if r := recover(); r != nil {
			err = dwarfPanic("debug information", r)
		}
	}()
	data, info, line, err := loadDWARF(f)
	if err != nil {
		return err
	}
	if data == nil {
		return ErrNoLines
	}
	x.data, x.info, x.line, x.tables = data, info, line, make(map[dwarf.Offset]*lineTable)
	// Units can share lists of ranges, which a crafted file can use to make few bytes mean much.
	x.size = len(info) + len(f.Raw())
	budget := x.size
	units, err := unitOffsets(f, info)
	if err != nil {
		return err
	}
	for _, off := range units {
		r := data.Reader()
		r.Seek(off)
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil || e.Tag != dwarf.TagCompileUnit && e.Tag != dwarf.TagSkeletonUnit ||
			e.Val(dwarf.AttrStmtList) == nil {
			continue
		}
		rs, err := data.Ranges(e)
		if err != nil {
			return err
		}
		if budget -= len(rs); budget < 0 {
			return errRanges
		}
		for _, r := range rs {
			if r[0] < r[1] && r[0] != 0 { // 0: what the linker dropped
				x.ranges = append(x.ranges, unitRange{r[0], r[1], e.Offset})
			}
		}
	}
	sort.Slice(x.ranges, func(i, j int) bool {
		a, b := x.ranges[i], x.ranges[j]
		return a.lo < b.lo || a.lo == b.lo && a.hi < b.hi
	})
	return nil
}

func (x *lineIndex) find(addr uint64) (Line, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.ranges), func(i int) bool { return x.ranges[i].lo > addr }) - 1
	if i < 0 || addr >= x.ranges[i].hi {
		return Line{}, false, nil
	}
	t := x.table(x.ranges[i].off)
	if t.err != nil {
		return Line{}, false, t.err
	}
	k := sort.Search(len(t.rows), func(k int) bool { return t.rows[k].addr > addr }) - 1
	if k < 0 || t.rows[k].file < 0 {
		return Line{}, false, nil
	}
	return Line{t.files[t.rows[k].file], int(t.rows[k].line)}, true, nil
}

// table returns the line table of a unit, and forgets those not used for longest.
func (x *lineIndex) table(off dwarf.Offset) *lineTable {
	t, ok := x.tables[off]
	if !ok {
		t = x.read(off)
		x.tables[off] = t
		x.rows += len(t.rows)
	} else if x.order[len(x.order)-1] == off {
		return t
	} else {
		for i, o := range x.order {
			if o == off {
				x.order = append(x.order[:i], x.order[i+1:]...)
				break
			}
		}
	}
	x.order = append(x.order, off)
	limit := x.limit
	if limit == 0 {
		limit = maxRows
	}
	for x.rows > limit && len(x.order) > 1 {
		old := x.order[0]
		x.order = x.order[1:]
		x.rows -= len(x.tables[old].rows)
		delete(x.tables, old)
	}
	return t
}

// read decodes the line table of the unit at off.
func (x *lineIndex) read(off dwarf.Offset) (t *lineTable) {
	t = &lineTable{}
	defer func() {
		if r := recover(); r != nil {
			t = &lineTable{err: dwarfPanic(fmt.Sprintf("line table of the unit at %#x", off), r)}
		}
	}()
	r := x.data.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil {
		return &lineTable{err: err}
	}
	if at, ok := e.Val(dwarf.AttrStmtList).(int64); ok {
		if err := checkLineHeader(x.line, uint64(at), x.data); err != nil {
			return &lineTable{err: fmt.Errorf("line table at %#x of .debug_line: %w", at, err)}
		}
	}
	x.alt.resolve(e)
	lr, err := x.data.LineReader(e)
	if err != nil || lr == nil {
		return &lineTable{err: err}
	}
	files := make(map[string]int32)
	for {
		var le dwarf.LineEntry
		if err := lr.Next(&le); err != nil {
			break // io.EOF, or what is readable up to here
		}
		row := lineRow{addr: le.Address, file: -1}
		// What has no name, or a number no source has, is not known.
		if !le.EndSequence && le.File != nil && le.File.Name != "" && le.Line >= 0 && le.Line <= math.MaxInt32 {
			k, ok := files[le.File.Name]
			if !ok {
				k = int32(len(t.files))
				files[le.File.Name] = k
				t.files = append(t.files, le.File.Name)
			}
			row.file, row.line = k, int32(le.Line)
		}
		// Several rows for one address: the last one counts, as gdb and addr2line have it.
		if n := len(t.rows); n > 0 && t.rows[n-1].addr == row.addr && t.rows[n-1].file >= 0 && row.file >= 0 {
			t.rows[n-1] = row
			continue
		}
		t.rows = append(t.rows, row)
	}
	// Sequences can stand in any order; within one, addresses ascend. The end of one comes before the start of another
	// at the same place.
	sort.SliceStable(t.rows, func(i, j int) bool {
		a, b := &t.rows[i], &t.rows[j]
		return a.addr < b.addr || a.addr == b.addr && a.file < 0 && b.file >= 0
	})
	return t
}
