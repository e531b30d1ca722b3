package record

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestPlain looks at functions that no compiler has prepared: what is displaced, and why others are left alone. Each
// rule has a function that it refuses, and most have one beside it that is no different otherwise and is not refused.
func TestPlain(t *testing.T) {
	start := fn("_start", "ud2\n.p2align 4")
	// stripped is a function that only unwind tables tell of.
	stripped := func(body string) string { return ".p2align 4\n.cfi_startproc\n" + body + "\n.cfi_endproc\n" }
	// bare is a function that only a symbol tells of.
	bare := func(name, body string) string {
		return fmt.Sprintf(".globl %[1]s\n.type %[1]s,@function\n%[1]s:\n%[2]s\n.size %[1]s,.-%[1]s\n", name, body)
	}
	const frame = "push %rbp\n.cfi_def_cfa_offset 16\nmov %rsp,%rbp\n.cfi_def_cfa_register 6\n"
	const unframe = "pop %rbp\n.cfi_def_cfa 7,8\n"
	const loop = "mov %edi,%eax\n1: dec %edi\njnz 1b\nret"
	tests := []struct {
		name, text string
		args       string
		want       string // "function: reason +offset length moved", one a line
	}{
		{name: "whole instructions", text: fn("f", "push %rbx\nmov %rdi,%rbx\nmov $1,%eax\nret"), want: "f:  +0 9 9"},
		{name: "a landing pad stays", text: fn("f", "endbr64\nmov $1,%eax\nret"), want: "f:  +4 5 5"},
		{name: "one more behind the first", text: fn("f", "mov $1,%al\nendbr64\nret"), want: "f: jump-into-site +0 0 0"},
		{name: "the entry point", text: "", want: "_start: entry-point +0 0 0"},
		{
			name: "a short function, with padding and without",
			text: fn("f", "xor %eax,%eax\nret") + ".p2align 4\n" + fn("g", "ret") + fn("h", "mov $1,%eax\nret"),
			want: "f:  +0 14 3\ng: short-function +0 0 0\nh:  +0 5 5",
		},
		{
			name: "nops that a compiler has left: too few of them, behind a landing pad, all before the function",
			text: fn("f", "nop\nnop\nmov $1,%eax\nret") + pfe("f") +
				".p2align 4\n" + fn("g", "endbr64\nnop\nmov $1,%eax\nret") + pfe("g") +
				"h2: .rept 5\nnop\n.endr\n" + fn("h", "mov $1,%eax\nret") + pfe("h2"),
			want: "f:  +0 7 7\ng:  +4 6 6\nh:  +0 5 5",
		},
		{
			name: "padding inside the function",
			text: fn("f", "jmp 2f\n.p2align 3\n1: dec %edi\n2: test %edi,%edi\njnz 1b\nret"),
			want: "f:  +0 8 2",
		},
		{
			name: "a branch into the window, and to its end",
			text: fn("f", "mov %edi,%eax\n1: dec %edi\njnz 1b\nmov %edi,%eax\nret") + ".p2align 4\n" +
				fn("g", "xchg %eax,%ecx\nmov %edi,%ecx\nmov %ecx,%eax\n1: dec %edi\njnz 1b\nret"),
			want: "f:  +0 2 2 by +9\ng:  +0 5 5",
		},
		{
			name: "names that Rust looks for on the stack: a call would move, and none",
			text: fn("f", "ret") + ".p2align 4\n" +
				fn("_ZN3std3sys9backtrace26__rust_end_short_backtrace17h0123456789abcdefE", "push %rbp\nmov %rsp,%rbp\ncall f") +
				".p2align 4\n" + fn("_R26___rust_end_short_backtrace", "push %rbp\nmov %rsp,%rbp\nnop\ncall f") +
				fn("_R28___rust_begin_short_backtrace", frame+"call *%rdi\n"+unframe+"ret") +
				fn("g", frame+"call *%rdi\n"+unframe+"ret"),
			want: "_ZN3std3sys9backtrace26__rust_end_short_backtrace17h0123456789abcdefE: stack-mark +0 0 0\n" +
				"_R26___rust_end_short_backtrace:  +0 5 5\n_R28___rust_begin_short_backtrace: stack-mark +0 0 0\ng:  +0 6 6",
		},
		{
			name: "a short jump, to padding behind the function, before it, and behind another one that calls exit",
			text: fn("f", loop) + ".skip 5,0xcc\n" + fn("g", loop) + fn("exit", "mov $1,%eax\ncall f") + ".skip 11,0x90\n" +
				fn("h", loop) + fn("i", loop),
			want: "f:  +0 2 2 by +7\ng:  +0 2 2 by +18\nh:  +0 2 2 by -5\ni: jump-into-site +0 0 0",
		},
		{
			name: "no short jump: into the middle of its instructions; padding that code runs on into, that something " +
				"points to, that is another site's, that is too far away",
			text: fn("f", "xchg %eax,%ecx\n1: dec %edi\njnz 1b\nret") + fn("g", loop+"\nmov $1,%eax") + ".skip 8,0x90\n" +
				fn("h", "mov $1,%eax\nret") + ".skip 3,0x90\npad: .skip 4,0x90\n" + fn("i", "lea pad(%rip),%rax\nret") +
				fn("j", "ret") + ".skip 4,0xcc\n" + fn("k", "lea f(%rip),%rax\nret\n.skip 130,0x90") + ".skip 5,0x90\n" +
				fn("l", "mov $1,%eax\nret"),
			want: "f: jump-into-site +0 0 0\ng: jump-into-site +0 0 0\nh:  +0 5 5\ni:  +0 7 7\nj:  +0 5 1\nk:  +0 7 7",
		},
		{
			name: "a branch of another function",
			text: fn("f", "mov %edi,%eax\nf2: mov $1,%ecx\nret") + fn("g", "mov $1,%eax\njmp f2"),
			want: "f: jump-into-site +0 0 0\ng:  +0 5 5",
		},
		{
			name: "an address in data, and in an instruction",
			text: fn("f", "mov %edi,%eax\nf2: mov $1,%ecx\nret") + fn("g", "mov %edi,%eax\ng2: mov $1,%ecx\nret") +
				fn("h", "lea g2(%rip),%rax\nret") + ".data\n.balign 8\n.quad f2\n.text\n",
			want: "f: jump-into-site +0 0 0\ng: jump-into-site +0 0 0\nh:  +0 7 7",
		},
		{
			name: "an address in a relocation",
			text: fn("f", "mov %edi,%eax\nf2: mov $1,%ecx\nret") + ".data\n.balign 8\n.quad f2\n.text\n",
			args: "-static-pie",
			want: "f: jump-into-site +0 0 0",
		},
		{
			name: "a jump table",
			text: fn("f", "mov %edi,%eax\nf2: mov $1,%ecx\nlea table(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax\njmp *%rax\n"+
				"f3: xchg %eax,%ecx\nret") + fn("g", "lea table(%rip),%rax\nret") +
				".section .rodata\n.balign 4\ntable: .long f3-table, f2-table\n.text\n",
			want: "f: jump-into-site +0 0 0\ng:  +0 7 7",
		},
		{
			name: "the return address is read, changed, popped; its address is taken; a fence",
			text: fn("f", "mov (%rsp),%rax\nmov $1,%ecx\nret") +
				fn("g", "push %rbx\n.cfi_adjust_cfa_offset 8\nmov $1,%eax\nmov %rax,8(%rsp)\npop %rbx\n.cfi_adjust_cfa_offset -8\nret") +
				fn("h", "pop %rax\nmov $1,%ecx\njmp *%rax") +
				fn("i", frame+"mov 8(%rbp),%rax\n"+unframe+"ret") +
				fn("j", "lea (%rsp),%rax\nmov $1,%ecx\nret") +
				fn("k", "lock orq $0,(%rsp)\nret") +
				fn("l", "mov $1,%eax\nret $8"),
			want: "f: reads-return-address +0 0 0\ng: reads-return-address +0 0 0\nh: reads-return-address +0 0 0\n" +
				"i: reads-return-address +0 0 0\nj:  +0 9 9\nk:  +0 6 6\nl: reads-return-address +0 0 0",
		},
		{
			name: "jumps to a function that reads the return address: in between, conditional, from a frame to a part, by running on",
			text: fn("f", "mov (%rsp),%rax\nmov $1,%ecx\nret") + fn("g", "xor %esi,%esi\nmov $1,%ecx\njmp f") +
				fn("h", "mov $1,%ecx\njmp g") + fn("i", "mov $1,%eax\ntest %edi,%edi\njz f\nret") +
				fn("j", "push %rbx\n.cfi_adjust_cfa_offset 8\nmov $1,%eax\njmp part") +
				fn("part", ".cfi_adjust_cfa_offset 8\nmov 8(%rsp),%rax\npop %rbx\n.cfi_adjust_cfa_offset -8\nret") +
				fn("k", "mov $1,%eax") + fn("l", "mov (%rsp),%rcx\nmov $1,%ecx\nret") +
				fn("m", "mov $1,%eax\njmp n") + fn("n", "mov $1,%eax\nret"),
			want: "f: reads-return-address +0 0 0\ng: reads-return-address +0 0 0\nh: reads-return-address +0 0 0\n" +
				"i: reads-return-address +0 0 0\nj: reads-return-address +0 0 0\npart: cold-part +0 0 0\n" +
				"k: reads-return-address +0 0 0\nl: reads-return-address +0 0 0\nm:  +0 5 5\nn:  +0 5 5",
		},
		{
			name: "the return address by another register: in functions that use it so, and in such that have addresses of their own",
			text: fn("f", "mov %rsp,%rdx\nmov (%rdx),%rax\nret") + fn("g", "lea 8(%rsp),%rdx\nmov -8(%rdx),%rax\nret") +
				fn("h", "sub $24,%rsp\n.cfi_adjust_cfa_offset 24\nlea 8(%rsp),%rdx\nmov 16(%rdx),%rax\nadd $24,%rsp\n.cfi_adjust_cfa_offset -24\nret") +
				fn("i", "sub $24,%rsp\n.cfi_adjust_cfa_offset 24\nlea 8(%rsp),%rdx\nmov 8(%rdx),%rax\nadd $24,%rsp\n.cfi_adjust_cfa_offset -24\nret") +
				fn("j", "lea 8(%rsp),%rdx\nmov %rdi,%rdx\nmov -8(%rdx),%rax\nret"),
			want: "f: reads-return-address +0 0 0\ng: reads-return-address +0 0 0\nh: reads-return-address +0 0 0\ni:  +0 9 9\nj:  +0 5 5",
		},
		{
			name: "a call would move of a function that looks at where it was called",
			text: fn("f", "mov (%rsp),%rax\nmov $1,%ecx\nret") + fn("g", "call f\nmov $1,%eax\nret") + fn("h", "call g\nmov $1,%eax\nret"),
			want: "f: reads-return-address +0 0 0\ng: call-at-entry +0 0 0\nh:  +0 5 5",
		},
		{
			name: "flags that come in, flags that go out",
			text: fn("f", "mov $1,%eax\nadc $0,%eax\nret") + fn("g", "mov $1,%eax\ninc %eax\nsetc %al\nret") +
				fn("h", "mov $1,%eax\nadd $1,%eax\nsetc %al\nret") +
				fn("out", "cmp $1,%edi\nmov $1,%eax\nret") + fn("i", "call out\nmov $2,%eax\njb 1f\n1: ret") +
				fn("other", "mov $1,%eax\nret") + fn("j", "call other\n1: jb 2f\ntest %eax,%eax\njmp 1b\n2: ret"),
			want: "f: flags-live +0 0 0\ng: flags-live +0 0 0\nh:  +0 5 5\nout: flags-live +0 0 0\ni:  +0 5 5\nother:  +0 5 5\nj:  +0 5 5",
		},
		{
			name: "flags that come from farther away: by a jump, by what is called last; of whatever a pointer leads to; behind a jump",
			text: fn("set", "cmp $1,%edi\nmov $1,%eax\nret") + fn("f", "mov $1,%eax\nmov $2,%edi\njmp set") +
				fn("set2", "cmp $1,%edi\nmov $1,%eax\nret") + fn("g", "push %rbx\n.cfi_adjust_cfa_offset 8\nmov $1,%ebx\ncall set2\npop %rbx\n.cfi_adjust_cfa_offset -8\nret") +
				fn("h", "mov $1,%eax\ncall f\njge 1f\n1: ret") + fn("i", "mov $1,%eax\ncall g\nsetg %al\nret") +
				fn("j", "mov $1,%eax\nmov $2,%eax\njmp 1f\n1: adc $0,%eax\nret") +
				fn("ind", "cmp $1,%edi\nmov $1,%eax\nret") + fn("k", "lea ind(%rip),%rax\ncall *%rax\nsetg %al\nret"),
			want: "set: flags-live +0 0 0\nf: flags-live +0 0 0\nset2: flags-live +0 0 0\ng: flags-live +0 0 0\nh:  +0 5 5\ni:  +0 5 5\n" +
				"j: flags-live +0 0 0\nind: flags-live +0 0 0\nk:  +0 7 7",
		},
		{
			name: "flags of what compilers do inline: comparing short texts, wide shifts, floating-point numbers",
			text: fn("f", "mov $4,%ecx\nmov %rdi,%rax\nlea 1(%rip),%rdi\nrepz cmpsb\nseta %al\nret") +
				fn("g", "mov $0,%ecx\nmov %rdi,%rax\nlea 1(%rip),%rdi\nrepz cmpsb\nseta %al\nret") +
				fn("h", "mov $4,%ecx\nmov %eax,%ecx\nlea 1(%rip),%rdi\nrepz cmpsb\nseta %al\nret") +
				fn("i", "mov %rdi,%rax\nshr $32,%rax\nsetne %al\nret") + fn("j", "fldz\nfldz\nfucomip %st(1)\nsetnp %al\nret") +
				fn("out", "mov $1,%eax\nret") + fn("k", "mov $4,%ecx\ncall out\nrepz cmpsb\nseta %al\nret"),
			want: "f:  +0 5 5\ng: flags-live +0 0 0\nh: flags-live +0 0 0\ni:  +0 7 7\nj:  +0 6 6\nk:  +0 5 5\nout: flags-live +0 0 0",
		},
		{
			name: "a loop to the first instruction: as it was called, with something pushed, with the red zone in use",
			text: fn("f", "dec %edi\nmov $1,%eax\njnz f\nret") +
				fn("g", "push %rbx\n.cfi_adjust_cfa_offset 8\ndec %edi\nmov $1,%eax\njnz g\npop %rbx\n.cfi_adjust_cfa_offset -8\nret") +
				fn("h", "dec %edi\nmov %edi,-8(%rsp)\njnz h\nret"),
			want: "f:  +0 7 7\ng: loop-at-entry +0 0 0\nh: loop-at-entry +0 0 0",
		},
		{
			name: "calls: another function, the next instruction",
			text: fn("f", "sub $8,%rsp\n.cfi_adjust_cfa_offset 8\ncall g\nadd $8,%rsp\n.cfi_adjust_cfa_offset -8\nret") +
				fn("g", "mov $1,%eax\nret") + fn("h", "call 1f\n1: mov $1,%eax\nret"),
			want: "f:  +0 9 9\ng:  +0 5 5\nh: call-at-entry +0 0 0",
		},
		{
			name: "system calls and traps, and where the compiler knows that nothing comes",
			text: fn("f", "mov %edi,%eax\nsyscall\nret") + fn("g", "mov %edi,%eax\nint3\nmov $1,%eax\nret") + fn("h", "ud2\nnopl 0(%rax)"),
			want: "f: system-call-at-entry +0 0 0\ng: system-call-at-entry +0 0 0\nh:  +0 5 2",
		},
		{
			name: "no instructions, here or later",
			text: fn("f", ".byte 6\nmov $1,%eax\nret") + fn("g", "mov $1,%eax\n.byte 6\nret"),
			want: "f: undecodable +0 0 0\ng: undecodable +0 0 0",
		},
		{
			name: "unwind information: of a signal frame, of a frame that is there, in the middle of an instruction",
			text: fn("g", ".cfi_signal_frame\nmov $1,%eax\nret") + fn("h", ".cfi_def_cfa_offset 16\nmov $1,%eax\nret") +
				fn("i", ".byte 0xb8,1\n.cfi_adjust_cfa_offset 8\n.byte 0,0,0\nret") + fn("j", ".cfi_undefined rip\nmov $1,%eax\nret"),
			want: "g: unusual-unwind-info +0 0 0\nh: cold-part +0 0 0\n" +
				"i: unusual-unwind-info +0 0 0\nj: unusual-unwind-info +0 0 0",
		},
		{
			name: "no unwind information: understood; return address read by the stack pointer, by the frame pointer",
			text: bare("f", "push %rbp\nmov %rsp,%rbp\nsub $32,%rsp\nmov 16(%rbp),%rax\nleave\nret") +
				bare("g", "sub $24,%rsp\nmov 24(%rsp),%rax\nadd $24,%rsp\nret") +
				bare("h", "push %rbp\nmov %rsp,%rbp\nand $-32,%rsp\nmov 8(%rbp),%rax\nleave\nret") +
				bare("i", "sub $24,%rsp\nmov 32(%rsp),%rax\nadd $24,%rsp\nret"),
			want: "f:  +0 8 8\ng: reads-return-address +0 0 0\nh: reads-return-address +0 0 0\ni:  +0 9 9",
		},
		{
			name: "no unwind information: the stack by a register, two ways that differ, a return with something pushed, " +
				"a call of the next instruction; an aligned stack; a jump table with something pushed",
			text: bare("f", "mov $1,%eax\nmov %rdi,%rsp\nret") +
				bare("g", "test %edi,%edi\njz 1f\npush %rbx\n1: mov $1,%eax\nret") +
				bare("h", "mov $1,%eax\npush %rbx\nret") + bare("i", "mov $1,%eax\ncall 1f\n1: pop %rax\nret") +
				bare("j", "lea 8(%rsp),%r10\nand $-32,%rsp\npush -8(%r10)\npush %rbp\nmov %rsp,%rbp\npush %r10\n"+
					"mov -8(%rbp),%r10\nleave\nlea -8(%r10),%rsp\nret") +
				bare("k", "mov $1,%eax\npush %rbx\nlea table(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax\njmp *%rax\n"+
					"k2: pop %rbx\nret") + ".section .rodata\n.balign 4\ntable: .long k2-table\n.text\n",
			want: "f: no-unwind-info +0 0 0\ng: no-unwind-info +0 0 0\nh: no-unwind-info +0 0 0\ni: no-unwind-info +0 0 0\n" +
				"j:  +0 5 5\nk:  +0 5 5",
		},
		{
			name: "no unwind information: parts, jumped to with something pushed, by functions with and without; a tail call",
			text: bare("f", "mov $1,%eax\npush %rbx\njmp f2") + bare("f2", "mov $1,%eax\npop %rbx\nret") +
				fn("g", "mov $1,%eax\npush %rbx\n.cfi_adjust_cfa_offset 8\njmp g2") + bare("g2", "mov $1,%eax\nret") +
				bare("h", "mov $1,%eax\njmp h2") + bare("h2", "mov $1,%eax\nret"),
			want: "f:  +0 5 5\nf2: no-unwind-info +0 0 0\ng:  +0 5 5\ng2: no-unwind-info +0 0 0\nh:  +0 5 5\nh2:  +0 5 5",
		},
		{
			name: "nothing lists a function: one that is called, by another such one, too; one whose address is taken",
			text: fn("f", "call unlisted1\nlea unlisted3(%rip),%rax\nret") + ".skip 600,0x90\n.p2align 4\n" +
				"unlisted1: mov $1,%eax\ncall unlisted2\nret\n.p2align 4\nunlisted2: mov $2,%eax\nret\n.p2align 4\n" +
				"unlisted3: mov $3,%eax\nret\n.p2align 4\nunlisted4: mov $4,%eax\nret\n",
			want: "f:  +0 5 5\n0x1:  +0 5 5\n0x2:  +0 5 5\n0x3: unknown-entry +0 0 0",
		},
		{
			name: "code that runs on: as a tail call, and with something pushed",
			text: fn("f", "mov $1,%eax") + fn("g", "mov $2,%eax\nret") +
				fn("h", "push %rbx\n.cfi_adjust_cfa_offset 8\nmov $1,%eax") + fn("i", "mov $2,%eax\nret"),
			want: "f:  +0 5 5\ng:  +0 5 5\nh:  +0 6 6\ni: jump-into-site +0 0 0",
		},
		{
			name: "only jumped to: aligned, not aligned, by a condition, jumping back, with the red zone in use",
			text: fn("f", "mov $1,%eax\njmp a") + fn("g", "mov $1,%eax\njmp b") + fn("h", "mov $1,%eax\ntest %edi,%edi\njz c\nret") +
				fn("i", "mov $1,%eax\njmp d\ni2: ret") + fn("j", "mov $1,%eax\njmp e") +
				stripped("a: mov $2,%eax\nret\nnop") + ".cfi_startproc\nb: mov $3,%eax\nret\n.cfi_endproc\n" +
				stripped("c: mov $4,%eax\nret") + stripped("d: mov $5,%eax\njmp i2") + stripped("e: mov $6,%eax\nmov -8(%rsp),%ecx\nret"),
			want: "0x2:  +0 5 5\n0x3: only-jumped-to +0 0 0\n0x4: only-jumped-to +0 0 0\n0x5: only-jumped-to +0 0 0\n" +
				"0x6: only-jumped-to +0 0 0",
		},
		{
			name: "padding of zeros, in front of bytes that an odd number of them would make none of instructions",
			text: fn("f", "call unlisted1\nret") + ".skip 600,0x90\n.p2align 4\nunlisted1: mov $1,%eax\ncltd\nret\n" +
				".p2align 4,0\nunlisted2: push %rbp\nmov $6,%al\npop %rbp\nret\n",
			want: "0x1:  +0 5 5",
		},
		{
			name: "what Go has made",
			text: fn("f", "mov $1,%eax\nret") + ".section .gopclntab,\"a\"\n.quad 0\n.text\n",
			want: "f: go-image +0 0 0",
		},
		{
			name: "with a runtime that looks up return addresses",
			text: fn("f", "mov $1,%eax\nret") + ".section .rodata\n.asciz \"OCAMLRUNPARAM\"\n.text\n",
			want: "f: stack-walker +0 0 0",
		},
		{
			name: "C functions with OCaml's",
			text: fn("f", "mov $1,%eax\nret") + ".globl camlM__code_begin\ncamlM__code_begin:\n" + fn("camlM__g_81", "mov $1,%eax\nret") +
				".globl camlM__code_end\ncamlM__code_end:\n" + fn("h", "mov $1,%eax\nret") +
				".globl camlN__code_begin\n.globl camlN__code_end\ncamlN__code_begin: camlN__code_end:\n" +
				".section .rodata\n.asciz \"OCAMLRUNPARAM\"\n.text\n",
			want: "camlM__g_81: stack-walker +0 0 0\nf:  +0 5 5\nh:  +0 5 5",
		},
		{
			name: "OCaml's functions that are not where its code is",
			text: fn("f", "mov $1,%eax\nret") + ".globl camlM__code_begin\ncamlM__code_begin:\n" + fn("g", "mov $1,%eax\nret") +
				".globl camlM__code_end\ncamlM__code_end:\n" + fn("camlM__h_82", "mov $1,%eax\nret"),
			args: "-shared",
			want: "camlM__h_82: stack-walker +0 0 0\nf: stack-walker +0 0 0\ng: stack-walker +0 0 0",
		},
		{
			name: "OCaml's functions, of which nothing is known but that they call its runtime",
			text: fn("f", "call caml_call_gc@PLT\nret"),
			args: "-shared",
			want: "f: stack-walker +0 0 0",
		},
		{
			name: "an end of OCaml's code, and no beginning",
			text: fn("f", "mov $1,%eax\nret") + ".globl camlM__code_end\ncamlM__code_end:\n",
			args: "-shared",
			want: "f: stack-walker +0 0 0",
		},
		{
			name: "OCaml's interpreter",
			text: fn("f", "mov $1,%eax\nret") + fn("caml_interprete", "mov $2,%eax\nret") +
				".section .rodata\n.asciz \"OCAMLRUNPARAM\"\n.text\n",
			want: "caml_interprete:  +0 5 5\nf:  +0 5 5",
		},
		{
			name: "C functions that OCaml calls",
			text: fn("caml_stub", "mov $1,%eax\ncall caml_alloc_string@PLT\nret"),
			args: "-shared",
			want: "caml_stub:  +0 5 5",
		},
		{
			name: "with HotSpot, which walks stacks from return addresses",
			text: fn("f", "mov $1,%eax\nret") + ".section .rodata\n.asciz \"gHotSpotVMStructs\"\n.text\n",
			want: "f: stack-walker +0 0 0",
		},
		{
			name: "what Mono has compiled ahead of time",
			text: fn("f", "mov $1,%eax\nret") + ".data\n.globl mono_aot_file_info\nmono_aot_file_info: .quad 0\n.text\n",
			args: "-shared",
			want: "f: stack-walker +0 0 0",
		},
		{
			name: "Mono, which looks for that",
			text: fn("f", "mov $1,%eax\nret") + ".section .rodata\n.asciz \"mono_aot_file_info\"\n.text\n",
			want: "f:  +0 5 5",
		},
		{
			name: "with a module that computes a checksum of its code",
			text: fn("f", "mov $1,%eax\nret") + ".section .rodata\n.asciz \"FIPS integrity test\"\n.text\n",
			want: "f: measured +0 0 0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"-static", "-no-pie"}
			if tt.args != "" {
				args = strings.Fields(tt.args)
			}
			img := asm(t, ".text\n"+start+tt.text, args...)
			names := map[string]bool{}
			want := strings.Split(tt.want, "\n")
			for _, w := range want {
				name, _, _ := strings.Cut(w, ":")
				names[name] = true
			}
			var got []string
			for _, s := range findWith(t, img, Options{Plain: PlainAuto}) {
				name := s.Name
				if b := s.Bytes; name == "" && len(b) > 1 {
					name = fmt.Sprintf("%#x", b[1])
				} else if code, err := open(t, img).Bytes(s.Func, 2); name == "" && err == nil {
					name = fmt.Sprintf("%#x", code[1])
				}
				if !names[name] {
					continue
				}
				line := fmt.Sprintf("%s: %s +%d %d %d", name, s.Reason, s.Addr-s.Func, s.Len, s.Moved)
				if s.Via != 0 {
					line += fmt.Sprintf(" by %+d", int64(s.Via-s.Func))
				}
				got = append(got, line)
				if s.Traceable() != (s.Kind == KindPlain) || s.Traceable() != (s.Ret == RetSP) {
					t.Errorf("%s: kind %v, return address %v", name, s.Kind, s.Ret)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestCoverage holds docs/coverage.md to the programs of this machine: the share of their functions that can be traced, not
// counting parts of functions, and a reason for each of the others.
func TestCoverage(t *testing.T) {
	seen := 0
	for _, p := range []struct {
		path  string
		share float64
	}{
		{"/usr/bin/python3.11", .99},
		{"/usr/bin/git", .999},
		{"/usr/bin/perl", .998},
		{"/usr/bin/bash", .998},
		{"/usr/bin/gdb", .999},
		{"/usr/bin/cmake", .998},
		{"/usr/bin/rg", .998},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", .999},
		{"/usr/lib/gcc/x86_64-linux-gnu/12/cc1", .999},
		{"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", .998},
		{"/usr/lib/x86_64-linux-gnu/libLLVM.so.19.1", .998},
	} {
		if _, err := os.Stat(p.path); err != nil || strings.Contains(p.path, "LLVM") && !testtool.Wide() { // large
			continue
		}
		f := open(t, p.path)
		if f.Header.Machine != elf.EM_X86_64 {
			continue
		}
		sites, err := Find(f, Options{})
		if err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		seen++
		checkShare(t, p.path, sites, p.share)
	}
	if seen == 0 {
		t.Skip("none of the programs is installed")
	}
}

// checkShare compares the share of functions that can be traced, not counting parts of functions.
func checkShare(t *testing.T, path string, sites []Site, want float64) {
	t.Helper()
	traced, all, parts := 0, 0, 0
	for i := range sites {
		switch s := &sites[i]; {
		case s.Reason == ReasonColdPart || s.Reason == ReasonOnlyJumpedTo:
			parts++
		case s.Traceable():
			traced++
			all++
		default:
			all++
			if s.Reason == ReasonNoSite || s.Reason.Text() == "" {
				t.Errorf("%s: %#x: no reason: %q", path, s.Func, s.Reason)
			}
		}
	}
	share := float64(traced) / float64(all)
	t.Logf("%s: %d of %d functions, %.2f %%, and %d parts", path, traced, all, 100*share, parts)
	if share < want {
		t.Errorf("%s: %d of %d functions, %.2f %%", path, traced, all, 100*share)
	}
}

// TestPlainSmall: a small program in assembly, without start files, has functions that only calls tell of.
func TestPlainSmall(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, img := filepath.Join(dir, "program.S"), filepath.Join(dir, "program")
	text := ".globl _start\n_start: mov $1,%edi\ncall work\nmov $60,%eax\nsyscall\nhlt\nwork: mov $1,%eax\nadd %edi,%eax\nret\n"
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-nostdlib", "-static", "-o", img, src)
	var got []string
	for _, s := range findWith(t, img, Options{Plain: PlainAll}) {
		got = append(got, fmt.Sprint(s.Name, " ", s.Reason))
	}
	if want := []string{" entry-point", " "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
