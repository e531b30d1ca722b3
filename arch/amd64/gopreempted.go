package amd64

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch"
)

// Where goroutines go on that were stopped between any two instructions.
//
// Go's runtime stops a goroutine at an instruction of its choice by a signal handler, which has it call
// runtime.asyncPreempt from there (runtime, preempt.go): the address at which the goroutine goes on is a word of its
// stack, where nobody finds it who does not know all goroutines. In code that is the original's again this can be in the
// middle of what is rewritten when recording goes on. So the first instructions of runtime.asyncPreempt, which every such
// goroutine executes, are led to a routine that replaces the address by that of the instruction's copy, which is always
// there.

const (
	goPreemptedLen = 86
	goReturnLen    = 8 // two offsets from the table's beginning
)

// goPreempted is the routine, with zeroes for what depends on addresses.
var goPreempted = [goPreemptedLen]byte{
	0x55,             // push %rbp: what stood at the beginning of asyncPreempt
	0x48, 0x89, 0xe5, // mov %rsp, %rbp
	0x9c,                   // pushf
	0x50,                   // push %rax
	0x51,                   // push %rcx
	0x52,                   // push %rdx
	0x56,                   // push %rsi
	0x57,                   // push %rdi
	0x48, 0x8b, 0x45, 0x08, // mov 8(%rbp), %rax
	0x48, 0x8d, 0x15, 0, 0, 0, 0, // lea table(%rip), %rdx
	0x48, 0x29, 0xd0, // sub %rdx, %rax
	0x48, 0x63, 0xc8, // movslq %eax, %rcx
	0x48, 0x39, 0xc1, // cmp %rax, %rcx
	0x75, 0x2c, // jne out: code of another module
	0x31, 0xf6, // xor %esi, %esi
	0xb9, 0, 0, 0, 0, // mov $count, %ecx
	0x39, 0xce, // again: cmp %ecx, %esi
	0x73, 0x21, // jae out
	0x8d, 0x3c, 0x0e, // lea (%rsi,%rcx), %edi
	0xd1, 0xef, // shr %edi
	0x3b, 0x04, 0xfa, // cmp (%rdx,%rdi,8), %eax
	0x74, 0x0b, // je found
	0x7c, 0x05, // jl below
	0x8d, 0x77, 0x01, // lea 1(%rdi), %esi
	0xeb, 0xeb, // jmp again
	0x89, 0xf9, // below: mov %edi, %ecx
	0xeb, 0xe7, // jmp again
	0x48, 0x63, 0x44, 0xfa, 0x04, // found: movslq 4(%rdx,%rdi,8), %rax
	0x48, 0x01, 0xd0, // add %rdx, %rax
	0x48, 0x89, 0x45, 0x08, // mov %rax, 8(%rbp)
	0x5f,             // out: pop %rdi
	0x5e,             // pop %rsi
	0x5a,             // pop %rdx
	0x59,             // pop %rcx
	0x58,             // pop %rax
	0xe9, 0, 0, 0, 0, // jmp asyncPreempt+5
}

// GoPreemptHead is what runtime.asyncPreempt begins with, in the versions of Go whose goroutines are stopped in this way. The
// jump to the routine takes its place.
var GoPreemptHead = [JumpLen]byte{0x55, 0x48, 0x89, 0xe5, 0x9c}

// GoPreemptedLen returns how long the routine is, with a table of so many returns behind it.
func GoPreemptedLen(returns int) int { return goPreemptedTable + returns*goReturnLen }

// goPreemptedTable is where the table begins.
const goPreemptedTable = (goPreemptedLen + 7) &^ 7

// AppendGoPreempted appends the routine for address at, with its table: returns are sorted, and preempt is the address of
// runtime.asyncPreempt.
func AppendGoPreempted(dst []byte, at, preempt uint64, returns []arch.GoReturn) ([]byte, error) {
	b := goPreempted
	table := at + goPreemptedTable
	p := patcher{b: b[:], at: at}
	p.reach("lea", 17, 21, table)
	p.reach("jmp", goPreemptedLen-4, goPreemptedLen, preempt+JumpLen)
	binary.LittleEndian.PutUint32(b[35:], uint32(len(returns)))
	dst = append(dst, b[:]...)
	for range goPreemptedTable - goPreemptedLen {
		dst = append(dst, 0xcc)
	}
	for _, r := range returns {
		from, err := disp32("return", r.From, table, r.From)
		if p.err == nil {
			p.err = err
		}
		to, err := disp32("return", r.From, table, r.To)
		if p.err == nil {
			p.err = err
		}
		dst = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(dst, from), to)
	}
	return dst, p.err
}
