package plain

import (
	"encoding/binary"
	"sync"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
)

// The sweep.
//
// All code is decoded once, from every function's first byte to its end, and what lies between functions from there to
// the next function: so a mistake, such as data among code, ends at the next function. Branches are marked where they
// go to. Of each function some facts are kept that the rules need, because they come with the same decode.
//
// Units are decoded on all processors. A unit marks its own bytes; what it finds out about others is noted and marked
// when all are done.

// unit is a run of code that is decoded from its first byte: a function, or what lies between two.
type unit struct {
	lo, hi uint64
	region int
	fn     int // index of the function; -1: none
}

// fact is what the rules have to know about a whole function.
type fact uint16

const (
	undecodable  fact = 1 << iota // bytes of it are no instructions
	usesCaller                    // reads or changes its return address, or returns with ret $n
	redZone                       // uses memory below the stack pointer
	calls                         // calls something
	dispatches                    // jumps to an address in a register
	leaves                        // jumps into the middle of another function
	entered                       // another function jumps into the middle of it
	loopsAtEntry                  // jumps to its own first instruction
	loopsFramed                   // likewise, while something is on the stack
	flagsResult                   // a caller uses the flags that it leaves
	ranInto                       // the code before it runs on into it
)

// note is what a unit has found out about an address that is not its own.
type note struct {
	addr uint64
	mark mark
	fact fact // of the function that begins there
	in   fact // of the function that the address is in the middle of
	from int32
}

// result is a use of the flags that a function leaves: between the call's return address and the instruction that uses
// them, inclusive, nothing may be a target, or it was another way there that has set them.
type result struct{ callee, ret, user uint64 }

// base is an address that an instruction names, and that may be that of a jump table.
type base struct {
	table  uint64
	lo, hi uint64 // the unit
	fn     int32
}

// perTask is how many units are decoded at a time.
const perTask = 512

// units cuts all code.
func (f *Finder) units() (out []unit) {
	i := 0
	for ri := range f.text.Regions {
		r := &f.text.Regions[ri]
		for i < len(f.funcs) && f.funcs[i].Addr < r.Addr {
			i++
		}
		for at := r.Addr; at < r.End(); {
			end := r.End()
			if i < len(f.funcs) && f.funcs[i].Addr < end {
				end = f.funcs[i].Addr
			}
			if at < end { // between functions
				out = append(out, unit{at, end, ri, -1})
				at = end
				continue
			}
			if i == len(f.funcs) {
				break
			}
			if end = f.end(i); end > at {
				out = append(out, unit{at, end, ri, i})
				at = end
			}
			i++
		}
	}
	return out
}

// end returns where the code of a function ends: at its size, and where the next one begins at the latest.
func (f *Finder) end(i int) uint64 {
	fn := &f.funcs[i]
	end := f.limit(i)
	if fn.Size != 0 && end-fn.Addr > fn.Size {
		end = fn.Addr + fn.Size
	}
	return end
}

// limit returns where the next function begins, or the region ends.
func (f *Finder) limit(i int) uint64 {
	addr := f.funcs[i].Addr
	end := addr
	text := *f.text // which remembers the region that was asked for last
	if r := text.Region(addr); r != nil {
		end = r.End()
	}
	if i+1 < len(f.funcs) {
		end = min(end, f.funcs[i+1].Addr)
	}
	return max(end, addr)
}

// sweep decodes all code.
func (f *Finder) sweep() {
	f.facts = make([]fact, len(f.funcs))
	units := f.units()
	var mu sync.Mutex
	var notes []note
	parallel.Ranges(len(units), perTask, func(from, to int) {
		d := decoder{f: f}
		for i := from; i < to; i++ {
			d.unit(&units[i])
		}
		mu.Lock()
		defer mu.Unlock()
		notes, f.bases = append(notes, d.notes...), append(f.bases, d.bases...)
		f.results = append(f.results, d.results...)
	})
	for i := range notes {
		f.take(&notes[i])
	}
}

// take marks what a unit has found out about others.
func (f *Finder) take(n *note) {
	f.marks.add(n.addr, n.mark)
	if n.fact|n.in == 0 {
		return
	}
	k := f.containing(n.addr)
	switch {
	case k < 0:
	case f.funcs[k].Addr == n.addr:
		f.facts[k] |= n.fact
	case n.in != 0 && n.addr < f.end(k):
		f.facts[k] |= n.in
		if n.from >= 0 {
			f.facts[n.from] |= leaves
		}
	}
}

// flagResults notes the functions whose callers use the flags that they leave, when all targets are known.
func (f *Finder) flagResults() {
	for _, r := range f.results {
		k := f.containing(r.callee)
		if k >= 0 && f.funcs[k].Addr == r.callee && f.marks.any(r.ret, r.user+1)&anyTarget == 0 {
			f.facts[k] |= flagsResult
		}
	}
}

// decoder decodes units, one after another.
type decoder struct {
	f       *Finder
	notes   []note
	bases   []base
	results []result

	u      *unit
	own    []mark // of the unit
	hasPad bool   // it begins with a landing pad
	frames frames
	facts  fact

	// Behind a call, until its flags are certainly gone.
	callee, ret uint64
	flags       amd64.Flags
}

