package amd64

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fentry-dev/fentry/arch"
)

// A thunk stands between a traced function and its caller, in a few bytes of its own: where the
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
// al has a count and r10 the static chain. So what the routines are told goes over the stack: the
// thunk calls them, and its place among the thunks is the function's id. Flags are dead at both
// ends, which is why the switch can be tested, by one instruction with a memory operand.
//
// There is a thunk for each function, so their size is what a traced program grows by most. That
// of function_graph has 32 bytes. enter drops the caller's address itself, as it returns; the
// body is one jump away if the function is off; and exit gives the caller's address back to the
// slot, from which the thunk returns. Behind a prologue more is needed, and it takes 64.
//
// A thunk that counts does all by itself, because even the call of a routine would take longer: it
// adds to the function's entry of the thread's table, whose address is in the control block. The
// block is at the gs base if the first word there is the inverted thread pointer, which is at fs:0:
// the sum of the two is then -1. So one register is enough, and it is 0 when it addresses the block.

// A Thunk is the code between a traced site and the runtime. Addresses are those at which the code will run, or all
// shifted from them by the same distance.
type Thunk struct {
	Addr   uint64 // of the thunk, a multiple of its size
	Switch uint64 // of the function's switch byte; if bit 0 is clear the thunk does nothing
	Enter  uint64 // of the runtime's enter routine
	Exit   uint64 // of the runtime's exit routine; only for ThunkGraph and ThunkMcount
	Body   uint64 // first byte after the site
	ID     uint32 // the site's, 1 to MaxThunkID
	Kind   arch.ThunkKind
	Size   int // in bytes, that of all thunks of the image; 0: what its kind needs
}

// ThunkSize is the number of bytes that a thunk of a kind needs.
func ThunkSize(k arch.ThunkKind) int {
	switch k {
	case arch.ThunkGraph, arch.ThunkFunc, arch.ThunkMcountFunc:
		return smallThunk
	}
	return arch.ThunkSize
}

const smallThunk = 32

// Offsets of a thunk's parts. The runtime's sources (stub/src/amd64/thunk.h) have the same.
const (
	thunkBypass  = 7  // jumps to the body if the zero flag is set
	thunkCallEnd = 18 // enter returns here
	thunkRet     = 23 // the body returns here
	thunkRetCall = 26
	thunkRetEnd  = 31 // exit returns here
	thunkBehind  = 32 // ThunkMcount: drops the return address of the call at thunkCallEnd
)

// ThunkOdd is where in a thunk there is a byte whose bit 0 is set: as its own switch it is always on.
const ThunkOdd = thunkBypass

// ThunkReturn is where in a thunk the body returns to.
const ThunkReturn = thunkRet

// Where a recorder finds the calls of a thunk that records entry and exit, to lead them elsewhere: their first bytes, and
// the first ones behind.
const (
	ThunkEnterCall, ThunkEnterEnd = thunkCallEnd - 5, thunkCallEnd
	ThunkExitCall, ThunkExitEnd   = thunkRetCall, thunkRetEnd
)

// RecordsExit reports whether code is that of a thunk with both calls.
func RecordsExit(code []byte) bool {
	return len(code) >= smallThunk && code[ThunkEnterCall] == 0xe8 && bytes.HasPrefix(code[thunkRet:], thunkRetCode[:])
}

// Offsets of the parts of a thunk that counts.
const (
	thunkCountOut  = 44 // rax is popped
	thunkCountJump = 45 // jmp body
	thunkCountSlow = 50 // the thread's table has not been found: call enter
	thunkCountBack = 55 // enter returns here

	thunkTable = 72 // in the control block: address of the thread's table
)

