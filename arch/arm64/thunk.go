package arm64

import (
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
)

// A thunk stands between a traced function and its caller, in 64 bytes of its own: where the
// site is there is one instruction, a branch. It has what differs between functions, and the
// runtime's routines have the rest, once.
//
// What is odd about this machine is that bl leaves the return address in x30, and that the
// function puts it where it likes. So the thunk need not drop anything from the stack: it
// calls the body with bl, x30 then leads back into the thunk, and the processor, which
// predicts returns by the calls it has seen, is right. The caller's address is meanwhile in
// the shadow of what lies below the stack pointer. Behind a prologue, the address is in the
// frame record already and has to be replaced there, and enter does that.
//
// Scratch are x16 and x17, which the calling convention gives to code that linkers put
// between a call and its target: with both, a thunk can name an address and an id without a
// memory access. Instructions have no room for either, hence adrp, and movz with movk.
// Branches reach 128 MiB; what is further away is the patcher's concern, by veneers.

// A Thunk is the code between a traced site and the runtime. Addresses are those at which the code will run, or all
// shifted from them by the same distance.
//
// What the runtime's routines find in registers, and what they may clobber:
//
//	enter of ThunkGraph   w17 id   x16 the caller's return address   x30 back into the thunk
//	                      sp is that of the caller at its call, S. Destroys x16, x17.
//	                      To record the call it keeps x16 in the shadow of S-8 and returns; the
//	                      thunk calls the body. To leave the call alone it puts x16 into x30 and
//	                      goes to ThunkSkip bytes behind where it was to return, by ret x17: a
//	                      ret needs no landing pad.
//	enter of ThunkFunc    the same. Destroys x17 only.
//	enter of ThunkMcount  w17 id   x16 S   x30 behind the site, where it returns   x29 the body's
//	                      frame record, whose second word is the caller's return address.
//	                      Destroys x16, x17. The thunk's exit part is at
//	                      (id-1)*ThunkSize+ThunkRet from the first thunk.
//	enter of ThunkMcountFunc
//	                      w17 id   x30 behind the site, where it returns. Destroys x16, x17.
//	exit                  w17 id, bit 31 set   sp S. Destroys x16, x17. It returns to the address
//	                      in the shadow of S-8, with that in x30.
//
// ThunkCount is encoded as ThunkFunc, and ThunkMcountCount as ThunkMcountFunc: only enter differs.
//
// While enter of ThunkGraph and ThunkFunc runs, the thunk's unwind rows say that the caller's return address is in
// x16: enter's own unwind rows must say where it keeps it.
//
// All other registers are the program's and must be preserved: x0 to x8 and v0 to v7 hold arguments or results, x9 to
// x15 and v16 to v31 values that the caller knows the callee to preserve (-fipa-ra), x18 belongs to the platform. The
// same goes for the state of SVE and SME. Flags are dead. All routines but the mcount ones run while the body has no
// frame: memory below sp is free.
//
// A return address that is ThunkRet bytes after a multiple of ThunkSize and in the range of the thunks is that of a
// traced body: if enter finds it in x16, the function has been reached by a tail call.
type Thunk struct {
	Addr   uint64 // of the thunk, a multiple of ThunkSize
	Switch uint64 // of the function's switch byte; if bit 0 is clear the thunk does nothing
	Enter  uint64 // of the runtime's enter routine
	Exit   uint64 // of the runtime's exit routine; only for ThunkGraph and ThunkMcount
	Body   uint64 // first byte after the site and all its nops; not for sites after a prologue
	ID     uint32 // the site's, 1 to MaxThunkID
	Kind   arch.ThunkKind
	// Frame is for ThunkMcount: how far S is above x29 at the site, in bytes. Only the prologue tells: the frame
	// record is at the bottom of the frame.
	Frame uint32
}

// MaxThunkFrame is the first Frame that is too large.
const MaxThunkFrame = 1 << 24

