package golang

import "github.com/fentry-dev/fentry/record/moves"

// Functions whose moved code the runtime does not know.
//
// To the runtime the moved code is nobody's. It never stops a goroutine there, and does not move its stack; a fault there, or
// an address on a stack, ends the program. So what moves can neither fault nor call, and does not go round: the code
// there is over soon. And only functions move that look for room on the stack. That is where a goroutine stops that is asked
// to, so a loop that calls one is stopped even if it spends nearly all of its time in moved code, and the collector does not
// wait for it. Of a loop that calls another function nobody could say when it is stopped.

// alone is moves for an image whose runtime cannot be told of moved code.
func (b *body) alone() (moves.Moves, Reason) {
	if b.Head == 0 {
		return moves.Moves{}, Unchecked
	}
	b.Stay = b.mayFault
	m, why := b.Plan(false)
	r := planned[why]
	if r == NoRoom || r == "" && b.goesRound(&m) {
		r = NeedsModule
	}
	if r != "" {
		return moves.Moves{}, r
	}
	return m, ""
}

// goesRound reports whether a branch leads from moved code back to moved code.
func (b *body) goesRound(m *moves.Moves) bool {
	moved := func(pc uint64) bool {
		for i := range m.Runs {
			if r := &m.Runs[i]; pc-r.Addr < uint64(r.Len) {
				return true
			}
		}
		return false
	}
	for i := range b.Ins {
		if x := &b.Ins[i]; x.To >= 0 && x.To <= i && moved(x.PC) && moved(b.Ins[x.To].PC) {
			return true
		}
	}
	return false
}

// mayFault reports whether an instruction can fault: r14 is the goroutine.
func (b *body) mayFault(i int) bool {
	const r14 = 14
	return b.Ins[i].MayFault(b.Raw(i), func(base int) bool { return base == r14 })
}