// Encode writes the thunk to dst, Size bytes. It returns a *RangeError if a target cannot be reached, and an error for an
// invalid id, address or size.
func (t *Thunk) Encode(dst []byte) error {
	size := t.size()
	if err := arch.CheckThunk(dst, t.Addr, size, t.ID, t.Kind); err != nil {
		return err
	}
	if size != smallThunk && size != arch.ThunkSize || size < ThunkSize(t.Kind) {
		return fmt.Errorf("thunk at %#x: %d bytes for kind %v", t.Addr, size, t.Kind)
	}
	b := dst[:size]
	copy(b, thunkCode[t.Kind][:])
	if t.Kind == arch.ThunkCount || t.Kind == arch.ThunkMcountCount {
		return t.encodeCount(b)
	}
	var err error
	put := func(name string, at, disp, end int, to uint64) { t.reach(b, &err, name, at, disp, end, to) }
	put("testb", 0, 2, thunkBypass, t.Switch)
	put("je", thunkBypass, thunkBypass+2, thunkBypass+6, t.Body)
	put("call", thunkCallEnd-5, thunkCallEnd-4, thunkCallEnd, t.Enter)
	if t.Kind == arch.ThunkGraph || t.Kind == arch.ThunkMcount {
		put("call", thunkRetCall, thunkRetCall+1, thunkRetEnd, t.Exit)
	}
	switch t.Kind {
	case arch.ThunkGraph:
		put("call", thunkCallEnd, thunkCallEnd+1, thunkRet, t.Body)
	case arch.ThunkMcount:
		put("jmp", thunkBehind+5, thunkBehind+6, thunkBehind+10, t.Body)
	default:
		put("jmp", thunkCallEnd, thunkCallEnd+1, thunkCallEnd+5, t.Body)
	}
	return err
}

func (t *Thunk) size() int {
	if t.Size != 0 {
		return t.Size
	}
	return ThunkSize(t.Kind)
}

// reach fills in the displacement of the instruction at offset at that ends at offset end. It keeps the first error.
func (t *Thunk) reach(b []byte, err *error, name string, at, disp, end int, to uint64) {
	d := int64(to - (t.Addr + uint64(end)))
	if d != int64(int32(d)) && *err == nil {
		*err = fmt.Errorf("thunk %d: %w", t.ID, &RangeError{name, t.Addr + uint64(at), to, d, 32})
	}
	binary.LittleEndian.PutUint32(b[disp:], uint32(d))
}

func (t *Thunk) encodeCount(b []byte) error {
	if t.ID > math.MaxInt32/arch.CountEntry {
		return fmt.Errorf("thunk %d: the table of counts is too large", t.ID)
	}
	var err error
	t.reach(b, &err, "cmpb", 1, 3, 8, t.Switch)
	binary.LittleEndian.PutUint32(b[thunkCountOut-4:], t.ID*arch.CountEntry)
	t.reach(b, &err, "jmp", thunkCountJump, thunkCountJump+1, thunkCountJump+5, t.Body)
	t.reach(b, &err, "call", thunkCountSlow, thunkCountSlow+1, thunkCountBack, t.Enter)
	return err
}

// thunkCode is the code of thunks, by kind, with zeroes for what differs between them.
// Nothing may come to the rest, so it is int3.
var thunkCode = [...][arch.ThunkSize]byte{
	arch.ThunkGraph: {
		0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
		0x0f, 0x84, 0, 0, 0, 0, // je body
		0xe8, 0, 0, 0, 0, // call enter, which drops the return address at S
		0xe8, 0, 0, 0, 0, // call body
		0x40, 0xff, 0xf0, // push %rax: slot S again (thunkRetCode)
		0xe8, 0, 0, 0, 0, // call exit, which fills it
		0xc3, // ret
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
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
		0x0f, 0x84, 0, 0, 0, 0, // je body
		0xe8, 0, 0, 0, 0, // call enter
		0xe8, thunkBehind - thunkRet, 0, 0, 0, // call behind
		0x40, 0xff, 0xf0, // push %rax: slot S again
		0xe8, 0, 0, 0, 0, // call exit
		0xc3,                         // ret
		0x48, 0x8d, 0x64, 0x24, 0x08, // behind: lea 8(%rsp), %rsp
		0xe9, 0, 0, 0, 0, // jmp body
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
	},
}

// thunkFuncCode is that of thunks that only record the entry.
var thunkFuncCode = [arch.ThunkSize]byte{
	0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
	0x0f, 0x84, 0, 0, 0, 0, // je body
	0xe8, 0, 0, 0, 0, // call enter
	0xe9, 0, 0, 0, 0, // jmp body
	0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
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
	0xe8, 0, 0, 0, 0, // slow: call enter
	0xeb, 0x100 + thunkCountOut - (thunkCountBack + 2), // jmp out
	0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
}
