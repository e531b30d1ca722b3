package patch

import (
	"fmt"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
)

func (amd64Machine) goShape() *arch.GoShape { return &amd64.GoShape }

func (amd64Machine) appendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error) {
	return amd64.AppendGoEvent(dst, at, e)
}

func (amd64Machine) appendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error) {
	return amd64.AppendGoRare(dst, event, e)
}

func (amd64Machine) movedInst(code []byte, _ uint64) (movedInst, error) {
	in, err := amd64.Decode(code)
	if err != nil {
		return movedInst{}, err
	}
	return movedInst{n: in.Len, moved: amd64.RelocatedLen(in)}, nil
}

func (amd64Machine) appendMovedInst(dst, code []byte, at, to uint64, copied func(uint64) (uint64, bool)) ([]byte, error) {
	in, err := amd64.Decode(code)
	if err != nil {
		return dst, err
	}
	target := in.Target(at)
	if now, ok := copied(target); ok && in.PCRel == amd64.PCRelBranch {
		target = now
	}
	return amd64.Retarget(dst, in, code, to, target)
}

func (amd64Machine) continues(code []byte) bool { return amd64.Continues(code) }

func (amd64Machine) appendMovedJump(dst []byte, from, to uint64) ([]byte, error) {
	return amd64.AppendJump(dst, from, to)
}

func (amd64Machine) movedJumpLen() int { return amd64.JumpLen }

// movedReaches: what cannot be reached is an error.
func (amd64Machine) movedReaches(_, _ uint64) bool { return true }

func (amd64Machine) placeEventLen() int { return amd64.PlaceEventLen }

func (amd64Machine) appendPlaceEvent(dst []byte, at uint64, e *arch.PlaceEvent) ([]byte, error) {
	return amd64.AppendPlaceEvent(dst, at, e)
}

func (amd64Machine) goMost() int { return math.MaxInt32 }

func (amd64Machine) placeVeneer(*layout, string) uint64 { return 0 }

func (m amd64Machine) syscallParts(s *Syscall, code []byte) (parts []part) {
	put := func(at, o int) { parts = append(parts, part{at, s.Move.Addr + uint64(o), unsafePart}) }
	for o := 0; o < len(code); {
		at, ok := m.syscallPlace(s, code, o)
		in, err := amd64.Decode(code[o:])
		if !ok || err != nil {
			return nil
		}
		put(at, o)
		o += in.Len
	}
	if amd64.Continues(code) {
		put(m.syscallLen(s, code)-amd64.JumpLen, len(code))
	}
	return parts
}

func (amd64Machine) placeStart(*layout) {}

func (amd64Machine) goFill() []byte { return []byte{0xcc} }

// movedWindows are what is rewritten of a function where it was.
func (amd64Machine) movedWindows(c *movedCode, code []byte) ([]movedWindow, error) {
	var out []movedWindow
	var far []amd64Jump
	for i := range c.moves.Runs {
		r, to := &c.moves.Runs[i], c.at+uint64(c.runs[i])
		w := movedWindow{addr: r.Addr, new: make([]byte, max(r.Len, min(r.Room, amd64.JumpLen)))}
		for k := range w.new {
			w.new[k] = 0xcc
		}
		switch {
		case r.Room >= amd64.JumpLen:
			far = append(far, amd64Jump{r.Addr, to})
		case r.Via != 0:
			b, err := amd64.AppendJumpShort(w.new[:0], r.Addr, r.Via)
			if err != nil || len(b) > len(w.new) {
				return nil, fmt.Errorf("%s: site %#x: %v", c.name, r.Addr, err)
			}
			if !r.Outside {
				far = append(far, amd64Jump{r.Via, to})
			}
		default:
			continue // nothing comes here any more
		}
		out = append(out, w)
	}
	for _, b := range c.moves.Branches {
		raw := code[b.Addr-c.entry:][:b.Len]
		in, err := amd64.Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: branch %#x: %w", c.name, b.Addr, err)
		}
		to := c.at + uint64(c.copies[b.To])
		w := movedWindow{addr: b.Addr}
		if b.Via != 0 {
			w.new = []byte{raw[0], byte(b.Via - b.Addr - amd64.JumpShortLen)}
			far = append(far, amd64Jump{b.Via, to})
		} else if w.new, err = amd64.Retarget(nil, in, raw, b.Addr, to); err != nil {
			return nil, fmt.Errorf("%s: branch %#x: %w", c.name, b.Addr, err)
		}
		out = append(out, w)
	}
	for _, j := range far {
		if err := j.write(out); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return out, nil
}

// An amd64Jump is a jump of five bytes that one of the windows has.
type amd64Jump struct{ from, to uint64 }

func (j amd64Jump) write(windows []movedWindow) error {
	for i := range windows {
		w := &windows[i]
		if o := j.from - w.addr; o < uint64(len(w.new)) && len(w.new)-int(o) >= amd64.JumpLen {
			_, err := amd64.AppendJump(w.new[o:o], j.from, j.to)
			return err
		}
	}
	return internalf("no room for a jump at %#x", j.from)
}

func (m amd64Machine) movedReturns(c *movedCode, code []byte) (all []arch.GoReturn, ok bool) {
	if len(c.moves.Branches) > 0 {
		return nil, false
	}
	inside, targets := map[uint64]bool{}, []uint64(nil)
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		src := code[r.Addr-c.entry:][:r.Len]
		if !r.Outside && (r.Via != 0 || r.Room < amd64.JumpLen) || m.calls(src) {
			return nil, false
		}
		for o := 0; o < r.Len; {
			in, err := amd64.Decode(src[o:])
			if err != nil {
				return nil, false
			}
			pc := r.Addr + uint64(o)
			if in.PCRel == amd64.PCRelBranch {
				targets = append(targets, in.Target(pc))
			}
			if o > 0 {
				inside[pc] = true
				all = append(all, arch.GoReturn{From: pc, To: c.at + uint64(c.copies[pc])})
			}
			o += in.Len
		}
	}
	return all, !slices.ContainsFunc(targets, func(to uint64) bool { return inside[to] })
}

func (amd64Machine) goPreemptHead() []byte { return slices.Clone(amd64.GoPreemptHead[:]) }

func (amd64Machine) appendGoPreempted(dst []byte, at, preempt uint64, returns []arch.GoReturn) ([]byte, error) {
	return amd64.AppendGoPreempted(dst, at, preempt, returns)
}

func (amd64Machine) goPreemptedLen(returns int) int { return amd64.GoPreemptedLen(returns) }
