package amd64

// Inst describes one instruction: how long it is, what it does to the flow of
// control, and where its PC-relative displacement is. It holds no text and no
// operands beyond that.
type Inst struct {
	Len    int    // bytes, 1 to 15
	Op     Op     // class
	PCRel  PCRel  // what Disp, relative to the next instruction, refers to
	PCOff  int    // offset of the displacement field in the instruction, if PCRel is not PCRelNone
	PCSize int    // bytes of that field: 1, 2 (xbegin with operand size 16) or 4
	ImmLen int    // bytes of immediate at the end; branch displacements do not count
	Disp   int64  // the displacement, sign-extended
	Cond   byte   // Jcc: condition code, the low four bits of the opcode
	Enc    Enc    // encoding of the opcode
	Map    byte   // opcode map: 0 one-byte, 1 0f, 2 0f 38, 3 0f 3a, 5 and 6 EVEX, 7 VEX, 8 to 10 XOP
	Opcode byte   // opcode byte in that map
	ModRM  byte   // if HasModRM
	REX    byte   // REX prefix in effect, 0 if none
	Prefix Prefix // legacy prefixes

	HasModRM bool
}

// Target returns the address a PC-relative instruction at pc refers to: where
// a branch goes, or the memory operand's address. It returns 0 if the
// instruction has PCRelNone.
func (in Inst) Target(pc uint64) uint64 {
	if in.PCRel == PCRelNone {
		return 0
	}
	t := pc + uint64(in.Len) + uint64(in.Disp)
	if in.PCRel == PCRelMem && in.Prefix&PrefixAddrSize != 0 {
		t = uint64(uint32(t)) // the operand is disp32(%eip)
	}
	return t
}

// PCRel says what a displacement relative to the next instruction refers to.
type PCRel uint8

const (
	PCRelNone   PCRel = iota
	PCRelBranch       // the operand of a call, jmp, jcc, loop, jrcxz or xbegin
	PCRelMem          // a memory operand disp32(%rip), which can be that of an indirect branch
)

// Enc is the encoding of an opcode.
type Enc uint8

const (
	Legacy Enc = iota
	VEX
	EVEX
	XOP
	Now3D // 0f 0f with the operation in the last byte
)

// Prefix is a set of legacy prefixes.
type Prefix uint8

const (
	PrefixOpSize   Prefix = 1 << iota // 66
	PrefixAddrSize                    // 67
	PrefixRep                         // f3, the last one of f2 and f3
	PrefixRepne                       // f2, the last one of f2 and f3
	PrefixLock                        // f0
	PrefixSeg                         // 26, 2e, 36, 3e, 64, 65
)

// Op is the class of an instruction, as far as it matters for moving code and finding the ends of functions.
type Op uint8

const (
	Other   Op = iota
	Call       // e8
	CallInd    // ff /2
	CallFar    // ff /3
	Jmp        // e9, eb
	JmpInd     // ff /4
	JmpFar     // ff /5
	Jcc        // 70-7f, 0f 80-8f
	Loop       // e0, e1, e2
	Jrcxz      // e3
	Xbegin     // c7 f8
	Ret        // c2, c3
	RetFar     // ca, cb
	Iret       // cf
	Push       // a register, an immediate, memory, a segment register or flags
	Pop        // likewise
	Enter      // c8
	Leave      // c9
	Nop        // 90, 0f 1f /0, and their prefixed forms
	Endbr64    // f3 0f 1e fa
	Endbr32    // f3 0f 1e fb
	Syscall    // 0f 05, 0f 34 (sysenter)
	Sysret     // 0f 07, 0f 35 (sysexit)
	Int3       // cc
	Int        // cd, f1
	Hlt        // f4
	Ud         // 0f 0b, 0f b9: always raises #UD

	numOps
)

var opNames = [numOps]string{
	"other", "call", "call*", "lcall", "jmp", "jmp*", "ljmp", "jcc", "loop", "jrcxz", "xbegin",
	"ret", "lret", "iret", "push", "pop", "enter", "leave", "nop", "endbr64", "endbr32",
	"syscall", "sysret", "int3", "int", "hlt", "ud",
}

func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return "op?"
}

// EndsBlock reports whether the instruction after this one is never reached by falling through: unconditional jumps,
// returns, and instructions that always trap.
func (o Op) EndsBlock() bool {
	switch o {
	case Jmp, JmpInd, JmpFar, Ret, RetFar, Iret, Sysret, Hlt, Ud:
		return true
	}
	return false
}
