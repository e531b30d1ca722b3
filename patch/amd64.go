package patch

import (
	"debug/elf"
	"encoding/hex"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record"
)

// amd64Machine is x86-64.
type amd64Machine struct{}

// place: jumps reach 2 GiB; what is out of their reach cannot be patched at all. Short jumps go to padding, where the jump
// to the thunk is.
func (m amd64Machine) place(l *layout) error {
	l.addThunks()
	if err := l.addDisplaced(m); err != nil {
		return err
	}
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		if fn.ID != 0 && fn.Via != 0 {
			l.addFar(m, i, fn.Via, l.thunk(fn.ID))
		}
	}
	return nil
}

func (amd64Machine) displacedLen(s *record.Site) int {
	if s.Kind == record.KindLibCall {
		return amd64.JumpGOTLen
	}
	return amd64.DisplacedLen(s.Bytes[:s.Moved])
}

// inThunk: there is no room.
func (amd64Machine) inThunk(*record.Site, arch.ThunkKind) (int, bool) { return 0, false }

func (amd64Machine) inThunkCIE(*ehframe.CIE, *ehframe.Variants) *ehframe.CIE { return nil }

func (amd64Machine) calls(code []byte) bool {
	for len(code) > 0 {
		in, err := amd64.Decode(code)
		if err != nil || in.Op == amd64.Call || in.Op == amd64.CallInd || in.Op == amd64.CallFar {
			return true
		}
		code = code[in.Len:]
	}
	return false
}

func (amd64Machine) jumpLen() int { return amd64.JumpLen }

func (amd64Machine) shadow() (back, flipped uint64) { return amd64.ThunkReturn, 1 << amd64.ShadowBit }

func (amd64Machine) displacedBody(*record.Site) int { return 0 }

func (amd64Machine) displacedRows(*record.Site, *ehframe.CIE) ([]byte, int) { return nil, 0 }

func (amd64Machine) appendDisplaced(b []byte, _ *elfio.File, fn *Func, to, _ uint64) ([]byte, error) {
	if fn.Kind == record.KindLibCall {
		return amd64.AppendJumpGOT(b, to, fn.Slot)
	}
	return amd64.AppendDisplaced(b, fn.Bytes[:fn.Moved], fn.Addr, to)
}

func (amd64Machine) displacedAt(s *record.Site, off int) (int, bool) {
	return amd64.DisplacedAt(s.Bytes[:s.Moved], off)
}

func amd64Syscall(s *Syscall, code []byte) amd64.SyscallCopy {
	return amd64.SyscallCopy{Code: code, At: s.Move.Addr, Call: int(s.Addr - s.Move.Addr)}
}

func (amd64Machine) syscallPlace(s *Syscall, code []byte, off int) (int, bool) {
	c := amd64Syscall(s, code)
	return c.Place(off)
}

func (amd64Machine) syscallWaits(s *Syscall, code []byte, off int) (behind int, ok bool) {
	c := amd64Syscall(s, code)
	return c.Waits(off)
}

func (amd64Machine) syscallLen(s *Syscall, code []byte) int {
	if s.Routine != 0 {
		return amd64.SyscallCallLen
	}
	c := amd64Syscall(s, code)
	return c.Len()
}

// syscallRows: those of the original's instructions, where they are; of a call, the one that it has, and those of what the
// copy has pushed.
func (amd64Machine) syscallRows(dst []byte, d *ehframe.FDE, s *Syscall, code []byte) ([]byte, error) {
	if s.Routine != 0 {
		dst, row, err := appendRow(dst, d, s.Addr)
		if err == nil && row.Reg == amd64.StackPointer {
			dst = amd64.SyscallCallRows(dst, row.Off, d.CIE.CodeAlign)
		}
		return dst, err
	}
	c, lead := amd64Syscall(s, code), s.Move.Addr-d.PC
	return d.AppendMoved(dst, lead+uint64(s.Move.Code), func(at uint64) (uint64, bool) {
		to, ok := c.Place(int(max(at, lead) - lead))
		return uint64(to), ok
	})
}

func (amd64Machine) syscallReaches(_, _ uint64) bool { return true }

// appendFarJump appends ff 25 2, jmp *2(%rip), two nops, and the word.
func (amd64Machine) appendFarJump(dst []byte, to uint64) []byte {
	return le.AppendUint64(append(dst, 0xff, 0x25, 2, 0, 0, 0, 0x90, 0x90), to)
}

func (amd64Machine) appendSyscall(dst []byte, s *Syscall, code []byte, to uint64, r enterExit) ([]byte, error) {
	if s.Routine != 0 {
		c := amd64.SyscallCallCopy{At: s.Addr, Routine: s.Routine, Cancelled: s.Cancelled, Enter: r.enter, Exit: r.exit}
		return c.Append(dst, to)
	}
	c := amd64Syscall(s, code)
	c.Enter, c.Exit = r.enter, r.exit
	return c.Append(dst, to)
}

