package golang

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Moves.
//
// A jump to where an instruction has gone takes five bytes, and most returns have less: pop %rbp; ret. So the
// instructions before them move, too, as far as nothing comes to them by a branch. Where that is not enough there is a
// jump of two bytes, to one of five in bytes that another move of the function has made free; if need be, some
// instructions move for nothing else. Such a place must look to the runtime like the instruction that jumps there: the
// same distance of the stack pointer, and the same answer to whether the goroutine may be stopped, because it can be
// asked there. Padding is no such place, as no function has it.
//
// Calls move only where there is no other room, as in func main() { run() }: backtraces have an address elsewhere then,
// which the program's runtime knows and debuggers do not.
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
	*body
	calls   bool // they move, too
	entry   int  // before which instruction the entry is recorded
	runs    []run
	aimed   map[int]bool // instructions inside runs that branches go to
	free    []place
	jumps   map[uint64]uint64 // places of five bytes that short jumps take, by where these are
	sources map[int][]int     // branches, by the instruction that they go to
}

// A place is free bytes in a run.
type place struct {
	addr uint64
	size int
}

// moves plans how a function is traced.
func (b *body) moves() (Moves, Reason) {
	m, r := b.plan(false)
	if r == NoRoom {
		m, r = b.plan(true)
	}
	return m, r
}

