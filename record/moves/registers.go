package moves

import "github.com/fentry-dev/fentry/arch/amd64"

// General returns the general registers that an instruction names and reads, and those that it writes without: of usual
// instructions, which is enough for who looks for a habit of a compiler's. Those implied are rax to rdi, and not told.
func (x *Instruction) General(raw []byte) (reads, writes uint16) {
	if !x.HasModRM {
		return x.inOpcode()
	}
	if x.Enc != amd64.Legacy || x.Map > 1 {
		return 0, 0
	}
	reads = x.Addressed(raw)
	reg, rm := uint16(1)<<(x.ModRM>>3&7|x.REX&4<<1), uint16(0)
	if x.ModRM>>6 == 3 {
		rm = 1 << (x.ModRM&7 | x.REX&1<<3)
	}
	op, ext := x.Opcode, x.ModRM>>3&7
	if x.Map == 1 {
		switch {
		case op == 0xb6, op == 0xb7, op == 0xbe, op == 0xbf: // movzx, movsx
			return reads | rm, reg
		case op >= 0x40 && op <= 0x4f, op == 0xaf, op == 0xbc, op == 0xbd: // cmov, imul, bsf, bsr
			return reads | reg | rm, 0
		case op >= 0x90 && op <= 0x9f: // set
			return reads, rm
		}
		return reads, 0
	}
	switch {
	case op&7 < 4 && op < 0x40: // arithmetic
		if kind := op >> 3; rm == reg && (kind == 3 || kind == 5 || kind == 6) { // sbb, sub, xor: what it was does not matter
			return 0, reg
		}
		return reads | reg | rm, 0
	case op == 0x8a, op == 0x8b, op == 0x8d, op == 0x63, op == 0x69, op == 0x6b: // mov, lea, movsxd, imul
		return reads | rm, reg
	case op == 0x88, op == 0x89: // mov
		return reads | reg, rm
	case op == 0xc6, op == 0xc7, op == 0x8f: // mov, pop
		return reads, rm
	case op == 0x84, op == 0x85, op == 0x86, op == 0x87: // test, xchg
		return reads | reg | rm, 0
	case op >= 0x80 && op <= 0x83, op == 0xc0, op == 0xc1, op >= 0xd0 && op <= 0xd3, op == 0xf6, op == 0xf7, op == 0xfe:
		return reads | rm, 0
	case op == 0xff && ext != 2: // a call by a register says nothing about what the function is called with
		return reads | rm, 0
	}
	return reads, 0
}

// inOpcode is General for instructions whose opcode names a register.
func (x *Instruction) inOpcode() (reads, writes uint16) {
	reg := uint16(1) << (x.Opcode&7 | x.REX&1<<3)
	switch op := x.Opcode; {
	case x.Enc != amd64.Legacy || x.Map != 0:
	case op >= 0x50 && op <= 0x57: // push
		return reg, 0
	case op >= 0x58 && op <= 0x5f, op >= 0xb0 && op <= 0xbf: // pop, mov
		return 0, reg
	case op > 0x90 && op <= 0x97: // xchg
		return reg, 0
	}
	return 0, 0
}

// Addressed are the registers of an operand in memory.
func (x *Instruction) Addressed(raw []byte) uint16 {
	mod, rm := x.ModRM>>6, x.ModRM&7
	if mod == 3 || mod == 0 && rm == 5 {
		return 0
	}
	if rm != 4 {
		return 1 << (rm | x.REX&1<<3)
	}
	sib := raw[len(raw)-x.ImmLen-[3]int{0, 1, 4}[mod]-1]
	if mod == 0 && sib&7 == 5 {
		sib = raw[len(raw)-x.ImmLen-4-1]
	}
	var out uint16
	if mod != 0 || sib&7 != 5 {
		out = 1 << (sib&7 | x.REX&1<<3)
	}
	if index := sib>>3&7 | x.REX&2<<2; index != 4 {
		out |= 1 << index
	}
	return out
}
