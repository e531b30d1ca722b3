package patch

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
)

func (arm64Machine) goShape() *arch.GoShape { return &arm64.GoShape }

func (arm64Machine) appendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error) {
	return arm64.AppendGoEvent(dst, at, e)
}

func (arm64Machine) appendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error) {
	return arm64.AppendGoRare(dst, event, e)
}

// movedInst: literals for vector registers, which other code loads by way of the stack, are never what moves (package golang).
func (arm64Machine) movedInst(code []byte, at uint64) (movedInst, error) {
	in, err := arm64.Decode(code)
	if err != nil {
		return movedInst{}, err
	}
	out := movedInst{n: arm64.InstLen, moved: arm64.RelocatedLen(in)}
	if in.PCRel == arm64.PCRelBranch {
		out.jump = in.Target(at)
	}
	return out, nil
}

func (arm64Machine) appendMovedInst(dst, code []byte, at, to uint64, copied func(uint64) (uint64, bool)) ([]byte, error) {
	in, err := arm64.Decode(code)
	if err != nil {
		return dst, err
	}
	target := in.Target(at)
	if now, ok := copied(target); ok && in.PCRel == arm64.PCRelBranch {
		target = now
	}
	return arm64.Retarget(dst, in, code, to, target)
}

func (arm64Machine) continues(code []byte) bool {
	in, err := arm64.Decode(code[len(code)-arm64.InstLen:])
	return err == nil && !in.Op.EndsBlock()
}

func (arm64Machine) appendMovedJump(dst []byte, from, to uint64) ([]byte, error) {
	return arm64.AppendJump(dst, from, to)
}

func (arm64Machine) movedJumpLen() int { return arm64.JumpLen }

func (arm64Machine) movedReaches(from, to uint64) bool {
	return arm64.Reaches(from, to) && arm64.Reaches(to, from)
}

func (arm64Machine) placeEventLen() int { return arm64.PlaceEventLen }

func (arm64Machine) appendPlaceEvent(dst []byte, at uint64, e *arch.PlaceEvent) ([]byte, error) {
	return arm64.AppendPlaceEvent(dst, at, e)
}

// goMost is what conditional branches reach.
func (arm64Machine) goMost() int { return 1<<20 - arm64.InstLen }

// placeVeneer: the module's tables, which stand between the code and the runtime, can be larger than branches reach. A veneer's
// register is free in events, and in copies of system calls.
func (arm64Machine) placeVeneer(l *layout, routine string) uint64 {
	at := l.align(arm64.InstLen)
	return l.add(piece{
		name: ".fentry.veneers", code: true, size: arm64.VeneerLen, align: arm64.InstLen, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			to, err := l.symbol(routine)
			if err != nil {
				return dst, err
			}
			return arm64.AppendVeneer(dst, at, to)
		},
	})
}

func (arm64Machine) syscallParts(s *Syscall, _ []byte) []part {
	return []part{{0, s.Addr, unsafePart}, {arm64.GoSyscallBehind, s.Addr + arm64.InstLen, unsafePart}}
}

func (arm64Machine) goFill() []byte { return []byte{0, 0, 0, 0} } // udf

func (arm64Machine) movedWindows(c *movedCode, _ []byte) ([]movedWindow, error) {
	var out []movedWindow
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		b, err := arm64.AppendJump(nil, r.Addr, c.at+uint64(c.runs[i]))
		if err != nil {
			return nil, fmt.Errorf("%s: site %#x: %w", c.name, r.Addr, err)
		}
		out = append(out, movedWindow{addr: r.Addr, new: b})
	}
	return out, nil
}
