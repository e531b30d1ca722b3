package trace

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A report of the calls that took 1 us or more needs sums of these alone. So what a run has of a
// function is in parts, by how long calls took: from 100 ns on, from 200, 300, 500, 1,000 and so on,
// the numbers that people ask for. Most functions have one or two parts.
//
// A threshold divides a part only if the shortest call of the part is below it and the longest
// is not; else it follows from these two on which side all of it is. So nothing depends on
// where the writer has drawn the lines, who may not have known the clock's frequency as well as
// a reader does: that costs the decoding of a run in which a call took just about as long. So does
// a threshold of another number, unless the part is that of few calls.
//
// The histogram is that of all parts. Durations in buckets above the threshold's own count, and
// of those in its bucket so many that it makes as many as the parts say.

// A scale says to which part a call belongs.
type scale struct {
	hz    float64
	from  []uint64 // ticks from which on calls are of the next part
	first [65]uint8
}

// noPart is the part of what has no duration.
const noPart = 255

// newScale returns the scale for a counter of a frequency; of an unknown one, something alike.
func newScale(hz float64) (s scale) {
	s.hz = hz
	if !plausible(hz) {
		hz = 1e9
	}
	var c Clock
	c.set(hz, "")
	for ns := int64(100); ns < 10e9; ns *= 10 {
		s.from = append(s.from, c.atLeast(ns), c.atLeast(2*ns), c.atLeast(3*ns), c.atLeast(5*ns))
	}
	for n := range s.first {
		least := uint64(1) << n >> 1 // the least number of n bits
		i, there := slices.BinarySearch(s.from, least)
		if there {
			i++
		}
		s.first[n] = uint8(i)
	}
	return s
}

func (s *scale) part(ticks uint64) uint8 {
	i := s.first[bits.Len64(ticks)]
	for int(i) < len(s.from) && ticks >= s.from[i] {
		i++
	}
	return i
}

// atLeast returns the least number of ticks that take so many ns, which are not negative.
func (c *Clock) atLeast(ns int64) uint64 {
	if ns > maxSpan {
		return math.MaxUint64
	}
	lo, hi := uint64(0), uint64(math.MaxUint64)
	for lo < hi {
		if mid := lo + (hi-lo)/2; c.Span(mid) >= ns {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// partSums are the sums of a part of a function's calls.
type partSums struct {
	part uint8
	sums
}

// partOf returns the sums of a part, which is among the parts then.
func partOf(parts *[]partSums, part uint8) *sums {
	ps := *parts
	for i := range ps {
		if ps[i].part == part {
			return &ps[i].sums
		}
	}
	*parts = append(ps, partSums{part, sums{min: math.MaxUint64}})
	return &(*parts)[len(ps)].sums
}

// part returns the sums of a part of a function in the run.
func (b *blockBuilder) part(f *builderFunc, p uint8) *sums {
	had := len(f.parts)
	s := partOf(&f.parts, p)
	b.parts += len(f.parts) - had
	return s
}

// part returns the sums of a part of a path of the run.
func (p *runPaths) part(n *runPath, of uint8) *sums {
	had := len(n.parts)
	s := partOf(&n.parts, of)
	p.parts += len(n.parts) - had
	return s
}

// appendParts appends what is added up of calls.
func appendParts(out []byte, parts []partSums, buckets func(func(bucket int, n uint64))) []byte {
	slices.SortFunc(parts, func(x, y partSums) int { return cmp.Compare(x.part, y.part) })
	out = binary.AppendUvarint(out, uint64(len(parts)))
	for i := range parts {
		out = parts[i].append(out)
	}
	count := uint64(0)
	buckets(func(int, uint64) { count++ })
	out = binary.AppendUvarint(out, count)
	at := 0
	buckets(func(bucket int, n uint64) {
		out = binary.AppendUvarint(out, uint64(bucket-at))
		out = binary.AppendUvarint(out, n)
		at = bucket
	})
	return out
}

// counts says whether calls of so many ticks or more are all or none of those that the sums are of; ok is false if they
// are some. What has no duration counts.
func (s *sums) counts(least uint64) (all, ok bool) {
	all = s.ended == 0 || s.min >= least
	return all, all || s.max < least
}

const (
	// minSums is the least size of a function's sums with its histogram, minPart that of a part, minBucket that of a
	// bucket.
	minSums, minPart, minBucket = 3, 13, 2
)

// A funcSums is what a run has of a function.
type funcSums struct {
	parts []sums
	hist  []histBucket
	offs  []offTime // what of the parts' totals the task was off a processor; empty: nothing
}

type histBucket struct {
	bucket int
	n      uint64
}

// read reads what follows a function's number.
func (f *funcSums) read(p *fields) {
	f.parts, f.hist = f.parts[:0], f.hist[:0]
	for range p.count(minPart) {
		f.parts = append(f.parts, p.sums())
	}
	at := uint64(0)
	for range p.count(minBucket) {
		at += p.uint()
		if at >= histOctaves<<histSubBits {
			p.bad = true
			return
		}
		f.hist = append(f.hist, histBucket{int(at), p.uint()})
	}
}

// divided says that a threshold divides a part.
func (f *funcSums) divided(least uint64) bool {
	return slices.ContainsFunc(f.parts, func(s sums) bool {
		_, ok := s.counts(least)
		return !ok
	})
}

// addTo adds the calls of so many ticks or more.
func (f *funcSums) addTo(c *counter, least uint64) {
	left := uint64(0)
	for i := range f.parts {
		if all, _ := f.parts[i].counts(least); all {
			c.merge(&f.parts[i])
			c.off.add(f.off(i))
			left += f.parts[i].ended
		}
	}
	for i := len(f.hist) - 1; i >= 0 && left > 0; i-- {
		n := min(f.hist[i].n, left)
		c.hist.addBucket(f.hist[i].bucket, n)
		left -= n
	}
}

// addTo adds the sums of functions that match to a report, of calls of so many ticks or more. ok is false if they cannot
// be told from others; then nothing is added.
func (r *sumRun) addTo(rep *report, images []uint32, match *memory, least uint64) (ok bool, err error) {
	divided := false
	check := func(_ FuncID, f *funcSums) { divided = divided || f.divided(least) }
	if least > 0 {
		if err := r.each(images, match, check); err != nil || divided {
			return false, err
		}
	}
	return true, r.each(images, match, func(fn FuncID, f *funcSums) {
		c, _ := rep.counter(fn)
		f.addTo(c, least)
	})
}

// each calls use with the functions that match.
func (r *sumRun) each(images []uint32, match *memory, use func(fn FuncID, f *funcSums)) error {
	p := fields{b: r.body, images: images}
	fn := noFunc
	var f funcSums
	offs := r.offs(false)
	for i := range p.count(minSums) {
		p.next(&fn, 1)
		f.read(&p)
		offs.give(i, &f)
		if p.bad {
			return errBlocks
		}
		if match.fn == nil || match.ask(fn) {
			use(fn, &f)
		}
	}
	if p.bad || len(p.b) != 0 {
		return errBlocks
	}
	return nil
}
