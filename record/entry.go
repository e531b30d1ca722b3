package record

import "github.com/fentry-dev/fentry/arch/amd64"

// siteSize is what a site must have: room for one jmp rel32.
const siteSize = 5

// calls turns the profiling calls found in code into sites.
func (fd *finder) calls() {
	for _, c := range fd.prof.calls(fd.im.code) {
		if fd.taken[c.addr] {
			continue
		}
		if c.class == profFentry {
			fd.fentryCall(c, SourceScan)
		} else {
			fd.mcountCall(c, SourceScan)
		}
	}
}

// fentryCall adds the site of a call in front of a prologue. A nested function's static chain is saved around it:
//
//	41 52  push %r10
//	...    call
//	41 5a  pop %r10
//
// There the whole sequence is the site, because the return address is at 0(%rsp) before the push only.
func (fd *finder) fentryCall(c call, source string) {
	s := Site{Addr: c.addr, Len: c.len, Kind: KindFentryCall, Ret: RetSP, Source: source}
	if b := fd.im.code.at(c.addr + uint64(c.len)); len(b) >= 2 && b[0] == 0x41 && b[1] == 0x5a {
		if p := fd.im.code.at(c.addr - 2); len(p) >= 2 && p[0] == 0x41 && p[1] == 0x52 {
			s.Addr, s.Len = c.addr-2, c.len+4
		}
	}
	var ok bool
	if s.Func, ok = fd.entryOf(s.Addr); !ok {
		s.Reason = ReasonNotAtEntry
		if s.Func == 0 {
			s.Func, s.Reason = s.Addr, ReasonUnknownEntry
		}
	}
	fd.add(s)
}

// entryOf returns the function a place lies in, and whether only landing pads and nops stand between its first byte and
// the place: then nothing has been pushed. The function is 0 when none is known.
func (fd *finder) entryOf(addr uint64) (start uint64, ok bool) {
	i := fd.im.funcs.containing(addr)
	if i < 0 {
		return 0, false
	}
	start = fd.im.funcs.list[i].Addr
	if fd.im.code.find(start) != fd.im.code.find(addr) {
		return 0, false
	}
	b := fd.im.code.upTo(start, addr)
	if len(b) > 512 {
		b = b[:512]
	}
	at := start
	if len(b) >= 4 && string(b[:4]) == endbr64 {
		b, at = b[4:], at+4
	}
	at += uint64(amd64.IsNops(b))
	return start, at == addr
}

// mcountCall adds the site of a call behind a prologue.
func (fd *finder) mcountCall(c call, source string) {
	s := Site{Addr: c.addr, Len: c.len, Kind: KindMcountCall, Ret: RetFP, Source: source}
	i := fd.im.funcs.containing(c.addr)
	if i < 0 {
		s.Func, s.Reason = c.addr, ReasonUnknownEntry
		fd.add(s)
		return
	}
	s.Func = fd.im.funcs.list[i].Addr
	s.Reason = verifyFrame(fd.im.code.upTo(s.Func, c.addr))
	fd.add(s)
}
