package arm64

import (
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
)

// Events of Go's functions.
//
// At a Go function's entry and at its ends x16, x17, x19 to x25 and the flags are free, x28 is the goroutine, and nothing may
// be put on the stack, which can be full (Go's internal ABI, cmd/compile/abi-internal.md). x27 is free, too, but the code that
// a goroutine goes on with after it has been stopped changes it. So an event is recorded in place, as on x86-64 (arch/amd64,
// goevent.go), with the same parts: from Begin on, up to the instruction that reserves the slot, a goroutine that has been
// stopped begins again, and from there to the store it is not stopped.
//
// The thread's block is found by runtime.m, which belongs to a thread: a word of it is the control base. In a program with C
// code one runtime.m serves several threads of C's, one after another, but there is a thread pointer, and the control base is
// where code of C's has it. A new thread has 0 in both. The rest is what the fast paths do (stub/src/arm64/macros.h).

// goEvent is the code of an event, with zeroes for what differs between them.
var goEvent = [...]uint32{
	0x90000010,                          // adrp x16, switch
	0x39400210,                          // ldrb w16, [x16, #:lo12:switch]
	tbz(16, goEventWords-2),             // tbz w16, #0, done
	0xf9400390 | goM/8<<10,              // begin: ldr x16, [x28, #m]; or mrs x16, tpidr_el0
	0xf9400210,                          // ldr x16, [x16, #thread]; or ldr x16, [x16, #tls]
	0xb4000010,                          // cbz x16, rare
	0xf9400391,                          // ldr x17, [x28, #goid]
	0xf9400213 | blockGoroutine/8<<10,   // ldr x19, [x16, #goroutine]
	0xeb13023f,                          // cmp x17, x19
	0x54000001,                          // b.ne rare: another goroutine
	0xa9404e11,                          // ldp x17, x19, [x16]: next, end
	0xeb13023f,                          // cmp x17, x19
	0x54000002,                          // b.hs rare: there is no room
	0xd53be054,                          // mrs x20, cntvct_el0
	0xf9400213 | blockHigh/8<<10,        // ldr x19, [x16, #high]: with the base of the image's ids above it
	0xca548273,                          // eor x19, x19, x20, lsr #32
	0x35000013,                          // cbnz w19, rare
	0x52800015,                          // movz w21, #id
	0x72a00015,                          // movk w21, #id, lsl #16
	0xb3607eb4,                          // bfi x20, x21, #32, #32
	0x8b130294,                          // add x20, x20, x19
	0xc85f7e13,                          // ldxr x19, [x16]
	0xeb11027f,                          // cmp x19, x17
	0x54000001 | back(23, goBegin),      // b.ne begin
	0x91002233,                          // add x19, x17, #8
	0xc8167e13,                          // stxr w22, x19, [x16]
	0x35000016 | back(goTaken, goBegin), // taken: cbnz w22, begin
	0xf9000234,                          // str x20, [x17]
} // done: stored

// Words of it.
const (
	goBegin      = 3
	goTaken      = 26
	goEventWords = 28
)

// Words of a thread's block from the control base on, which is that of the next slot: stub/src/layout.h has the same.
const (
	blockHigh      = 40 - 8
	blockGoroutine = 128 - 8
)

// goM is where in runtime.g its runtime.m is.
const goM = 0x30

// loadPointer is mrs x16, tpidr_el0.
const loadPointer = 0xd53bd050

// MostGoTLS is how far behind the thread pointer an event finds the control base, at most.
const MostGoTLS = 0xfff * 8

// tbz is one of bit 0 of a register, n words on.
func tbz(reg, n uint32) uint32 { return 0x36000000 | n<<5 | reg }

// back is the displacement of a conditional branch from one word to an earlier one.
func back(from, to int32) uint32 { return uint32(to-from) & 0x7ffff << 5 }

// GoShape is that of the code that [AppendGoEvent] and [AppendGoRare] append.
var GoShape = arch.GoShape{
	Begin: goBegin * InstLen, Taken: goTaken * InstLen, Stored: goEventWords * InstLen, Len: goEventWords * InstLen,
	Rare: goRareWords * InstLen,
}

