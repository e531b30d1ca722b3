package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

// arm64Machine is AArch64. Branches reach 128 MiB only: see arm64reach.go.
type arm64Machine struct{}

func (arm64Machine) thunkSize(arch.ThunkKind) int { return arm64.FrontSize }

func (arm64Machine) backSize(k arch.ThunkKind) int {
	if arm64.HasBack(k) {
		return arm64.BackSize
	}
	return 0
}

func (t *thunk) arm64() *arm64.Thunk {
	return &arm64.Thunk{
		Addr: t.addr, Back: t.back, Switch: t.switched, Enter: t.enter, Exit: t.exit, Body: t.body,
		ID: t.id, Kind: t.kind, Frame: t.frame,
	}
}

func (arm64Machine) thunk(t *thunk, dst []byte) error { return t.arm64().Encode(dst) }

// back: in images where functions return to thunks, some do not.
func (arm64Machine) back(t *thunk, dst []byte) error {
	if !arm64.HasBack(t.kind) {
		arm64.FillUnused(dst)
		return nil
	}
	return t.arm64().EncodeBack(dst)
}

func (arm64Machine) frames(base uint64, fronts, runs []arch.ThunkRun, backs uint64) *arch.Frames {
	return arm64.ThunkRunFrames(base, fronts, runs, backs, arm64.AnyShadow)
}

// appendSite appends b, behind a prologue bl; or a veneer.
func (arm64Machine) appendSite(b []byte, s *record.Site, r route) (_ []byte, err error) {
	start := len(b)
	switch {
	case r.veneer:
		b, err = arm64.AppendVeneer(b, s.Addr, r.to)
	case behindPrologue(s):
		b, err = arm64.AppendCall(b, s.Addr, r.to)
	default:
		b, err = arm64.AppendJump(b, s.Addr, r.to)
	}
	if err != nil {
		return nil, err
	}
	b = arm64.AppendNops(b, s.Len-(len(b)-start))
	if r.pad {
		le.PutUint32(b[len(b)-arm64.InstLen:], arm64.WordBtiC)
	}
	return b, nil
}

func (arm64Machine) appendNops(b []byte, n int) []byte { return arm64.AppendNops(b, n) }

// thunkOf decodes b, bl, or a veneer, and follows veneers, and what authenticates a signed return address.
func (arm64Machine) thunkOf(f *elfio.File, site uint64) (uint64, error) {
	b, err := f.Bytes(site, arm64.InstLen)
	if err != nil {
		return 0, err
	}
	in, err := arm64.Decode(b)
	to := site
	switch {
	case err != nil:
		return 0, err
	case in.Op == arm64.Jmp || in.Op == arm64.Call:
		to = in.Target(site)
	case in.Op != arm64.Adrp:
		return 0, fmt.Errorf("%08x is no branch", in.Word)
	}
	b, err = f.Bytes(to, arm64.VeneerLen)
	if err != nil {
		return 0, err
	}
	landing, ok := arm64.VeneerTarget(b, to)
	if !ok {
		if arm64.DecodeWord(le.Uint32(b)).Op == arm64.Aut {
			if in, err = arm64.Decode(b[arm64.InstLen:]); err != nil || in.Op != arm64.Jmp {
				return 0, fmt.Errorf("no branch behind %08x at %#x", le.Uint32(b), to)
			}
			to = in.Target(to + arm64.InstLen)
		}
		return to, nil
	}
	if b, err = f.Bytes(landing+arm64.InstLen, arm64.JumpLen); err != nil {
		return 0, err
	}
	if in, err = arm64.Decode(b); err != nil || in.Op != arm64.Jmp {
		return 0, fmt.Errorf("no landing for a veneer at %#x", landing)
	}
	return in.Target(landing + arm64.InstLen), nil
}

// facts: the heap starts behind the image, at a random distance of up to 1
// GiB, and grows upwards; branches reach 128 MiB. A heap that meets the added
// memory goes on elsewhere, by mmap. Large images are not put further out of reach.
func (arm64Machine) facts() facts {
	return facts{
		option:    "-fpatchable-function-entry=2",
		irelative: uint32(elf.R_AARCH64_IRELATIVE),
		processGap: func(size uint64) uint64 {
			if size < 64<<20 {
				return 32 << 20
			}
			return 1 << 16
		},
		reach: 4 << 30, // adrp; what branches do not reach is left alone (arm64reach.go)
		odd:   arm64.ThunkOdd,
	}
}
