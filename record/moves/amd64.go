package moves

import "github.com/fentry-dev/fentry/arch/amd64"

// An Instruction, with what is known of its place.
type Instruction struct {
	amd64.Inst
	PC     uint64
	To     int   // of a branch inside the function: index of the instruction that it goes to, else -1
	SP     int32 // how far the stack pointer is from the frame's beginning, where that is known
	Exit   bool  // the function ends here
	Leader bool  // a branch of the function goes here
	Fixed  bool  // something else does: it must stay where it is
	Back   bool  // the call in front of it returns here
}

// End is the address behind it.
func (x *Instruction) End() uint64 { return x.PC + uint64(x.Len) }

// Ends reports whether nothing goes on behind an instruction.
func (x *Instruction) Ends() bool { return x.Op.EndsBlock() || x.Op == amd64.JmpInd }

// movable reports whether an instruction does elsewhere what it does where it is, as far as anybody can tell. A call
// leaves its address on the stack: so a call can only move if who looks that up knows what it returns to.
func (x *Instruction) movable(calls bool) bool {
	switch x.Op {
	case amd64.Other, amd64.Push, amd64.Pop, amd64.Leave, amd64.Nop, amd64.Jmp, amd64.Jcc, amd64.Ret, amd64.JmpInd:
		return true
	case amd64.Call, amd64.CallInd:
		return calls
	}
	return false
}

// IsCall reports whether an operation is a call's.
func IsCall(op amd64.Op) bool { return op == amd64.Call || op == amd64.CallInd || op == amd64.CallFar }

// A Body is the code of one function on x86-64.
type Body struct {
	Entry uint64
	Code  []byte
	Ins   []Instruction
	Pad   int // bytes of padding behind it
	// Head is how many instructions at the beginning go on to somebody else if there is no room on the stack: the entry
	// is recorded behind them. 0: there are none.
	Head int
	// Scratch are the registers that recording changes, a bit for each.
	Scratch uint16
	// Stay reports whether an instruction must not move, for its own sake.
	Stay func(i int) bool
	// Padding returns where behind some function there is place for a jump that one of two bytes at the entry leads to; 0:
	// nowhere. nil: it is not asked.
	Padding func(at uint64) uint64
	// Alike reports whether a jump of two bytes at an address may lead to another one: whoever asks what is there sees no
	// difference.
	Alike func(from, to uint64) bool
}

// ReadsScratch reports whether a scratch register is read, before it is written, that has something from elsewhere: at the
// beginning, or behind a call as behind says, which gets those of them that may have and returns those that may have then.
func (b *Body) ReadsScratch(behind func(x *Instruction, unknown uint16) uint16) bool {
	unknown := b.Scratch
	for i := range b.Ins {
		x := &b.Ins[i]
		if x.Leader && i > 0 {
			unknown = 0 // it may come from where they were written
		}
		reads, writes := x.General(b.Raw(i))
		if reads&unknown != 0 {
			return true
		}
		switch unknown &^= writes; {
		case IsCall(x.Op):
			unknown = behind(x, unknown)
		case x.Ends():
			unknown = 0
		}
	}
	return false
}

// Raw are the bytes of an instruction.
func (b *Body) Raw(i int) []byte {
	x := &b.Ins[i]
	return b.Code[x.PC-b.Entry:][:x.Len]
}

// Decode decodes the function at an address, and notes where its branches go. stays tells the indirect jumps and returns by
// which the function does not end. Of a function that cannot be followed it returns a reason.
func Decode(entry uint64, code []byte, sp func(pc uint64) int32, stays func(b *Body, i int) bool) (*Body, Reason) {
	b := &Body{Entry: entry, Code: code}
	at := make([]int32, len(b.Code)) // index of the instruction that begins at an offset, plus 1
	for o := 0; o < len(b.Code); {
		in, err := amd64.Decode(b.Code[o:])
		if err != nil {
			return nil, Undecodable
		}
		pc := entry + uint64(o)
		b.Ins = append(b.Ins, Instruction{Inst: in, PC: pc, To: -1, SP: sp(pc)})
		at[o] = int32(len(b.Ins))
		o += in.Len
	}
	// What stands behind the last instruction is padding. A jump's last byte can look like it.
	for n := len(b.Ins); n > 0 && b.Ins[n-1].Op == amd64.Int3; n = len(b.Ins) {
		b.Ins = b.Ins[:n-1]
		b.Pad++
	}
	b.Code = b.Code[:len(b.Code)-b.Pad]
	for i := range b.Ins {
		if !b.follow(i, at, stays) {
			return nil, Undecodable
		}
	}
	for i := 1; i < len(b.Ins); i++ {
		b.Ins[i].Back = IsCall(b.Ins[i-1].Op)
	}
	return b, ""
}

// follow notes where an instruction goes. It returns false if that is the middle of another one.
func (b *Body) follow(i int, at []int32, stays func(*Body, int) bool) bool {
	x := &b.Ins[i]
	switch x.Op {
	case amd64.Ret, amd64.JmpInd:
		x.Exit = !stays(b, i)
	case amd64.Jmp, amd64.Jcc, amd64.Loop, amd64.Jrcxz, amd64.Xbegin:
		to := x.Target(x.PC) - b.Entry
		if to >= uint64(len(b.Code)) {
			x.Exit = true
			return true
		}
		if at[to] == 0 {
			return false
		}
		x.To = int(at[to]) - 1
		b.Ins[x.To].Leader = true
	}
	return true
}
