package code

import "github.com/fentry-dev/fentry/arch/amd64"

// amd64Code is x86-64.
type amd64Code struct{}

// endbr64 is the landing pad of indirect branches, first in a function compiled with -fcf-protection.
const endbr64 = "\xf3\x0f\x1e\xfa"

func (amd64Code) Align() uint64 { return 1 }

func (amd64Code) Inst(b []byte) (int, Flow) {
	in, err := amd64.Decode(b)
	switch {
	case err != nil:
		return 0, FlowOther
	case in.Op == amd64.Nop || in.Op == amd64.Int3:
		return in.Len, FlowPadding
	case in.Op == amd64.Endbr64:
		return in.Len, FlowPad
	case in.Op.EndsBlock() || in.Op == amd64.Call || in.Op == amd64.CallInd:
		return in.Len, FlowEnds
	}
	return in.Len, FlowOther
}

func (amd64Code) Nops(b []byte) int { return amd64.IsNops(b) }

func (amd64Code) HasPad(b []byte) bool { return len(b) >= PadLen && string(b[:PadLen]) == endbr64 }
