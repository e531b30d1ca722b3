package golang

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
)

var le = binary.LittleEndian

// ErrNotGo is returned for images that Go has not linked.
var ErrNotGo = errors.New("not a Go image")

// A Refusal says why nothing in an image of Go's is traced. It is a sentence without its subject.
type Refusal struct{ why string }

func (r *Refusal) Error() string { return r.why }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// An Image is what a Go image says about itself.
type Image struct {
	Version Version
	Main    string // path of the main module; "": unknown, or there is none
	Funcs   []Func // by address
	Tables

	f        *elfio.File
	machine  elf.Machine
	text     []byte // from TextStart
	interior map[uint64]bool
	words    []dataWord // that are relocated, by address
	next     uint64     // the module behind the first one

	relocatable bool
	sanitized   bool // it has been built with -race, -msan or -asan

	switchesOnce sync.Once
	switches     map[uint64]bool // functions that go on with a goroutine, by their entries
	cgo          bool            // the program has C code
}

// Tables is where the runtime's tables are. Addresses are those at which the image is linked.
type Tables struct {
	ModuleData uint64 // runtime.firstmoduledata
	Pclntab    uint64
	TextStart  uint64 // what offsets of functions count from: runtime.text
	TextEnd    uint64
	Pctab      uint64
	GoFunc     uint64 // what offsets of function data count from: go:func.*
	Rodata     uint64
	FuncNames  uint64
	CUTab      uint64
	FileTab    uint64
	lengths    [3]uint64 // of the last three

	pctab []byte // from Pctab on
	pcln  []byte // functions, from the table of them on
	names []byte
}

// Is reports whether Go has linked an image, as its sections say.
func Is(f *elfio.File) bool { return pclnSection(f) >= 0 }

func pclnSection(f *elfio.File) int {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if i := f.SectionIndex(name); i >= 0 {
			return i
		}
	}
	return -1
}

// Read reads the tables of an image. Errors are [ErrNotGo], a *[Refusal], and those that name malformed parts.
func Read(f *elfio.File) (*Image, error) {
	if !Is(f) {
		return nil, ErrNotGo
	}
	switch f.Header.Machine {
	case elf.EM_X86_64, elf.EM_AARCH64:
	default:
		return nil, refuse("a Go program for %v: those for x86-64 and AArch64 are traced", f.Header.Machine)
	}
	im, info, err := read(f)
	if err != nil {
		return nil, err
	}
	mode, shared := "", f.Header.Type == elf.ET_DYN && f.ProgIndex(elf.PT_INTERP) < 0
	for _, s := range info.Settings {
		if s.Key == "-buildmode" {
			mode = s.Value
		}
	}
	switch mode {
	case "c-shared", "plugin", "shared":
		shared = true
	}
	if shared {
		return nil, refuse("a shared library that Go has linked (-buildmode=c-shared, plugin, shared), whose code uses a register " +
			"that recording needs: programs are traced")
	}
	if im.next != 0 {
		return nil, refuse("a Go program of several modules")
	}
	im.cgo = im.HasC()
	if err := im.checkTLS(); err != nil {
		return nil, err
	}
	for _, s := range info.Settings {
		if s.Value == "true" && (s.Key == "-race" || s.Key == "-msan" || s.Key == "-asan") {
			im.sanitized = true
		}
	}
	im.sanitized = im.sanitized || slices.ContainsFunc(im.Funcs, func(f Func) bool { return slices.Contains(sanitizers, f.Name) })
	im.findInterior()
	if im.Version.Source == Derived {
		if err := im.derive(); err != nil {
			return nil, im.Version.unlike(err)
		}
	}
	return im, nil
}

// checkTLS returns an error if the word at the end of thread-local memory is out of reach by which events find their thread.
func (im *Image) checkTLS() error {
	i := im.f.ProgIndex(elf.PT_TLS)
	if i < 0 || im.machine != elf.EM_AARCH64 || !im.cgo {
		return nil
	}
	const before = 16 // bytes behind the thread pointer (AArch64 TLS ABI), and then what alignment adds
	if p := &im.f.Progs[i]; p.Memsz > arm64.MostGoTLS || before+p.Align+p.Memsz > arm64.MostGoTLS {
		return refuse("a Go program for AArch64 whose C code has %d bytes of thread-local memory: the word behind it that recording "+
			"needs is reached behind %d", p.Memsz, arm64.MostGoTLS)
	}
	return nil
}

