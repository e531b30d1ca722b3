package symbol

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// Func is a function of an image.
type Func struct {
	Addr, Size uint64 // address and bytes of code; Size is 0 if unknown
	Name       string // raw name without a version suffix, "" if only an unwind table has the function
	Source     string // the table the name, or the address, comes from: .symtab, .dynsym or .eh_frame
	// Ifunc says that a symbol of type STT_GNU_IFUNC has this address: the function is the symbol's resolver.
	Ifunc bool
	// Aliased says that the function has more names (Table.Aliases).
	Aliased bool
	// Part says that, according to the unwind table, a stack frame is already set up at the first byte: this is a
	// part of another function that the compiler has split off, entered by jumps.
	Part bool

	rank uint8
}

// NameAt is what a function at a link-time address is called if it has no symbol: func_ and the address in lower-case
// hexadecimal digits. This is its name wherever fentry shows one, and patterns match it.
func NameAt(addr uint64) string { return "func_" + strconv.FormatUint(addr, 16) }

// The values of Func.Source.
const (
	SourceSymtab  = ".symtab"
	SourceDynsym  = ".dynsym"
	SourceEhFrame = ".eh_frame"
)

// Table holds the functions of one image. Its methods are safe for concurrent use.
type Table struct {
	f      *elfio.File
	syms   []elfio.Symbol
	dynsym []elfio.Symbol
	fdes   unwindTable
	funcs  []Func
	others aliases

	opts      Options
	debugOnce sync.Once
	debug     *elfio.File // the file with debug information
	looked    []string    // where it was looked for
	maps      []*mapped.File
	lines     lineIndex
}

// New reads the symbol tables and the unwind tables of an image.
func New(f *elfio.File) (*Table, error) {
	t := &Table{f: f, opts: Options{DebugDirs: []string{}}}
	if err := t.read(); err != nil {
		return nil, err
	}
	return t, nil
}

// NewWith is like New for an image that may have a separate debug file: it supplies names that the image lacks, and
// Line uses it.
func NewWith(f *elfio.File, o Options) (*Table, error) {
	t := &Table{f: f, opts: o}
	if err := mapped.Guard(t.read); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Table) read() (err error) {
	f := t.f
	// Both tables are large, and read beside each other.
	var framesErr error
	var frames *source
	wait := parallel.Beside(func() {
		if t.fdes, framesErr = ehframe.Read(f); framesErr == nil {
			frames = t.frames()
		}
	})
	defer wait()
	if t.syms, err = f.Symbols(); err != nil {
		return err
	}
	if len(t.syms) == 0 {
		t.syms = t.separateSymbols()
	}
	if t.dynsym, err = f.DynamicSymbols(); err != nil {
		return err
	}
	plt := stubSections(t.f)
	named := [2]*source{symbols(t.syms, SourceSymtab, false, plt), symbols(t.dynsym, SourceDynsym, true, plt)}
	wait()
	if framesErr != nil {
		return framesErr
	}
	t.collect(named, frames)
	return nil
}

// separateSymbols are the symbols of an image that was stripped, from its separate debug file or .gnu_debugdata. Names
// are a convenience: where these are damaged they are missing, and nothing else is.
func (t *Table) separateSymbols() []elfio.Symbol {
	if d := t.debugFile(); d != nil && d != t.f {
		if syms, err := d.Symbols(); err == nil && len(syms) > 0 {
			return syms
		}
	}
	if syms, err := miniSymbols(t.f); err == nil {
		return syms
	}
	return nil
}

// Funcs returns all functions, sorted by address, one per address. The slice belongs to the table.
func (t *Table) Funcs() []Func { return t.funcs }

// Symbols returns the entries of .symtab as in the file, or in its separate debug file if it was stripped. The slice belongs to the table.
func (t *Table) Symbols() []elfio.Symbol { return t.syms }

// DynamicSymbols returns the entries of the dynamic symbol table; a relocation's symbol index i is entry i-1. The slice
// belongs to the table.
func (t *Table) DynamicSymbols() []elfio.Symbol { return t.dynsym }

// Aliases returns the other names of the function at addr, sorted: linkers fold functions with identical code, compilers
// give constructors two names, and libraries keep old ones. The slice belongs to the table.
func (t *Table) Aliases(addr uint64) []string { return t.others.at(addr) }

// Lookup returns the function that contains addr, an address as in the file (without the load bias). A function of
// unknown size extends to the next one, at most to the end of its section.
func (t *Table) Lookup(addr uint64) (Func, bool) {
	i := t.Before(addr)
	if i < 0 {
		return Func{}, false
	}
	// An outer function can contain later, smaller ones, such as labels that hand-written code gives the type of
	// functions. Few steps back are enough for those.
	for k := i; k >= 0 && i-k < 8; k-- {
		fn := t.funcs[k]
		if fn.Size != 0 && addr-fn.Addr < fn.Size || fn.Size == 0 && k == i && addr < t.limit(i) {
			return fn, true
		}
	}
	return Func{}, false
}

