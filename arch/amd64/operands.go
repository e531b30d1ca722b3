package amd64

// What instructions do to registers and memory, as far as those who follow a prologue or prove what a function is have
// to know: which general register may change, and where a mov goes. It is a table of opcodes of its own, because
// lengths, for which the decoder's tables are, do not tell. Where it is not sure it says that a register may change, so
// that whoever relies on a register's value errs on the safe side; TestMayWrite holds it against the destinations
// objdump prints.

import "encoding/binary"

// Numbers of general registers in instructions (Intel SDM volume 2, 2.1.5).
const (
	RAX = 0
	RCX = 1
	RDX = 2
	RSP = 4
	RBP = 5
	RSI = 6
	RDI = 7
)

// MemOp is an instruction's operand in memory, at a register plus a constant, and its operand in a register.
type MemOp struct {
	Store     bool // the register goes to memory; only [Inst.Move] tells
	Reg, Base int
	Disp      int64
}

// Move recognises mov %reg,disp(%base) and mov disp(%base),%reg of 64 bits. raw holds the instruction's bytes.
func (in Inst) Move(raw []byte) (MemOp, bool) {
	if in.Enc != Legacy || in.Map != 0 || in.Opcode != 0x89 && in.Opcode != 0x8b || in.REX&8 == 0 {
		return MemOp{}, false
	}
	m, ok := in.Memory(raw)
	m.Store = in.Opcode == 0x89
	return m, ok
}

// Memory decodes a memory operand without an index: disp(%base). raw holds the instruction's bytes.
func (in Inst) Memory(raw []byte) (MemOp, bool) {
	mod, rm := in.ModRM>>6, in.ModRM&7
	if !in.HasModRM || mod == 3 || mod == 0 && rm == 5 || in.Prefix&(PrefixAddrSize|PrefixSeg) != 0 {
		return MemOp{}, false
	}
	if in.Enc == Legacy && in.Map == 1 && in.Opcode >= 0x20 && in.Opcode <= 0x23 {
		return MemOp{}, false // mov of control and debug registers: both operands are registers, whatever mod says
	}
	size := [3]int{0, 1, 4}[mod]
	at := len(raw) - in.ImmLen - size
	m := MemOp{Reg: int(in.ModRM>>3&7) | int(in.REX&4)<<1, Base: int(rm) | int(in.REX&1)<<3}
	if rm == 4 { // SIB
		sib := raw[at-1]
		if sib>>3&7 != 4 || in.REX&2 != 0 || mod == 0 && sib&7 == 5 {
			return MemOp{}, false
		}
		m.Base = int(sib&7) | int(in.REX&1)<<3
	}
	switch size {
	case 1:
		m.Disp = int64(int8(raw[at]))
	case 4:
		m.Disp = int64(int32(binary.LittleEndian.Uint32(raw[at:])))
	}
	return m, true
}

// Which operand of an instruction is written to.
type operands uint8

const (
	writesRM  operands = 1 << iota // the operand of ModRM.rm
	writesReg                      // the operand of ModRM.reg
	writesOp                       // the register in the low bits of the opcode
	writesAny                      // unknown: either of the ModRM operands
)

// MayWrite reports whether an instruction of class Other may write to general register r, one of the lower eight that
// is not an implied operand (not rax, rcx, rdx, rsi, rdi). It returns true when in doubt.
func (in Inst) MayWrite(r int) bool {
	w := writes(in)
	ext := in.REX
	if in.Enc != Legacy {
		ext = 0 // the bits are in the prefix; their absence is assumed, which errs on the safe side
	}
	if w&writesOp != 0 && int(in.Opcode&7)|int(ext&1)<<3 == r {
		return true
	}
	if !in.HasModRM {
		return w == writesAny
	}
	if w&(writesReg|writesAny) != 0 && int(in.ModRM>>3&7)|int(ext&4)<<1 == r {
		return true
	}
	return w&(writesRM|writesAny) != 0 && in.ModRM>>6 == 3 && int(in.ModRM&7)|int(ext&1)<<3 == r
}

