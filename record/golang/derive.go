package golang

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// What a runtime's own code says of it.
//
// A stripped program of a version that was not tried says nothing of its structures, but its runtime uses them, and the
// names of its functions are in pclntab. So a few of them, which are in assembly and have been what they are for long, are
// read: systemstack goes from the goroutine to its thread, to that one's own goroutine, and to the stack of that; rt0_go
// sets up the first stack; clone the words for thread-local memory of a new thread, and settls the pointer to them. The
// number of a goroutine is what a function that asks for nothing else returns, and what a traceback's header prints: both
// have to say the same.
//
// What recording needs of Go's convention for calls is held against all functions: that three registers carry nothing into a
// call nor out of one. And so is what is read of a function's record: where it returns nothing is on the stack, and where
// it goes on once recovered it calls deferreturn.
//
// What the code does not say is not known: where moduledata has the words that make code known to the runtime, the
// goroutine's parent, why goroutines wait. So moved code is none of the program's to its runtime, which therefore never
// stops a goroutine there (isAsyncSafePoint), and would not know what to make of a fault or of a stack that has such an
// address. Hence the rules of alone.go.

// derive finds what is needed, and refuses an image that has it in no form that is known.
func (im *Image) derive() error {
	if im.machine != elf.EM_X86_64 {
		return errors.New("on AArch64 its code is not read for what it does not describe")
	}
	for _, check := range []func() error{im.deriveStacks, im.deriveGoID, im.deriveThread, im.checkCode} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// The structures' offsets that are the same in all versions: stub/src/layout.h has them as well.
const (
	gStackLo   = 0
	gStackHi   = 8
	gGuard     = 0x10
	gM         = 0x30
	gSchedSP   = 0x38
	mG0        = 0
	tlsSlot    = -8 // from the thread pointer to the goroutine
	tlsWords   = 6  // that a thread has; the pointer is to the second one, which is free
	mostOffset = 1 << 12
)

// named returns the instructions of a function of the runtime, as far as they can be decoded.
func (im *Image) named(name string) (*listing, error) {
	for i := range im.Funcs {
		if f := &im.Funcs[i]; f.Name == name {
			return im.list(f), nil
		}
	}
	return nil, fmt.Errorf("it has no %s", name)
}

// A listing is a function's instructions.
type listing struct {
	f    *Func
	code []byte
	ins  []amd64.Inst
	at   []int // their offsets
}

func (im *Image) list(f *Func) *listing {
	l := &listing{f: f, code: im.text[f.Entry-im.TextStart : f.Next-im.TextStart]}
	for o := 0; o < len(l.code); {
		in, err := amd64.Decode(l.code[o:])
		if err != nil {
			break
		}
		l.ins, l.at = append(l.ins, in), append(l.at, o)
		o += in.Len
	}
	return l
}

func (l *listing) raw(i int) []byte { return l.code[l.at[i]:][:l.ins[i].Len] }

// move is [amd64.Inst.Move] of the i-th instruction, false for one that goes by another register than those named.
func (l *listing) move(i int) (amd64.MemOp, bool) { return l.ins[i].Move(l.raw(i)) }

// calls returns the function that the i-th instruction calls, 0: none, or it is not known here.
func (l *listing) calls(i int) uint64 {
	if l.ins[i].Op != amd64.Call {
		return 0
	}
	return l.ins[i].Target(l.f.Entry + uint64(l.at[i]))
}

// threadLocal reports whether an instruction's operand is relative to the thread pointer, and where, if it says so itself.
func threadLocal(in amd64.Inst, raw []byte) (disp int32, fixed, ok bool) {
	if in.Prefix&amd64.PrefixSeg == 0 || raw[0] != 0x64 {
		return 0, false, false
	}
	const absolute = 0x25 // SIB without base and index
	n := len(raw) - in.ImmLen
	if in.HasModRM && in.ModRM&0xc7 == 4 && n > 5 && raw[n-5] == absolute {
		return int32(le.Uint32(raw[n-4:])), true, true
	}
	return 0, false, true
}

// deriveStacks follows systemstack from the goroutine to the stack that recording borrows, and rt0_go where it sets one up.
func (im *Image) deriveStacks() error {
	l, err := im.named("runtime.systemstack")
	if err != nil {
		return err
	}
	const (
		nothing = iota
		goroutine
		thread
		own
	)
	var in [16]int // what registers have
	found := false
	for i := 0; i < len(l.ins) && l.ins[i].Op != amd64.CallInd && !found; i++ {
		raw := l.raw(i)
		if _, _, ok := threadLocal(l.ins[i], raw); ok && l.ins[i].Opcode == 0x8b {
			in[int(l.ins[i].ModRM>>3&7)|int(l.ins[i].REX&4)<<1] = goroutine
			continue
		}
		m, ok := l.move(i)
		if !ok || m.Store {
			continue
		}
		to := nothing
		switch from := in[m.Base]; {
		case from == goroutine && m.Disp == gM:
			to = thread
		case from == thread && m.Disp == mG0:
			to = own
		case from == own && m.Disp == gSchedSP && m.Reg == amd64.RSP:
			found = true
		}
		in[m.Reg] = to
	}
	if !found {
		return errors.New("runtime.systemstack goes to the thread's stack in another way")
	}
	if l, err = im.named("runtime.rt0_go"); err != nil {
		return err
	}
	set := map[int64]bool{}
	for i := range l.ins {
		if m, ok := l.move(i); ok && m.Store && m.Base == amd64.RDI && (m.Reg == amd64.RSP) == (m.Disp == gStackHi) {
			set[m.Disp] = true
		}
	}
	if !set[gStackLo] || !set[gStackHi] || !set[gGuard] {
		return errors.New("runtime.rt0_go sets up the first stack in another way")
	}
	return nil
}

// deriveGoID finds where a goroutine has its number.
func (im *Image) deriveGoID() error {
	returned, err := im.returnedGoID()
	if err != nil {
		return err
	}
	printed, err := im.printedGoID()
	if err != nil {
		return err
	}
	if returned != printed || returned <= gSchedSP || returned%8 != 0 || returned >= mostOffset {
		return fmt.Errorf("the number of a goroutine is at %#x or at %#x of it", returned, printed)
	}
	im.Version.GoID = uint32(returned)
	return nil
}

// returnedGoID is what the function without a name of the runtime returns by which packages without one ask for the number:
// mov goid(%r14), %rax; ret.
func (im *Image) returnedGoID() (int64, error) {
	at := int64(-1)
	for i := range im.Funcs {
		f := &im.Funcs[i]
		if Package(f.Name) != "runtime" || f.Next-f.Entry > 64 || f.isAsm() {
			continue
		}
		l := im.list(f)
		if len(l.ins) < 2 || l.ins[1].Op != amd64.Ret {
			continue
		}
		const r14 = 14
		if m, ok := l.move(0); ok && !m.Store && m.Base == r14 && m.Reg == amd64.RAX {
			if at >= 0 && at != m.Disp {
				return 0, errors.New("several functions return a word of the goroutine")
			}
			at = m.Disp
		}
	}
	if at < 0 {
		return 0, errors.New("no function returns the number of a goroutine")
	}
	return at, nil
}

// printedGoID is what the header of a goroutine's traceback prints first.
func (im *Image) printedGoID() (int64, error) {
	l, err := im.named("runtime.goroutineheader")
	if err != nil {
		return 0, err
	}
	printing := map[uint64]bool{}
	for i := range im.Funcs {
		if n := im.Funcs[i].Name; n == "runtime.printuint" || n == "runtime.printint" {
			printing[im.Funcs[i].Entry] = true
		}
	}
	for i := range l.ins {
		if printing[l.calls(i)] {
			if m, ok := l.loaded(amd64.RAX, i); ok {
				return m.Disp, nil
			}
			break
		}
	}
	return 0, errors.New("runtime.goroutineheader prints a number in another way")
}

// loaded returns the load by which a register gets what it has at instruction i, straight or by way of the stack.
func (l *listing) loaded(reg, i int) (amd64.MemOp, bool) {
	const most = 4 // ways by the stack
	for range most {
		m, at := l.last(i, func(m amd64.MemOp) bool { return !m.Store && m.Reg == reg })
		if at < 0 {
			break
		}
		if m.Base != amd64.RSP {
			return m, true
		}
		slot := m.Disp
		if m, i = l.last(at, func(m amd64.MemOp) bool { return m.Store && m.Base == amd64.RSP && m.Disp == slot }); i < 0 {
			break
		}
		reg = m.Reg
	}
	return amd64.MemOp{}, false
}

// last returns the last mov before instruction i that is as wanted, and where it is, -1: there is none.
func (l *listing) last(i int, wanted func(amd64.MemOp) bool) (amd64.MemOp, int) {
	for i--; i >= 0; i-- {
		if m, ok := l.move(i); ok && wanted(m) {
			return m, i
		}
	}
	return amd64.MemOp{}, -1
}

// deriveThread makes sure that there is a thread pointer that can be relied on: that of the C library, or in a static program
// one to the second of a thread's words for thread-local memory, of which only the first is used.
func (im *Image) deriveThread() error {
	if im.f.ProgIndex(elf.PT_INTERP) >= 0 || im.f.ProgIndex(elf.PT_TLS) >= 0 && im.HasC() {
		return nil
	}
	settls, err := im.named("runtime.settls")
	if err != nil {
		return err
	}
	clone, err := im.named("runtime.clone")
	if err != nil {
		return err
	}
	mstart, err := im.named("runtime.mstart1")
	if err != nil {
		return err
	}
	tls := clone.threadWords()
	if tls < 0 || !settls.adds(-tlsSlot) || !clone.adds(-tlsSlot) || mstart.startFunction() != tls+8*tlsWords {
		return errors.New("its threads have thread-local memory in another way")
	}
	return nil
}

// threadWords returns where clone finds the new thread's words: lea tls(%r13), of a thread's structure. -1: it does not.
func (l *listing) threadWords() int64 {
	const lea, r13 = 0x8d, 13
	for i := range l.ins {
		if in := &l.ins[i]; in.Enc == amd64.Legacy && in.Map == 0 && in.Opcode == lea {
			if m, ok := in.Memory(l.raw(i)); ok && m.Base == r13 {
				return m.Disp
			}
		}
	}
	return -1
}

// adds reports whether a register has a small number added.
func (l *listing) adds(n byte) bool {
	const arithmetic, add = 0x83, 0
	for i := range l.ins {
		in := &l.ins[i]
		if in.Enc == amd64.Legacy && in.Map == 0 && in.Opcode == arithmetic && in.ModRM>>6 == 3 && in.ModRM>>3&7 == add {
			if raw := l.raw(i); raw[len(raw)-1] == n {
				return true
			}
		}
	}
	return false
}

// startFunction returns where a thread's structure has the function that it begins with, which follows the words: the only one
// that mstart1 calls by a value. -1: there is none.
func (l *listing) startFunction() int64 {
	for i := range l.ins {
		in := &l.ins[i]
		if in.Op != amd64.CallInd || in.ModRM>>6 != 3 {
			continue
		}
		code, at := l.last(i, func(m amd64.MemOp) bool { return !m.Store && m.Reg == int(in.ModRM&7)|int(in.REX&1)<<3 })
		if at < 0 || code.Disp != 0 {
			break
		}
		if value, at := l.last(at, func(m amd64.MemOp) bool { return !m.Store && m.Reg == code.Base }); at >= 0 {
			return value.Disp
		}
		break
	}
	return -1
}
