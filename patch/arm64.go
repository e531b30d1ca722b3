package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

// arm64Machine is AArch64.
type arm64Machine struct{}

var _ [arm64.ThunkSize]byte = [thunkSize]byte{}

func (arm64Machine) thunk(t *thunk, dst []byte) error {
	a := arm64.Thunk{Addr: t.addr, Armed: t.armed, Enter: t.enter, Exit: t.exit, Body: t.body, ID: t.id, Kind: arm64.ThunkKind(t.kind), Frame: t.frame}
	return a.Encode(dst)
}

func (arm64Machine) frames(base uint64, runs []thunkRun) *arch.Frames {
	var list []arm64.Thunk
	for _, r := range runs {
		for i := range r.n {
			list = append(list, arm64.Thunk{Addr: r.addr + uint64(i)*thunkSize, Kind: arm64.ThunkKind(r.kind)})
		}
	}
	return arm64.ThunkFrames(base, list, arm64.AnyShadow)
}

// callers: the description of a function that signs its return address stays as it
// is, and backtraces have the thunk's frame between that function and its caller.
func (arm64Machine) callers() elfio.FrameRules {
	rules := arm64.Callers{Shadow: arm64.AnyShadow}
	return elfio.FrameRules{
		CIE: func(c *elfio.CIE) []byte {
			if c.Signal || !arm64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions) {
				return nil
			}
			return rules.Rule()
		},
		FDE: func(d *elfio.FDE) ([]byte, bool) {
			b, err := rules.Rows(d.Instructions, d.CIE.DataAlign)
			return b, err == nil
		},
	}
}

// appendSite appends b, behind a prologue bl.
func (arm64Machine) appendSite(b []byte, fn *Func) ([]byte, error) {
	if fn.Ret == record.RetFP || fn.Ret == record.RetSigned {
		return arm64.AppendCallSite(b, fn.Len, fn.Addr, fn.Thunk)
	}
	return arm64.AppendJumpSite(b, fn.Len, fn.Addr, fn.Thunk)
}

func (arm64Machine) appendNops(b []byte, n int) []byte { return arm64.AppendNops(b, n) }

// thunkOf decodes b or bl.
func (arm64Machine) thunkOf(f *elfio.File, site uint64) (uint64, error) {
	b, err := f.Bytes(site, arm64.InstLen)
	if err != nil {
		return 0, err
	}
	in, err := arm64.Decode(b)
	if err != nil || in.Op != arm64.Jmp && in.Op != arm64.Call {
		return 0, fmt.Errorf("%08x is no branch", in.Word)
	}
	return in.Target(site), nil
}

func (arm64Machine) option() string { return "-fpatchable-function-entry=2" }

func (arm64Machine) irelative() uint32 { return uint32(elf.R_AARCH64_IRELATIVE) }

// processGap: the heap starts behind the image, at a random distance of up to 1
// GiB, and grows upwards; branches reach 128 MiB. A heap that meets the added
// memory goes on elsewhere, by mmap.
func (arm64Machine) processGap() uint64 { return 32 << 20 }
