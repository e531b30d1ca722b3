package arm64

import (
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
)

// A thunk stands between a traced function and its caller, in a few bytes of its own: where the
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
// memory access. Branches reach 128 MiB; what is further away is the patcher's concern, by veneers.
//
// There is a thunk for each function, so their size is what a traced program grows by most. It has two parts. The front, of 32
// bytes, is everything up to the body, and the back, of 16, what the body returns to; the fronts of an image stand one
// behind another, and the backs do. So what unwinders have to know is the same in all fronts, and in all backs: one
// entry describes each, however many there are. In one piece, rows would have to say of every thunk where its return
// address is visible and where it is not, and take 13 bytes. The fronts of function_graph have no room for an id: enter
// makes it of where the front is. Their last two words can be a function's displaced instruction and the branch behind it,
// which need no other place then, nor a branch to it.

// A Thunk is the code between a traced site and the runtime. Addresses are those at which the code will run, or all
// shifted from them by the same distance.
//
// What the runtime's routines find in registers, and what they may clobber:
//
//	enter of ThunkGraph   x16 the caller's return address   x30 back into the front. In x30 are the bits
//	                      that tell the front: id-1 is its distance from the first one over FrontSize.
//	                      sp is that of the caller at its call, S. Destroys x17, and keeps x16.
//	                      To record the call it keeps x16 in the shadow of S-8 and returns; the
//	                      front goes on to the back, which calls the body. To leave the call alone it puts x16 into x30 and
//	                      goes to ThunkSkip bytes behind where it was to return, by ret x17: a
//	                      ret needs no landing pad.
//	enter of ThunkFunc    w17 id   x16 and x30 likewise. Destroys x17 only. It returns with the caller's
//	                      return address in x30, by ret x17.
//	enter of ThunkMcount  x17 an address in the front   x16 S   x30 behind the site, where it returns   x29 the body's
//	                      frame record, whose second word is the caller's return address.
//	                      Destroys x16, x17. The function's back is at
//	                      (id-1)*BackSize from the first one, and the body is to return to ThunkRet bytes behind that.
//	enter of ThunkMcountFunc
//	                      w17 id   x30 behind the site, where it returns. Destroys x16, x17.
//	exit                  w17 id, bit 31 set   sp S. Destroys x16, x17. It returns to the address
//	                      in the shadow of S-8, with that in x30.
//
// ThunkCount is encoded as ThunkFunc, and ThunkMcountCount as ThunkMcountFunc: only enter differs.
//
// While enter of ThunkGraph and ThunkFunc runs, the front's unwind rows say that the caller's return address is in
// x16: enter's own unwind rows must say where it keeps it.
//
// All other registers are the program's and must be preserved: x0 to x8 and v0 to v7 hold arguments or results, x9 to
// x15 and v16 to v31 values that the caller knows the callee to preserve (-fipa-ra), x18 belongs to the platform. The
// same goes for the state of SVE and SME. Flags are dead. All routines but the mcount ones run while the body has no
// frame: memory below sp is free.
//
// A return address that is ThunkRet bytes after a multiple of BackSize and in the range of the backs is that of a
// traced body: if enter finds it in x16, the function has been reached by a tail call.
type Thunk struct {
	Addr   uint64 // of the front, a multiple of FrontSize
	Back   uint64 // of the back, a multiple of BackSize; only for ThunkGraph and ThunkMcount
	Switch uint64 // of the function's switch byte; if bit 0 is clear the thunk does nothing
	Enter  uint64 // of the runtime's enter routine
	Exit   uint64 // of the runtime's exit routine; only for ThunkGraph and ThunkMcount
	// Body is the first byte after the site and all its nops; not for sites after a prologue. If it is ThunkBypass bytes
	// behind Addr, instructions that the site has displaced are there, up to the end of the front, and Encode leaves room for
	// them; only for ThunkGraph.
	Body uint64
	ID   uint32 // the site's, 1 to MaxThunkID
	Kind arch.ThunkKind
	// Frame is for ThunkMcount: how far S is above x29 at the site, in bytes. Only the prologue tells: the frame
	// record is at the bottom of the frame.
	Frame uint32
}

// MaxThunkFrame is the first Frame that is too large.
const MaxThunkFrame = 1 << 24

// Sizes of a thunk's parts, in bytes. Only thunks that record the end of a call have a back.
const (
	FrontSize = 32
	BackSize  = 16
)

// DisplacedRoom is how many bytes of displaced instructions have room in a front of ThunkGraph, with the branch back.
const DisplacedRoom = FrontSize - ThunkBypass

// displaces reports whether the front has displaced instructions in it.
func (t *Thunk) displaces() bool { return t.Kind == arch.ThunkGraph && t.Body == t.Addr+ThunkBypass }

// HasBack reports whether thunks of a kind have a back.
func HasBack(k arch.ThunkKind) bool { return k == arch.ThunkGraph || k == arch.ThunkMcount }

// Offsets of a thunk's parts, for the runtime.
const (
	ThunkCallEnd = 20 // in a front of ThunkGraph: enter returns here
	ThunkBypass  = 24 // in a front of ThunkGraph: switched off; and displaced instructions
	ThunkRet     = 4  // in a back: the body returns here
	ThunkSkip    = ThunkBypass - ThunkCallEnd

	ThunkOdd = 12 // in a front of ThunkFunc: movz w17, a byte whose bit 0 is set: as its own switch the thunk is always on

	thunkSave  = 12 // graph: x16 gets x30
	funcSave   = 20 // func: the same
	funcBody   = 28 // func: b body, switched off
	behindOff  = 28 // behind a prologue: ret, switched off
	mcountCall = 24 // mcount: b enter
	funcCall   = 20 // mcount-func: b enter
	backExit   = 12 // b exit
)

