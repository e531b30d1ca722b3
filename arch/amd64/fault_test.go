package amd64

import (
	"encoding/hex"
	"testing"
)

// TestMayFault: what computes, and what is at the stack pointer, at the instruction or at a register that is known, does not
// fault; all other memory may not be there, and divisions and what is not known may fault.
func TestMayFault(t *testing.T) {
	const r14 = 14
	for _, tt := range []struct {
		code, text string
		want       bool
	}{
		{"4883c420", "add $0x20, %rsp", false},
		{"5d", "pop %rbp", false},
		{"c3", "ret", false},
		{"4889c8", "mov %rcx, %rax", false},
		{"31c0", "xor %eax, %eax", false},
		{"0f10442410", "movups 0x10(%rsp), %xmm0", false},
		{"488b442408", "mov 8(%rsp), %rax", false},
		{"488b0500000000", "mov 0(%rip), %rax", false},
		{"493b6610", "cmp 0x10(%r14), %rsp", false},
		{"488d4008", "lea 8(%rax), %rax", false},
		{"0f1f4000", "nopl 0(%rax)", false},
		{"f20f58c1", "addsd %xmm1, %xmm0", false},
		{"0fb6c0", "movzbl %al, %eax", false},
		{"f6d8", "neg %al", false},
		{"eb00", "jmp", false},
		{"488b4008", "mov 8(%rax), %rax", true},
		{"488b4508", "mov 8(%rbp), %rax", true},
		{"488b04c4", "mov (%rsp,%rax,8), %rax", true},
		{"488b042500000000", "mov 0, %rax", true},
		{"64488b0425f8ffffff", "mov %fs:-8, %rax", true},
		{"67488b0424", "mov (%esp), %rax", true},
		{"418b0424", "mov (%r12), %eax", true},
		{"c4c17a6f0424", "vmovdqu (%r12), %xmm0", true},
		{"c5f877", "vzeroupper", true},
		{"48f7f9", "idiv %rcx", true},
		{"f7f1", "div %ecx", true},
		{"a4", "movsb", true},
		{"f348ab", "rep stosq", true},
		{"d7", "xlat", true},
		{"ff30", "push (%rax)", true},
		{"ff742408", "push 8(%rsp)", false},
		{"8f00", "pop (%rax)", true},
		{"ff22", "jmp *(%rdx)", true},
		{"ffe2", "jmp *%rdx", false},
		{"e800000000", "call", true},
		{"0f0b", "ud2", true},
		{"cc", "int3", true},
		{"f4", "hlt", true},
		{"0f05", "syscall", true},
		{"0f30", "wrmsr", true},
		{"e460", "in $0x60, %al", true},
		{"660f38dcc1", "aesenc %xmm1, %xmm0", true},
	} {
		raw, err := hex.DecodeString(tt.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(raw)
		if err != nil || in.Len != len(raw) {
			t.Fatalf("%s: %+v, %v", tt.text, in, err)
		}
		if got := in.MayFault(raw, func(base int) bool { return base == r14 }); got != tt.want {
			t.Errorf("%s: %v", tt.text, got)
		}
	}
}
