package amd64

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fentry-dev/fentry/arch"
)

// A thunk stands between a traced function and its caller, in 64 bytes of its own: where the
// site is there are 5. It has what differs between functions, and the runtime's routines have
// the rest, once.
//
// What is odd about this machine is that a call pushes its return address, and that the
// processor keeps a copy of it, to predict the return (and, with CET, to check it). Whoever
// changes the address on the stack, as ftrace does, has every return mispredicted. So a
// thunk drops the caller's address, after enter has set it aside, and calls the body: that
// call's own address lands in the same slot, stack arguments stay where they were, and every
// return goes to where a call came from.
//
// No register is scratch. At a function's entry the calling convention gives r11 away, but
// callers keep values in whatever register they know the function not to change (-fipa-ra),
// al has a count and r10 the static chain. So the id goes over the stack, pushed by an
// instruction that needs no register; bit 31 of it says exit. Flags are dead at both ends,
// which is why the switch can be tested, by one instruction with a memory operand.
//
// A thunk that counts does all by itself, because even the call of a routine would take longer: it
// adds to the function's entry of the thread's table, whose address is in the control block. The
// block is at the gs base if the first word there is the inverted thread pointer, which is at fs:0:
// the sum of the two is then -1. So one register is enough, and it is 0 when it addresses the block.

// A Thunk is the code between a traced site and the runtime. Addresses are those at which the code will run, or all
// shifted from them by the same distance.
type Thunk struct {
	Addr   uint64 // of the thunk, a multiple of ThunkSize
	Switch uint64 // of the function's switch byte; if bit 0 is clear the thunk does nothing
	Enter  uint64 // of the runtime's enter routine
	Exit   uint64 // of the runtime's exit routine; only for ThunkGraph and ThunkMcount
	Body   uint64 // first byte after the site
	ID     uint32 // the site's, 1 to MaxThunkID
	Kind   arch.ThunkKind
}

// Offsets of a thunk's parts. The runtime's sources (stub/src/amd64/thunk.h) have the same.
const (
	thunkCallEnd = 19 // enter returns here
	thunkPad     = 24 // the body's call, and a nop before it
	thunkRet     = 32 // the body returns here
	thunkRetPush = 37
	thunkRetJump = 42
	thunkBypass  = 47 // switched off
	thunkBehind  = 52 // ThunkMcount: drops the return address of the call at thunkPad+3
)

// ThunkReturn is where in a thunk the body returns to.
const ThunkReturn = thunkRet

// Offsets of the parts of a thunk that counts.
const (
	thunkCountOut  = 44 // rax is popped
	thunkCountJump = 45 // jmp body
	thunkCountSlow = 50 // the thread's table has not been found
	thunkCountCall = 55 // call enter
	thunkCountBack = 60 // enter returns here

	thunkTable = 72 // in the control block: address of the thread's table
)

// Encode writes the thunk's ThunkSize bytes to dst. It returns a *RangeError if a target cannot be reached, and an
// error for an invalid id or address.
func (t *Thunk) Encode(dst []byte) error {
	if err := arch.CheckThunk(dst, t.Addr, t.ID, t.Kind); err != nil {
		return err
	}
	b := (*[arch.ThunkSize]byte)(dst)
	*b = thunkCode[t.Kind]
	if t.Kind == arch.ThunkCount || t.Kind == arch.ThunkMcountCount {
		return t.encodeCount(b)
	}
	var err error
	put := func(name string, at, disp, end int, to uint64) { t.reach(b, &err, name, at, disp, end, to) }
	put("testb", 0, 2, 7, t.Switch)
	binary.LittleEndian.PutUint32(b[10:], t.ID)
	put("call", 14, 15, thunkCallEnd, t.Enter)
	if t.Kind == arch.ThunkGraph || t.Kind == arch.ThunkMcount {
		binary.LittleEndian.PutUint32(b[thunkRetPush+1:], t.ID|1<<31)
		put("jmp", thunkRetJump, thunkRetJump+1, thunkRetJump+5, t.Exit)
	}
	switch t.Kind {
	case arch.ThunkGraph:
		put("call", thunkPad+3, thunkPad+4, thunkPad+8, t.Body)
		put("jmp", thunkBypass, thunkBypass+1, thunkBypass+5, t.Body)
	case arch.ThunkMcount:
		put("jmp", thunkBypass, thunkBypass+1, thunkBypass+5, t.Body)
	default:
		put("jmp", thunkCallEnd, thunkCallEnd+1, thunkCallEnd+5, t.Body)
	}
	return err
}

// reach fills in the displacement of the instruction at offset at that ends at offset end. It keeps the first error.
func (t *Thunk) reach(b *[arch.ThunkSize]byte, err *error, name string, at, disp, end int, to uint64) {
	d := int64(to - (t.Addr + uint64(end)))
	if d != int64(int32(d)) && *err == nil {
		*err = fmt.Errorf("thunk %d: %w", t.ID, &RangeError{name, t.Addr + uint64(at), to, d, 32})
	}
	binary.LittleEndian.PutUint32(b[disp:], uint32(d))
}

