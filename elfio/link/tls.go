package link

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Thread-local memory of a linked object, in the local-exec model: every thread has it at one distance from its
// thread pointer, as part of the executable's own (ELF Handling for Thread-Local Storage, 3; AArch64 is of variant
// I: the thread pointer is at the lower end).

// TLSSize returns the size and alignment of the thread-local memory that an object needs; both are 0 if it needs
// none. Whoever links the object adds that much at the end of the executable's PT_TLS and sets Options.TLS.
func TLSSize(obj *elfio.File) (size, align uint64, err error) {
	_, size, align, err = layoutTLS(obj, 0)
	return size, align, err
}

// layoutTLS returns the distance from the thread pointer of each thread-local section, when the first is at base.
func layoutTLS(obj *elfio.File, base uint64) (at map[int]uint64, size, align uint64, err error) {
	for i, s := range obj.Sections {
		if !linked(&s) || s.Flags&elf.SHF_TLS == 0 || s.Size == 0 {
			continue
		}
		a := max(s.Addralign, 1)
		refuse := ""
		switch {
		case obj.Header.Machine != elf.EM_AARCH64:
			refuse = "thread-local storage"
		case s.Type != elf.SHT_NOBITS:
			refuse = "initialised thread-local storage"
		case a&(a-1) != 0 || a > 1<<16:
			refuse = fmt.Sprintf("alignment %#x", a)
		case s.Size > raw.MaxTLS || size+a+s.Size > raw.MaxTLS:
			refuse = fmt.Sprintf("%#x bytes of thread-local storage", s.Size)
		}
		if refuse != "" {
			return nil, 0, 0, elfio.FormatErrorf(obj.SectionLabel(i), s.Off, "%s cannot be injected", refuse)
		}
		if at == nil {
			at = map[int]uint64{}
		}
		size, _ = raw.AlignUp(size, a)
		at[i] = base + size
		size += s.Size
		align = max(align, a)
	}
	return at, size, align, nil
}

// placeTLS lays out the thread-local sections.
func (l *linker) placeTLS() (err error) {
	l.tls, l.out.TLSSize, l.out.TLSAlign, err = layoutTLS(l.obj, l.o.TLS)
	if err != nil || l.tls == nil {
		return err
	}
	const reserved = 16 // bytes from the thread pointer on, AArch64 TLS ABI
	if l.o.TLS < reserved || l.o.TLS%l.out.TLSAlign != 0 || l.o.TLS > raw.MaxTLS-l.out.TLSSize {
		return fmt.Errorf("%d bytes of thread-local memory, aligned to %d: %#x from the thread pointer is no place for them",
			l.out.TLSSize, l.out.TLSAlign, l.o.TLS)
	}
	return nil
}

// isTLS reports whether a symbol stands for a thread-local section.
func (l *linker) isTLS(s elfio.Symbol) bool {
	_, ok := l.tls[int(s.Section)]
	return ok
}

// tlsARM64 applies a local-exec relocation (ELF for the Arm 64-bit Architecture, "Local exec thread-local storage
// model"). x is the distance from the thread pointer, 24 bits at most.
func (l *linker) tlsARM64(r *relocation, x uint64) error {
	if x >= raw.MaxTLS {
		return l.errAt(r, "%#x from the thread pointer does not fit 24 bits", x)
	}
	switch t := elf.R_AARCH64(r.Type); t {
	case elf.R_AARCH64_TLSLE_ADD_TPREL_HI12:
		return l.low12(r, x>>12, 0)
	case elf.R_AARCH64_TLSLE_ADD_TPREL_LO12:
		if x >= 1<<12 {
			return l.errAt(r, "%#x from the thread pointer does not fit 12 bits", x)
		}
		return l.low12(r, x, 0)
	case elf.R_AARCH64_TLSLE_ADD_TPREL_LO12_NC, rARM64TPRelLDST8NC:
		return l.low12(r, x, 0)
	case rARM64TPRelLDST16NC:
		return l.low12(r, x, 1)
	case rARM64TPRelLDST32NC:
		return l.low12(r, x, 2)
	case rARM64TPRelLDST64NC:
		return l.low12(r, x, 3)
	}
	return l.errAt(r, "thread-local, and not of the local-exec model: compile with -ftls-model=local-exec")
}
