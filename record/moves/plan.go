package moves

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Plans.
//
// A jump to where an instruction has gone takes five bytes, and most returns have less: pop %rbp; ret. So the
// instructions before them move, too, as far as nothing comes to them by a branch. Where that is not enough there is a
// jump of two bytes, to one of five in bytes that another move of the function has made free; if need be, some
// instructions move for nothing else. Such a place must look to who asks about it like the instruction that jumps there,
// see Body.Alike. Padding is no such place, as no function has it.
//
// Calls move only where there is no other room, as in func main() { run() }, and if what they return to may be elsewhere.
//
// A return of one byte that only branches go to, which is rare, has those branches rewritten.

// jumpLen and shortLen are the lengths of jumps.
const (
	jumpLen  = amd64.JumpLen
	shortLen = amd64.JumpShortLen
)

// A run is instructions from the first to before the last that move.
type run struct {
	from, to int
	room     int // bytes that may be rewritten
}

// planner plans the moves of one function.
type planner struct {
	*Body
	calls   bool // they move, too
	entry   int  // before which instruction the entry is recorded
	runs    []run
	aimed   map[int]bool // instructions inside runs that branches go to
	free    []place
	outside uint64            // padding that the entry's takes; 0: none
	jumps   map[uint64]uint64 // places of five bytes that short jumps take, by where these are
	sources map[int][]int     // branches, by the instruction that they go to
}

// A place is free bytes in a run.
type place struct {
	addr uint64
	size int
}

// Plan plans how a function is traced. calls: they move where there is no other room.
func (b *Body) Plan(calls bool) (Moves, Reason) {
	m, r := b.plan(false)
	if r == NoRoom && calls {
		m, r = b.plan(true)
	}
	return m, r
}

// plan plans it with calls where they are, or not.
func (b *Body) plan(calls bool) (Moves, Reason) {
	p := &planner{Body: b, calls: calls, aimed: map[int]bool{}, jumps: map[uint64]uint64{}, sources: map[int][]int{}}
	for i := range b.Ins {
		if t := b.Ins[i].To; t >= 0 {
			p.sources[t] = append(p.sources[t], i)
		}
	}
	if r := p.atEntry(); r != "" {
		return Moves{}, r
	}
	for i := range b.Ins {
		if b.Ins[i].Exit {
			if r := p.atExit(i); r != "" {
				return Moves{}, r
			}
		}
	}
	if r := p.merge(); r != "" {
		return Moves{}, r
	}
	return p.finish()
}

// stays reports whether an instruction cannot be inside a run: something comes to it.
func (p *planner) stays(i int) bool { return p.Ins[i].Leader || p.Ins[i].Back && !p.calls }

// movable reports whether an instruction can go elsewhere.
func (p *planner) movable(i int) bool {
	return p.Ins[i].movable(p.calls) && !p.Stay(i)
}

// bytes returns how many bytes instructions have; with those of padding behind the last one of the function, as far as
// a jump needs them.
func (p *planner) bytes(from, to int) int {
	n := 0
	for i := from; i < to; i++ {
		n += p.Ins[i].Len
	}
	if to == len(p.Ins) && n < jumpLen {
		n = min(jumpLen, n+p.Pad)
	}
	return n
}

// atEntry moves the head or, where there is none, the first instructions.
func (p *planner) atEntry() Reason {
	if n := p.Head; n > 0 {
		p.entry = n
		p.runs = append(p.runs, run{0, n, p.bytes(0, n)})
		return ""
	}
	if len(p.sources[0]) > 0 {
		return LoopAtEntry
	}
	n := 0
	for n < len(p.Ins) && p.bytes(0, n) < jumpLen {
		x := &p.Ins[n]
		if n > 0 && p.stays(n) || !p.movable(n) {
			break
		}
		if n++; x.Ends() {
			break
		}
	}
	if p.bytes(0, n) < shortLen {
		return NoRoom
	}
	p.runs = append(p.runs, run{0, n, p.bytes(0, n)})
	return ""
}

// back extends what moves in front of instruction i, from instruction from on, until there is room for a jump.
func (p *planner) back(from, i int) int {
	for from > 0 && p.bytes(from, i+1) < jumpLen && !p.stays(from) {
		if !p.movable(from-1) || p.Ins[from-1].Ends() {
			break
		}
		from--
	}
	return from
}

// atExit moves an instruction by which the function ends.
func (p *planner) atExit(i int) Reason {
	x := &p.Ins[i]
	if x.Op != amd64.Ret && x.Op != amd64.Jmp && x.Op != amd64.JmpInd {
		return ConditionalExit
	}
	if x.Op == amd64.JmpInd && p.usesScratch(i) {
		return ScratchExit
	}
	if p.Stay(i) {
		return NoRoom
	}
	from := p.back(i, i)
	if p.bytes(from, i+1) < shortLen {
		if p.Ins[from].Fixed || p.Ins[from].Back {
			return NoRoom
		}
		p.aimed[from] = true
		if q := &p.Ins[max(from-1, 0)]; from > 0 && !q.Ends() {
			if !p.movable(from - 1) {
				return NoRoom
			}
			from = p.back(from-1, i)
		}
	}
	p.runs = append(p.runs, run{from, i + 1, p.bytes(from, i+1)})
	return ""
}

// usesScratch reports whether an indirect jump goes by a register that recording changes.
func (p *planner) usesScratch(i int) bool {
	in := &p.Ins[i]
	base := int(in.ModRM&7) | int(in.REX&1)<<3
	if m, ok := in.Memory(p.Raw(i)); ok {
		base = m.Base
	}
	return in.PCRel == amd64.PCRelNone && base >= 0 && p.Scratch>>base&1 != 0
}

