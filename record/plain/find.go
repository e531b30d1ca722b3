package plain

import (
	"debug/elf"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// Finder knows, of one image, all that the rules ask about.
type Finder struct {
	file  *elfio.File
	text  *code.Text
	m     machine
	funcs []symbol.Func
	refs  []uint64
	index *ehframe.Index

	textRelocs []uint64 // where dynamic relocations change code, in order

	foreign Refusal // why none of its functions can be displaced
	ml      ocaml   // whose functions cannot
	decoded bool    // all code has been
	fixed   bool    // it cannot be moved: an address can be in any word, and in any operand
	guarded bool    // indirect branches have to go to landing pads

	marks    marks
	facts    []fact // by function
	bases    []base
	results  []result
	jumpsOut []jumpOut
	passes   []jumpOut                     // functions, and others that they call, the flags of which they return with
	unread   map[uint64]bool               // entries of the unwind table, by address: their language-specific data makes no sense
	early    map[uint64][]ehframe.CallSite // of entries: the first call sites
}

// New reads an image. funcs are all its functions, sorted by address, each once; refs the addresses that dynamic
// relocations write.
func New(file *elfio.File, text *code.Text, funcs []symbol.Func, refs []uint64) (*Finder, error) {
	t, err := ehframe.Read(file)
	if err != nil {
		return nil, err
	}
	f := &Finder{
		file: file, text: text, m: machineOf(file), funcs: funcs, refs: refs,
		fixed: file.Header.Type == elf.ET_EXEC,
	}
	if f.textRelocs, err = textRelocs(file); err != nil {
		return nil, err
	}
	f.foreign, f.ml = foreign(file)
	if f.foreign == "" {
		f.decode(t)
	}
	return f, nil
}

// NewC is New for the C functions of a program that Go has linked, whose callers are none of Go's.
func NewC(file *elfio.File, text *code.Text, funcs []symbol.Func, refs []uint64) (*Finder, error) {
	f, err := NewSyscalls(file, text, funcs, refs)
	if err == nil && f.foreign == GoImage {
		f.foreign = foreignC(file)
	}
	return f, err
}

// NewSyscalls reads an image for its system calls only, which have no reason to stay that is the whole image's.
func NewSyscalls(file *elfio.File, text *code.Text, funcs []symbol.Func, refs []uint64) (*Finder, error) {
	f, err := New(file, text, funcs, refs)
	if err != nil || f.decoded {
		return f, err
	}
	t, err := ehframe.Read(file)
	if err != nil {
		return nil, err
	}
	f.decode(t)
	return f, nil
}

// decode decodes all code, and finds out what the rules ask about.
func (f *Finder) decode(t *ehframe.Table) {
	f.decoded = true
	f.guarded = f.file.Guarded()
	f.index = ehframe.NewIndex(t)
	f.marks = newMarks(f.text)
	f.sweep()
	f.pointers()
	f.landingPads(t)
	f.jumpTables()
	f.flagResults()
	f.follow()
	f.passOn()
}

// Supported reports whether functions of the image's machine can be displaced.
func Supported(file *elfio.File) bool { return machineOf(file) != nil }

// Call reports whether an instruction of n bytes at an address, which the bytes there look like, is one for certain: all
// code has been decoded, and nothing goes into the middle of it. A tail call, a jump, must besides have its frame as a
// function's callers leave it.
func (f *Finder) Call(addr uint64, n int, tail bool) bool {
	if f.foreign != "" || f.ml.has(addr) || f.relocated(addr, addr+uint64(n)) || f.marks.get(addr)&instruction == 0 ||
		f.marks.any(addr+1, addr+uint64(n))&(instruction|anyTarget) != 0 {
		return false
	}
	if !tail {
		return true
	}
	var fr frames
	if fr.open(f.index, addr); !fr.found {
		return false
	}
	row, known := fr.at(addr)
	return known && f.m.atEntry(row)
}

// textRelocs are the places in code that the dynamic linker changes (DT_TEXTREL): it would change what is there now, and not
// what has been moved.
func textRelocs(file *elfio.File) (at []uint64, err error) {
	dyn, err := file.Dynamic()
	if err != nil {
		return nil, nil // of a file without
	}
	if !slices.ContainsFunc(dyn, func(d elfio.Dyn) bool {
		return d.Tag == elf.DT_TEXTREL || d.Tag == elf.DT_FLAGS && elf.DynFlag(d.Val)&elf.DF_TEXTREL != 0
	}) {
		return nil, nil
	}
	rels, err := file.DynamicRelocs()
	for i := range rels {
		at = append(at, rels[i].Off)
	}
	slices.Sort(at)
	return at, err
}

// relocated tells whether a dynamic relocation changes something in [lo, hi).
func (f *Finder) relocated(lo, hi uint64) bool {
	const most = 8 // bytes that one changes
	i := sort.Search(len(f.textRelocs), func(i int) bool { return f.textRelocs[i]+most > lo })
	return i < len(f.textRelocs) && f.textRelocs[i] < hi
}

// containing returns the index of the last function that begins at or before addr; -1: there is none.
func (f *Finder) containing(addr uint64) int {
	return sort.Search(len(f.funcs), func(i int) bool { return f.funcs[i].Addr > addr }) - 1
}
