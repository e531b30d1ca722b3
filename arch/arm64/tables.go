package arm64

import "sync"

// form is where an instruction has its displacement.
type form uint8

const (
	formNone form = iota
	form26        // imm26 at 0, in words
	form19        // imm19 at 5, in words
	form14        // imm14 at 5, in words
	form9         // imm9 at 5, in words
	formAdr       // immhi at 5, immlo at 29, in bytes
	formAdrp      // the same, in pages
	formBack      // imm16 at 5, in words, backwards
)

// A row names the instructions whose word has value in the bits of mask.
type row struct {
	mask, value uint32
	op          Op
	rel         PCRel
	form        form
}

// rows are the instructions that Decode tells from others. No two of them
// overlap, except that a later one is the more special. From the Arm
// Architecture Reference Manual for A-profile (DDI 0487), chapter C4,
// "A64 Instruction Set Encoding".
var rows = [...]row{
	// Branches, exception generating and system instructions: immediates.
	{0xfc000000, 0x14000000, Jmp, PCRelBranch, form26},
	{0xfc000000, 0x94000000, Call, PCRelBranch, form26},
	{0xff000010, 0x54000000, Jcc, PCRelBranch, form19}, // b.cond
	{0xff000010, 0x54000010, Jcc, PCRelBranch, form19}, // bc.cond
	{0x7e000000, 0x34000000, Cbz, PCRelBranch, form19},
	{0x7e000000, 0x36000000, Tbz, PCRelBranch, form14},
	// Compare and branch: conditions 0 to 3, 6 and 7.
	{0x7f80c000, 0x74000000, Cb, PCRelBranch, form9}, // registers
	{0x7fc0c000, 0x74c00000, Cb, PCRelBranch, form9},
	{0xff80c000, 0x74008000, Cb, PCRelBranch, form9}, // bytes
	{0xffc0c000, 0x74c08000, Cb, PCRelBranch, form9},
	{0xff80c000, 0x7400c000, Cb, PCRelBranch, form9}, // half-words
	{0xffc0c000, 0x74c0c000, Cb, PCRelBranch, form9},
	{0x7f804000, 0x75000000, Cb, PCRelBranch, form9}, // an immediate
	{0x7fc04000, 0x75c00000, Cb, PCRelBranch, form9},
	{0xffc0001f, 0x5500001f, Ret, PCRelSign, formBack}, // retaasppc, retabsppc

	// Branches to registers.
	{0xfffffc1f, 0xd61f0000, JmpInd, PCRelNone, formNone},
	{0xfffff81f, 0xd61f081f, JmpInd, PCRelNone, formNone}, // braaz, brabz
	{0xfffff800, 0xd71f0800, JmpInd, PCRelNone, formNone}, // braa, brab
	{0xfffffc1f, 0xd63f0000, CallInd, PCRelNone, formNone},
	{0xfffff81f, 0xd63f081f, CallInd, PCRelNone, formNone},
	{0xfffff800, 0xd73f0800, CallInd, PCRelNone, formNone},
	{0xfffffc1f, 0xd65f0000, Ret, PCRelNone, formNone},
	{0xfffffbe0, 0xd65f0be0, Ret, PCRelNone, formNone}, // retaa, retab, retaasppcr, retabsppcr
	{0xffffffff, 0xd69f03e0, Eret, PCRelNone, formNone},
	{0xfffffbff, 0xd69f0bff, Eret, PCRelNone, formNone}, // eretaa, eretab
	{0xffffffff, 0xd6bf03e0, Eret, PCRelNone, formNone}, // drps

	// Data processing, immediates: addresses, and authentication with one.
	{0x9f000000, 0x10000000, Adr, PCRelAddr, formAdr},
	{0x9f000000, 0x90000000, Adrp, PCRelPage, formAdrp},
	{0xffc0001f, 0xf380001f, AuthPC, PCRelSign, formBack}, // autiasppc, autibsppc
	{0xffffffff, 0xdac1a3fe, SignPC, PCRelNone, formNone}, // paciasppc
	{0xffffffff, 0xdac1a7fe, SignPC, PCRelNone, formNone}, // pacibsppc
	{0xffffffff, 0xdac183fe, SignPC, PCRelNone, formNone}, // pacnbiasppc
	{0xffffffff, 0xdac187fe, SignPC, PCRelNone, formNone}, // pacnbibsppc

	// Loads of literals.
	{0xbf000000, 0x18000000, LdrLit, PCRelMem, form19}, // ldr w, x
	{0xff000000, 0x98000000, LdrLit, PCRelMem, form19}, // ldrsw
	{0xff000000, 0xd8000000, PrfmLit, PCRelMem, form19},
	{0xbf000000, 0x1c000000, LdrLitFP, PCRelMem, form19}, // ldr s, d
	{0xff000000, 0x9c000000, LdrLitFP, PCRelMem, form19}, // ldr q

	// Exclusive loads and stores. Where bit 21 is set and bit 31 is not, casp is.
	{0x3fe00000, 0x08000000, StoreEx, PCRelNone, formNone},
	{0x3fe00000, 0x08400000, LoadEx, PCRelNone, formNone},
	{0xbfe00000, 0x88200000, StoreEx, PCRelNone, formNone},
	{0xbfe00000, 0x88600000, LoadEx, PCRelNone, formNone},
	{0xfffff0ff, 0xd503305f, Clrex, PCRelNone, formNone},

	// Hints.
	{0xfffff01f, 0xd503201f, Hint, PCRelNone, formNone},
	{0xffffffff, 0xd503201f, Nop, PCRelNone, formNone},
	{0xffffff3f, 0xd503241f, Bti, PCRelNone, formNone},
	{0xffffffbf, 0xd503233f, PacSP, PCRelNone, formNone},  // hints 25 and 27
	{0xffffffbf, 0xd503231f, Pac, PCRelNone, formNone},    // paciaz, pacibz: 24, 26
	{0xffffffbf, 0xd503211f, Pac, PCRelNone, formNone},    // pacia1716, pacib1716: 8, 10
	{0xffffff9f, 0xd503239f, Aut, PCRelNone, formNone},    // 28 to 31
	{0xffffffbf, 0xd503219f, Aut, PCRelNone, formNone},    // autia1716, autib1716: 12, 14
	{0xffffffff, 0xd50320ff, Aut, PCRelNone, formNone},    // xpaclri: 7
	{0xffffffff, 0xd50324ff, SignPC, PCRelNone, formNone}, // pacm: the next instruction signs with its address

	// Exceptions.
	{0xffe0001f, 0xd4000001, Syscall, PCRelNone, formNone},
	{0xffe0001f, 0xd4000002, Trap, PCRelNone, formNone},
	{0xffe0001f, 0xd4000003, Trap, PCRelNone, formNone},
	{0xffe0001f, 0xd4a00001, Trap, PCRelNone, formNone},
	{0xffe0001f, 0xd4a00002, Trap, PCRelNone, formNone},
	{0xffe0001f, 0xd4a00003, Trap, PCRelNone, formNone},
	{0xffe0001f, 0xd4200000, Brk, PCRelNone, formNone},
	{0xffe0001f, 0xd4400000, Hlt, PCRelNone, formNone},
	{0xffff0000, 0x00000000, Udf, PCRelNone, formNone},
}

// byTop has, for each value of an instruction's highest byte, the rows that can
// match it: none for most. It is made when the first instruction is decoded: a
// program that decodes none does not pay for it.
var (
	byTop [256][]row
	made  sync.Once
)

func makeByTop() {
	for i := range byTop {
		for _, r := range rows {
			if uint32(i)<<24&r.mask == r.value&0xff000000&r.mask && uint32(i)&(r.mask>>24) == r.value>>24 {
				byTop[i] = append(byTop[i], r)
			}
		}
	}
}