// writes classifies instructions by opcode (Intel SDM volume 2, appendix A).
func writes(in Inst) operands {
	op := in.Opcode
	switch {
	case in.Map == 0 && in.Enc == Legacy:
		return writesOneByte(op, in.ModRM>>3&7)
	case in.Map == 1:
		return writesTwoByte(op)
	}
	return writesAny
}

func writesOneByte(op, ext byte) operands {
	switch {
	case op < 0x40: // arithmetic: rows of add, or, adc, sbb, and, sub, xor, cmp
		switch {
		case op >= 0x38, op&7 >= 4:
			return 0 // cmp, or rax
		case op&2 == 0:
			return writesRM
		}
		return writesReg
	case op == 0x63, op == 0x69, op == 0x6b, op == 0x8a, op == 0x8b, op == 0x8d:
		return writesReg
	case op == 0x80, op == 0x81, op == 0x83:
		if ext == 7 { // cmp
			return 0
		}
		return writesRM
	case op == 0x84, op == 0x85, op == 0xa8, op == 0xa9: // test
		return 0
	case op == 0x86, op == 0x87: // xchg
		return writesRM | writesReg
	case op == 0x88, op == 0x89, op == 0xc0, op == 0xc1, op == 0xc6, op == 0xc7, op >= 0xd0 && op <= 0xd3:
		return writesRM
	case op >= 0x90 && op <= 0x97, op >= 0xb0 && op <= 0xbf:
		return writesOp
	case op >= 0x98 && op <= 0x9f, op >= 0xa0 && op <= 0xaf: // conversions of rax, flags, strings
		return 0
	case op >= 0xd8 && op <= 0xdf: // x87
		return 0
	case op == 0xf6, op == 0xf7:
		if ext == 2 || ext == 3 { // not, neg; the others write rax and rdx, or nothing
			return writesRM
		}
		return 0
	case op == 0xfe, op == 0xff: // inc, dec; branches and push are of other classes
		return writesRM
	}
	return writesAny
}

// writesTwoByte is for the map of 0f, with and without VEX. Most of it moves vectors.
func writesTwoByte(op byte) operands {
	switch {
	case op >= 0x40 && op <= 0x4f: // cmov, mask registers
		return writesReg
	case op >= 0x90 && op <= 0x9f: // set, kmov
		return writesRM | writesReg
	case op == 0x2c, op == 0x2d, op == 0x50, op == 0xd7, op == 0xc5: // vectors to general registers
		return writesReg
	case op == 0x7e: // movd, movq
		return writesRM
	case op >= 0x10 && op <= 0x17, op >= 0x28 && op <= 0x2f, op >= 0x51 && op <= 0x77, op >= 0x7c && op <= 0x7f,
		op == 0xc2, op == 0xc4, op == 0xc6, op >= 0xd0 && op <= 0xfe: // vectors
		return 0
	case op == 0x0d, op == 0x18, op == 0xa3, op == 0xc3: // prefetch, bt, movnti
		return 0
	case op == 0xae: // rdfsbase among fences and saving of state
		return writesRM
	case op == 0xa4, op == 0xa5, op == 0xac, op == 0xad, op == 0xab, op == 0xb3, op == 0xbb, op == 0xba:
		return writesRM
	case op == 0xaf, op == 0xb6, op == 0xb7, op == 0xb8, op >= 0xbc && op <= 0xbf:
		return writesReg
	case op == 0xb0, op == 0xb1:
		return writesRM
	case op == 0xc0, op == 0xc1:
		return writesRM | writesReg
	case op >= 0xc8 && op <= 0xcf: // bswap
		return writesOp
	case op == 0x31, op == 0xa2: // rdtsc, cpuid: rax, rbx, rcx, rdx
		return 0
	}
	return writesAny
}