// wordCall decodes ff 15 disp32, call *slot(%rip), and ff 25 disp32, jmp *slot(%rip).
func (amd64Machine) wordCall(b []byte, at uint64) (uint64, bool) {
	if len(b) < wordCallLen || b[0] != 0xff || b[1] != 0x15 && b[1] != 0x25 {
		return 0, false
	}
	return at + wordCallLen + uint64(int64(int32(le.Uint32(b[2:])))), true
}

// appendWordCall: the call has a prefix that does nothing, so its return address stays what it was.
func (amd64Machine) appendWordCall(dst, old []byte, at, to uint64) ([]byte, error) {
	if old[1] == 0x15 {
		return amd64.AppendCallAddr32(dst, at, to)
	}
	dst, err := amd64.AppendJump(dst, at, to)
	return amd64.AppendNops(dst, wordCallLen-amd64.JumpLen), err
}

// unchanged: none, so rows stay as they are.
func (amd64Machine) unchanged(*record.Site) uint64 { return 0 }

// entryRows: the CIE of thunks has the row already.
func (amd64Machine) entryRows(hides bool) []byte {
	if hides {
		return amd64.CallerRule()
	}
	return []byte{0} // DW_CFA_nop
}

func (amd64Machine) thunkSize(k arch.ThunkKind) int { return amd64.ThunkSize(k) }

func (amd64Machine) backSize(arch.ThunkKind) int { return 0 }

func (amd64Machine) back(*thunk, []byte) error { return internalf("thunks are in one piece") }

func (amd64Machine) thunk(t *thunk, dst []byte) error {
	a := amd64.Thunk{Addr: t.addr, Switch: t.switched, Enter: t.enter, Exit: t.exit, Body: t.body, ID: t.id, Kind: t.kind, Size: t.size}
	return a.Encode(dst)
}

func (amd64Machine) frames(base uint64, _, runs []arch.ThunkRun, _ uint64) *arch.Frames {
	return amd64.ThunkRunFrames(base, runs)
}

func (amd64Machine) callers() ehframe.Rules {
	return ehframe.Rules{CIE: func(c *ehframe.CIE) []byte {
		if c.Signal || !amd64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions) {
			return nil
		}
		return amd64.CallerRule()
	}}
}

// reviser: the return address never moves.
func (amd64Machine) reviser() ehframe.Reviser { return nil }

// appendSite appends a jump.
func (amd64Machine) appendSite(b []byte, s *record.Site, r route) (_ []byte, err error) {
	start := len(b)
	if s.Via != 0 {
		b, err = amd64.AppendJumpShort(b, s.Addr, s.Via)
	} else {
		b, err = amd64.AppendJump(b, s.Addr, r.to)
	}
	if err != nil {
		return nil, err
	}
	return amd64.AppendNops(b, s.Len-(len(b)-start)), nil
}

func (amd64Machine) appendNops(b []byte, n int) []byte { return amd64.AppendNops(b, n) }

// thunkOf decodes e9 rel32, and 67 e8 rel32. It follows eb rel8.
func (amd64Machine) thunkOf(f *elfio.File, site uint64) (uint64, error) {
	b, err := f.Bytes(site, amd64.JumpShortLen)
	if err == nil && b[0] == 0xeb {
		site += amd64.JumpShortLen + uint64(int64(int8(b[1])))
	}
	n := amd64.JumpLen
	if err == nil && b[0] == 0x67 {
		n = wordCallLen
	}
	if b, err = f.Bytes(site, n); err != nil {
		return 0, err
	}
	in, err := amd64.Decode(b)
	if err != nil || in.PCRel != amd64.PCRelBranch {
		return 0, fmt.Errorf("%s is no branch", hex.EncodeToString(b))
	}
	return in.Target(site), nil
}

// facts: the heap starts behind the image, at a random distance of up to 32 MiB (from Linux 6.9 on, 1 GiB), and grows
// upwards, as long as nothing is in its way; calls reach 2 GiB. So what is added to an image is as far behind it as can be:
// there is room for 256 MiB, and for as much again as the image has itself. A heap that meets it goes on elsewhere, by mmap:
// large images are not put out of reach.
func (amd64Machine) facts() facts {
	return facts{
		option:    "-pg -mfentry or -fpatchable-function-entry=5",
		irelative: uint32(elf.R_X86_64_IRELATIVE),
		processGap: func(size uint64) uint64 {
			const reach, added = 2 << 30, 256 << 20
			gap := min(1<<30, max(reach-added, size+1<<16)-size)
			if 2*size < reach-added {
				gap = max(gap, reach-added-2*size)
			}
			return gap
		},
		reach: 2 << 30,
		odd:   amd64.ThunkOdd,
	}
}
