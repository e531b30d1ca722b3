package record

import "github.com/fentry-dev/fentry/record/code"

// calls turns the profiling calls found in code into sites.
func (fd *finder) calls() {
	listed := fd.listed
	for _, c := range fd.prof.calls(fd.im) {
		for len(listed) > 0 && listed[0] < c.addr {
			listed = listed[1:]
		}
		if len(listed) > 0 && listed[0] == c.addr {
			continue
		}
		if c.class == profFentry {
			fd.fentry(c.addr, c.len, KindFentryCall, SourceScan)
		} else {
			fd.mcount(c.addr, c.len, KindMcountCall, SourceScan)
		}
	}
}

// startsAt reports whether an instruction begins at addr because a function does, or its code behind a landing pad.
func (im *image) startsAt(addr uint64) bool {
	if im.funcs.at(addr) >= 0 {
		return true
	}
	return im.funcs.at(addr-code.PadLen) >= 0 && im.hasPad(addr-code.PadLen)
}

// hasPad reports whether there is a landing pad at addr.
func (im *image) hasPad(addr uint64) bool { return im.m.HasPad(im.code.From(addr)) }

// fentry adds the site of a call, or of the nop in its place, in front of a prologue.
func (fd *finder) fentry(addr uint64, n int, kind Kind, source string) {
	s := Site{Kind: kind, Ret: fd.m.atEntry(), Source: source}
	s.Addr, s.Len = fd.m.around(fd.im.code, addr, n)
	s.Func, s.Reason = fd.entry(s.Addr, source)
	fd.add(s)
}

// entry returns the function whose entry is at addr: nothing has been pushed there. Places that no known function
// covers are believed when the table of a compiler names them, or when the code before them allows no other reading.
func (fd *finder) entry(addr uint64, source string) (uint64, Reason) {
	start, ok := fd.entryOf(addr)
	switch {
	case ok:
		return start, ""
	case start != 0:
		return start, ReasonNotAtEntry
	case source != SourceScan:
		if fd.im.hasPad(addr - code.PadLen) {
			return addr - code.PadLen, ""
		}
		return addr, ""
	}
	if start, at := fd.gaps.start(addr); start != 0 && at && fd.isLead(start, addr) {
		return start, ""
	}
	return addr, ReasonUnknownEntry
}

// entryOf returns the function that covers a place, and whether only a landing pad and nops stand between its first
// byte and the place. The function is 0 when none does.
func (fd *finder) entryOf(addr uint64) (start uint64, ok bool) {
	i := fd.im.covering(addr)
	if i < 0 {
		return 0, false
	}
	start = fd.im.funcs.list[i].Addr
	return start, fd.isLead(start, addr)
}

// maxLead bounds what stands before a site: nops of -fpatchable-function-entry can be combined with other kinds.
const maxLead = 512

// isLead reports whether [start, addr) is at most a landing pad followed by nops.
func (fd *finder) isLead(start, addr uint64) bool {
	if start == addr {
		return true
	}
	if addr-start > maxLead {
		return false
	}
	b := fd.im.code.Range(start, addr)
	if uint64(len(b)) != addr-start {
		return false
	}
	if fd.m.HasPad(b) {
		b = b[code.PadLen:]
	}
	return fd.m.Nops(b) == len(b)
}

// covering returns the index of the function whose code addr is in, -1 when none is known. A function of unknown size
// reaches to the next one.
func (im *image) covering(addr uint64) int {
	i := im.funcs.containing(addr)
	if i < 0 {
		return -1
	}
	fn := &im.funcs.list[i]
	if fn.Size != 0 && addr-fn.Addr >= fn.Size || im.code.Region(fn.Addr) != im.code.Region(addr) {
		return -1
	}
	return i
}

// mcount adds the site of a call, or of the nop in its place, behind a prologue.
func (fd *finder) mcount(addr uint64, n int, kind Kind, source string) {
	s := Site{Addr: addr, Len: n, Kind: kind, Ret: RetFP, Source: source}
	if i := fd.im.covering(addr); i >= 0 {
		s.Func = fd.im.funcs.list[i].Addr
	} else if s.Func, _ = fd.gaps.start(addr); s.Func == 0 {
		s.Func, s.Reason = addr, ReasonUnknownEntry
		fd.add(s)
		return
	}
	f := fd.walk.at(s.Func, addr)
	s.Ret, s.Frame, s.Reason = f.ret, f.frame, f.reason
	fd.add(s)
}
