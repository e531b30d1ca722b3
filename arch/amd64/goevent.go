package amd64

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch"
)

// Events of Go's functions.
//
// At a Go function's entry and at its ends r12, r13, r15 and the flags are free, r14 is the goroutine, and nothing may be
// put on the stack, which can be full (Go's internal ABI, cmd/compile/abi-internal.md). So an event is recorded in place,
// by what thunks call a routine for: a slot of the thread's chunk is reserved, and written.
//
// A goroutine can be stopped between any two instructions, and go on on another thread, to which nothing applies that has
// been found out of this one's block. That is what RestartAtEntry is for, by which the runtime goes back to the beginning
// of a function: all from Begin on, up to the instruction that reserves the slot, is a function of its own in the table
// that the runtime has of it. From there to the store a goroutine is not stopped. Behind, it can be, like anywhere. So
// nearly all of the time that an event takes, which is that of reading the clock, nobody who wants to stop the goroutine
// has to wait. A signal handler may come anywhere, as in the fast paths of thunks (stub/src/amd64/macros.h).
//
// What is rare leaves by another part, which stands behind all that a function has, and goes to a routine on the stack of
// the thread's own goroutine.

// Offsets in the code of an event, and lengths.
const (
	goEventBegin  = 19
	goEventTaken  = 127
	goEventStored = 152
	goEventLen    = 158
	goRareLen     = 31
)

// GoShape is that of the code that [AppendGoEvent] and [AppendGoRare] append.
var GoShape = arch.GoShape{Begin: goEventBegin, Taken: goEventTaken, Stored: goEventStored, Len: goEventLen, Rare: goRareLen}

// Words of a thread's block: stub/src/layout.h has the same.
const (
	blockOwner     = 0
	blockNext      = 16
	blockEnd       = 24
	blockHigh      = 40
	blockGoroutine = 128
)

// goEvent is the code of an event, with zeroes for what differs between them.
var goEvent = [goEventLen]byte{
	0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
	0x0f, 0x84, 0, 0, 0, 0, // je done
	0x49, 0x89, 0xc4, // mov %rax, %r12
	0x49, 0x89, 0xd5, // mov %rdx, %r13
	0x64, 0x4c, 0x8b, 0x3c, 0x25, 0, 0, 0, 0, // begin: mov %fs:0, %r15
	0x49, 0xf7, 0xd7, // not %r15
	0x65, 0x4c, 0x3b, 0x3c, 0x25, blockOwner, 0, 0, 0, // cmp %gs:owner, %r15
	0x0f, 0x85, 0, 0, 0, 0, // jne rare
	0x4d, 0x8b, 0xbe, 0, 0, 0, 0, // mov goid(%r14), %r15
	0x65, 0x4c, 0x3b, 0x3c, 0x25, blockGoroutine, 0, 0, 0, // cmp %gs:goroutine, %r15
	0x0f, 0x85, 0, 0, 0, 0, // jne rare: another goroutine
	0x65, 0x4c, 0x8b, 0x3c, 0x25, blockNext, 0, 0, 0, // mov %gs:next, %r15
	0x65, 0x4c, 0x3b, 0x3c, 0x25, blockEnd, 0, 0, 0, // cmp %gs:end, %r15
	0x0f, 0x83, 0, 0, 0, 0, // jae rare: there is no room
	0x0f, 0x31, // rdtsc
	0x65, 0x3b, 0x14, 0x25, blockHigh, 0, 0, 0, // cmp %gs:high, %edx
	0x0f, 0x85, 0, 0, 0, 0, // jne rare
	0x89, 0xc2, // mov %eax, %edx
	0x4c, 0x89, 0xf8, // mov %r15, %rax
	0x49, 0x83, 0xc7, 0x08, // add $8, %r15
	0x65, 0x4c, 0x0f, 0xb1, 0x3c, 0x25, blockNext, 0, 0, 0, // cmpxchg %r15, %gs:next
	0x75, 0x100 + goEventBegin - (goEventTaken + 2), // taken: jne begin
	0x41, 0xbf, 0, 0, 0, 0, // mov $id, %r15d
	0x44, 0x03, 0x3d, 0, 0, 0, 0, // add idbase(%rip), %r15d
	0x49, 0xc1, 0xe7, 0x20, // shl $32, %r15
	0x49, 0x09, 0xd7, // or %rdx, %r15
	0x4c, 0x89, 0x38, // mov %r15, (%rax)
	0x4c, 0x89, 0xe0, // stored: mov %r12, %rax
	0x4c, 0x89, 0xea, // mov %r13, %rdx
} // done

// goRares are where the displacements of the jumps to the rare part are.
var goRares = [...]int{42, 64, 88, 104}

// AppendGoEvent appends the code of an event, for address at.
func AppendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error) {
	b := goEvent
	p := patcher{b: b[:], at: at}
	p.reach("testb", 2, 7, e.Switch)
	p.reach("je", 9, 13, at+goEventLen)
	for _, o := range goRares {
		p.reach("jne", o, o+4, e.Rare)
	}
	p.reach("add", 138, 142, e.IDBase)
	if e.Always {
		b[goRares[0]-2], b[goRares[0]-1] = 0x90, 0xe9 // nop; jmp rare
	}
	binary.LittleEndian.PutUint32(b[49:], e.GoID)
	binary.LittleEndian.PutUint32(b[131:], e.ID)
	return append(dst, b[:]...), p.err
}

// goRare is the code of an event's rare part.
var goRare = [goRareLen]byte{
	0x4c, 0x89, 0xe0, // mov %r12, %rax
	0x4c, 0x89, 0xea, // mov %r13, %rdx
	0x41, 0xbc, 0, 0, 0, 0, // mov $id, %r12d
	0x4d, 0x8b, 0xae, 0, 0, 0, 0, // mov goid(%r14), %r13
	0x4c, 0x8d, 0x3d, 0, 0, 0, 0, // lea done(%rip), %r15
	0xe9, 0, 0, 0, 0, // jmp slow
}

// AppendGoRare appends the rare part of the event whose code is at address event, for address e.Rare.
func AppendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error) {
	b := goRare
	p := patcher{b: b[:], at: e.Rare}
	p.reach("lea", 22, 26, event+goEventLen)
	p.reach("jmp", 27, goRareLen, e.Slow)
	binary.LittleEndian.PutUint32(b[8:], e.RareID())
	binary.LittleEndian.PutUint32(b[15:], e.GoID)
	return append(dst, b[:]...), p.err
}

// A patcher fills in displacements of code for address at. It keeps the first error.
type patcher struct {
	b   []byte
	at  uint64
	err error
}

// reach fills in the displacement at an offset, of an instruction that ends at offset end.
func (p *patcher) reach(name string, disp, end int, to uint64) {
	d, err := disp32(name, p.at+uint64(disp), p.at+uint64(end), to)
	if err != nil && p.err == nil {
		p.err = err
	}
	binary.LittleEndian.PutUint32(p.b[disp:], d)
}
