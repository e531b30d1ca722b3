package arm64

// Inst describes one instruction: what it does to the flow of control, and what
// it refers to relative to itself. It holds no text and no operands beyond that.
type Inst struct {
	Len   int    // bytes: InstLen
	Op    Op     // class
	PCRel PCRel  // what Disp refers to
	Disp  int64  // bytes from the instruction, for PCRelPage from its page; sign-extended and scaled
	Cond  byte   // Jcc: condition code
	Reg   byte   // register that is loaded, tested or branched to
	Word  uint32 // the instruction itself
}

// InstLen is the length of every instruction in bytes.
const InstLen = 4

const pageMask = 1<<12 - 1

// Target returns the address a PC-relative instruction at pc refers to, for
// PCRelPage that of the page. It returns 0 if the instruction has PCRelNone.
func (in Inst) Target(pc uint64) uint64 {
	switch in.PCRel {
	case PCRelNone:
		return 0
	case PCRelPage:
		pc &^= pageMask
	}
	return pc + uint64(in.Disp)
}

// PCRel says what a displacement relative to the instruction refers to.
type PCRel uint8

const (
	PCRelNone   PCRel = iota
	PCRelBranch       // the operand of a branch or call
	PCRelMem          // a literal that is loaded or prefetched
	PCRelAddr         // an address that is computed: adr
	PCRelPage         // the address of a page of 4 KiB: adrp
	PCRelSign         // the instruction that signed the return address (FEAT_PAuth_LR)
)

// Op is the class of an instruction, as far as it matters for moving code and finding the ends of functions.
type Op uint8

const (
	Other    Op = iota
	Call        // bl
	CallInd     // blr, blraa and their kin
	Jmp         // b
	JmpInd      // br, braa and their kin
	Jcc         // b.cond, bc.cond
	Cbz         // cbz, cbnz
	Tbz         // tbz, tbnz
	Cb          // cbgt and its kin, of registers, immediates, bytes and half-words (FEAT_CMPBR)
	Ret         // ret, retaa, retab, retaasppcr; retaasppc with PCRelSign
	Eret        // eret, eretaa, eretab, drps
	Adr         // adr
	Adrp        // adrp
	LdrLit      // ldr of a literal to a general register, ldrsw
	LdrLitFP    // ldr of a literal to a SIMD register
	PrfmLit     // prfm of a literal
	Nop         // nop
	Bti         // bti in its four forms
	PacSP       // paciasp, pacibsp: landing pads too
	Pac         // paciaz, pacia1716 and their kin
	Aut         // autiasp, autiaz, autia1716 and their kin, xpaclri
	SignPC      // paciasppc and its kin: signs with its own address (FEAT_PAuth_LR)
	AuthPC      // autiasppc, autibsppc
	Hint        // any other hint
	LoadEx      // ldxr, ldaxr, ldxp, ldaxp and their kin
	StoreEx     // stxr, stlxr, stxp, stlxp and their kin
	Clrex       // clrex
	Syscall     // svc
	Trap        // hvc, smc, dcps
	Brk         // brk
	Hlt         // hlt
	Udf         // udf: permanently undefined

	numOps
)

var opNames = [numOps]string{
	"other", "bl", "blr", "b", "br", "b.cond", "cbz", "tbz", "cb", "ret", "eret", "adr", "adrp",
	"ldr", "ldr-fp", "prfm", "nop", "bti", "pacsp", "pac", "aut", "paciasppc", "autiasppc", "hint",
	"ldxr", "stxr", "clrex", "svc", "trap", "brk", "hlt", "udf",
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
	case Jmp, JmpInd, Ret, Eret, Hlt, Udf:
		return true
	}
	return false
}
