package record

import "github.com/fentry-dev/fentry/arch/amd64"

// siteSize is what a site must have: room for one jmp rel32.
const siteSize = 5

// calls turns the profiling calls found in code into sites.
func (fd *finder) calls() {
	for _, c := range fd.prof.calls(fd.im.code, fd.im.startsAt) {
		if fd.listed[c.addr] {
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
	return im.funcs.at(addr-4) >= 0 && im.code.hasEndbr(addr-4)
}

// hasEndbr reports whether there is a landing pad at addr.
func (c *code) hasEndbr(addr uint64) bool {
	b := c.at(addr)
	return len(b) >= 4 && string(b[:4]) == endbr64
}

// fentry adds the site of a call, or of the nop in its place, in front of a prologue. A nested function's static chain
// is saved around it:
//
//	41 52        push %r10
//	f3 0f 1e fa  endbr64       (-fcf-protection; gcc 12 puts it here, where it does not help)
//	...          call
//	41 5a        pop %r10
//
// There the whole sequence is the site, because the return address is at 0(%rsp) before the push only.
func (fd *finder) fentry(addr uint64, n int, kind Kind, source string) {
	s := Site{Addr: addr, Len: n, Kind: kind, Ret: RetSP, Source: source}
	if b := fd.im.code.at(addr + uint64(n)); len(b) >= 2 && b[0] == 0x41 && b[1] == 0x5a {
		push := addr - 2
		if fd.im.code.hasEndbr(addr - 4) {
			push -= 4
		}
		if p := fd.im.code.at(push); len(p) >= 2 && p[0] == 0x41 && p[1] == 0x52 {
			s.Addr, s.Len = push, int(addr-push)+n+2
		}
	}
	s.Func, s.Reason = fd.entry(s.Addr, source)
	fd.add(s)
}

// entry returns the function whose entry is at addr: nothing has been pushed there. Places that no known function covers
// are believed when the table of a compiler names them, or when the code before them allows no other reading.
func (fd *finder) entry(addr uint64, source string) (uint64, Reason) {
	start, ok := fd.entryOf(addr)
	switch {
	case ok:
		return start, ""
	case start != 0:
		return start, ReasonNotAtEntry
	case source != SourceScan:
		if fd.im.code.hasEndbr(addr - 4) {
			return addr - 4, ""
		}
		return addr, ""
	}
	if start, at := fd.gaps.start(addr); start != 0 && at && fd.isLead(start, addr) {
		return start, ""
	}
	return addr, ReasonUnknownEntry
}

// entryOf returns the function that covers a place, and whether only a landing pad and nops stand between its first byte
// and the place. The function is 0 when none does.
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
	b := fd.im.code.upTo(start, addr)
	if uint64(len(b)) != addr-start {
		return false
	}
	if len(b) >= 4 && string(b[:4]) == endbr64 {
		b = b[4:]
	}
	return amd64.IsNops(b) == len(b)
}

// covering returns the index of the function whose code addr is in, -1 when none is known. A function of unknown size
// reaches to the next one.
func (im *image) covering(addr uint64) int {
	i := im.funcs.containing(addr)
	if i < 0 {
		return -1
	}
	fn := &im.funcs.list[i]
	if fn.Size != 0 && addr-fn.Addr >= fn.Size || im.code.find(fn.Addr) != im.code.find(addr) {
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
	s.Reason = fd.frameAt(s.Func, addr)
	fd.add(s)
}
