package link

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// A linker for one object.
//
// The object becomes part of an image that may be loaded anywhere and has been linked already, so there is nobody to
// relocate it: what is placed must be right by distances alone. Code and read-only data are one block, zeroed memory is
// another, and everything in between that a dynamic linker would be needed for is refused. Sizes do not depend on
// addresses, so the caller can lay out first.

// Options says where a relocatable object goes and what it may refer to.
type Options struct {
	RX uint64 // address for its code and read-only data
	RW uint64 // address for its zeroed memory
	// TLS is the offset of the object's thread-local memory from the thread pointer in bytes: see TLSSize. Only for
	// objects that have any.
	TLS uint64
	// Symbols are addresses for undefined symbols.
	Symbols map[string]uint64
	// Import reports whether the dynamic linker should supply an undefined weak symbol at run time. The symbol then
	// gets a slot in zeroed memory, listed in Linked.Imports; inject.ExtendDynamic makes the dynamic linker fill it.
	// Other undefined weak symbols are 0. nil: nothing is imported.
	Import func(name string) bool
}

// Linked is a relocatable object placed at its addresses.
type Linked struct {
	RX       []byte
	RWSize   uint64
	RWAlign  uint64            // alignment Options.RW must have
	TLSSize  uint64            // thread-local memory, from Options.TLS on; zeroed in a new thread
	TLSAlign uint64            // alignment Options.TLS must have; 0 when TLSSize is
	Symbols  map[string]uint64 // every named symbol the object defines; a global one wins over local ones
	Defined  []Symbol          // the same with sizes and types, sorted by address
	Sections []Section         // in address order: those in RX, then those in RW
	EhFrame  Placed            // the object's .eh_frame, relocated; part of RX
	Frames   *ehframe.Table    // its entries; empty if the object has none
	Imports  []Import
}

// Section is a section of the object at its address.
type Section struct {
	Name  string
	Type  elf.SectionType
	Flags elf.SectionFlag
	Addr  uint64
	Size  uint64
	Align uint64
}

// Placed is a range of Linked.RX.
type Placed struct {
	Addr uint64
	Data []byte
}

// Symbol is a symbol the object defines.
type Symbol struct {
	Name  string
	Value uint64
	Size  uint64
	Info  byte
}

// Import is a symbol to be supplied at run time.
type Import struct {
	Name string
	Slot uint64 // address of the word, inside RW, that receives the symbol's address
}

// Object places the SHF_ALLOC sections of a relocatable object: code, then read-only data, then unwind data one after
// another from o.RX, and writable sections, which must hold nothing but zeroes, from o.RW. It resolves symbols and
// applies relocations.
//
// The result must work at any load address without dynamic relocations, so only PC-relative relocations are accepted.
// Absolute ones, constructors, initialised data and undefined symbols that are not in o.Symbols are refused by name
// and offset. The machine is x86-64 or AArch64. Thread-local memory, which must be zeroed, too, is supported only for
// AArch64 in the local-exec model; it is not part of RX and RW, and its symbols are not in Linked.
func Object(obj *elfio.File, o Options) (*Linked, error) {
	if obj.Header.Type != elf.ET_REL {
		return nil, elfio.FormatErrorf("ELF header", 16, "%v: not a relocatable object", obj.Header.Type)
	}
	l := &linker{obj: obj, c: raw.CodecOf(obj.Raw()), o: o, out: &Linked{Symbols: map[string]uint64{}, RWAlign: 16,
		Frames: new(ehframe.Table)}, addr: map[int]uint64{}}
	switch {
	case obj.Header.Machine == elf.EM_X86_64 && obj.Is64():
		l.apply = l.applyX86
	case obj.Header.Machine == elf.EM_AARCH64 && obj.Is64() && elf.Data(obj.Header.Ident[elf.EI_DATA]) == elf.ELFDATA2LSB:
		l.apply = l.applyARM64
	default:
		return nil, elfio.FormatErrorf("ELF header", 18, "%v objects cannot be linked", obj.Header.Machine)
	}
	syms, err := obj.Symbols()
	if err != nil {
		return nil, err
	}
	l.syms = syms
	for _, step := range []func() error{l.placeTLS, l.place, l.resolve, l.relocate} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return l.finish()
}

