package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// kernelCallsARM64 has system calls in every surrounding that matters.
const kernelCallsARM64 = `
	.macro fn name
	.p2align 4
	.globl \name
	.type \name, %function
\name:
	.endm
	.macro done name
	.size \name, . - \name
	.endm
	.text
	fn main
	adr	x0, cp_begin
	adr	x0, cp_end
	b	wrapper
	done main

	fn wrapper			/* what compilers make of one */
	mov	x8, #172
	svc	#0
	ret
	done wrapper

	fn early			/* the number comes first */
	mov	w8, #56
	mov	x3, x0
	mov	w0, #-100
	ldr	x2, [sp, #8]
	svc	#0
	cmn	x0, #4095
	b.hi	1f
	ret
1:	mov	x0, #-1
	ret
	done early

	fn generic			/* the number is an argument */
	uxtw	x8, w0
	mov	x0, x1
	svc	#0
	ret
	done generic

	fn joined			/* something comes here with another number */
	mov	x8, #1
	cbz	x0, 1f
	mov	x8, #2
1:	svc	#0
	ret
	done joined

	fn behind			/* what a function has left in x8 */
	mov	x8, #1
	bl	wrapper
	svc	#0
	ret
	done behind

	fn loop				/* something goes to it, and to what is behind it */
1:	svc	#0
2:	subs	x1, x1, #1
	b.ne	2b
	b.eq	1b
	ret
	done loop

	fn range			/* whoever is interrupted here looks where it is */
cp_begin:
	ldr	w0, [x0]
	cbnz	w0, 1f
	mov	x8, x1
	svc	#0
cp_end:
	ret
1:	b	main
	done range

	fn restorer			/* unwinders know it by its bytes */
	mov	x8, #139
	svc	#0
	done restorer

	fn unmapself
	mov	x8, #215
	svc	#0
	mov	x8, #93
	svc	#0
	done unmapself

	fn exits			/* nothing is unmapped */
	mov	x8, #93
	svc	#0
	b	exits
	done exits

	fn data				/* what only looks like code */
	ldr	w0, 1f
	ret
1:	.inst	0xd4000001
	done data

	fn literal			/* control comes to what is loaded */
	ldr	w0, 1f
1:	svc	#0
	ret
	done literal

	fn other			/* for somebody else */
	svc	#1
	ret
	done other
	.section .note.GNU-stack, "", %progbits
`

// TestSyscallsARM64: which system calls can be moved on arm64, and why others cannot.
func TestSyscallsARM64(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "k.S"), filepath.Join(dir, "k")
	if err := os.WriteFile(src, []byte(kernelCallsARM64), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "aarch64-linux-gnu-gcc", "-nostdlib", "-static", "-Wl,-e,main", "-o", prog, src)
	checkSyscalls(t, prog, "\x01\x00\x00\xd4", `
wrapper 172 0+4/4
early 56 0+4/4
generic -1 0+4/4
joined -1 0+4/4
behind -1 0+4/4
loop -1 0+4/4
range -1 address-taken
restorer 139 signal-return
unmapself 215 stack-gone
unmapself 93 stack-gone
exits 93 0+4/4
data -1 not-reached
literal -1 not-reached`)
}
