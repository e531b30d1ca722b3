package record

// jumps gives a reason to sites that a branch of their function goes into the middle of, or makes them shorter where
// enough is left: nops of -fpatchable-function-entry can run on into the function's own.
func (fd *finder) jumps() {
	for i := range fd.sites {
		s := &fd.sites[i]
		if s.Reason != "" {
			continue
		}
		if n, _ := fd.m.inst(s.Bytes); n == s.Len {
			continue // one instruction has no middle
		}
		end := s.End()
		if k := fd.im.funcs.at(s.Func); k >= 0 {
			end = max(end, fd.im.funcs.extent(k, fd.im.code))
		} else {
			// Only the site tells of the function: it ends before the next one, and branches from far are rare.
			far := s.Func + maxPrologue
			if i+1 < len(fd.sites) {
				far = min(far, fd.sites[i+1].Func)
			}
			end = max(end, far)
		}
		target, found := fd.m.branchInto(fd.im.code.upTo(s.Func, end), s.Func, s.Addr, s.End())
		switch {
		case !found:
		case s.Kind == KindPatchable && target >= s.Addr+uint64(fd.m.siteSize()) && fd.cut(s, target):
		default:
			s.Reason = ReasonJumpIntoSite
		}
	}
}

// cut ends a site of nops at target, and reports whether one of them begins there.
func (fd *finder) cut(s *Site, target uint64) bool {
	n := int(target - s.Addr)
	for at := 0; at < n; {
		k, _ := fd.m.inst(s.Bytes[at:])
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