// WritableSize returns an upper bound on the zeroed memory that Object will need for the object, and its alignment.
// It does not depend on addresses, so it can be called before inject.NewLayout.
func WritableSize(obj *elfio.File) (size, align uint64, err error) {
	l := &linker{obj: obj, o: Options{RW: 1 << 32}, out: &Linked{RWAlign: 16}}
	for i, s := range obj.Sections {
		if !linked(&s) || s.Flags&(elf.SHF_WRITE|elf.SHF_TLS) != elf.SHF_WRITE {
			continue
		}
		if _, err := l.allocRW(s.Size, s.Addralign); err != nil {
			return 0, 0, elfio.FormatErrorf(obj.SectionLabel(i), s.Off, "%v", err)
		}
	}
	syms, err := obj.Symbols()
	if err != nil {
		return 0, 0, err
	}
	// In the order of Object, so that alignment costs the same.
	for _, s := range syms {
		if elf.SectionIndex(s.Shndx) == elf.SHN_COMMON {
			if _, err := l.allocRW(s.Size, s.Value); err != nil {
				return 0, 0, fmt.Errorf("common symbol %s: %w", s.Name, err)
			}
		}
	}
	for _, s := range syms {
		if !s.Defined() && s.Bind() == elf.STB_WEAK { // may become an import
			if _, err := l.slot(s.Name); err != nil {
				return 0, 0, fmt.Errorf("symbol %s: %w", s.Name, err)
			}
		}
	}
	return l.out.RWSize, l.out.RWAlign, nil
}

// maxLinked bounds the size of a linked object; a hostile header must not make us allocate more.
const maxLinked = 1 << 28

type linker struct {
	obj   *elfio.File
	c     raw.Codec
	o     Options
	out   *Linked
	addr  map[int]uint64 // address of each placed section
	tls   map[int]uint64 // distance from the thread pointer of each thread-local one
	syms  []elfio.Symbol
	value []target // by symbol index - 1
	slots map[string]uint64
	stubs map[string]uint64
	zero  uint64 // address of a word of zeroes in RX, for undefined weak symbols; 0: none yet
	trap  uint64 // address of an instruction that traps; 0: none yet
	apply func(*relocation) error
}

// target is what a symbol stands for.
type target struct {
	addr     uint64
	undef    bool // weak and undefined: addr is 0
	imported bool
	absolute bool // addr does not move with the image
	tls      bool // addr is the distance from the thread pointer
	name     string
	absent   error // undefined: refused when used
}

// relocation is one relocation being applied.
type relocation struct {
	elfio.Reloc
	section int    // section relocated
	buf     []byte // its contents, at address base
	base    uint64
	target  target
}

func (r *relocation) place() uint64 { return r.base + r.Off }

func (l *linker) errAt(r *relocation, format string, args ...any) error {
	return elfio.FormatErrorf(l.obj.SectionLabel(r.section), l.obj.Sections[r.section].Off+r.Off,
		"relocation %s against %q: %s", l.typeName(r.Type), r.target.name, fmt.Sprintf(format, args...))
}

func (l *linker) typeName(t uint32) string {
	if l.obj.Header.Machine == elf.EM_AARCH64 {
		return elf.R_AARCH64(t).String()
	}
	return elf.R_X86_64(t).String()
}

// linked reports whether a section of an object becomes part of the image. Notes do not: they would speak for the
// whole image.
func linked(s *elfio.Section) bool {
	if s.Size == 0 && (s.Addralign&(s.Addralign-1) != 0 || s.Addralign > 1<<16) {
		return false
	}
	return s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOTE
}

