package plain

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/code"
)

// amd64Sweep decodes units of x86-64.
type amd64Sweep struct {
	code code.Machine
	lead int // of the unit: a landing pad

	// Behind a call, until its flags are certainly gone. callee is 0 if it is one by a pointer.
	callee, ret uint64
	flags       flow

	onStack stackAddresses

	// Since the last instruction that nothing runs on behind.
	before uint64 // what was called last; 0: nothing
	asked  bool   // a system call was made behind that
}

func (s *amd64Sweep) unit(d *decoder, b []byte) {
	s.flags, s.before, s.asked, s.onStack = flow{}, 0, false, stackAddresses{}
	if s.lead = 0; s.code.HasPad(b) {
		s.lead = code.PadLen
	}
	u := d.u
	var last amd64.Inst
	lastAt := 0
	for at := 0; at < len(b); {
		in, err := amd64.Decode(b[at:])
		if err != nil {
			d.facts |= undecodable
			at++
			last = amd64.Inst{}
			continue
		}
		d.own[at] |= instruction
		s.inst(d, in, b[at:at+in.Len], u.lo+uint64(at))
		if amd64SwapsAt(b, at, in.Len) {
			d.facts |= swapsStack
		}
		if in.Op != amd64.Nop && in.Op != amd64.Int3 {
			last, lastAt = in, at
		}
		if at += in.Len; in.Op.EndsBlock() {
			at += zeroPadding(b[at:], u.lo+uint64(at))
		}
	}
	switch {
	case last.Len > 0 && (last.Op == amd64.Call || last.Op == amd64.CallInd):
		d.facts |= endsInCall
	case last.Len == 0 || !last.Op.EndsBlock():
		d.facts |= open
	}
	if amd64RunsOn(last) && u.fn >= 0 {
		d.runOn(u.lo+uint64(lastAt), amd64.IsNops(d.behind()))
	}
}

// zeroPadding returns how many bytes of code at an address are zero, up to where a function can begin; 0 if that is not all
// that is there. Free Pascal's compiler has such padding, and an odd number of them would take the next function's first bytes
// into an instruction.
func zeroPadding(b []byte, addr uint64) int {
	n := int(-addr % functionAlign)
	if n > len(b) || len(bytes.TrimLeft(b[:n], "\x00")) > 0 {
		return 0
	}
	return n
}

// amd64RunsOn reports whether the code behind the last instruction of a function is reached from it. A call at the end is
// one that does not return.
func amd64RunsOn(in amd64.Inst) bool {
	switch in.Op {
	case amd64.Call, amd64.CallInd, amd64.Int, amd64.Int3:
		return false
	}
	return in.Len > 0 && !in.Op.EndsBlock()
}

// inst takes what one instruction tells.
func (s *amd64Sweep) inst(d *decoder, in amd64.Inst, raw []byte, pc uint64) {
	row, known := d.frames.at(pc)
	if known && (row.Saved || !row.Moved) && usesReturn(in, raw, row) { // a thread of clone's has none
		d.facts |= usesCaller
	}
	if s.onStack.usesReturn(in, raw) {
		d.facts |= usesCaller
	}
	if s.onStack.step(in, raw, row, known); in.Op.EndsBlock() {
		s.onStack.held = 0
	}
	if belowStack(in, raw) {
		d.facts |= redZone
	}
	if s.flags.need != 0 && s.callee != 0 && in.Op == amd64.Ret && d.u.fn >= 0 {
		d.passes = append(d.passes, jumpOut{from: int32(d.u.fn), to: s.callee})
	}
	if s.flags.need != 0 && s.flags.step(in, raw) && (s.callee != 0 || conditional(in)) {
		d.results = append(d.results, result{s.callee, s.ret, pc})
	}
	switch in.Op {
	case amd64.JmpInd:
		switch entry := !known || (amd64Machine{}).atEntry(row); {
		case in.PCRel != amd64.PCRelNone:
			d.facts |= jumpsAway
		case entry && d.facts&mayJumpAway != 0: // one of two
			d.facts |= dispatches | jumpsAway
		case entry && raw[0] != notrack:
			d.facts |= dispatches | mayJumpAway
		default:
			d.facts |= dispatches
		}
	case amd64.Ret:
		if in.ImmLen > 0 {
			d.facts |= usesCaller
		}
	case amd64.Call, amd64.CallInd:
		d.facts |= calls
		s.callee, s.ret, s.flags = 0, pc+uint64(in.Len), flow{need: amd64.AllFlags}
	}
	s.besideSyscall(d, in, pc)
	switch in.PCRel {
	case amd64.PCRelBranch:
		t := in.Target(pc)
		if in.Op == amd64.Call {
			s.callee = t
			d.called(t)
			break
		}
		d.branch(t, in.Op == amd64.Jmp, known && amd64Machine{}.atEntry(row), s.lead)
	case amd64.PCRelMem:
		t := in.Target(pc)
		if lea(in) {
			d.bases = append(d.bases, base{t, d.u.lo, d.u.hi, int32(d.u.fn)})
		}
		d.names(t)
	default:
		if d.f.fixed {
			constant(d, in, raw)
		}
	}
}

// conditional recognises instructions of which code certainly uses a function's flags: data that looks like code, and pushf, have others.
func conditional(in amd64.Inst) bool {
	return in.Op == amd64.Jcc || in.Enc == amd64.Legacy && in.Map == 1 && (in.Opcode&0xf0 == 0x90 || in.Opcode&0xf0 == 0x40)
}

// besideSyscall notes what is called on both sides of a system call. glibc has threads cancelled at any instruction between two
// such calls.
func (s *amd64Sweep) besideSyscall(d *decoder, in amd64.Inst, pc uint64) {
	switch {
	case in.Op == amd64.Syscall:
		s.asked = s.before != 0
	case in.Op == amd64.Call && in.PCRel == amd64.PCRelBranch:
		t := in.Target(pc)
		if s.asked {
			d.beside(s.before)
			d.beside(t)
		}
		s.before, s.asked = t, false
	case in.Op == amd64.CallInd || in.Op.EndsBlock():
		s.before, s.asked = 0, false
	}
}

// notrack is the prefix of jumps that need not go to a landing pad: those by jump tables.
const notrack = 0x3e

func lea(in amd64.Inst) bool { return legacy(in) && in.Opcode == 0x8d }

// constant takes an immediate operand for an address. In images that cannot be moved it can be one.
func constant(d *decoder, in amd64.Inst, raw []byte) {
	switch in.ImmLen {
	case 4:
		d.names(uint64(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
	case 8:
		d.names(binary.LittleEndian.Uint64(raw[len(raw)-8:]))
	}
}