// AppendGoEvent appends the code of an event, for address at.
func AppendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error) {
	w := goEvent
	p := goPatcher{w: w[:], at: at}
	p.page(0, e.Switch)
	w[1] |= uint32(e.Switch&pageMask) << 10
	if e.TLS != 0 {
		w[goBegin] = loadPointer
		p.field(4, "the thread-local word", e.TLS)
	} else {
		p.field(4, "runtime.m's word", uint64(e.Thread))
	}
	p.field(6, "runtime.g's number", uint64(e.GoID))
	for _, i := range goRares {
		p.branch(i, e.Rare)
	}
	if e.Always {
		p.always(goBegin, e.Rare)
	}
	w[17] |= e.ID & 0xffff << 5
	w[18] |= e.ID >> 16 << 5
	return p.append(dst)
}

// goRares are the branches to the rare part.
var goRares = [...]int{5, 9, 12, 16}

// goRare is the code of an event's rare part.
var goRare = [...]uint32{
	0x52800011, // movz w17, #id
	0x72a00011, // movk w17, #id, lsl #16
	0xf9400393, // ldr x19, [x28, #goid]
	0x10000014, // adr x20, done
	0x14000000, // b slow
}

const goRareWords = 5

// AppendGoRare appends the rare part of the event whose code is at address event, for address e.Rare.
func AppendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error) {
	w := goRare
	p := goPatcher{w: w[:], at: e.Rare}
	id := e.RareID()
	w[0] |= id & 0xffff << 5
	w[1] |= id >> 16 << 5
	p.field(2, "runtime.g's number", uint64(e.GoID))
	p.adr(3, event+uint64(GoShape.Len))
	p.always(4, e.Slow)
	return p.append(dst)
}

// A goPatcher fills in fields of words for address at. It keeps the first error.
type goPatcher struct {
	w   []uint32
	at  uint64
	err error
}

func (p *goPatcher) pc(i int) uint64 { return p.at + uint64(i)*InstLen }

func (p *goPatcher) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// page makes a word an adrp.
func (p *goPatcher) page(i int, to uint64) {
	b, err := AppendAdrp(nil, byte(p.w[i]&31), p.pc(i), to)
	if err != nil {
		p.fail(err)
		return
	}
	p.w[i] = binary.LittleEndian.Uint32(b)
}

// field fills in the offset of a load of eight bytes.
func (p *goPatcher) field(i int, what string, off uint64) {
	if off%8 != 0 || off > MostGoTLS {
		p.fail(fmt.Errorf("%s at %#x: the offset cannot be encoded", what, off))
		return
	}
	p.w[i] |= uint32(off) / 8 << 10
}

// branch fills in the target of a conditional branch.
func (p *goPatcher) branch(i int, to uint64) {
	d := int64(to - p.pc(i))
	if in := DecodeWord(p.w[i] | uint32(d/InstLen)&0x7ffff<<5); d%InstLen != 0 || in.Target(p.pc(i)) != to {
		p.fail(fmt.Errorf("branch from %#x to %#x: out of reach", p.pc(i), to))
		return
	}
	p.w[i] |= uint32(d/InstLen) & 0x7ffff << 5
}

// adr fills in the address of an adr, which is that of an instruction.
func (p *goPatcher) adr(i int, to uint64) {
	d := int64(to - p.pc(i))
	w := p.w[i] | uint32(d>>2)&0x7ffff<<5
	if in := DecodeWord(w); d%InstLen != 0 || in.Target(p.pc(i)) != to {
		p.fail(fmt.Errorf("address at %#x of %#x: out of reach", p.pc(i), to))
		return
	}
	p.w[i] = w
}

// always makes a word a branch.
func (p *goPatcher) always(i int, to uint64) {
	b, err := AppendJump(nil, p.pc(i), to)
	if err != nil {
		p.fail(err)
		return
	}
	p.w[i] = binary.LittleEndian.Uint32(b)
}

func (p *goPatcher) append(dst []byte) ([]byte, error) {
	if p.err != nil {
		return dst, p.err
	}
	for _, w := range p.w {
		dst = appendWord(dst, w)
	}
	return dst, nil
}