// plan plans it with calls where they are, or not.
func (b *body) plan(calls bool) (Moves, Reason) {
	p := &planner{body: b, calls: calls, aimed: map[int]bool{}, jumps: map[uint64]uint64{}, sources: map[int][]int{}}
	for i := range b.ins {
		if t := b.ins[i].target; t >= 0 {
			p.sources[t] = append(p.sources[t], i)
		}
	}
	if r := p.atEntry(); r != "" {
		return Moves{}, r
	}
	for i := range b.ins {
		if b.ins[i].exit {
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
func (p *planner) stays(i int) bool { return p.ins[i].leader || p.ins[i].back && !p.calls }

// movable reports whether an instruction can go elsewhere.
func (p *planner) movable(i int) bool {
	return p.ins[i].movable(p.calls) && !(p.strict && p.mayFault(i))
}

// bytes returns how many bytes instructions have; with those of padding behind the last one of the function, as far as
// a jump needs them.
func (p *planner) bytes(from, to int) int {
	n := 0
	for i := from; i < to; i++ {
		n += p.ins[i].Len
	}
	if to == len(p.ins) && n < jumpLen {
		n = min(jumpLen, n+p.pad)
	}
	return n
}

// atEntry moves the check for room on the stack or, where there is none, the first instructions.
func (p *planner) atEntry() Reason {
	if n := p.checkEnd(); n > 0 {
		p.entry = n
		p.runs = append(p.runs, run{0, n, p.bytes(0, n)})
		return ""
	}
	if len(p.sources[0]) > 0 {
		return LoopAtEntry
	}
	n := 0
	for n < len(p.ins) && p.bytes(0, n) < jumpLen {
		x := &p.ins[n]
		if n > 0 && p.stays(n) || !p.movable(n) {
			break
		}
		if n++; x.ends() {
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
		if !p.movable(from-1) || p.ins[from-1].ends() {
			break
		}
		from--
	}
	return from
}

// atExit moves an instruction by which the function ends.
func (p *planner) atExit(i int) Reason {
	x := &p.ins[i]
	if x.Op != amd64.Ret && x.Op != amd64.Jmp && x.Op != amd64.JmpInd {
		return ConditionalExit
	}
	if x.Op == amd64.JmpInd && usesScratch(p.raw(i), x.Inst) {
		return ScratchExit
	}
	if p.strict && p.mayFault(i) {
		return NoRoom
	}
	from := p.back(i, i)
	if p.bytes(from, i+1) < shortLen {
		if p.ins[from].fixed || p.ins[from].back {
			return NoRoom
		}
		p.aimed[from] = true
		if q := &p.ins[max(from-1, 0)]; from > 0 && !q.ends() {
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
func usesScratch(raw []byte, in amd64.Inst) bool {
	const r12, r13, r15 = 12, 13, 15
	base := int(in.ModRM&7) | int(in.REX&1)<<3
	if m, ok := in.Memory(raw); ok {
		base = m.Base
	}
	return in.PCRel == amd64.PCRelNone && (base == r12 || base == r13 || base == r15)
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
			if p.ins[i].fixed || p.ins[i].back && !p.calls {
				return NoRoom
			}
			if p.ins[i].leader {
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
	from := p.ins[r.from].pc + jumpLen
	if end := p.ins[r.to-1].end(); end >= from+jumpLen {
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
			if !p.detour(p.ins[r.from].pc) {
				return Moves{}, NoRoom
			}
		}
	}
	var branches []Branch
	for _, to := range slices.Sorted(maps.Keys(p.aimed)) {
		for _, i := range p.sources[to] {
			x := &p.ins[i]
			if p.moving(i) {
				continue
			}
			if x.Len == shortLen && !p.detour(x.pc) || x.PCSize != 4 && x.Len != shortLen {
				return Moves{}, NoRoom
			}
			branches = append(branches, Branch{Addr: x.pc, Len: x.Len, To: p.ins[to].pc, Via: p.jumps[x.pc]})
		}
	}
	// A branch that has moved since, to make a place for another one, is rewritten with its surroundings.
	branches = slices.DeleteFunc(branches, func(b Branch) bool {
		return p.moving(slices.IndexFunc(p.ins, func(x instruction) bool { return x.pc == b.Addr }))
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
	for i := range p.ins {
		if d := int64(p.ins[i].pc - at); d < -shortReach || d > shortReach {
			continue
		}
		n := p.host(i)
		if addr := p.ins[i].pc + jumpLen; n > 0 && p.alike(at, addr) {
			p.runs = append(p.runs, run{i, i + n, p.bytes(i, i+n)})
			end := p.ins[i+n-1].end()
			p.jumps[at] = addr
			p.free = append(p.free, place{addr + jumpLen, int(end - addr - jumpLen)})
			return true
		}
	}
	return false
}

// shortReach is how far a short jump goes, in either direction.
const shortReach = 127

// alike reports whether a short jump at an address reaches another one, and the runtime sees no difference.
func (p *planner) alike(from, to uint64) bool {
	d := int64(to - from - shortLen)
	return d >= -shortReach-1 && d <= shortReach && p.sp.At(from) == p.sp.At(to) && p.unsafe.At(from) == p.unsafe.At(to)
}

// host returns how many instructions from the i-th on can move to make room for two jumps, 0: they cannot.
func (p *planner) host(i int) int {
	for n := 0; i+n < len(p.ins); n++ {
		x := &p.ins[i+n]
		if n > 0 && p.stays(i+n) || !p.movable(i+n) || x.exit || p.moving(i+n) {
			return 0
		}
		if x.end()-p.ins[i].pc >= 2*jumpLen {
			return n + 1
		}
		if x.ends() {
			return 0
		}
	}
	return 0
}

// describe makes the description of a run.
func (p *planner) describe(r run) Run {
	first := p.ins[r.from].pc
	out := Run{Addr: first, Len: int(p.ins[r.to-1].end() - first), Room: r.room, Via: p.jumps[first]}
	for i := r.from; i < r.to; i++ {
		x := &p.ins[i]
		at := int(x.pc - first)
		if r.from == 0 && i == p.entry {
			out.Events = append(out.Events, Event{At: at})
		}
		if x.exit {
			out.Events = append(out.Events, Event{At: at, Exit: true})
		}
	}
	if r.from == 0 && r.to == p.entry {
		out.Events = append(out.Events, Event{At: out.Len})
	}
	return out
}