// unit decodes one.
func (d *decoder) unit(u *unit) {
	r := &d.f.text.Regions[u.region]
	b := r.Data[u.lo-r.Addr : u.hi-r.Addr]
	d.u, d.own, d.facts, d.flags = u, d.f.marks.of[u.region][u.lo-r.Addr:], 0, 0
	d.frames.found, d.hasPad = false, d.f.m.HasPad(b)
	if u.fn >= 0 {
		d.frames.open(d.f.index, u.lo)
	}
	var last amd64.Inst
	lastAt := 0
	for at := 0; at < len(b); {
		in, err := amd64.Decode(b[at:])
		if err != nil {
			d.facts |= undecodable
			at++
			last = amd64.Inst{}
			continue
		}
		d.own[at] |= instruction
		d.inst(in, b[at:at+in.Len], u.lo+uint64(at))
		if in.Op != amd64.Nop && in.Op != amd64.Int3 {
			last, lastAt = in, at
		}
		at += in.Len
	}
	if runsOn(last) && u.fn >= 0 {
		d.runOn(u.lo + uint64(lastAt))
	}
	if u.fn >= 0 {
		d.f.facts[u.fn] |= d.facts
	}
}

// runsOn reports whether the code behind the last instruction of a function is reached from it. A call at the end is one
// that does not return.
func runsOn(in amd64.Inst) bool {
	switch in.Op {
	case amd64.Call, amd64.CallInd, amd64.Int, amd64.Int3:
		return false
	}
	return in.Len > 0 && !in.Op.EndsBlock()
}

// runOn notes that a function's last instruction, at pc, goes on to the code behind it. If nothing is on the stack, that
// is a tail call.
func (d *decoder) runOn(pc uint64) {
	r := &d.f.text.Regions[d.u.region]
	n := note{addr: d.u.hi + uint64(amd64.IsNops(r.Data[d.u.hi-r.Addr:])), from: int32(d.u.fn)}
	if row, known := d.frames.at(pc); known && atEntry(row) {
		n.mark = tailJump
	} else {
		n.mark, n.fact = otherBranch, ranInto
	}
	d.notes = append(d.notes, n)
}

// inst takes what one instruction tells.
func (d *decoder) inst(in amd64.Inst, raw []byte, pc uint64) {
	row, known := d.frames.at(pc)
	if known && usesReturn(in, raw, row) {
		d.facts |= usesCaller
	}
	if belowStack(in, raw) {
		d.facts |= redZone
	}
	if d.flags != 0 {
		d.afterCall(in, raw, pc)
	}
	switch in.Op {
	case amd64.JmpInd:
		if in.PCRel == amd64.PCRelNone {
			d.facts |= dispatches
		}
	case amd64.Ret:
		if in.ImmLen > 0 {
			d.facts |= usesCaller
		}
	case amd64.Call, amd64.CallInd:
		d.facts |= calls
	}
	switch in.PCRel {
	case amd64.PCRelBranch:
		d.branch(in, pc, known && atEntry(row))
	case amd64.PCRelMem:
		t := in.Target(pc)
		if lea(in) {
			d.bases = append(d.bases, base{t, d.u.lo, d.u.hi, int32(d.u.fn)})
		}
		if t >= d.f.marks.lo && t < d.f.marks.hi {
			d.notes = append(d.notes, note{addr: t, mark: pointed})
		}
	default:
		if d.f.fixed {
			d.constant(in, raw)
		}
	}
}

func lea(in amd64.Inst) bool { return in.Map == 0 && in.Enc == amd64.Legacy && in.Opcode == 0x8d }

// afterCall watches whether the flags that a function leaves are used.
func (d *decoder) afterCall(in amd64.Inst, raw []byte, pc uint64) {
	reads, kills := in.FlagUse(raw)
	if reads&d.flags != 0 {
		d.results = append(d.results, result{d.callee, d.ret, pc})
		d.flags = 0
		return
	}
	if d.flags &^= kills; in.Op != amd64.Other && in.Op != amd64.Pop && in.Op != amd64.Push && in.Op != amd64.Nop {
		d.flags = 0
	}
}

// branch marks where a branch goes. entry: the frame is as callers leave it.
func (d *decoder) branch(in amd64.Inst, pc uint64, entry bool) {
	t := in.Target(pc)
	switch {
	case in.Op == amd64.Call:
		d.callee, d.ret, d.flags = t, pc+uint64(in.Len), amd64.AllFlags
		d.notes = append(d.notes, note{addr: t, mark: called})
	case t >= d.u.lo && t < d.u.hi:
		d.own[t-d.u.lo] |= ownBranch
		if t == d.u.lo || t == d.u.lo+code.PadLen && d.hasPad {
			if d.facts |= loopsAtEntry; !entry {
				d.facts |= loopsFramed
			}
		}
	default:
		m := otherBranch
		if in.Op == amd64.Jmp {
			m = tailJump
		}
		d.notes = append(d.notes, note{addr: t, mark: m, in: entered, from: int32(d.u.fn)})
	}
}

// constant takes an immediate operand for an address. In images that cannot be moved it can be one.
func (d *decoder) constant(in amd64.Inst, raw []byte) {
	var v uint64
	switch in.ImmLen {
	case 4:
		v = uint64(binary.LittleEndian.Uint32(raw[len(raw)-4:]))
	case 8:
		v = binary.LittleEndian.Uint64(raw[len(raw)-8:])
	default:
		return
	}
	if v >= d.f.marks.lo && v < d.f.marks.hi {
		d.notes = append(d.notes, note{addr: v, mark: pointed})
	}
}
