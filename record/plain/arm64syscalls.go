package plain

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// A branch takes the place of the instruction alone, so whatever goes to it goes to its copy, and nothing else moves. What
// is left of the rules is where it must not move at all.

// svcOp is the instruction.
var svcOp = binary.LittleEndian.AppendUint32(nil, arm64.WordSvc)

func (arm64Machine) mayCall(b []byte) bool { return bytes.Contains(b, svcOp) }

func (arm64Machine) syscalls(f *Finder, i int, b []byte) []Syscall {
	w := newARM64Walk(f, i, b)
	sound := w.walk.walk()
	var out []Syscall
	for at := 0; at+arm64.InstLen <= len(b); at += arm64.InstLen {
		if bytes.HasPrefix(b[at:], svcOp) {
			out = append(out, w.syscall(at, sound, w.judge))
		}
	}
	return out
}

// arm64Walk is the walk through a function.
type arm64Walk struct{ walk }

func newARM64Walk(f *Finder, i int, b []byte) *arm64Walk {
	w := &arm64Walk{newWalk(f, i, b)}
	w.next = w.decode
	return w
}

func (w *arm64Walk) inst(at int) (arm64.Inst, bool) {
	if at < 0 || at+arm64.InstLen > len(w.b) || at%arm64.InstLen != 0 {
		return arm64.Inst{}, false
	}
	return arm64.DecodeWord(binary.LittleEndian.Uint32(w.b[at:])), true
}

func (w *arm64Walk) decode(at int) (step, bool) {
	in, ok := w.inst(at)
	s := step{n: arm64.InstLen, ends: in.Op.EndsBlock()}
	switch in.PCRel {
	case arm64.PCRelBranch:
		if in.Op != arm64.Call {
			s.to = in.Target(w.start + uint64(at))
		}
	case arm64.PCRelMem:
		s.to, s.isData = in.Target(w.start+uint64(at)), true
	}
	return s, ok
}

// Numbers of system calls that must not move (asm-generic/unistd.h).
const (
	arm64Sigreturn = 139
	arm64Munmap    = 215
	arm64Exit      = 93
	arm64Clone     = 220
	arm64GetTID    = 178
)

// judge decides whether a system call can move.
func (w *arm64Walk) judge(s *Syscall) {
	at := int(s.Addr - w.start)
	s.Number = w.number(at)
	end := s.Addr + arm64.InstLen
	d, found := w.f.index.Find(s.Addr)
	goImage := w.f.foreign == GoImage
	switch {
	case s.Number == arm64Sigreturn:
		s.Refusal = SignalReturn
	case w.unmaps(at, s.Number):
		s.Refusal = StackGone
	case goImage && s.Number == arm64Exit: // others may have the stack by then (runtime.exitThread)
		s.Refusal = StackGone
	case goImage && s.Number == arm64GetTID && w.calls(arm64Clone): // before it has a goroutine (runtime.clone)
		s.Refusal = NoThreadPointer
	case goImage && !w.f.dead(end, w.start, w.start+uint64(len(w.b)), scratchRegs):
		s.Refusal = FlagsLive
	case w.label(s.Addr), w.label(end):
		s.Refusal = AddressTaken
	case w.f.handled(s.Addr, end):
		s.Refusal = HandlerAround
	case found && (w.f.unread[d.PC] || w.f.frameChanges(s.Addr, end, dwarfSP)):
		s.Refusal = UnusualUnwind
	default:
		s.Spans = []Span{{s.Addr, end, end}}
	}
}

// label reports whether something has an address that is not that of a function: the end of a range, perhaps.
func (w *arm64Walk) label(at uint64) bool {
	k := w.f.containing(at)
	return w.f.marks.get(at)&pointed != 0 && (k < 0 || w.f.funcs[k].Addr != at)
}

// number is the system call's, if the instructions in front of it tell, between which nothing comes.
func (w *arm64Walk) number(at int) int {
	const most = 16
	for range most {
		if w.f.marks.get(w.start+uint64(at))&anyTarget != 0 {
			return Unknown
		}
		at -= arm64.InstLen
		in, ok := w.inst(at)
		switch {
		case !ok || !w.seen[at] || in.Op.EndsBlock() || in.Op == arm64.Call || in.Op == arm64.CallInd:
			return Unknown
		case in.Word&0x7fe0001f == 0x52800008: // mov x8, #n
			return int(in.Word >> 5 & 0xffff)
		case in.PCRel == arm64.PCRelNone && arm64.Writes(in.Word)>>8&1 != 0:
			return Unknown
		}
	}
	return Unknown
}

// calls reports whether the function makes a system call with a number.
func (w *arm64Walk) calls(number int) bool {
	for at := 0; at+arm64.InstLen <= len(w.b); at += arm64.InstLen {
		if w.seen[at] && bytes.HasPrefix(w.b[at:], svcOp) && w.number(at) == number {
			return true
		}
	}
	return false
}

// unmaps reports whether a system call is one of two in a row that unmap a thread's stack and end it: nothing can be
// on the stack between them.
func (w *arm64Walk) unmaps(at, number int) bool {
	const near = 4 * arm64.InstLen
	other := arm64Exit
	if number == arm64Exit {
		other = arm64Munmap
	} else if number != arm64Munmap {
		return false
	}
	for k := max(0, at-near); k <= min(len(w.b)-arm64.InstLen, at+near); k += arm64.InstLen {
		if k != at && w.seen[k] && bytes.HasPrefix(w.b[k:], svcOp) && w.number(k) == other {
			return true
		}
	}
	return false
}
