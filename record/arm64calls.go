package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// stubs finds the jumps that linkers make for direct calls of imported functions, and of functions out of reach:
//
//	[bti c] adrp x16, slot; ldr x17, [x16, #:lo12:slot]; add x16, x16, #:lo12:slot; [autia1716] br x17
//	adrp x16, function; add x16, x16, #:lo12:function; br x16
func (m arm64Machine) stubs(im *image, p *profiling) {
	if p.empty() {
		return
	}
	// A veneer can lead to a stub.
	for range 2 {
		for i := range im.code.Regions {
			r := &im.code.Regions[i]
			if r.Name != "" && !symbol.IsStubSection(r.Name) && r.Name != ".text" {
				continue
			}
			for at := 0; at+arm64.InstLen <= len(r.Data); at += arm64.InstLen {
				w := binary.LittleEndian.Uint32(r.Data[at:])
				if w != 0xd61f0200 && w != 0xd61f0220 { // br x16, br x17
					continue
				}
				v, ok := valueOf(r, at, byte(w>>5&31), maxLookBack)
				if !ok {
					continue
				}
				cl := p.at(v)
				if cl == profNone {
					continue
				}
				p.targets[r.Addr+uint64(v.from)] = cl
				if from := v.from - code.PadLen; from >= 0 && m.HasPad(r.Data[from:]) {
					p.targets[r.Addr+uint64(from)] = cl
				}
			}
		}
	}
}

// value is what a register holds: an address, or what is in memory there.
type value struct {
	addr uint64
	slot bool
	from int // offset in the region of the first instruction that made it
}

// at says what a call of a value calls.
func (p *profiling) at(v value) profClass {
	if v.slot {
		return p.slots[v.addr]
	}
	return p.targets[v.addr]
}

// maxLookBack is how many instructions before its use a register's value is looked for.
const maxLookBack = 24

// valueOf returns what straight code, left instructions before offset at, has put into register reg:
//
//	adrp reg, page
//	adrp base, page; add reg, base, #lo12
//	adrp base, page; ldr reg, [base, #lo12]
func valueOf(r *code.Region, at int, reg byte, left int) (v value, ok bool) {
	for ; left > 0 && at >= arm64.InstLen; left-- {
		at -= arm64.InstLen
		w := binary.LittleEndian.Uint32(r.Data[at:])
		in := arm64.DecodeWord(w)
		rd, rn, imm := byte(w&31), byte(w>>5&31), uint64(w>>10&0xfff)
		switch {
		case in.Op == arm64.Adrp && in.Reg == reg, in.Op == arm64.Adr && in.Reg == reg:
			return value{in.Target(r.Addr + uint64(at)), false, at}, true
		case w&0xffc00000 == 0x91000000 && rd == reg: // add
			v, ok = valueOf(r, at, rn, left-1)
			v.addr += imm
			return v, ok && !v.slot
		case w&0xffc00000 == 0xf9400000 && rd == reg: // ldr
			v, ok = valueOf(r, at, rn, left-1)
			ok = ok && !v.slot
			v.addr, v.slot = v.addr+imm*8, true
			return v, ok
		case in.PCRel == arm64.PCRelBranch || in.Op == arm64.CallInd || in.Op.EndsBlock():
			return value{}, false
		case arm64.Writes(w)>>reg&1 != 0:
			return value{}, false
		}
	}
	return value{}, false
}

// callAt recognises bl. A call through a register says nothing by itself.
func (arm64Machine) callAt(p *profiling, b []byte, addr uint64) (call, bool) {
	in, err := arm64.Decode(b)
	if err != nil || in.Op != arm64.Call {
		return call{}, false
	}
	t := in.Target(addr)
	return call{addr, arm64.CallLen, p.targets[t], t, false}, true
}

// callsIn looks at every word that is a call, through a register too (-fno-plt): the site is the call alone then.
func (m arm64Machine) callsIn(p *profiling, r *code.Region, _ func(uint64) bool, out []call) []call {
	lo, hi := ^uint64(0), uint64(0)
	for t := range p.targets {
		lo, hi = min(lo, t), max(hi, t)
	}
	for at := 0; at+arm64.InstLen <= len(r.Data); at += arm64.InstLen {
		w := binary.LittleEndian.Uint32(r.Data[at:])
		addr := r.Addr + uint64(at)
		switch {
		case w>>26 == 0x94000000>>26:
			t := addr + uint64(int64(int32(w<<6)>>4))
			if t < lo || t > hi {
				continue
			}
			if cl := p.targets[t]; cl != profNone {
				out = append(out, call{addr, arm64.CallLen, cl, t, false})
			}
		case w&0xfffffc1f == 0xd63f0000: // blr
			v, ok := valueOf(r, at, byte(w>>5&31), maxLookBack)
			if !ok {
				continue
			}
			if cl := p.at(v); cl != profNone {
				out = append(out, call{addr, arm64.CallLen, cl, v.addr, v.slot})
			}
		}
	}
	return out
}

// wordCalls: the address of the word, and then the function's, are computed in registers, by instructions that compilers
// move apart.
func (arm64Machine) wordCalls(*code.Region, func(uint64) bool) []wordCall { return nil }