// place lays out the sections.
func (l *linker) place() error {
	var code, data, frames, writable []int
	for i, s := range l.obj.Sections {
		if !linked(&s) || s.Flags&elf.SHF_TLS != 0 {
			continue
		}
		refuse := ""
		switch {
		case s.Type == elf.SHT_INIT_ARRAY || s.Type == elf.SHT_FINI_ARRAY || s.Type == elf.SHT_PREINIT_ARRAY ||
			strings.HasPrefix(s.Name, ".ctors") || strings.HasPrefix(s.Name, ".dtors"):
			refuse = "constructors or destructors"
		case s.Flags&elf.SHF_COMPRESSED != 0:
			refuse = "compressed contents"
		case s.Addralign&(s.Addralign-1) != 0 || s.Addralign > 1<<16:
			refuse = fmt.Sprintf("alignment %#x", s.Addralign)
		case s.Size > maxLinked:
			refuse = fmt.Sprintf("%#x bytes", s.Size)
		case s.Type == elf.SHT_NOBITS && s.Flags&elf.SHF_WRITE == 0:
			refuse = "read-only memory without contents"
		}
		if refuse != "" && s.Size > 0 {
			return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off, "%s cannot be injected", refuse)
		}
		switch {
		case s.Flags&elf.SHF_WRITE != 0:
			writable = append(writable, i)
		case s.Name == ".eh_frame":
			frames = append(frames, i)
		case s.Flags&elf.SHF_EXECINSTR != 0:
			code = append(code, i)
		default:
			data = append(data, i)
		}
	}
	for _, i := range slices.Concat(code, data, frames) {
		s := l.obj.Sections[i]
		contents, err := l.obj.SectionData(i)
		if err != nil {
			return err
		}
		align := max(s.Addralign, 1)
		if i := len(l.out.RX); s.Flags&elf.SHF_EXECINSTR == 0 && i > 0 {
			align = max(align, 4)
		}
		l.padRX(align)
		l.addr[i] = l.o.RX + uint64(len(l.out.RX))
		l.placed(s, l.addr[i], align)
		l.out.RX = append(l.out.RX, contents...)
		if len(l.out.RX) > maxLinked {
			return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off, "object exceeds %#x bytes", maxLinked)
		}
	}
	for _, i := range writable {
		s := l.obj.Sections[i]
		contents, err := l.obj.SectionData(i)
		if err != nil {
			return err
		}
		for k, c := range contents {
			if c != 0 {
				return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off+uint64(k),
					"initialised data cannot be injected: writable memory is zeroed")
			}
		}
		addr, err := l.allocRW(s.Size, s.Addralign)
		if err != nil {
			return elfio.FormatErrorf(l.obj.SectionLabel(i), s.Off, "%v", err)
		}
		l.addr[i] = addr
		s.Type = elf.SHT_NOBITS
		l.placed(s, addr, max(s.Addralign, 1))
	}
	return nil
}

func (l *linker) placed(s elfio.Section, addr, align uint64) {
	if s.Size > 0 {
		l.out.Sections = append(l.out.Sections, Section{s.Name, s.Type, s.Flags, addr, s.Size, align})
	}
}

// padRX aligns the end of RX. Code is padded with zeroes: nothing runs off the end of a function.
func (l *linker) padRX(align uint64) {
	for (l.o.RX+uint64(len(l.out.RX)))&(align-1) != 0 {
		l.out.RX = append(l.out.RX, 0)
	}
}

// allocRW reserves n bytes of zeroed memory.
func (l *linker) allocRW(n, align uint64) (uint64, error) {
	align = max(align, 1)
	if align&(align-1) != 0 || align > 1<<16 || n > maxLinked {
		return 0, fmt.Errorf("%#x bytes aligned to %#x", n, align)
	}
	if l.o.RW&(align-1) != 0 {
		return 0, fmt.Errorf("needs memory aligned to %#x, which %#x is not", align, l.o.RW)
	}
	l.out.RWAlign = max(l.out.RWAlign, align)
	at, _ := raw.AlignUp(l.out.RWSize, align)
	if at+n > maxLinked {
		return 0, fmt.Errorf("zeroed memory exceeds %#x bytes", maxLinked)
	}
	l.out.RWSize = at + n
	return l.o.RW + at, nil
}
