package record

import (
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
)

// jumps gives a reason to sites that a branch of their function goes into the middle of, or makes them shorter where
// enough is left: nops of -fpatchable-function-entry can run on into the function's own.
func (fd *finder) jumps() {
	targets := code.NewTargets(fd.m)
	parallel.Ranges(len(fd.sites), piece, func(from, to int) {
		im := fd.own().im
		var place [1]code.Place // one for all: it is passed on, and so is allocated
		for i := from; i < to; i++ {
			s := &fd.sites[i]
			if !im.hasMiddle(s) {
				continue
			}
			next := ^uint64(0)
			if i+1 < len(fd.sites) {
				next = fd.sites[i+1].Func
			}
			place[0] = code.Place{Lo: s.Addr, Hi: s.End(), Entry: true}
			targets.Scan(im.code.Range(s.Func, im.endOf(s, next)), s.Func, place[:])
		}
	})
	if _, any := targets.Lowest(0, ^uint64(0)); !any {
		return
	}
	for i := range fd.sites {
		s := &fd.sites[i]
		target, found := targets.Lowest(s.Addr+1, s.End())
		switch {
		case !found || !fd.im.hasMiddle(s):
		case s.Kind == KindPatchable && target >= s.Addr+uint64(fd.m.siteSize()) && fd.im.cut(s, target):
		default:
			s.Reason = ReasonJumpIntoSite
		}
	}
}

// hasMiddle reports whether something could jump into the middle of a site: one instruction has none.
func (im *image) hasMiddle(s *Site) bool {
	if s.Reason != "" || s.Len <= 1 {
		return false
	}
	n, _ := im.m.Inst(s.Bytes)
	return n != s.Len
}

// endOf returns where the code of a site's function ends. next is the function of the site behind it.
func (im *image) endOf(s *Site, next uint64) uint64 {
	if k := im.funcs.at(s.Func); k >= 0 {
		return max(s.End(), im.funcs.extent(k, im.code))
	}
	// Only the site tells of the function: it ends before the next one, and branches from far are rare.
	return max(s.End(), min(s.Func+maxPrologue, next))
}

// cut ends a site of nops at target, and reports whether one of them begins there.
func (im *image) cut(s *Site, target uint64) bool {
	n := int(target - s.Addr)
	for at := 0; at < n; {
		k, _ := im.m.Inst(s.Bytes[at:])
		if k == 0 {
			return false
		}
		if at += k; at > n {
			return false
		}
	}
	s.Len, s.Bytes = n, s.Bytes[:n:n]
	return true
}