// ThreadWord is where in runtime.m a word is that can be the thread's own; 0: none is needed. That is so where the thread
// pointer is free, on AArch64 in programs without C code. With C code there are threads of C's that take turns in having a
// runtime.m.
func (im *Image) ThreadWord() uint32 {
	if im.machine != elf.EM_AARCH64 || im.cgo {
		return 0
	}
	return im.Version.TLS
}

// HasC reports whether there is C code in the program.
func (im *Image) HasC() bool {
	return slices.ContainsFunc(im.Funcs, func(f Func) bool { return Package(f.Name) == "runtime/cgo" })
}

// TracesC reports whether C functions of the program can be traced: not if there is the runtime of a sanitizer among them,
// which looks at stacks and has its own memory where return addresses would be kept.
func (im *Image) TracesC() bool { return !im.sanitized }

// HasGo reports whether the code at an address is one of the program's functions in Go, or in Go's assembly, or a mark of the
// linker's between them. A nil image has none.
func (im *Image) HasGo(addr uint64) bool {
	if im == nil || addr < im.TextStart || addr >= im.TextEnd {
		return false
	}
	f := im.at(addr)
	return f != nil && !f.isC()
}

// GoCode returns a range of the program's code in which nothing is C's. Where Go has linked both, C's functions are in front
// of its own.
func (im *Image) GoCode() (from, to uint64) {
	from = im.TextStart
	for i := range im.Funcs {
		if f := &im.Funcs[i]; f.isC() {
			from = f.Next
		}
	}
	return from, im.TextEnd
}

// sanitizers are functions of the runtime that are there with a sanitizer.
var sanitizers = []string{"runtime.raceinit", "runtime.msanread", "runtime.asanread"}

// ReadNames is Read for the functions' names only: those of images that are not traced, and of those that have been
// patched, can be read as well.
func ReadNames(f *elfio.File) (*Image, error) {
	if !Is(f) {
		return nil, ErrNotGo
	}
	im, _, err := read(f)
	return im, err
}

// read reads all but what only those need who move code.
func read(f *elfio.File) (*Image, *debug.BuildInfo, error) {
	info, err := buildinfo.Read(bytes.NewReader(f.Raw()))
	if err != nil {
		return nil, nil, refuse("a Go program without build information (%v), so its version is not known", err)
	}
	im := &Image{f: f, machine: f.Header.Machine, Main: info.Main.Path, relocatable: f.Header.Type == elf.ET_DYN}
	if im.Version, err = versionOf(f, info.GoVersion); err != nil {
		return nil, nil, err
	}
	if err := im.readWords(); err != nil {
		return nil, nil, err
	}
	err = im.readTables(pclnSection(f))
	if err == nil {
		err = im.readFuncs()
	}
	if err != nil {
		if err = fmt.Errorf("pclntab: %w", err); im.Version.Source != Tried {
			err = im.Version.unlike(err)
		}
		return nil, nil, err
	}
	return im, info, nil
}

// Relocatable reports whether the image is position-independent: what has addresses is relocated when it is loaded.
func (im *Image) Relocatable() bool { return im.relocatable }

// Func returns the function that begins at an address, nil: none does, or the image is nil.
func (im *Image) Func(addr uint64) *Func {
	if im == nil {
		return nil
	}
	if i, ok := im.find(addr); ok {
		return &im.Funcs[i]
	}
	return nil
}

// Code returns a function's code with the padding behind it. It is read-only.
func (im *Image) Code(f *Func) ([]byte, error) {
	if f.Entry < im.TextStart || f.Next-im.TextStart > uint64(len(im.text)) {
		return nil, fmt.Errorf("%s at %#x: not in the program's code", f.Name, f.Entry)
	}
	return im.text[f.Entry-im.TextStart : f.Next-im.TextStart], nil
}

// Header returns a copy of the beginning of pclntab.
func (im *Image) Header(n int) ([]byte, error) {
	b, err := im.f.Bytes(im.Pclntab, n)
	return slices.Clone(b), err
}

// Shared are the tables that another module of the program can use as they are: their addresses and lengths, by their
// offset in moduledata.
func (im *Image) Shared() map[int][2]uint64 {
	return map[int][2]uint64{
		mdFuncNames: {im.FuncNames, im.lengths[0]},
		mdCUTab:     {im.CUTab, im.lengths[1]},
		mdFileTab:   {im.FileTab, im.lengths[2]},
	}
}

// find returns the index of the function that begins at an address.
func (im *Image) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(im.Funcs, addr, func(f Func, a uint64) int {
		switch {
		case f.Entry < a:
			return -1
		case f.Entry > a:
			return 1
		}
		return 0
	})
}
