package plain

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// syscallOp is the instruction.
var syscallOp = []byte{0x0f, 0x05}

func (amd64Machine) mayCall(b []byte) bool { return bytes.Contains(b, syscallOp) }

func (amd64Machine) syscalls(f *Finder, i int, b []byte) []Syscall {
	w := newAMD64Walk(f, i, b)
	sound := w.walk.walk()
	var out []Syscall
	for at := 0; at < len(b); {
		k := bytes.Index(b[at:], syscallOp)
		if k < 0 {
			break
		}
		at += k
		if f.marks.get(w.start+uint64(at))&instruction != 0 || w.seen[at] {
			out = append(out, w.syscall(at, sound, w.judge))
		}
		at += len(syscallOp)
	}
	return out
}

// amd64Walk is the walk through a function.
type amd64Walk struct{ walk }

func newAMD64Walk(f *Finder, i int, b []byte) *amd64Walk {
	w := &amd64Walk{newWalk(f, i, b)}
	w.next = w.decode
	return w
}

func (w *amd64Walk) decode(at int) (step, bool) {
	in, err := amd64.Decode(w.b[at:])
	s := step{n: in.Len, ends: in.Op.EndsBlock()}
	if in.PCRel == amd64.PCRelBranch && in.Op != amd64.Call {
		s.to = in.Target(w.start + uint64(at))
	}
	return s, err == nil
}

// inst is the instruction at an offset, which has been decoded before.
func (w *amd64Walk) inst(at int) (amd64.Inst, bool) {
	if at < 0 || at >= len(w.b) || !w.seen[at] {
		return amd64.Inst{}, false
	}
	in, err := amd64.Decode(w.b[at:])
	return in, err == nil
}

// before is where the instruction in front of another begins, if control runs from the one to the other.
func (w *amd64Walk) before(at int) (int, bool) {
	for p := at - 1; p >= 0 && p >= at-15; p-- {
		if in, ok := w.inst(p); ok {
			return p, p+in.Len == at && !in.Op.EndsBlock()
		}
	}
	return 0, false
}

// judge decides whether and how a system call can move.
func (w *amd64Walk) judge(s *Syscall) {
	at := int(s.Addr - w.start)
	s.Number = w.number(at)
	switch {
	case s.Number == sigreturn || bytes.HasSuffix(w.b[:at], []byte{0x48, 0xc7, 0xc0, sigreturn, 0, 0, 0}):
		s.Refusal = SignalReturn
	case w.f.funcs[w.i].Name == "__unmapself" || w.unmaps(at):
		s.Refusal = StackGone
	case w.f.foreign == GoImage && s.Number == exit: // others may have the stack by then (runtime.exitThread)
		s.Refusal = StackGone
	case w.f.foreign == GoImage && s.Number == archPrctl: // gives the thread its pointer (runtime.settls)
		s.Refusal = NoThreadPointer
	case s.Number != exit && s.Number != exitGroup && w.flagsLive(at+len(syscallOp)):
		s.Refusal = FlagsLive
	case w.f.handled(s.Addr, s.Addr+1):
		s.Refusal = HandlerAround
	default:
		w.spans(s)
	}
}

// Numbers of system calls that must not move (asm/unistd_64.h).
const (
	sigreturn = 15
	munmap    = 11
	exit      = 60
	exitGroup = 231
	archPrctl = 158
)

