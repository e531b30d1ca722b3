package record

import "github.com/fentry-dev/fentry/internal/parallel"

// jumps gives a reason to sites that a branch of their function goes into the middle of, or makes them shorter where
// enough is left: nops of -fpatchable-function-entry can run on into the function's own.
func (fd *finder) jumps() {
	parallel.Ranges(len(fd.sites), piece, func(from, to int) {
		im := fd.own().im
		for i := from; i < to; i++ {
			s := &fd.sites[i]
			if s.Reason != "" || s.Len <= 1 {
				continue
			}
			if n, _ := im.m.Inst(s.Bytes); n == s.Len {
				continue // one instruction has no middle
			}
			next := ^uint64(0)
			if i+1 < len(fd.sites) {
				next = fd.sites[i+1].Func
			}
			im.jumpInto(s, next)
		}
	})
}

// jumpInto is jumps for one site. next is the function of the site behind it.
func (im *image) jumpInto(s *Site, next uint64) {
	end := s.End()
	if k := im.funcs.at(s.Func); k >= 0 {
		end = max(end, im.funcs.extent(k, im.code))
	} else {
		// Only the site tells of the function: it ends before the next one, and branches from far are rare.
		end = max(end, min(s.Func+maxPrologue, next))
	}
	target, found := im.m.BranchInto(im.code.Range(s.Func, end), s.Func, s.Addr, s.End())
	switch {
	case !found:
	case s.Kind == KindPatchable && target >= s.Addr+uint64(im.m.siteSize()) && im.cut(s, target):
	default:
		s.Reason = ReasonJumpIntoSite
	}
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
