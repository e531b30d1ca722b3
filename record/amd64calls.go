package record

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// stubs finds the jumps through a known word that linkers make for direct calls of imported functions:
//
//	[f3 0f 1e fa  endbr64] [f2  bnd] ff 25 disp32  jmp *slot(%rip)
//	4c 8b 1d disp32  mov slot(%rip),%r11           (-z retpolineplt)
//
// mold's have, between endbr64 and the jump, 41 bb imm32, mov $index,%r11d.
func (m amd64Machine) stubs(im *image, p *profiling) {
	if len(p.slots) == 0 {
		return
	}
	for i := range im.code.Regions {
		r := &im.code.Regions[i]
		if r.Name != "" && !symbol.IsStubSection(r.Name) && r.Name != ".text" {
			continue
		}
		for _, op := range [][]byte{{0xff, 0x25}, {0x4c, 0x8b, 0x1d}} {
			for at := 0; ; {
				k := bytes.Index(r.Data[at:], op)
				if k < 0 {
					break
				}
				at += k
				d := at + len(op)
				if d+4 > len(r.Data) {
					break
				}
				next := r.Addr + uint64(d) + 4
				slot := next + uint64(int64(int32(binary.LittleEndian.Uint32(r.Data[d:]))))
				if cl := p.slots[slot]; cl != profNone {
					m.addStub(p, r, at, cl)
				}
				at++
			}
		}
	}
}

// addStub makes every address a call to the stub at offset at can have known.
func (m amd64Machine) addStub(p *profiling, r *code.Region, at int, cl profClass) {
	p.targets[r.Addr+uint64(at)] = cl
	if at > 0 && r.Data[at-1] == 0xf2 {
		at--
		p.targets[r.Addr+uint64(at)] = cl
	}
	if at >= 6 && r.Data[at-6] == 0x41 && r.Data[at-5] == 0xbb {
		at -= 6
		p.targets[r.Addr+uint64(at)] = cl
	}
	if at >= code.PadLen && m.HasPad(r.Data[at-code.PadLen:]) {
		p.targets[r.Addr+uint64(at-code.PadLen)] = cl
	}
}

// callAt recognises a call of a profiling function at the start of b, which lies at addr:
//
//	e8 rel32            call stub
//	67 e8 rel32         addr32 call stub: what linkers make of the next one when the stub is near
//	ff 15 disp32        call *slot(%rip)
//	49 ba imm64         movabs $stub,%r10       (-mcmodel=large)
//	41 ff d2            call *%r10
func (amd64Machine) callAt(p *profiling, b []byte, addr uint64) (call, bool) {
	rel := func(o int) uint64 {
		return addr + uint64(o) + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(b[o:]))))
	}
	switch {
	case len(b) >= 5 && b[0] == 0xe8:
		t := rel(1)
		return call{addr, 5, p.targets[t], t, false}, true
	case len(b) >= 6 && b[0] == 0x67 && b[1] == 0xe8:
		t := rel(2)
		return call{addr, 6, p.targets[t], t, false}, true
	case len(b) >= 6 && b[0] == 0xff && b[1] == 0x15:
		t := rel(2)
		return call{addr, 6, p.slots[t], t, true}, true
	case len(b) >= 13 && b[0] == 0x49 && b[1] == 0xba && b[10] == 0x41 && b[11] == 0xff && b[12] == 0xd2:
		t := binary.LittleEndian.Uint64(b[2:])
		return call{addr, 13, p.targets[t], t, false}, true
	}
	return call{}, false
}

// callsIn looks for every byte sequence that is a call. A direct one is told by four bytes that name one of a handful
// of targets.
func (m amd64Machine) callsIn(p *profiling, r *code.Region, starts func(uint64) bool, out []call) []call {
	out = m.scan(p, r, "\xe8", starts, out)
	if len(p.slots) > 0 {
		out = m.scan(p, r, "\xff\x15", starts, out)
	}
	return m.scan(p, r, "\x49\xba", starts, out)
}

// scan tries callAt wherever an opcode stands.
func (m amd64Machine) scan(p *profiling, r *code.Region, opcode string, starts func(uint64) bool, out []call) []call {
	// The last byte is looked for: it is the rarer one.
	back := len(opcode) - 1
	for at := back; at < len(r.Data); at++ {
		k := bytes.IndexByte(r.Data[at:], opcode[back])
		if k < 0 {
			break
		}
		at += k
		start := at - back
		if back > 0 && r.Data[start] != opcode[0] {
			continue
		}
		if back == 0 && start > 0 && r.Data[start-1] == 0x67 && !starts(r.Addr+uint64(start)) {
			start-- // the prefix of a relaxed call, not the end of what stands before
		}
		if cl, ok := m.callAt(p, r.Data[start:], r.Addr+uint64(start)); ok && cl.class != profNone {
			out = append(out, cl)
		}
	}
	return out
}
