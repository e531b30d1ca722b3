package arm64

import (
	"encoding/binary"
	"testing"
)

// code returns words as bytes.
func code(words ...uint32) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestDecode(t *testing.T) {
	const pc = 0x10401000
	var words []uint32
	var texts []string
	for _, tt := range []struct {
		word   uint32
		op     Op
		rel    PCRel
		target uint64
		text   string // objdump's, "": it does not know it
	}{
		{0x14000400, Jmp, PCRelBranch, pc + 0x1000, "b 0x10402000"},
		{0x16000000, Jmp, PCRelBranch, pc - 1<<27, "b 0x8401000"},
		{0x95ffffff, Call, PCRelBranch, pc + 1<<27 - 4, "bl 0x18400ffc"},
		{0x54ffffe1, Jcc, PCRelBranch, pc - 4, "b.ne 0x10400ffc // b.any"},
		{0x54000050, Jcc, PCRelBranch, pc + 8, "bc.eq 0x10401008 // bc.none"},
		{0x347fffe0, Cbz, PCRelBranch, pc + 1<<20 - 4, "cbz w0, 0x10500ffc"},
		{0xb5800003, Cbz, PCRelBranch, pc - 1<<20, "cbnz x3, 0x10301000"},
		{0xb7fc0003, Tbz, PCRelBranch, pc - 1<<15, "tbnz x3, #63, 0x103f9000"},
		{0x3603ffe3, Tbz, PCRelBranch, pc + 1<<15 - 4, "tbz w3, #0, 0x10408ffc"},
		{0x7423a005, Cb, PCRelBranch, pc - 1024, ""},                // cbbge w5, w3
		{0xf5c0205f, Cb, PCRelBranch, 0, ""},                        // cbeq xzr, #0: set below
		{0x30000000, Adr, PCRelAddr, pc + 1, "adr x0, 0x10401001"},  // immlo
		{0x70ffffff, Adr, PCRelAddr, pc - 1, "adr xzr, 0x10400fff"}, // both parts
		{0xb0000010, Adrp, PCRelPage, pc + 0x1000, "adrp x16, 0x10402000"},
		{0xf0ffffe1, Adrp, PCRelPage, pc - 0x1000, "adrp x1, 0x10400000"},
		{0x18000041, LdrLit, PCRelMem, pc + 8, "ldr w1, 0x10401008"},
		{0x58ffffe1, LdrLit, PCRelMem, pc - 4, "ldr x1, 0x10400ffc"},
		{0x98000041, LdrLit, PCRelMem, pc + 8, "ldrsw x1, 0x10401008"},
		{0xd8000040, PrfmLit, PCRelMem, pc + 8, "prfm pldl1keep, 0x10401008"},
		{0x1c000041, LdrLitFP, PCRelMem, pc + 8, "ldr s1, 0x10401008"},
		{0x5c000041, LdrLitFP, PCRelMem, pc + 8, "ldr d1, 0x10401008"},
		{0x9c000041, LdrLitFP, PCRelMem, pc + 8, "ldr q1, 0x10401008"},
		{0xdc000041, Other, PCRelNone, 0, ".inst 0xdc000041 ; undefined"},
		{0xd503201f, Nop, PCRelNone, 0, "nop"},
		{0xd503203f, Hint, PCRelNone, 0, "yield"},
		{0xd503241f, Bti, PCRelNone, 0, "bti"},
		{0xd503245f, Bti, PCRelNone, 0, "bti c"},
		{0xd503249f, Bti, PCRelNone, 0, "bti j"},
		{0xd50324df, Bti, PCRelNone, 0, "bti jc"},
		{0xd503233f, PacSP, PCRelNone, 0, "paciasp"},
		{0xd503237f, PacSP, PCRelNone, 0, "pacibsp"},
		{0xd50323bf, Aut, PCRelNone, 0, "autiasp"},
		{0xd50320ff, Aut, PCRelNone, 0, "xpaclri"},
		{0xd65f03c0, Ret, PCRelNone, 0, "ret"},
		{0xd65f0120, Ret, PCRelNone, 0, "ret x9"},
		{0xd65f0bff, Ret, PCRelNone, 0, "retaa"},
		{0xd61f0200, JmpInd, PCRelNone, 0, "br x16"},
		{0xd71f0a11, JmpInd, PCRelNone, 0, "braa x16, x17"},
		{0xd63f0100, CallInd, PCRelNone, 0, "blr x8"},
		{0xd4000001, Syscall, PCRelNone, 0, "svc #0x0"},
		{0xd4200000, Brk, PCRelNone, 0, "brk #0x0"},
		{0x00000000, Udf, PCRelNone, 0, "udf #0"},
		{0x885f7c20, LoadEx, PCRelNone, 0, "ldxr w0, [x1]"},
		{0xc8027c20, StoreEx, PCRelNone, 0, "stxr w2, x0, [x1]"},
		{0xc87f0820, LoadEx, PCRelNone, 0, "ldxp x0, x2, [x1]"},
		{0x48207c82, Other, PCRelNone, 0, "casp x0, x1, x2, x3, [x4]"},
		{0xc8a07c41, Other, PCRelNone, 0, "cas x0, x1, [x2]"},
		{0xd5033f5f, Clrex, PCRelNone, 0, "clrex"},
		{0x5500005f, Ret, PCRelSign, pc - 8, ""}, // retaasppc
		{0xf3a0003f, AuthPC, PCRelSign, pc - 4, ""},
		{0xdac1a3fe, SignPC, PCRelNone, 0, ""},
		{0xd50324ff, SignPC, PCRelNone, 0, "hint #0x27"}, // pacm
		{0xa9be7bfd, Other, PCRelNone, 0, "stp x29, x30, [sp, #-32]!"},
		{0xaa1e03e9, Other, PCRelNone, 0, "mov x9, x30"},
	} {
		if tt.word == 0xf5c0205f {
			tt.target = DecodeWord(tt.word).Target(pc)
			if tt.target != pc+0x102*4-1<<11 {
				t.Errorf("cbeq: target %#x", tt.target)
			}
		}
		if tt.text != "" {
			words, texts = append(words, tt.word), append(texts, tt.text)
		}
		for _, tail := range [][]byte{nil, {0xff}, code(0xffffffff)} {
			in, err := Decode(append(code(tt.word), tail...))
			if err != nil || in.Len != InstLen || in.Op != tt.op || in.PCRel != tt.rel || in.Target(pc) != tt.target || in.Word != tt.word {
				t.Errorf("%08x (%s): %+v, target %#x, %v; want %v, %#x", tt.word, tt.text, in, in.Target(pc), err, tt.op, tt.target)
			}
		}
	}
	for n := range InstLen { // cut off
		if in, err := Decode(code(WordNop)[:n]); err != ErrTruncated || in != (Inst{}) {
			t.Errorf("%d bytes: %+v, %v", n, in, err)
		}
	}
	for i, w := range words {
		if got := disassemble(t, code(w), pc); got != texts[i] {
			t.Errorf("%08x: %q, want %q", w, got, texts[i])
		}
	}
}
