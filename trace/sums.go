package trace

import (
	"math"
	"math/bits"
)

// Reports add up ticks and turn the sums into nanoseconds when all is counted. Each
// duration turned into nanoseconds by itself would lose up to one, which a function of a
// few nanoseconds that is called a billion times would show; and sums could not be added
// up before the clock is known, as the index does (blocksums.go) while events come.

// sums are what is added up of the calls of one function, in ticks. What every call touches comes first.
type sums struct {
	calls   uint64 // entries
	ended   uint64 // calls whose duration is counted
	total   uint64 // of calls inside of no other one of the function
	sum     uint64
	self    uint64
	min     uint64 // MaxUint64: no call has ended
	max     uint64
	sq      sqSum
	unwound uint64

	unfinished uint64
	noEntry    uint64
	errors     uint64 // system calls that failed
	flat       bool   // calls without durations are among them
}

// end takes a call's end, after so many ticks.
func (s *sums) end(f *frame, dur uint64, outermost bool, how ending) {
	if outermost {
		s.total = addTicks(s.total, dur)
	}
	s.self = addTicks(s.self, f.self)
	if f.flags&frameInherited != 0 {
		return // the call is the parent's; only the time is this task's
	}
	s.sum = addTicks(s.sum, dur)
	s.ended++
	s.min, s.max = min(s.min, dur), max(s.max, dur)
	s.sq.addSquare(dur)
	switch how {
	case endUnwound:
		s.unwound++
	case endUnfinished:
		s.unfinished++
	case endFailed:
		s.errors++
	}
}

func (s *sums) merge(o *sums) {
	s.calls += o.calls
	s.ended += o.ended
	s.total = addTicks(s.total, o.total)
	s.sum = addTicks(s.sum, o.sum)
	s.self = addTicks(s.self, o.self)
	s.min, s.max = min(s.min, o.min), max(s.max, o.max)
	s.sq.add(o.sq)
	s.unwound += o.unwound
	s.unfinished += o.unfinished
	s.noEntry += o.noEntry
	s.errors += o.errors
	s.flat = s.flat || o.flat
}

func addTicks(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}

// sqSum is a 128-bit sum of squares.
type sqSum struct{ hi, lo uint64 }

func (q *sqSum) addSquare(v uint64) {
	hi, lo := bits.Mul64(v, v)
	q.add(sqSum{hi, lo})
}

func (q *sqSum) add(o sqSum) {
	var carry uint64
	q.lo, carry = bits.Add64(q.lo, o.lo, 0)
	q.hi, _ = bits.Add64(q.hi, o.hi, carry)
}