// merge makes one of runs that overlap. What branches go to inside one has to be reached where it has gone.
func (p *planner) merge() Reason {
	slices.SortFunc(p.runs, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	out := p.runs[:1]
	for _, r := range p.runs[1:] {
		if last := &out[len(out)-1]; r.from < last.to {
			last.to = max(last.to, r.to)
			last.room = p.bytes(last.from, last.to)
			continue
		}
		out = append(out, r)
	}
	p.runs = out
	for _, r := range p.runs {
		for i := r.from + 1; i < r.to; i++ {
			if p.Ins[i].Fixed || p.Ins[i].Back && !p.calls {
				return NoRoom
			}
			if p.Ins[i].Leader {
				p.aimed[i] = true
			}
		}
		p.leave(r)
	}
	return ""
}

// leave notes which bytes of a run are free behind its jump: not those of padding.
func (p *planner) leave(r run) {
	if r.room < jumpLen {
		return
	}
	from := p.Ins[r.from].PC + jumpLen
	if end := p.Ins[r.to-1].End(); end >= from+jumpLen {
		p.free = append(p.free, place{from, int(end - from)})
	}
}

func (p *planner) moving(i int) bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return r.from <= i && i < r.to })
}

// finish finds places for short jumps, and describes the result.
func (p *planner) finish() (Moves, Reason) {
	for i := 0; i < len(p.runs); i++ { // there can become more
		if r := p.runs[i]; r.room < jumpLen && !p.aimed[r.from] || r.room >= shortLen && r.room < jumpLen {
			if !p.detour(p.Ins[r.from].PC) {
				return Moves{}, NoRoom
			}
		}
	}
	var branches []Branch
	for _, to := range slices.Sorted(maps.Keys(p.aimed)) {
		for _, i := range p.sources[to] {
			x := &p.Ins[i]
			if p.moving(i) {
				continue
			}
			if x.Len == shortLen && !p.detour(x.PC) || x.PCSize != 4 && x.Len != shortLen {
				return Moves{}, NoRoom
			}
			branches = append(branches, Branch{Addr: x.PC, Len: x.Len, To: p.Ins[to].PC, Via: p.jumps[x.PC]})
		}
	}
	// A branch that has moved since, to make a place for another one, is rewritten with its surroundings.
	branches = slices.DeleteFunc(branches, func(b Branch) bool {
		return p.moving(slices.IndexFunc(p.Ins, func(x Instruction) bool { return x.PC == b.Addr }))
	})
	slices.SortFunc(p.runs, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	out := Moves{Branches: branches}
	for _, r := range p.runs {
		out.Runs = append(out.Runs, p.describe(r))
	}
	return out, ""
}

// detour finds a place of five bytes for the short jump at an address.
func (p *planner) detour(at uint64) bool {
	for i := range p.free {
		if f := &p.free[i]; f.size >= jumpLen && p.alike(at, f.addr) {
			p.jumps[at] = f.addr
			f.addr, f.size = f.addr+jumpLen, f.size-jumpLen
			return true
		}
	}
	for i := range p.Ins {
		if d := int64(p.Ins[i].PC - at); d < -shortReach || d > shortReach {
			continue
		}
		n := p.host(i)
		if addr := p.Ins[i].PC + jumpLen; n > 0 && p.alike(at, addr) {
			p.runs = append(p.runs, run{i, i + n, p.bytes(i, i+n)})
			end := p.Ins[i+n-1].End()
			p.jumps[at] = addr
			p.free = append(p.free, place{addr + jumpLen, int(end - addr - jumpLen)})
			return true
		}
	}
	if at == p.Entry && p.Padding != nil {
		p.outside = p.Padding(at)
		p.jumps[at] = p.outside
	}
	return p.jumps[at] != 0
}

// shortReach is how far a short jump goes, in either direction.
const shortReach = 127

// alike reports whether a short jump at an address reaches another one, and the runtime sees no difference.
func (p *planner) alike(from, to uint64) bool {
	d := int64(to - from - shortLen)
	return d >= -shortReach-1 && d <= shortReach && p.Alike(from, to)
}

// host returns how many instructions from the i-th on can move to make room for two jumps, 0: they cannot.
func (p *planner) host(i int) int {
	for n := 0; i+n < len(p.Ins); n++ {
		x := &p.Ins[i+n]
		if n > 0 && p.stays(i+n) || !p.movable(i+n) || x.Exit || p.moving(i+n) {
			return 0
		}
		if x.End()-p.Ins[i].PC >= 2*jumpLen {
			return n + 1
		}
		if x.Ends() {
			return 0
		}
	}
	return 0
}

// describe makes the description of a run.
func (p *planner) describe(r run) Run {
	first := p.Ins[r.from].PC
	out := Run{Addr: first, Len: int(p.Ins[r.to-1].End() - first), Room: r.room, Via: p.jumps[first]}
	out.Outside = out.Via != 0 && out.Via == p.outside
	for i := r.from; i < r.to; i++ {
		x := &p.Ins[i]
		at := int(x.PC - first)
		if r.from == 0 && i == p.entry {
			out.Events = append(out.Events, Event{At: at})
		}
		if x.Exit {
			out.Events = append(out.Events, Event{At: at, Exit: true})
		}
	}
	if r.from == 0 && r.to == p.entry {
		out.Events = append(out.Events, Event{At: out.Len})
	}
	return out
}