// A back is known by the two instructions that the body returns to, which no compiler puts there: it would make such a number in
// w17, its lower half first. These are what remains of them without the id. The id has 31 bits, and bit 31 says that the call ends.
const (
	backHigh     = 0xd2a00011 | 0x8000<<5 // movz x17, #0x8000 | id >> 16, lsl #16
	backLow      = 0xf2800011             // movk x17, #id & 0xffff
	backHighMask = 0xfff0001f
	backLowMask  = 0xffe0001f
)

// Encode writes the front to dst, FrontSize bytes. It returns a *RangeError if a target cannot be reached, and an
// error for an invalid id, frame or address.
func (t *Thunk) Encode(dst []byte) error {
	if err := arch.CheckThunk(dst, t.Addr, FrontSize, t.ID, t.Kind); err != nil {
		return err
	}
	if t.Kind == arch.ThunkMcount && (t.Frame == 0 || t.Frame%16 != 0 || t.Frame >= MaxThunkFrame) {
		return fmt.Errorf("thunk at %#x: a frame of %#x bytes above x29", t.Addr, t.Frame)
	}
	w := newThunkWriter(dst[:FrontSize], t.Addr)
	bypass := uint32(ThunkBypass)
	if t.Kind != arch.ThunkGraph {
		bypass = funcBody // where thunks behind a prologue return
	}
	if _, w.err = AppendAdrp(dst[0:0:FrontSize], 16, t.Addr, t.Switch); w.err != nil { // adrp x16, switch
		return fmt.Errorf("thunk %d: %w", t.ID, w.err)
	}
	w.put(4, 0x39400210|uint32(t.Switch)&pageMask<<10) // ldrb w16, [x16, #:lo12:switch]
	w.put(8, 0x36000010|(bypass-8)/InstLen<<5)         // tbz w16, #0, bypass
	switch t.Kind {
	case arch.ThunkGraph:
		w.put(thunkSave, movReg(16, 30))
		w.branch(thunkSave+InstLen, AppendCall, t.Enter)
		w.branch(ThunkCallEnd, AppendJump, t.Back)
		if !t.displaces() {
			w.branch(ThunkBypass, AppendJump, t.Body)
		}
	case arch.ThunkFunc, arch.ThunkCount:
		w.put(12, movz(17, t.ID), movkHigh(17, t.ID>>16))
		w.put(funcSave, movReg(16, 30))
		w.branch(funcSave+InstLen, AppendCall, t.Enter)
		w.branch(funcBody, AppendJump, t.Body)
	case arch.ThunkMcount:
		w.put(12, 0x10000011)                                                          // adr x17, .
		w.put(16, addImm(16, 29, t.Frame&pageMask), addImm(16, 16, t.Frame>>12)|1<<22) // lsl #12
		w.branch(mcountCall, AppendJump, t.Enter)
		w.put(behindOff, WordRet)
	case arch.ThunkMcountFunc, arch.ThunkMcountCount:
		w.put(12, movz(17, t.ID), movkHigh(17, t.ID>>16))
		w.branch(funcCall, AppendJump, t.Enter)
		w.put(behindOff, WordRet)
	}
	return w.error(t.ID)
}

// EncodeBack writes the back to dst, BackSize bytes, for kinds that have one. Errors are those of Encode.
func (t *Thunk) EncodeBack(dst []byte) error {
	if err := arch.CheckThunk(dst, t.Back, BackSize, t.ID, t.Kind); err != nil {
		return err
	}
	if !HasBack(t.Kind) {
		return fmt.Errorf("thunk %d: one of kind %v has no back", t.ID, t.Kind)
	}
	w := newThunkWriter(dst[:BackSize], t.Back)
	if t.Kind == arch.ThunkGraph {
		w.branch(0, AppendCall, t.Body)
	}
	w.put(ThunkRet, backHigh|t.ID>>16<<5, backLow|t.ID&0xffff<<5)
	w.branch(backExit, AppendJump, t.Exit)
	return w.error(t.ID)
}

// A thunkWriter writes a part of a thunk. It keeps the first error.
type thunkWriter struct {
	b    []byte
	addr uint64
	err  error
}

func newThunkWriter(b []byte, addr uint64) *thunkWriter {
	w := &thunkWriter{b: b, addr: addr}
	FillUnused(b)
	return w
}

// FillUnused writes brk #0 to b, whole instructions: nothing may come there.
func FillUnused(b []byte) {
	for ; len(b) >= InstLen; b = b[InstLen:] {
		binary.LittleEndian.PutUint32(b, 0xd4200000)
	}
}

func (w *thunkWriter) put(at int, words ...uint32) {
	for i, v := range words {
		binary.LittleEndian.PutUint32(w.b[at+i*InstLen:], v)
	}
}

func (w *thunkWriter) branch(at int, op func([]byte, uint64, uint64) ([]byte, error), to uint64) {
	if w.err == nil {
		_, w.err = op(w.b[at:at:len(w.b)], w.addr+uint64(at), to)
	}
}

func (w *thunkWriter) error(id uint32) error {
	if w.err != nil {
		return fmt.Errorf("thunk %d: %w", id, w.err)
	}
	return nil
}
