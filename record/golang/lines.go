package golang

import (
	"bytes"
	"sort"
)

// Source lines, and calls that the compiler has made part of their callers. Both are in the tables that the runtime makes
// tracebacks of, so stripped programs have them, too.

// recCU is where a record has the place of its compilation unit in the table of files.
const recCU = 32

// A Place is a line of the source.
type Place struct {
	File string
	Line int
}

// Line returns the source line of an address. ok is false if it is not known.
func (im *Image) Line(pc uint64) (at Place, ok bool) {
	if f := im.at(pc); f != nil {
		return im.line(f, pc)
	}
	return Place{}, false
}

// at returns the function whose code has an address, nil: none.
func (im *Image) at(pc uint64) *Func {
	i := sort.Search(len(im.Funcs), func(i int) bool { return im.Funcs[i].Next > pc })
	if i == len(im.Funcs) || pc < im.Funcs[i].Entry {
		return nil
	}
	return &im.Funcs[i]
}

func (im *Image) line(f *Func, pc uint64) (at Place, ok bool) {
	lines, err := im.Values(f, le.Uint32(f.rec[RecPCLine:]))
	if err != nil {
		return Place{}, false
	}
	files, err := im.Values(f, le.Uint32(f.rec[RecPCFile:]))
	if err != nil {
		return Place{}, false
	}
	line, file := lines.At(pc), files.At(pc)
	if line <= 0 || file < 0 {
		return Place{}, false
	}
	name, ok := im.fileName(uint64(le.Uint32(f.rec[recCU:])) + uint64(file))
	return Place{name, int(line)}, ok
}

// fileName returns the file with a number, which counts those of all compilation units.
func (im *Image) fileName(n uint64) (string, bool) {
	const maxPath = 1 << 12
	b, err := im.f.Bytes(im.CUTab+4*n, 4)
	if n >= im.lengths[1] || err != nil {
		return "", false
	}
	off := uint64(le.Uint32(b))
	if off >= im.lengths[2] {
		return "", false
	}
	text, err := im.f.Bytes(im.FileTab+off, int(min(maxPath, im.lengths[2]-off)))
	if err != nil {
		return "", false
	}
	text, _, ok := bytes.Cut(text, []byte{0})
	return string(text), ok
}

// An Inlined is a call that is part of its caller.
type Inlined struct {
	Name  string
	Depth int   // 0: the caller is the function itself, else the one before in the list with one less
	Call  Place // where it is called
}

// Inlined returns the calls that are part of a function, as a tree: behind each come those inside. Those of the same caller
// are in the order of the compiler's tree. The result is nil if there are none, or their table is malformed.
func (im *Image) Inlined(f *Func) []Inlined {
	rec := f.Record()
	tree := FuncData(rec, FuncDataInline)
	in, err := im.Values(f, PCData(rec, PCDataInline))
	if err != nil || tree == NoFuncData {
		return nil
	}
	t := inlineTree{im: im, f: f, tree: tree, in: in, children: map[int32][]int32{}, seen: map[int32]bool{}}
	for _, row := range in {
		t.add(row.value)
	}
	return t.list(nil, -1, 0)
}

// inlineTree is a function's tree: rows by number, each with the place of the call, which is inside of the row that the table
// of inlined calls has for that address.
type inlineTree struct {
	im       *Image
	f        *Func
	tree     uint32
	in       Values
	children map[int32][]int32 // by parent, -1: the function itself
	seen     map[int32]bool
}

// Of a row of the tree.
const (
	inlinedRow    = 16
	inlinedName   = 4
	inlinedCall   = 8 // offset of an instruction that stands for the call
	deepestInline = 64
)

// row returns the name of an inlined call, and the address that stands for it.
func (t *inlineTree) row(i int32) (name uint64, call uint64, ok bool) {
	b, err := t.im.GoFuncData(t.tree, int(i)*inlinedRow, inlinedRow)
	if err != nil {
		return 0, 0, false
	}
	return uint64(le.Uint32(b[inlinedName:])), t.f.Entry + uint64(int64(int32(le.Uint32(b[inlinedCall:])))), true
}

// add adds a row, and those around it.
func (t *inlineTree) add(i int32) {
	for i >= 0 && !t.seen[i] {
		_, call, ok := t.row(i)
		if !ok {
			return
		}
		t.seen[i] = true
		parent := max(t.in.At(call), -1)
		if parent == i {
			return
		}
		t.children[parent] = append(t.children[parent], i)
		i = parent
	}
}

func (t *inlineTree) list(out []Inlined, parent int32, depth int) []Inlined {
	rows := t.children[parent]
	if depth > deepestInline {
		return out // it goes round
	}
	sort.Slice(rows, func(a, b int) bool { return rows[a] < rows[b] })
	for _, i := range rows {
		name, call, _ := t.row(i)
		at, _ := t.im.line(t.f, call)
		out = append(out, Inlined{PrintedName(t.im.nameAt(name)), depth, at})
		out = t.list(out, i, depth+1)
	}
	return out
}

// nameAt returns the name at an offset of the table of names; "": there is none.
func (im *Image) nameAt(off uint64) string {
	if off >= uint64(len(im.names)) {
		return ""
	}
	text, _, _ := bytes.Cut(im.names[off:min(off+maxName, uint64(len(im.names)))], []byte{0})
	return string(text)
}