func (t *Thunk) encodeCount(b *[arch.ThunkSize]byte) error {
	if t.ID > math.MaxInt32/arch.CountEntry {
		return fmt.Errorf("thunk %d: the table of counts is too large", t.ID)
	}
	var err error
	t.reach(b, &err, "cmpb", 1, 3, 8, t.Switch)
	binary.LittleEndian.PutUint32(b[thunkCountOut-4:], t.ID*arch.CountEntry)
	t.reach(b, &err, "jmp", thunkCountJump, thunkCountJump+1, thunkCountJump+5, t.Body)
	binary.LittleEndian.PutUint32(b[thunkCountSlow+1:], t.ID)
	t.reach(b, &err, "call", thunkCountCall, thunkCountCall+1, thunkCountBack, t.Enter)
	return err
}

// thunkCode is the code of thunks, by kind, with zeroes for what differs between them.
// Nothing may come to the rest, so it is int3.
var thunkCode = [...][arch.ThunkSize]byte{
	arch.ThunkGraph: {
		0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
		0x74, thunkBypass - 9, // je bypass
		0x68, 0, 0, 0, 0, // push $id
		0xe8, 0, 0, 0, 0, // call enter, which drops the id
		0x48, 0x8d, 0x64, 0x24, 0x08, // lea 8(%rsp), %rsp: drop the return address at S
		0x0f, 0x1f, 0x00, // nopl (%rax)
		0xe8, 0, 0, 0, 0, // call body
		0x48, 0x8d, 0x64, 0x24, 0xf8, // lea -8(%rsp), %rsp: slot S again
		0x68, 0, 0, 0, 0, // push $id | exit
		0xe9, 0, 0, 0, 0, // jmp exit
		0xe9, 0, 0, 0, 0, // bypass: jmp body
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
	},
	arch.ThunkFunc:        thunkFuncCode,
	arch.ThunkMcountFunc:  thunkFuncCode,
	arch.ThunkCount:       thunkCountCode,
	arch.ThunkMcountCount: thunkCountCode,
	// The body's return leads to thunkRet, because enter has put that address into the
	// frame. The call, of the instruction behind this code, is for the processor: it
	// predicts returns by the calls it has seen.
	arch.ThunkMcount: {
		0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
		0x74, thunkBypass - 9, // je bypass
		0x68, 0, 0, 0, 0, // push $id
		0xe8, 0, 0, 0, 0, // call enter, which drops the id
		0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, // nopl 0(%rax, %rax)
		0xe8, thunkBehind - thunkRet, 0, 0, 0, // call behind
		0x48, 0x8d, 0x64, 0x24, 0xf8, // lea -8(%rsp), %rsp: slot S again
		0x68, 0, 0, 0, 0, // push $id | exit
		0xe9, 0, 0, 0, 0, // jmp exit
		0xe9, 0, 0, 0, 0, // bypass: jmp body
		0x48, 0x8d, 0x64, 0x24, 0x08, // behind: lea 8(%rsp), %rsp
		0xeb, 0x100 + thunkBypass - (thunkBehind + 7), // jmp bypass
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
	},
}

// thunkFuncCode is that of thunks that only record the entry.
var thunkFuncCode = [arch.ThunkSize]byte{
	0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
	0x74, thunkCallEnd - 9, // je: the same code as when enter has returned
	0x68, 0, 0, 0, 0, // push $id
	0xe8, 0, 0, 0, 0, // call enter
	0xe9, 0, 0, 0, 0, // jmp body
	0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
	0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
	0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
}

// thunkCountCode is that of thunks that count. A switch of 1 is on; one above has to do with the slow path.
var thunkCountCode = [arch.ThunkSize]byte{
	0x50,                      // push %rax
	0x80, 0x3d, 0, 0, 0, 0, 1, // cmpb $1, switch(%rip)
	0x72, thunkCountOut - 10, // jb out
	0x77, thunkCountSlow - 12, // ja slow
	0x31, 0xc0, // xor %eax, %eax
	0x65, 0x48, 0x8b, 0x00, // mov %gs:(%rax), %rax: the owner
	0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0, // add %fs:0, %rax
	0x48, 0xff, 0xc0, // inc %rax
	0x75, thunkCountSlow - 32, // jne slow
	0x65, 0x48, 0x8b, 0x40, thunkTable, // mov %gs:table(%rax), %rax
	0x48, 0xff, 0x80, 0, 0, 0, 0, // incq 8*id(%rax)
	0x58,             // out: pop %rax
	0xe9, 0, 0, 0, 0, // jmp body
	0x68, 0, 0, 0, 0, // slow: push $id
	0xe8, 0, 0, 0, 0, // call enter, which drops the id
	0xeb, 0x100 + thunkCountOut - (thunkCountBack + 2), // jmp out
	0xcc, 0xcc,
}
