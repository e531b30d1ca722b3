package inject

import (
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Thread-local memory of an injection.
//
// The executable's block of thread-local memory is the first behind the thread pointer, so what is added at its end
// has one distance from there in every thread, and nothing of the program's own moves. Sections have to say so too:
// strip and objcopy compute PT_TLS from them.

// tcbSize is what lies between the thread pointer and the first block (AArch64 TLS ABI: two words).
const tcbSize = 16

// ExtendTLS returns the image's PT_TLS with size bytes, aligned to align, added at its end, and their offset from the
// thread pointer. An image without a PT_TLS gets a new one, at address at and file offset 0.
//
// Only executables of AArch64 can be extended: on x86-64 the addition would have to come first.
func ExtendTLS(f *elfio.File, size, align, at uint64) (tls elfio.Prog, offset uint64, err error) {
	return newImage(f).extendTLS(size, align, at)
}

func (f *image) extendTLS(size, align, at uint64) (tls elfio.Prog, offset uint64, err error) {
	i := f.ProgIndex(elf.PT_TLS)
	what := "program header table"
	if i >= 0 {
		tls, what = f.Progs[i], f.ProgLabel(i)
	} else {
		tls = elfio.Prog{Type: elf.PT_TLS, Flags: elf.PF_R, Vaddr: at, Paddr: at, Align: align}
	}
	bad := func(format string, args ...any) (elfio.Prog, uint64, error) {
		return elfio.Prog{}, 0, elfio.FormatErrorf(what, f.Header.Phoff, format, args...)
	}
	a := max(tls.Align, 1)
	switch {
	case f.Header.Machine != elf.EM_AARCH64 || !f.c.Is64:
		return bad("thread-local memory can be added to 64-bit images of AArch64 only")
	case f.sharedObject():
		return bad("a shared object's thread-local memory has no fixed place")
	case align == 0 || align&(align-1) != 0 || align > tcbSize:
		return bad("thread-local memory aligned to %d", align)
	case a&(a-1) != 0 || tls.Filesz > tls.Memsz || tls.Memsz > raw.MaxTLS || size > raw.MaxTLS:
		return bad("thread-local memory of %#x bytes, %#x of them in the file, aligned to %#x", tls.Memsz, tls.Filesz, a)
	}
	// The block is at the first place that is congruent to its address (glibc and musl).
	base := tcbSize + (tls.Vaddr-tcbSize)&(a-1)
	end, ok := raw.AlignUp(base+tls.Memsz, align)
	if !ok || end+size > raw.MaxTLS {
		return bad("thread-local memory ends %#x bytes behind the thread pointer, where nothing can be added", end)
	}
	tls.Memsz = end - base + size
	return tls, end, nil
}

// planTLS decides where an injection's thread-local memory goes.
func (f *image) planTLS(p *injectionPlan) (err error) {
	if p.TLSSize == 0 {
		return nil
	}
	p.tls, p.TLS, err = f.extendTLS(p.TLSSize, p.TLSAlign, p.Segment)
	if f.ProgIndex(elf.PT_TLS) < 0 {
		p.tls.Off = p.SegmentOff
	}
	return err
}

// tlsHeader changes or adds the program header.
func (j *injector) tlsHeader(progs []elfio.Prog) []elfio.Prog {
	if j.plan.TLSSize == 0 {
		return progs
	}
	if i := slices.IndexFunc(progs, func(q elfio.Prog) bool { return q.Type == elf.PT_TLS }); i >= 0 {
		progs[i].Memsz = j.plan.tls.Memsz
		return progs
	}
	return append(progs, j.plan.tls)
}

// tlsSection makes the section at the end of thread-local memory cover what is added, or adds one.
func (b *tableBuilder) tlsSection() {
	p := b.j.plan
	if p.TLSSize == 0 {
		return
	}
	end, old := p.tls.Vaddr+p.tls.Memsz, p.tls.Vaddr
	if i := b.j.f.ProgIndex(elf.PT_TLS); i >= 0 {
		old += b.j.f.Progs[i].Memsz
	}
	last := 0
	for i := range b.list {
		s := &b.list[i]
		if s.Flags&elf.SHF_TLS == 0 || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		last = i
		if s.Type == elf.SHT_NOBITS && s.Size > 0 && s.Addr+s.Size == old {
			s.Size = end - s.Addr
			return
		}
	}
	s := newSection{old: -1, Section: elfio.Section{Name: ".fentry.tbss", Type: elf.SHT_NOBITS,
		Flags: elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_TLS,
		Addr:  end - p.TLSSize, Off: p.tls.Off + p.tls.Filesz, Size: p.TLSSize, Addralign: p.TLSAlign}}
	if last == 0 {
		b.insert([]newSection{s})
		return
	}
	b.list = slices.Insert(b.list, last+1, s)
}
