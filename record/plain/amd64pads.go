package plain

import (
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Padding near by.
//
// Where five bytes cannot be overwritten, because the function is too short or something goes to the third, two often
// can: a short jump goes to padding within 128 bytes, and the jump to the thunk is there.
//
//	f:    jmp   1f          in place of push %rbx; mov %rdi,%rbx
//	      ...
//	      ret
//	1:    jmp   thunk       in place of the padding behind any function near by
//
// Padding is what stands between two functions and is all nops or int3. No code may reach it, which the function before
// it decides: its last instruction must be a jump, a return or a call that does not return. Such a call's return address
// is the first byte of the padding, which stays what it is. Nothing may point into the rest, and no unwind entry may cover
// it. Some functions' sites take padding themselves; what is taken is known before the first short jump gets a place.

// Pads gives padding to short jumps, each byte once.
type Pads struct {
	f     *Finder
	taken []span // sorted
}

type span struct{ lo, hi uint64 }

func (s span) has(addr uint64) bool { return addr-s.lo < s.hi-s.lo }

// Pads returns the padding of the image. taken yields the first byte and the end of what is overwritten otherwise,
// sorted.
func (f *Finder) Pads(taken func(yield func(lo, hi uint64) bool)) *Pads {
	p := &Pads{f: f}
	for lo, hi := range taken {
		p.taken = append(p.taken, span{lo, hi})
	}
	return p
}

// Take returns where the jump to the thunk has a place for a site that has room for a short jump only; 0: nowhere.
func (p *Pads) Take(e Entry) uint64 { return p.take(e.Addr) }

func (p *Pads) take(addr uint64) uint64 {
	next := addr + amd64.JumpShortLen
	lo, hi := next-min(next, 128), next+127
	for k := max(p.f.containing(lo), 0); k < len(p.f.funcs) && p.f.funcs[k].Addr <= hi; k++ {
		begin, end := p.f.padding(k)
		for at := max(begin, lo); at+amd64.JumpLen <= end && at <= hi; {
			i := sort.Search(len(p.taken), func(i int) bool { return p.taken[i].hi > at })
			if i < len(p.taken) && p.taken[i].lo < at+amd64.JumpLen {
				at = p.taken[i].hi
				continue
			}
			if p.f.marks.any(at, at+amd64.JumpLen)&anyTarget != 0 {
				at++
				continue
			}
			p.taken = slices.Insert(p.taken, i, span{at, at + amd64.JumpLen})
			return at
		}
	}
	return 0
}

// padding returns the padding behind a function, which nothing reaches from it.
func (f *Finder) padding(k int) (begin, end uint64) {
	fn := &f.funcs[k]
	begin = f.end(k)
	if fn.Size == 0 || f.facts[k]&(open|undecodable) != 0 {
		return begin, begin
	}
	limit := min(f.limit(k), begin+maxPadding)
	if _, covered := f.index.Find(begin); covered || f.index.Begins(begin, limit) {
		return begin, begin
	}
	text := *f.text
	b := text.Range(begin, limit)
	end = begin
	for end < limit {
		in, err := amd64.Decode(b[end-begin:])
		if err != nil || in.Op != amd64.Nop && in.Op != amd64.Int3 {
			break
		}
		end += uint64(in.Len)
	}
	if f.facts[k]&endsInCall != 0 && begin < end {
		begin++
	}
	return begin, end
}

// maxPadding bounds how much padding of a function is looked at.
const maxPadding = 4096
