package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Numbers of general registers in instructions.
const (
	rax = 0
	rcx = 1
	rdx = 2
	rsp = 4
	rbp = 5
	rsi = 6
	rdi = 7
)

// argumentRegs are the registers a profiling function has to keep: the six of arguments, and rax, which counts vector
// arguments of functions with variable ones (System V psABI for x86-64, 3.2.3).
const argumentRegs = 1<<rax | 1<<rcx | 1<<rdx | 1<<rsi | 1<<rdi | 1<<8 | 1<<9

// profShape is what the straight code from a function's first byte to its first call does.
type profShape struct {
	saved uint16 // set of registers stored to the stack
	class profClass
	empty bool // nothing but a return
}

// shapeOf decodes the code of a supposed profiling function. Ordinary functions do not save rax and all argument
// registers before they have done anything, and one that goes on to load its caller's return address has one purpose.
func shapeOf(b []byte) profShape {
	var sh profShape
	depth := int64(0) // bytes pushed since entry
	for n := 0; n < 64; n++ {
		in, err := amd64.Decode(b)
		if err != nil {
			return sh
		}
		raw := b[:in.Len]
		b = b[in.Len:]
		switch in.Op {
		case amd64.Nop, amd64.Endbr64:
			continue
		case amd64.Ret:
			sh.empty = n <= 1 && sh.saved == 0
			return sh
		case amd64.Push:
			if r, ok := pushedReg(in); ok {
				sh.saved |= 1 << r
			}
			depth += 8
			continue
		case amd64.Other:
		default:
			return sh
		}
		if k, ok := adjustsSP(in, raw); ok {
			depth -= k
			continue
		}
		m, ok := movMem(in, raw)
		if !ok {
			continue
		}
		if m.store {
			if m.base == rsp {
				sh.saved |= 1 << m.reg
			}
			continue
		}
		// Where the traced function returns to: above its own frame pointer, or above the two return addresses.
		switch {
		case m.base == rbp && m.disp == 8:
			sh.class = profMcount
		case m.base == rsp && m.disp == depth+8 && sh.class == profNone:
			sh.class = profFentry
		}
	}
	return sh
}

// savesArguments reports whether a function cannot be an ordinary C function: it saves what only a profiling function
// saves, or does nothing, so that its calls may be replaced.
func savesArguments(b []byte) bool {
	sh := shapeOf(b)
	return sh.empty || sh.saved&argumentRegs == argumentRegs
}

// pushedReg is the register of push %reg.
func pushedReg(in amd64.Inst) (int, bool) {
	if in.Map != 0 || in.Opcode < 0x50 || in.Opcode > 0x57 {
		return 0, false
	}
	return int(in.Opcode&7) | int(in.REX&1)<<3, true
}

// adjustsSP recognises sub and add of a constant to the stack pointer, in both sizes of the constant, and
// lea disp(%rsp),%rsp, and returns what they add.
func adjustsSP(in amd64.Inst, raw []byte) (int64, bool) {
	if in.Enc != amd64.Legacy || in.Map != 0 || in.REX != 0x48 || !in.HasModRM {
		return 0, false
	}
	if in.Opcode == 0x8d {
		if m, ok := memory(in, raw); ok && m.reg == rsp && m.base == rsp {
			return m.disp, true
		}
		return 0, false
	}
	if in.Opcode != 0x81 && in.Opcode != 0x83 || in.ModRM>>6 != 3 || in.ModRM&7 != rsp {
		return 0, false
	}
	imm := int64(int8(raw[len(raw)-1]))
	if in.Opcode == 0x81 {
		imm = int64(int32(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
	}
	switch in.ModRM >> 3 & 7 {
	case 0: // add
		return imm, true
	case 5: // sub
		return -imm, true
	}
	return 0, false
}

// memOp is a 64-bit move between a register and memory at a register plus a constant.
type memOp struct {
	store     bool
	reg, base int
	disp      int64
}

// movMem recognises mov %reg,disp(%base) and mov disp(%base),%reg of 64 bits.
func movMem(in amd64.Inst, raw []byte) (memOp, bool) {
	if in.Enc != amd64.Legacy || in.Map != 0 || in.Opcode != 0x89 && in.Opcode != 0x8b || in.REX&8 == 0 {
		return memOp{}, false
	}
	m, ok := memory(in, raw)
	m.store = in.Opcode == 0x89
	return m, ok
}

// memory decodes a memory operand without an index: disp(%base).
func memory(in amd64.Inst, raw []byte) (memOp, bool) {
	mod, rm := in.ModRM>>6, in.ModRM&7
	if !in.HasModRM || mod == 3 || mod == 0 && rm == 5 || in.Prefix&(amd64.PrefixAddrSize|amd64.PrefixSeg) != 0 {
		return memOp{}, false
	}
	m := memOp{reg: int(in.ModRM>>3&7) | int(in.REX&4)<<1, base: int(rm) | int(in.REX&1)<<3}
	size := map[byte]int{0: 0, 1: 1, 2: 4}[mod]
	at := len(raw) - in.ImmLen - size
	if rm == 4 { // SIB
		sib := raw[at-1]
		if sib>>3&7 != 4 || in.REX&2 != 0 || mod == 0 && sib&7 == 5 {
			return memOp{}, false
		}
		m.base = int(sib&7) | int(in.REX&1)<<3
	}
	switch size {
	case 1:
		m.disp = int64(int8(raw[at]))
	case 4:
		m.disp = int64(int32(binary.LittleEndian.Uint32(raw[at:])))
	}
	return m, true
}
