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
type arm64Machine struct {
	far   map[uint32]*farSite // by id
	farAt uint64              // where the veneers begin that are beside the thunks
	// farEntry: the image's entry point is out of the runtime's reach.
	farEntry bool
	// veneersInCode are the addresses of the islands, ascending.
	veneersInCode []uint64
}

func (m *arm64Machine) thunk(t *thunk, dst []byte) error {
	a := arm64.Thunk{Addr: t.addr, Armed: t.armed, Enter: t.enter, Exit: t.exit, Body: t.body, ID: t.id, Kind: t.kind, Frame: t.frame}
	if f := m.far[t.id]; f != nil && f.back != 0 {
		a.Body = f.back
	}
	return a.Encode(dst)
}

func (m *arm64Machine) frames(base uint64, runs []arch.ThunkRun) *arch.Frames {
	f := arm64.ThunkRunFrames(base, runs, arm64.AnyShadow)
	if n := m.veneers(); n > 0 {
		f.Add(m.farAt, uint64(n), arm64.VeneerRows())
	}
	for _, at := range m.veneersInCode {
		f.Add(at, arm64.VeneerLen, arm64.VeneerRows())
	}
	return f
}

// callers: the description of a function that signs its return address stays as it
// is, and backtraces have the thunk's frame between that function and its caller.
func (m *arm64Machine) callers() elfio.FrameRules {
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

// appendSite appends b, behind a prologue bl; or a veneer.
func (m *arm64Machine) appendSite(b []byte, fn *Func) (_ []byte, err error) {
	start, to := len(b), fn.Thunk
	f := m.far[fn.ID]
	if f != nil {
		to = f.island
	}
	switch {
	case f != nil && f.island == fn.Addr:
		b, err = arm64.AppendVeneer(b, fn.Addr, f.landing)
	case fn.Ret == record.RetFP || fn.Ret == record.RetSigned:
		b, err = arm64.AppendCall(b, fn.Addr, to)
	default:
		b, err = arm64.AppendJump(b, fn.Addr, to)
	}
	if err != nil {
		return nil, err
	}
	b = arm64.AppendNops(b, fn.Len-(len(b)-start))
	if f != nil && f.body != fn.End() {
		le.PutUint32(b[len(b)-arm64.InstLen:], arm64.WordBtiC)
	}
	return b, nil
}

func (m *arm64Machine) appendNops(b []byte, n int) []byte { return arm64.AppendNops(b, n) }

// thunkOf decodes b, bl, or a veneer, and follows veneers.
func (m *arm64Machine) thunkOf(f *elfio.File, site uint64) (uint64, error) {
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

func (m *arm64Machine) option() string { return "-fpatchable-function-entry=2" }

func (m *arm64Machine) irelative() uint32 { return uint32(elf.R_AARCH64_IRELATIVE) }

// processGap: the heap starts behind the image, at a random distance of up to 1
// GiB, and grows upwards; branches reach 128 MiB. A heap that meets the added
// memory goes on elsewhere, by mmap. Large images are not put further out of reach.
func (m *arm64Machine) processGap(size uint64) uint64 {
	if size < 64<<20 {
		return 32 << 20
	}
	return 1 << 16
}
