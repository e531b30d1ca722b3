package objects

// SuperH jumps to mcount through a word of the literal pool, which is what a tracer rewrites and what tables name:
//
//	mov.l 1f,r1
//	sts.l pr,@-r15
//	mova  2f,r0
//	jmp   @r1
//	lds   r0,pr
//	.align 2
//	1: .long mcount
//	2: lds.l @r15+,pr
//
// In position-independent code the word is the offset of mcount's entry in the global offset table.
func callSH(c *code, off uint64, typ uint32) (hit, bool) {
	if typ != rSHDir32 && typ != rSHGot32 || off%4 != 0 {
		return hit{}, false
	}
	if _, ok := c.word32(off); !ok {
		return hit{}, false
	}
	at := off
	if h, ok := c.half(at - 2); ok && at >= 2 && h == 0x0009 { // nop of the alignment
		at -= 2
	}
	slot, ok1 := c.half(at - 2)
	jump, ok2 := c.half(at - 4)
	// jmp @Rn: 0100 nnnn 0010 1011; jsr @Rn: 0100 nnnn 0000 1011; lds Rn,pr: 0100 nnnn 0010 1010
	if at >= 4 && ok1 && ok2 && (jump&0xf0ff == 0x402b && slot&0xf0ff == 0x402a || jump&0xf0ff == 0x400b) {
		return hit{len: 4, call: uint8(off - (at - 4)), form: FormLiteral}, true
	}
	return hit{}, false
}
