package plain

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
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
type fact uint32

const (
	undecodable   fact = 1 << iota // bytes of it are no instructions
	usesCaller                     // reads or changes its return address, or returns with ret $n
	redZone                        // uses memory below the stack pointer
	calls                          // calls something
	dispatches                     // jumps to an address in a register
	leaves                         // jumps into the middle of another function
	entered                        // another function jumps into the middle of it
	loopsAtEntry                   // jumps to its own first instruction
	loopsFramed                    // likewise, while something is on the stack
	flagsResult                    // a caller uses the flags that it leaves
	ranInto                        // the code before it runs on into it
	open                           // what is behind its last instruction may be reached
	endsInCall                     // its last instruction is a call, which does not return
	forks                          // makes a process or thread that returns, too, and shares memory
	joined                         // jumped to with a frame that is not as callers leave it
	followed                       // has no unwind entry, and is understood without
	swapsStack                     // copies a piece of its stack elsewhere, and another one in its place
	jumpsAway                      // may jump to another image, with its return address where it was
	mayJumpAway                    // likewise, unless that is by a jump table
	besideSyscall                  // called right before or behind a system call
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

// jumpOut is a jump out of a function, or that it runs on, to where its return address is still the same.
type jumpOut struct {
	to   uint64
	from int32
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
		sw := f.m.sweeper()
		for i := from; i < to; i++ {
			d.unit(&units[i], sw)
		}
		mu.Lock()
		defer mu.Unlock()
		notes, f.bases = append(notes, d.notes...), append(f.bases, d.bases...)
		f.results, f.jumpsOut, f.passes = append(f.results, d.results...), append(f.jumpsOut, d.jumpsOut...), append(f.passes, d.passes...)
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

// flagResults notes the functions whose callers use the flags that they leave, when all targets are known. These can be flags that
// others have left: those that they jump to, or call last.
func (f *Finder) flagResults() {
	var todo []int
	note := func(k int) {
		if k >= 0 && f.facts[k]&flagsResult == 0 {
			f.facts[k] |= flagsResult
			todo = append(todo, k)
		}
	}
	pointers := false // of whatever is called by one
	for _, r := range f.results {
		switch {
		case f.marks.any(r.ret, r.user+1)&anyTarget != 0:
		case r.callee != 0:
			note(f.function(r.callee))
		case r.user == r.ret: // farther behind it is data between functions that looks so
			pointers = true
		}
	}
	for k := 0; pointers && k < len(f.funcs); k++ {
		if f.marks.get(f.funcs[k].Addr)&pointed != 0 {
			note(k)
		}
	}
	if len(todo) > 0 {
		byFrom := func(a, b jumpOut) int { return cmp.Compare(a.from, b.from) }
		slices.SortFunc(f.jumpsOut, byFrom)
		slices.SortFunc(f.passes, byFrom)
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, edges := range [...][]jumpOut{f.jumpsOut, f.passes} {
			i := sort.Search(len(edges), func(i int) bool { return int(edges[i].from) >= k })
			for ; i < len(edges) && int(edges[i].from) == k; i++ {
				note(f.function(edges[i].to))
			}
		}
	}
	f.passes = nil
}

// passedOn are the facts that functions have of those that they jump to.
const passedOn = usesCaller | forks | jumpsAway

// passOn has functions that jump to one which uses its return address use theirs, as it is the same one.
func (f *Finder) passOn() {
	f.jumpAway()
	jumps := f.jumpsOut
	slices.SortFunc(jumps, func(a, b jumpOut) int { return cmp.Compare(a.to, b.to) })
	var todo []int
	for k, facts := range f.facts {
		if facts&passedOn != 0 {
			todo = append(todo, k)
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		pass := f.facts[k] & passedOn
		if f.facts[k]&swapsStack != 0 {
			pass &= jumpsAway
		}
		at, end := f.funcs[k].Addr, f.end(k)
		for i := sort.Search(len(jumps), func(i int) bool { return jumps[i].to >= at }); i < len(jumps) && jumps[i].to < end; i++ {
			from := int(jumps[i].from)
			had := f.facts[from]
			if f.facts[from] |= pass; f.facts[from] != had {
				todo = append(todo, from)
			}
		}
	}
	f.jumpsOut = nil
}

// jumpAway notes the functions that jump to what is none of the image's: through linkers' stubs, or to an address from memory or
// a register, if that is not from a jump table.
func (f *Finder) jumpAway() {
	text := *f.text
	for _, j := range f.jumpsOut {
		k, r := f.containing(j.to), text.Region(j.to)
		if k < 0 || j.to >= f.end(k) || r == nil || together(r.Name) {
			f.facts[j.from] |= jumpsAway
		}
	}
	for k := range f.facts {
		if f.facts[k]&mayJumpAway != 0 && f.marks.any(f.funcs[k].Addr, f.end(k))&tableEntry == 0 {
			f.facts[k] |= jumpsAway
		}
	}
}

// JumpsAway reports whether function i may jump to another image: its return address is that of what it jumps to then.
func (f *Finder) JumpsAway(i int) bool { return f.decoded && f.facts[i]&jumpsAway != 0 }

// BesideSyscall reports whether function i is called right before or behind a system call, by code that calls one on either side.
func (f *Finder) BesideSyscall(i int) bool { return f.decoded && f.facts[i]&besideSyscall != 0 }

// decoder is what a sweeper tells what it finds, unit by unit.
type decoder struct {
	f       *Finder
	notes   []note
	bases   []base
	results []result

	jumpsOut []jumpOut
	passes   []jumpOut // functions that return with the flags of one that they call

	u      *unit
	own    []mark // of the unit
	frames frames
	facts  fact
}

// unit decodes one.
func (d *decoder) unit(u *unit, sw sweeper) {
	r := &d.f.text.Regions[u.region]
	d.u, d.own, d.facts = u, d.f.marks.of[u.region][u.lo-r.Addr:u.hi-r.Addr], 0
	if d.frames.found = false; u.fn >= 0 {
		d.frames.open(d.f.index, u.lo)
	}
	sw.unit(d, r.Data[u.lo-r.Addr:u.hi-r.Addr])
	if u.fn >= 0 {
		d.f.facts[u.fn] |= d.facts
	}
}

// runOn notes that a function's last instruction, at pc, goes on to the code behind it, beyond padding. If nothing is on
// the stack, that is a tail call.
func (d *decoder) runOn(pc uint64, padding int) {
	n := note{addr: d.u.hi + uint64(padding), from: int32(d.u.fn)}
	if row, known := d.frames.at(pc); known && d.f.m.atEntry(row) {
		n.mark = tailJump
	} else {
		n.mark, n.fact = otherBranch, ranInto
	}
	d.note(n)
}

// note notes what has been found out about an address that a function goes on to, with its return address where it was.
func (d *decoder) note(n note) {
	if d.notes = append(d.notes, n); n.from >= 0 {
		d.jumpsOut = append(d.jumpsOut, jumpOut{n.addr, n.from})
	}
}

// behind is the code behind the unit.
func (d *decoder) behind() []byte {
	r := &d.f.text.Regions[d.u.region]
	return r.Data[d.u.hi-r.Addr:]
}

// branch marks where a branch goes that is no call; always: it is always taken. entry: the frame is as callers leave it.
// lead is the length of what stays at the unit's beginning.
func (d *decoder) branch(to uint64, always, entry bool, lead int) {
	switch {
	case to >= d.u.lo && to < d.u.hi:
		d.own[to-d.u.lo] |= ownBranch
		if to == d.u.lo || to == d.u.lo+uint64(lead) {
			if d.facts |= loopsAtEntry; !entry {
				d.facts |= loopsFramed
			}
		}
	default:
		m := otherBranch
		if always {
			m = tailJump
		}
		n := note{addr: to, mark: m, in: entered, from: int32(d.u.fn)}
		if d.frames.found && !entry {
			n.fact = joined
		}
		d.note(n)
	}
}

// called notes a direct call.
func (d *decoder) called(to uint64) { d.notes = append(d.notes, note{addr: to, mark: called}) }

// beside notes what is called beside a system call.
func (d *decoder) beside(to uint64) {
	d.notes = append(d.notes, note{addr: to, fact: besideSyscall})
}

// names notes an address that an instruction has, if it is one of code.
func (d *decoder) names(addr uint64) {
	if addr >= d.f.marks.lo && addr < d.f.marks.hi {
		d.notes = append(d.notes, note{addr: addr, mark: pointed})
	}
}