// Before returns the index in Funcs of the last function that starts at or before addr, or -1 if there is none.
func (t *Table) Before(addr uint64) int {
	return sort.Search(len(t.funcs), func(i int) bool { return t.funcs[i].Addr > addr }) - 1
}

// At returns the index in Funcs of the function that starts at addr, or -1 if there is none.
func (t *Table) At(addr uint64) int {
	if i := t.Before(addr); i >= 0 && t.funcs[i].Addr == addr {
		return i
	}
	return -1
}

// limit is the address where function i, of unknown size, must have ended.
func (t *Table) limit(i int) uint64 {
	end := ^uint64(0)
	if i+1 < len(t.funcs) {
		end = t.funcs[i+1].Addr
	}
	if s := sectionOf(t.f, t.funcs[i].Addr); s != nil {
		end = min(end, s.Addr+s.Size)
	} else if len(t.f.Sections) > 0 {
		return t.funcs[i].Addr + 1
	}
	return end
}

// describedBy reports whether an unwind entry is that of a function with a name: compilers can begin it behind what
// they put in front for tracers.
func (fn *Func) describedBy(fde *Func) bool {
	return fn.rank != rankNone && fde.Addr > fn.Addr && fde.Addr-fn.Addr < fn.Size &&
		fde.Addr+fde.Size == fn.Addr+fn.Size
}

// startsFramed reports whether the first call frame instruction of an FDE changes the frame that all functions are
// entered with, before it goes on to another place (DWARF 5, 7.24).
func startsFramed(cfa []byte) bool {
	if len(cfa) == 0 {
		return false
	}
	switch op := cfa[0]; {
	case op>>6 == 2: // DW_CFA_offset: a register has been saved
		return true
	case op == 0x0c, op == 0x0d, op == 0x0e, op == 0x0f, op == 0x12, op == 0x13: // DW_CFA_def_cfa and its kin
		return true
	}
	return false
}

const rankNone = 255

// nameRank orders the names of one address, the lowest first: names of functions before those of what an IFUNC resolver
// chooses, then global, local, weak, then those that can still be linked with before those that cannot (glibc's cfree is
// free), then .symtab before .dynsym.
func nameRank(s *elfio.Symbol, dynamic bool) uint8 {
	var r uint8
	if s.Type() != elf.STT_FUNC {
		r += 32
	}
	switch s.Bind() {
	case elf.STB_GLOBAL:
	case elf.STB_LOCAL:
		r += 4
	case elf.STB_WEAK:
		r += 8
	default:
		r += 12
	}
	if s.Superseded() || superseded(s.Name) {
		r += 2
	}
	if dynamic {
		r++
	}
	return r
}

// compareFuncs sorts by address and puts the best name of an address first. Names of equal rank are told apart by their
// leading underscores, then by the alphabet, so that the choice does not depend on the order of a table.
func compareFuncs(a, b Func) int {
	if c := cmp.Compare(a.Addr, b.Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(a.rank, b.rank); c != 0 {
		return c
	}
	if c := cmp.Compare(underscores(a.Name), underscores(b.Name)); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return cmp.Compare(b.Size, a.Size)
}

func underscores(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }

// BaseName returns a symbol's name without the version that linkers append in .symtab: name@VERSION, name@@VERSION.
func BaseName(s string) string {
	if i := strings.IndexByte(s, '@'); i > 0 {
		return s[:i]
	}
	return s
}

// superseded reports whether a name has the suffix of a version that is not the default one.
func superseded(s string) bool {
	i := strings.IndexByte(s, '@')
	return i > 0 && !strings.HasPrefix(s[i+1:], "@")
}

// addrRange is [lo, hi).
type addrRange struct{ lo, hi uint64 }

// stubSections returns where linkers put call stubs: .plt, .plt.got, .plt.sec, .plt.bnd, .iplt, sorted. Unwind tables
// cover them, but they are no functions.
func stubSections(f *elfio.File) []addrRange {
	var out []addrRange
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Flags&elf.SHF_EXECINSTR != 0 && IsStubSection(s.Name) {
			out = append(out, addrRange{s.Addr, s.Addr + s.Size})
		}
	}
	slices.SortFunc(out, func(a, b addrRange) int { return cmp.Compare(a.lo, b.lo) })
	return out
}

// IsStubSection reports whether name is that of a section for the linker's call stubs.
func IsStubSection(name string) bool {
	return name == ".plt" || strings.HasPrefix(name, ".plt.") || name == ".iplt"
}

func within(rs []addrRange, addr uint64) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].lo > addr }) - 1
	return i >= 0 && addr < rs[i].hi
}

// sectionOf returns the loaded section that holds addr, nil when none does.
func sectionOf(f *elfio.File, addr uint64) *elfio.Section {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_TLS == 0 && addr-s.Addr < s.Size {
			return s
		}
	}
	return nil
}
