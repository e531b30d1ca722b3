package record

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// tables adds the sites compilers have listed.
func (fd *finder) tables() error {
	for _, t := range []struct {
		name string
		each func(uint64)
	}{
		{SourcePatchable, fd.patchable},
	} {
		addrs, err := fd.im.addressTable(t.name)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			t.each(a)
		}
	}
	return nil
}

// addressTable reads a section of 8-byte addresses as they are at run time. Zero words, which linkers leave where they
// dropped a function, are skipped.
func (im *image) addressTable(name string) ([]uint64, error) {
	var out []uint64
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if s.Name != name || s.Type == elf.SHT_NOBITS {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			return nil, err
		}
		if len(b)%8 != 0 {
			return nil, fmt.Errorf("section %d (%s) at offset %#x: %d bytes are not whole addresses", i, s.Name, s.Off, len(b))
		}
		moved := im.relocated(s.Addr, uint64(len(b)))
		for o := uint64(0); o < uint64(len(b)); o += 8 {
			a, ok := moved[s.Addr+o]
			if !ok {
				a = im.f.Order().Uint64(b[o:])
			}
			if a != 0 {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// relocated returns what dynamic relocations write into the words of [addr, addr+size).
func (im *image) relocated(addr, size uint64) map[uint64]uint64 {
	out := make(map[uint64]uint64)
	for i := range im.relocs {
		r := &im.relocs[i]
		if r.Off-addr >= size {
			continue
		}
		switch elf.R_X86_64(r.Type) {
		case elf.R_X86_64_RELATIVE:
			out[r.Off] = uint64(r.Addend)
		case elf.R_X86_64_64:
			if r.Sym != 0 && uint64(r.Sym) <= uint64(len(im.tab.DynamicSymbols())) {
				out[r.Off] = im.tab.DynamicSymbols()[r.Sym-1].Value + uint64(r.Addend)
			}
		}
	}
	return out
}

// patchable adds the site of an entry of __patchable_function_entries: the address of the first of N nops, M of which
// stand before the function. Only those behind its first byte, and behind a landing pad there, are reached by callers.
func (fd *finder) patchable(first uint64) {
	s := Site{Func: first, Addr: first, Kind: KindPatchable, Ret: RetSP, Source: SourcePatchable}
	b := fd.im.code.at(first)
	if b == nil {
		s.Reason = ReasonNotExecutable
		fd.add(s)
		return
	}
	// The function begins at the end of the nops at the latest.
	if start, ok := fd.im.funcs.first(first, first+uint64(amd64.IsNops(b))); ok {
		s.Func, s.Addr = start, start // M nops before it
		if b := fd.im.code.at(start); len(b) >= 4 && string(b[:4]) == endbr64 {
			s.Addr += 4
		}
	} else if s.Func, ok = fd.entryOf(first); !ok {
		s.Func, s.Reason = first, ReasonUnknownEntry
	}
	s.Len = amd64.IsNops(fd.im.code.at(s.Addr))
	if s.Reason == "" && s.Len < siteSize {
		s.Reason = ReasonShortSite
	}
	fd.add(s)
}
