package names

import (
	"iter"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/symbol"
)

// A Func is a function of an image. Addresses are as in the image's file.
type Func struct {
	ID         uint32 // 0 for a function that is not traced or whose id follows from its address
	Addr, Size uint64 // Size in bytes, 0 if unknown
	Site       uint64 // address of what was rewritten
	Kind       string // kind of the site
	Name       string // raw symbol name, "" if unknown
}

// KindSilent is the Kind of a function whose calls are not recorded, but what they do: runtime.newproc1 and goexit1 of
// Go programs.
const KindSilent = "silent"

// Display returns the function's name: the symbol, or [symbol.NameAt] of its address if it has none; "" if neither is
// known. Package record gives its sites the same names.
func (f *Func) Display() string {
	if f.Name == "" && f.Addr != 0 {
		return symbol.NameAt(f.Addr)
	}
	return f.Name
}

// A Table holds the functions of an image by id. It is plain data.
type Table struct {
	Path    string // of the image when it was recorded
	BuildID []byte // the image's build-id before it was patched, nil if it has none
	Image   uint64 // image id: the .sym file's name
	Machine string // as in EM_X86_64, in lower case without the prefix: x86_64
	Entry   uint64 // e_entry of the image, as in the file
	Funcs   []Func // sorted by id; of a linked program, by address
	Module  string // path of a Go program's main module; "": there is none, or nobody knows it
	Go      string // version of Go that has linked it, see [golang.Version.Label]; "": none has, or nobody knows
	// Aliases are the other names of functions, by address: linkers fold functions with identical code. nil: none has
	// any.
	Aliases map[uint64][]string

	// Captures say what is captured of calls of functions, by id, as package arguments writes it in JSON. nil: nothing.
	Captures map[uint32]string

	// Linked is set for a program linked with the tracer. Its functions are not numbered: the runtime makes an id
	// from the place of the function's call of the tracer, its distance from the ELF header at Base in words of 4
	// bytes, plus 1 (trace.OffsetIDs).
	Linked bool
	Base   uint64
}

// New returns a table without functions, with the other fields set from the image's file.
func New(f *elfio.File) *Table {
	return &Table{
		BuildID: f.BuildID(), Entry: f.Header.Entry,
		Machine: machine.Name(f.Header.Machine),
	}
}

// Func returns the function with the given id. ok is false if there is none.
func (t *Table) Func(id uint32) (f Func, ok bool) {
	find := t.lookup
	if t.Linked {
		find = t.called
	}
	if p, ok := find(id); ok {
		return *p, true
	}
	return Func{}, false
}

// Alias notes another name of the function at addr.
func (t *Table) Alias(addr uint64, name string) {
	if t.Aliases == nil {
		t.Aliases = make(map[uint64][]string)
	}
	t.Aliases[addr] = append(t.Aliases[addr], name)
}

// GoVersion returns which version of Go has linked the image, "": none has, or nobody knows, and where what is known of its
// runtime is from.
func (t *Table) GoVersion() (version string, from golang.Source) { return golang.Named(t.Go) }

// IsOwn reports whether a function of a Go program is in its package main or in its main module.
func (t *Table) IsOwn(f *Func) bool { return golang.Own(t.Module, golang.Package(f.Name)) }

// AliasesOf returns the other names of a function.
func (t *Table) AliasesOf(f *Func) []string { return t.Aliases[f.Addr] }

// Traced yields the functions that have ids; of a linked program, all.
func (t *Table) Traced() iter.Seq[Func] {
	if t.Linked {
		return slices.Values(t.Funcs)
	}
	return slices.Values(t.Funcs[t.untraced():])
}

// MaxID returns the largest id in the table, or 0 if functions are not numbered.
func (t *Table) MaxID() uint32 {
	if n := len(t.Funcs); n > 0 && !t.Linked {
		return t.Funcs[n-1].ID
	}
	return 0
}

// lookup returns the row of a traced function.
func (t *Table) lookup(id uint32) (*Func, bool) {
	if id == 0 {
		return nil, false
	}
	// Ids count from 1 without holes, behind the functions that have none.
	fs := t.Funcs
	if first := t.untraced(); uint64(first)+uint64(id)-1 < uint64(len(fs)) {
		if k := first + int(id) - 1; fs[k].ID == id {
			return &fs[k], true
		}
	}
	i := sort.Search(len(fs), func(i int) bool { return fs[i].ID >= id })
	if i < len(fs) && fs[i].ID == id {
		return &fs[i], true
	}
	return nil, false
}

// untraced is the number of functions with id 0.
func (t *Table) untraced() int {
	return sort.Search(len(t.Funcs), func(i int) bool { return t.Funcs[i].ID > 0 })
}

// called returns the function that a call belongs to. The call is at most 3 bytes behind (id-1)*4 and 5 bytes long, so
// that the last of these bytes is in it.
func (t *Table) called(id uint32) (*Func, bool) {
	if id == 0 {
		return nil, false
	}
	at := t.Base + uint64(id-1)*4 + 3
	i := sort.Search(len(t.Funcs), func(i int) bool { return t.Funcs[i].Addr > at }) - 1
	if i < 0 || t.Funcs[i].Size > 0 && at-t.Funcs[i].Addr >= t.Funcs[i].Size {
		return nil, false
	}
	return &t.Funcs[i], true
}
