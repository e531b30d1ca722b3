package record

import (
	"debug/elf"
	"fmt"
)

// An entry of xray_instr_map has 32 bytes: the address of the sled and that of the function, what kind of sled it is,
// whether it is always instrumented, and a version; the rest is zero. From version 2 on, both addresses are relative to
// the place they are stored at (LLVM, "XRay Instrumentation": XRaySledEntry).
const (
	xrayEntry    = 32
	xrayKind     = 16
	xrayVersion  = 18
	xrayEnter    = 0 // kinds
	xrayExit     = 1
	xrayTail     = 2
	xrayLogEnter = 3
)

// xray adds the entry sleds of xray_instr_map, and, where asked for, the exit sleds.
func (fd *finder) xray() error {
	im := fd.im
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if s.Name != SourceXRay || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			return err
		}
		if len(b)%xrayEntry != 0 {
			return fmt.Errorf("section %d (%s) at offset %#x: %d bytes are not whole entries of %d", i, s.Name, s.Off, len(b),
				xrayEntry)
		}
		moved := im.relocated(s.Addr, uint64(len(b)))
		for o := 0; o < len(b); o += xrayEntry {
			e := b[o : o+xrayEntry]
			at := s.Addr + uint64(o)
			field := func(k uint64) uint64 {
				v, ok := moved.at(at + k)
				if !ok {
					v = im.f.Order().Uint64(e[k:])
				}
				if e[xrayVersion] >= 2 {
					v += at + k
				}
				return v
			}
			fd.sled(field(0), field(8), e[xrayKind])
		}
	}
	return nil
}

// sled adds one entry of the map.
func (fd *finder) sled(addr, fn uint64, kind byte) {
	sled := fd.m.sled()
	s := Site{Func: fn, Addr: addr, Len: len(sled), Kind: KindXRay, Ret: fd.m.atEntry(), Source: SourceXRay}
	b := fd.im.code.From(addr)
	switch kind {
	case xrayEnter, xrayLogEnter:
	case xrayExit, xrayTail:
		if !fd.o.XRayExits {
			return
		}
		s.Ret, s.Reason = RetNone, ReasonXRayExit
		fd.add(s)
		return
	default: // custom and typed events are calls in the middle of functions
		return
	}
	start, ok := fd.entryOf(addr)
	switch {
	case b == nil || fd.im.code.Region(fn) == nil:
		s.Len, s.Reason = 0, ReasonNotExecutable
	case fd.isPatched(addr):
		s.Reason = ReasonPatched
	case len(b) < len(sled) || string(b[:len(sled)]) != sled:
		s.Reason = ReasonUnexpected
	case start != 0 && (!ok || start != fn) || start == 0 && !fd.isLead(fn, addr):
		s.Reason = ReasonNotAtEntry
	}
	fd.add(s)
}