// Offsets of a thunk's parts, for the runtime.
const (
	ThunkCallEnd = 28 // enter returns here: graph, func
	ThunkRet     = 32 // the body returns here: graph, mcount
	ThunkBypass  = 48 // switched off: graph and both mcount kinds
	ThunkSkip    = ThunkBypass - ThunkCallEnd

	thunkID     = 12 // w17 gets the id
	thunkSave   = 20 // graph, func: x16 gets x30
	thunkCall   = 24 // graph, func: bl enter
	thunkJump   = 28 // mcount: b enter
	thunkFunc   = 32 // func: b body
	thunkExit   = 40 // b exit
	thunkMarkAt = 44
)

// thunkMark stands behind the exit part. Together with the b before it, it tells
// thunks from any other code: no compiler uses the number, and nothing comes here.
const thunkMark = 0xd4200000 | 0xfe47<<5 // brk #0xfe47

// Encode writes the thunk's ThunkSize bytes to dst. It returns a *RangeError if a target cannot be reached, and an
// error for an invalid id, frame or address.
func (t *Thunk) Encode(dst []byte) error {
	if err := arch.CheckThunk(dst, t.Addr, arch.ThunkSize, t.ID, t.Kind); err != nil {
		return err
	}
	if t.Kind == arch.ThunkMcount && (t.Frame == 0 || t.Frame%16 != 0 || t.Frame >= MaxThunkFrame) {
		return fmt.Errorf("thunk at %#x: a frame of %#x bytes above x29", t.Addr, t.Frame)
	}
	b := dst[:arch.ThunkSize]
	var err error
	put := func(at int, words ...uint32) {
		for i, w := range words {
			binary.LittleEndian.PutUint32(b[at+i*InstLen:], w)
		}
	}
	branch := func(at int, op func([]byte, uint64, uint64) ([]byte, error), to uint64) {
		if err == nil {
			_, err = op(b[at:at:arch.ThunkSize], t.Addr+uint64(at), to)
		}
	}
	for at := 0; at < arch.ThunkSize; at += InstLen {
		put(at, 0xd4200000) // brk #0: nothing may come here
	}
	bypass := uint32(ThunkBypass)
	if t.Kind == arch.ThunkFunc || t.Kind == arch.ThunkCount {
		bypass = thunkFunc
	}
	if _, err = AppendAdrp(b[0:0:arch.ThunkSize], 16, t.Addr, t.Switch); err != nil { // adrp x16, switch
		return fmt.Errorf("thunk %d: %w", t.ID, err)
	}
	put(4, 0x39400210|uint32(t.Switch)&pageMask<<10) // ldrb w16, [x16, #:lo12:switch]
	put(8, 0x36000010|(bypass-8)/InstLen<<5)         // tbz w16, #0, bypass
	put(thunkID, movz(17, t.ID), movkHigh(17, t.ID>>16))
	switch t.Kind {
	case arch.ThunkGraph, arch.ThunkFunc, arch.ThunkCount:
		put(thunkSave, movReg(16, 30))
		branch(thunkCall, AppendCall, t.Enter)
		if t.Kind != arch.ThunkGraph {
			put(ThunkCallEnd, movReg(30, 16))
			branch(thunkFunc, AppendJump, t.Body)
			break
		}
		branch(ThunkCallEnd, AppendCall, t.Body)
		branch(ThunkBypass, AppendJump, t.Body)
	case arch.ThunkMcount:
		put(thunkSave, addImm(16, 29, t.Frame&pageMask))
		put(thunkSave+InstLen, addImm(16, 16, t.Frame>>12)|1<<22) // lsl #12
		branch(thunkJump, AppendJump, t.Enter)
		put(ThunkBypass, WordRet)
	case arch.ThunkMcountFunc, arch.ThunkMcountCount:
		branch(thunkSave, AppendJump, t.Enter)
		put(ThunkBypass, WordRet)
	}
	if t.Kind == arch.ThunkGraph || t.Kind == arch.ThunkMcount {
		put(ThunkRet, movz(17, t.ID), movkHigh(17, t.ID>>16|0x8000))
		branch(thunkExit, AppendJump, t.Exit)
		put(thunkMarkAt, thunkMark)
	}
	if err != nil {
		return fmt.Errorf("thunk %d: %w", t.ID, err)
	}
	return nil
}
