package golang

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	Main    string // path of the main module; "": unknown
	Funcs   []Func // by address
	Tables

	f        *elfio.File
	text     []byte // from TextStart
	interior map[uint64]bool
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

// A Version is what depends on the version of Go that has linked an image: offsets in structures of its runtime.
type Version struct {
	Name   string
	GoID   uint32 // of runtime.g
	Size   uint32 // of runtime.moduledata
	Bad    uint32 // in it
	Next   uint32 // in it
	Header bool   // pcHeader.textStart is checked
}

// versions are those that are known, by their minor number. The structures are the runtime's own (runtime2.go,
// symtab.go) and have no names in a program, so a new version has to be looked at before it is added.
var versions = map[int]Version{
	21: {GoID: 0x98, Size: 0x250, Bad: 0x240, Next: 0x248, Header: true},
	22: {GoID: 0x98, Size: 0x250, Bad: 0x240, Next: 0x248, Header: true},
	23: {GoID: 0xa0, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	24: {GoID: 0xa0, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	25: {GoID: 0x98, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	26: {GoID: 0x98, Size: 0x250, Bad: 0x219, Next: 0x248},
}

// Offsets in moduledata that are the same in all versions.
const (
	mdFuncNames = 0x08
	mdCUTab     = 0x20
	mdFileTab   = 0x38
	mdPctab     = 0x50
	mdMinPC     = 0xa0
	mdText      = 0xb0
	mdEText     = 0xb8
	mdRodata    = 0x138
	mdGoFunc    = 0x140
	mdKnown     = 0x148 // how much of it is looked at
)

// versionOf returns the version with a name like go1.26.8, or devel go1.27-0123456.
func versionOf(name string) (Version, error) {
	var minor int
	_, number, ok := strings.Cut(name, "go1.")
	if n, err := fmt.Sscanf(number, "%d", &minor); !ok || n != 1 || err != nil {
		return Version{}, refuse("linked by %q, which is no version of Go", name)
	}
	v, ok := versions[minor]
	if !ok || strings.Contains(name, "devel") {
		return Version{}, refuse("linked by %s, whose runtime is not known: go1.21 to go1.26 are", name)
	}
	v.Name = name
	return v, nil
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
	i := pclnSection(f)
	if i < 0 {
		return nil, ErrNotGo
	}
	if f.Header.Machine != elf.EM_X86_64 {
		return nil, refuse("a Go program for %v: only those for x86-64 are traced", f.Header.Machine)
	}
	if f.Header.Type != elf.ET_EXEC {
		return nil, refuse("a position-independent Go image (-buildmode=pie, c-shared, plugin): only -buildmode=exe is traced")
	}
	if f.ProgIndex(elf.PT_INTERP) >= 0 || f.ProgIndex(elf.PT_DYNAMIC) >= 0 {
		return nil, refuse("a Go program that is linked dynamically, as cgo does: only those that are static are traced " +
			"(CGO_ENABLED=0)")
	}
	info, err := buildinfo.Read(bytes.NewReader(f.Raw()))
	if err != nil {
		return nil, refuse("a Go program without build information (%v), so its version is not known", err)
	}
	im := &Image{f: f, Main: info.Main.Path}
	if im.Version, err = versionOf(info.GoVersion); err != nil {
		return nil, err
	}
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return nil, refuse("a Go program linked with the race detector (-race)")
		}
	}
	if im.Main == "" || im.Main == "command-line-arguments" {
		im.Main = "main"
	}
	if err := im.readTables(i); err != nil {
		return nil, fmt.Errorf("pclntab: %w", err)
	}
	if err := im.readFuncs(); err != nil {
		return nil, fmt.Errorf("pclntab: %w", err)
	}
	im.findInterior()
	return im, nil
}

// pclnMagic is that of Go 1.20 and later.
const pclnMagic = 0xfffffff1

// readTables finds the tables: their places are in pclntab's header, and what is not there in moduledata.
func (im *Image) readTables(section int) error {
	b, err := im.f.SectionData(section)
	if err != nil {
		return err
	}
	const header = 72
	if len(b) < header || le.Uint32(b) != pclnMagic || b[6] != 1 || b[7] != 8 {
		return fmt.Errorf("section %d: no header of this kind", section)
	}
	im.Pclntab = im.f.Sections[section].Addr
	sub := func(at int) ([]byte, error) {
		off := le.Uint64(b[at:])
		if off > uint64(len(b)) {
			return nil, fmt.Errorf("header word %#x: offset %#x behind its end", at, off)
		}
		return b[off:], nil
	}
	if im.names, err = sub(32); err != nil {
		return err
	}
	if im.pctab, err = sub(56); err != nil {
		return err
	}
	if im.pcln, err = sub(64); err != nil {
		return err
	}
	md, err := im.findModule(im.Pclntab, im.Pclntab+le.Uint64(b[32:]))
	if err != nil {
		return err
	}
	word := func(off int) uint64 { return le.Uint64(md[off:]) }
	im.FuncNames, im.CUTab, im.FileTab = word(mdFuncNames), word(mdCUTab), word(mdFileTab)
	im.lengths = [3]uint64{word(mdFuncNames + 8), word(mdCUTab + 8), word(mdFileTab + 8)}
	im.Pctab, im.TextStart, im.TextEnd = word(mdPctab), word(mdText), word(mdEText)
	im.Rodata, im.GoFunc = word(mdRodata), word(mdGoFunc)
	if im.Pctab-im.Pclntab != le.Uint64(b[56:]) || im.TextEnd < im.TextStart || im.TextEnd-im.TextStart > uint64(len(im.f.Raw())) {
		return fmt.Errorf("moduledata at %#x: not that of this table", im.ModuleData)
	}
	im.text, err = im.f.Bytes(im.TextStart, int(im.TextEnd-im.TextStart))
	return err
}

// findModule finds moduledata, which no symbol names in a stripped program: its first two words are the addresses of
// pclntab and of the names of functions in it.
func (im *Image) findModule(first, second uint64) ([]byte, error) {
	want := le.AppendUint64(le.AppendUint64(nil, first), second)
	for i := range im.f.Progs {
		p := &im.f.Progs[i]
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_W == 0 {
			continue
		}
		b, err := im.f.ProgData(i)
		if err != nil {
			return nil, err
		}
		at := bytes.Index(b, want)
		if at < 0 || len(b)-at < int(im.Version.Size) {
			continue
		}
		im.ModuleData = p.Vaddr + uint64(at)
		if next := le.Uint64(b[at+int(im.Version.Next):]); next != 0 {
			return nil, refuse("a Go program of several modules")
		}
		return b[at:][:mdKnown], nil
	}
	return nil, errors.New("nothing refers to it")
}

// findInterior finds the addresses in code that data has, beside those of functions: where tables of jumps lead.
func (im *Image) findInterior() {
	im.interior = map[uint64]bool{}
	pcln := pclnSection(im.f)
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if i == pcln || s.Flags&elf.SHF_ALLOC == 0 || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_EXECINSTR != 0 {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			continue
		}
		for o := int(-s.Addr % 8); o+8 <= len(b); o += 8 {
			a := le.Uint64(b[o:])
			if a-im.TextStart >= uint64(len(im.text)) {
				continue
			}
			if _, entry := im.find(a); !entry {
				im.interior[a] = true
			}
		}
	}
}

// Func returns the function that begins at an address, nil: none does.
func (im *Image) Func(addr uint64) *Func {
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
