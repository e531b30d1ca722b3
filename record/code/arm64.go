package code

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// arm64Code is AArch64 with A64 instructions, which are little-endian in big-endian images too.
type arm64Code struct{}

func (arm64Code) Align() uint64 { return arm64.InstLen }

func (arm64Code) Inst(b []byte) (int, Flow) {
	in, err := arm64.Decode(b)
	switch {
	case err != nil:
		return 0, FlowOther
	case in.Op == arm64.Nop || in.Word == 0:
		return in.Len, FlowPadding
	case in.Op == arm64.Bti || in.Op == arm64.PacSP:
		return in.Len, FlowPad
	case in.Op.EndsBlock() || in.Op == arm64.Call || in.Op == arm64.CallInd || in.Op == arm64.Brk:
		return in.Len, FlowEnds
	}
	return in.Len, FlowOther
}

func (arm64Code) Nops(b []byte) int { return arm64.IsNops(b) }

func (arm64Code) HasPad(b []byte) bool {
	return len(b) >= PadLen && arm64.DecodeWord(binary.LittleEndian.Uint32(b)).Op == arm64.Bti
}
