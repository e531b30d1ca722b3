package record

import "github.com/fentry-dev/fentry/record/code"

// Gaps.
//
// A stripped program that was compiled without unwind tables tells nowhere where its functions begin, and one with them
// does not for functions written in assembly. A call of a profiling function in such code is worth something only if it
// is known that nothing has been done before it. So the code between known functions is decoded from the first byte of
// the gap, once and in a straight line, and a function is believed to begin behind what does not go on to the next
// instruction, behind padding, or at a landing pad. Anything that is no instruction ends the search, because what
// follows may be data.
//
// That makes beginnings too many, behind every jump and call, rather than one too few. It does no harm, as it is only
// asked whether a profiling call is at a beginning, and compilers put none behind another call or jump of the same
// function. Looking for the bytes of common prologues would miss functions without one, and alignment is not kept by
// -Os.

// gaps finds where functions begin in code that no symbol and no unwind entry covers, by decoding it from its first
// byte on. It is asked for ascending addresses, so that each byte is decoded once.
type gaps struct {
	im *image

	region *code.Region
	pc     uint64 // next instruction
	begin  uint64 // where the function begins that pc is in, as far as known
	fresh  bool   // no instruction but nops has been seen since begin
	lost   bool   // something that is no code came before
}

// start returns the address of the function that addr is in, 0 when that cannot be told, and whether addr, or what
// belongs before it (a landing pad, nops), is where the function begins. addr must be where an instruction begins.
func (g *gaps) start(addr uint64) (begin uint64, first bool) {
	anchor, ok := g.anchor(addr)
	if !ok {
		return 0, false
	}
	r := g.im.code.Region(addr)
	if g.region != r || g.pc < anchor || g.pc > addr {
		*g = gaps{im: g.im, region: r, pc: anchor, begin: anchor, fresh: true}
	}
	for g.pc < addr && !g.lost {
		g.step()
	}
	if g.lost || g.pc != addr {
		return 0, false
	}
	return g.begin, g.fresh
}

// anchor is the last place before addr where code is known to begin: the end of a function of known size, or the
// beginning of the section.
func (g *gaps) anchor(addr uint64) (uint64, bool) {
	r := g.im.code.Region(addr)
	if r == nil {
		return 0, false
	}
	if i := g.im.funcs.containing(addr); i >= 0 {
		if fn := &g.im.funcs.list[i]; fn.Size != 0 && fn.Addr >= r.Addr {
			return fn.Addr + fn.Size, true
		}
	}
	return r.Addr, r.Exact
}

// step decodes one instruction. Behind one that does not go on to the next, and behind a call, which need not return, a
// function can begin; where it really is one is seen from what stands there.
func (g *gaps) step() {
	b := g.region.Data[g.pc-g.region.Addr:]
	n, f := g.im.m.Inst(b)
	if n == 0 {
		g.lost = true
		return
	}
	at := g.pc
	g.pc += uint64(n)
	switch f {
	case code.FlowPadding:
		if g.fresh {
			g.begin = g.pc
		}
	case code.FlowPad:
		g.begin, g.fresh = at, true
	case code.FlowEnds:
		g.begin, g.fresh = g.pc, true
	default:
		g.fresh = false
	}
}