// number is the system call's, if the instructions directly in front of it tell.
func (w *amd64Walk) number(at int) int {
	for range 8 {
		if w.f.marks.get(w.start+uint64(at))&anyTarget != 0 && at != 0 {
			return Unknown
		}
		p, ok := w.before(at)
		if !ok {
			return Unknown
		}
		in, _ := w.inst(p)
		raw := w.b[p:at]
		switch {
		case in.Enc != amd64.Legacy || in.Op != amd64.Other && in.Op != amd64.Nop:
			return Unknown
		case in.Map == 0 && in.Opcode == 0xb8 && in.REX&1 == 0 && in.ImmLen == 4: // mov $n, %eax
			return int(binary.LittleEndian.Uint32(raw[len(raw)-4:]))
		case in.Map == 0 && in.Opcode == 0xc7 && in.ModRM == 0xc0 && in.REX&1 == 0: // mov $n, %rax
			return int(int32(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
		case in.Map == 0 && (in.Opcode == 0x31 || in.Opcode == 0x33) && in.ModRM == 0xc0 && in.REX&5 == 0: // xor %eax, %eax
			return 0
		case in.Map != 0 || !keepsRAX(in):
			return Unknown
		}
		at = p
	}
	return Unknown
}

// keepsRAX reports whether an instruction certainly leaves rax alone: moves to other registers and to memory, lea, and
// xor and test of registers.
func keepsRAX(in amd64.Inst) bool {
	reg, rm := int(in.ModRM>>3&7)|int(in.REX&4)<<1, int(in.ModRM&7)|int(in.REX&1)<<3
	direct := in.ModRM>>6 == 3
	switch op := in.Opcode; {
	case in.Op == amd64.Nop, op == 0x85, op == 0x39, op == 0x3b:
		return true
	case op == 0x8b || op == 0x8d || op == 0x63:
		return reg != amd64.RAX
	case op == 0x89 || op == 0x31 || op == 0xc7:
		return !direct || rm != amd64.RAX
	case op > 0xb8 && op <= 0xbf:
		return true
	case op == 0xb8:
		return in.REX&1 != 0
	}
	return false
}

// unmaps reports whether a system call is one of two in a row that unmap a thread's stack and end it: nothing can be
// on the stack between them.
func (w *amd64Walk) unmaps(at int) bool {
	near := func(at, number int) bool {
		for _, d := range w.syscallsNear(at) {
			if w.number(d) == number {
				return true
			}
		}
		return false
	}
	switch w.number(at) {
	case munmap:
		return near(at, exit)
	case exit:
		return near(at, munmap)
	}
	return false
}

// syscallsNear are those with nothing but constants between them and the one at an offset.
func (w *amd64Walk) syscallsNear(at int) (out []int) {
	const near = 16
	for k := max(0, at-near); k < min(len(w.b)-1, at+near); k++ {
		if k != at && w.seen[k] && bytes.HasPrefix(w.b[k:], syscallOp) {
			out = append(out, k)
		}
	}
	return out
}

// flagsLive reports whether something behind a system call may use flags that were set in front of it, which it leaves
// alone. In doubt it does.
func (w *amd64Walk) flagsLive(at int) bool {
	type way struct {
		at   int
		need amd64.Flags
	}
	todo, been := []way{{at, amd64.AllFlags}}, map[way]bool{}
	for range 64 {
		if len(todo) == 0 {
			return false
		}
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if been[next] {
			continue // a loop
		}
		been[next] = true
		in, ok := w.inst(next.at)
		if !ok {
			return true
		}
		reads, kills := in.FlagUse(w.b[next.at : next.at+in.Len])
		if reads&next.need != 0 {
			return true
		}
		if next.need &^= kills; next.need == 0 {
			continue
		}
		switch in.Op {
		case amd64.Ret, amd64.Call, amd64.CallInd, amd64.JmpInd, amd64.Hlt, amd64.Ud, amd64.Int3:
			continue // by the calling convention; and nothing follows a trap
		case amd64.Jmp, amd64.Jcc:
			t := in.Target(w.start+uint64(next.at)) - w.start
			if t < uint64(len(w.b)) { // else a tail call
				todo = append(todo, way{int(t), next.need})
			}
			if in.Op == amd64.Jmp {
				continue
			}
		case amd64.Loop, amd64.Jrcxz, amd64.Xbegin:
			return true
		}
		todo = append(todo, way{next.at + in.Len, next.need})
	}
	return true
}

// spans finds what can move with a system call.
func (w *amd64Walk) spans(s *Syscall) {
	s.Refusal = JumpInto
	lo := int(s.Addr - w.start)
	for lo >= 0 {
		if p, r := w.span(lo, int(s.Addr-w.start)); r == "" {
			s.Spans, s.Refusal = append(s.Spans, p), ""
		} else if s.Spans == nil && r == AddressTaken {
			s.Refusal = r
			return
		}
		if int(s.Addr-w.start)-lo >= amd64.JumpLen {
			return
		}
		p, ok := w.before(lo)
		if !ok || w.f.marks.get(w.start+uint64(lo))&anyTarget != 0 {
			return
		}
		lo = p
	}
}

// span is what moves from an offset on, with the system call at another.
func (w *amd64Walk) span(lo, call int) (Span, Refusal) {
	hi, moved := lo, lo
	for hi <= call || hi-lo < amd64.JumpLen {
		in, ok := w.inst(hi)
		if !ok {
			return Span{}, Short
		}
		if hi != call && !movesWithSyscall(in) {
			return Span{}, CallAtEntry
		}
		hi += in.Len
		moved = hi
		if in.Op.EndsBlock() {
			break
		}
	}
	for hi-lo < amd64.JumpLen { // padding
		if hi >= len(w.b) || w.seen[hi] {
			return Span{}, Short
		}
		in, err := amd64.Decode(w.b[hi:])
		if err != nil || in.Op != amd64.Nop && in.Op != amd64.Int3 {
			return Span{}, Short
		}
		hi += in.Len
	}
	p := Span{w.start + uint64(lo), w.start + uint64(hi), w.start + uint64(moved)}
	inside := w.f.marks.any(p.Lo+1, p.Hi)
	// A label in front of the instructions or behind them is the end of a range, unless it is that of a function.
	for at := p.Lo; at <= p.Moved; at++ {
		if k := w.f.containing(at); w.f.marks.get(at)&pointed != 0 && (k < 0 || w.f.funcs[k].Addr != at) {
			return Span{}, AddressTaken
		}
	}
	d, found := w.f.index.Find(p.Lo)
	switch {
	case inside&anyTarget != 0:
		return Span{}, JumpInto
	case w.f.index.Begins(p.Lo+1, p.Moved), found && p.Moved > d.PC+d.Size, found && w.f.unread[d.PC]:
		return Span{}, UnusualUnwind
	case w.f.handled(p.Lo, p.Moved):
		return Span{}, HandlerAround
	}
	return p, ""
}

// movesWithSyscall reports whether an instruction does elsewhere what it does where it is.
func movesWithSyscall(in amd64.Inst) bool {
	switch in.Op {
	case amd64.Other, amd64.Push, amd64.Pop, amd64.Nop, amd64.Jmp, amd64.Jcc, amd64.Ret, amd64.Leave:
		return true
	}
	return false
}
