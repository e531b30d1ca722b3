package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// kernelCalls has system calls in every surrounding that matters. Functions are apart, so that padding is theirs.
const kernelCalls = `
	.macro fn name
	.p2align 4
	.globl \name
	.type \name, @function
\name:
	.endm
	.macro done name
	.size \name, . - \name
	.endm
	.text
	fn main
	lea	label(%rip), %rax
	lea	range_end(%rip), %rax
	jmp	wrapper
	done main

	fn wrapper			/* what compilers make of one: behind, or with the number */
	mov	$39, %eax
	syscall
	cmp	$-4095, %rax
	jae	1f
	ret
1:	mov	$-1, %eax
	ret
	done wrapper

	fn short			/* padding behind it is free */
	mov	$39, %eax
	syscall
	ret
	done short

	fn zero				/* read */
	xor	%eax, %eax
	mov	%rsi, %rdx
	syscall
	nop
	nop
	nop
	ret
	done zero

	fn generic			/* the number is an argument */
	mov	%edi, %eax
	mov	%rsi, %rdi
	syscall
	nop
	nop
	nop
	ret
	done generic

	fn joined			/* something comes here with another number */
	mov	$1, %eax
	test	%edi, %edi
	je	1f
	mov	$2, %eax
1:	syscall
	nop
	nop
	nop
	ret
	done joined

	fn in_front			/* something goes to what is behind it */
	mov	$3, %eax
	syscall
1:	dec	%ecx
	jne	1b
	ret
	done in_front

	fn crowded			/* and to it, too */
	jmp	2f
1:	mov	$3, %eax
2:	syscall
3:	dec	%ecx
	jne	3b
	jmp	1b
	done crowded

	fn range			/* whoever is interrupted here looks where it is */
label:	mov	%r11, 8(%rsp)
	syscall
range_end:
	ret
	done range

	.macro shuffle			/* where a thread can be cancelled: as in the C libraries */
	mov	%rdi, %r11
	mov	%rsi, %rax
	mov	%rdx, %rdi
	mov	%rcx, %rsi
	mov	%r8, %rdx
	mov	%r9, %r10
	mov	8(%rsp), %r8
	mov	16(%rsp), %r9
	mov	%r11, 8(%rsp)
	syscall
	.endm

	fn musl
	mov	(%rdi), %eax
	test	%eax, %eax
	jne	musl_cancel
	shuffle
musl_end:
	ret
musl_cancel:
	jmp	wrapper
	done musl

	fn glibc
	endbr64
	mov	(%rdi), %eax
	testb	$8, (%rdi)
	jne	range
	shuffle
glibc_end:
	ret
	done glibc

	fn other			/* one that tests something else */
	mov	(%rdi), %eax
	testb	$8, (%rdi)
	je	range
	shuffle
other_end:
	ret
	done other

	fn callers
	call	musl
	call	glibc
1:	call	other
	call	glibc
	ret
	lea	musl_end(%rip), %rax
	lea	glibc_end(%rip), %rax
	lea	other_end(%rip), %rax
	done callers

	fn into				/* something goes into the middle of the call */
	test	%edi, %edi
	je	1f
	.byte	0xe8
1:	.long	glibc - 1b - 4
	ret
	done into

	fn flags			/* set in front of it, used behind it */
	cmp	%edi, %esi
	mov	$39, %eax
	syscall
	sete	%al
	nop
	ret
	done flags

	fn restorer			/* unwinders know it by its bytes */
	mov	$15, %rax
	syscall
	nop
	nop
	nop
	done restorer

	fn unmapself
	mov	$11, %eax
	syscall
	xor	%edi, %edi
	mov	$60, %eax
	syscall
	hlt
	nop
	nop
	done unmapself

	fn data				/* a constant, and what only looks like code */
	mov	$0x050f, %eax
	jmp	1f
	.byte	0x0f, 0x05, 0x90, 0x90, 0x90
1:	ret
	done data

	fn broken			/* control comes to bytes that are no instruction */
	mov	$39, %eax
	syscall
	nop
	nop
	nop
	.byte	0x06
	ret
	done broken
	.section .note.GNU-stack, "", @progbits
`

// TestSyscalls: which system calls can be moved, how, and why others cannot.
func TestSyscalls(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "k.S"), filepath.Join(dir, "k")
	if err := os.WriteFile(src, []byte(kernelCalls), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-nostdlib", "-static", "-Wl,-e,main", "-o", prog, src)
	checkSyscalls(t, prog, "\x0f\x05", `
wrapper 39 0+8/8 -5+7/7
short 39 0+11/3 -5+7/7
zero 0 0+5/5 -3+5/5 -5+7/7
generic -1 0+5/5 -3+5/5 -5+7/7
joined -1 0+5/5
in_front 3 -5+7/7
crowded -1 jump-into-site
range -1 address-taken
callers -1 0+5/5
callers -1 0+5/5
callers -1 0+5/5
into -1 not-reached
other -1 address-taken
flags 39 flags-live
restorer 15 signal-return
unmapself 11 stack-gone
unmapself 60 stack-gone
broken -1 not-reached
data -1 not-reached`)
}

// TestSyscallsUnlisted: system calls of functions that neither a symbol nor an unwind entry tells of. What only has its
// address taken may be anything.
func TestSyscallsUnlisted(t *testing.T) {
	testtool.Need(t, "gcc", "strip")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "k.S"), filepath.Join(dir, "k")
	text := ".globl main\nmain: call f\nlea g(%rip), %rax\ncall *%rax\n.skip 600, 0x90\n.p2align 4\n" +
		"f: mov $39, %eax\nsyscall\ncmp $-4095, %rax\nret\n.p2align 4\n" +
		"g: mov $110, %eax\nsyscall\ncmp $-4095, %rax\nret\n.section .note.GNU-stack, \"\", @progbits\n"
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-nostdlib", "-static", "-Wl,-e,main", "-o", prog, src)
	run(t, "strip", prog)
	checkSyscalls(t, prog, "\x0f\x05", " 110 not-reached\n 39 0+8/8 -5+7/7")
}

// checkSyscalls finds the system calls of a program, which are instructions with some bytes, and compares them with lines
// of function, number, ways to move it and the reason why there is none.
func checkSyscalls(t *testing.T, prog, instruction, lines string) {
	t.Helper()
	f := open(t, prog)
	found, err := Syscalls(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, s := range found {
		line := fmt.Sprintf("%s %d", s.Name, s.Number)
		for _, m := range s.Moves {
			line += fmt.Sprintf(" %d+%d/%d", int(m.Addr-s.Addr), m.Len, m.Code)
			b, err := f.Bytes(m.Addr, m.Len)
			first := instruction
			if s.Routine != 0 {
				first = "\xe8"
			}
			if err != nil || !strings.HasPrefix(string(b[s.Addr-m.Addr:]), first) {
				t.Errorf("%s: % x, %v", s.Name, b, err)
			}
		}
		if s.Reason != "" {
			line += " " + string(s.Reason)
		}
		if (s.Reason == "") != (s.Moves != nil) {
			t.Errorf("%+v", s)
		}
		have = append(have, line)
	}
	want := strings.Split(strings.Trim(lines, "\n"), "\n")
	slices.Sort(have)
	slices.Sort(want)
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}
