package trace

import (
	"math"
	"math/bits"
)

const (
	histSubBits = 6 // 64 buckets an octave: a bucket is at most 1/64 wide, its middle at most 0.8 % off
	histSub     = 1 << histSubBits
	histOctaves = 65 - histSubBits
)

// A Histogram counts durations in buckets whose width grows with the value: exact below 64 ns, within 0.8 % above.
// Histograms of different tasks or traces can be merged. The zero Histogram is empty.
type Histogram struct {
	n uint64
	// counts are the buckets of the octaves from first on. Octave 0 has the
	// values below histSub, octave i those with histSubBits+i bits. Most
	// functions need few octaves, side by side.
	counts []uint32
	first  int32
	// more counts how often a bucket has passed 2^32.
	more map[int]uint64
}

// bucket is the number of a value's bucket.
func bucket(v uint64) int {
	o := bits.Len64(v >> histSubBits)
	if o <= 1 {
		return int(v) // octave 1 has buckets of width 1 as well
	}
	// The top histSubBits+1 bits of v, the first of which is 1.
	return o<<histSubBits + int(v>>(o-1))&(histSub-1)
}

// Add counts a duration in ns; a negative one counts as 0.
func (h *Histogram) Add(ns int64) {
	i := bucket(uint64(max(ns, 0))) - int(h.first)<<histSubBits
	if uint(i) >= uint(len(h.counts)) {
		i = h.grow(i)
	}
	h.n++
	h.counts[i]++
	if h.counts[i] == 0 {
		h.carry(i, 1)
	}
}

func (h *Histogram) carry(i int, n uint64) {
	if h.more == nil {
		h.more = map[int]uint64{}
	}
	h.more[i+int(h.first)<<histSubBits] += n
}

// grow makes room for bucket i, counted from the first one that there is room
// for, and returns its new number.
func (h *Histogram) grow(i int) int {
	abs := i + int(h.first)<<histSubBits
	o := abs >> histSubBits
	lo, hi := int(h.first), int(h.first)+len(h.counts)>>histSubBits
	if len(h.counts) == 0 {
		lo, hi = o, o
	}
	nlo, nhi := min(lo, o), max(hi, o+1)
	// Durations come from all sides at first: leave room on the side that grew.
	if slack := (hi - lo) / 2; nlo < lo {
		nlo = max(0, nlo-slack)
	} else if nhi > hi {
		nhi = min(histOctaves, nhi+slack)
	}
	counts := make([]uint32, (nhi-nlo)<<histSubBits)
	copy(counts[(lo-nlo)<<histSubBits:], h.counts)
	h.counts, h.first = counts, int32(nlo)
	return abs - nlo<<histSubBits
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return h.n }

// spans turns a histogram of ticks into one of nanoseconds, whose durations are within 1.6 %.
func (h *Histogram) spans(c *Clock) *Histogram {
	if c.Span(1<<40) == 1<<40 {
		return h
	}
	ns := new(Histogram)
	h.each(func(b int, n uint64) {
		ns.addBucket(bucket(uint64(c.Span(uint64(middle(b))))), n)
	})
	return ns
}

// addBucket counts n durations in a bucket.
func (h *Histogram) addBucket(b int, n uint64) {
	i := b - int(h.first)<<histSubBits
	if uint(i) >= uint(len(h.counts)) {
		i = h.grow(i)
	}
	h.n += n
	n += uint64(h.counts[i])
	h.counts[i] = uint32(n)
	if n>>32 > 0 {
		h.carry(i, n>>32)
	}
}

// each calls fn with the buckets that are not empty, in order.
func (h *Histogram) each(fn func(bucket int, n uint64)) {
	for i, n := range h.counts {
		if n == 0 && h.more == nil {
			continue
		}
		b := i + int(h.first)<<histSubBits
		if all := uint64(n) + h.more[b]<<32; all > 0 {
			fn(b, all)
		}
	}
}

// middle is the middle of a bucket.
func middle(b int) int64 {
	o, sub := b>>histSubBits, b&(histSub-1)
	if o == 0 {
		return int64(sub)
	}
	width := uint64(1) << (o - 1)
	return int64((histSub+uint64(sub))<<(o-1) + width/2)
}

// Merge adds the durations of o.
func (h *Histogram) Merge(o *Histogram) {
	off := int(o.first) << histSubBits
	for j, n := range o.counts {
		if n == 0 {
			continue
		}
		i := j + off - int(h.first)<<histSubBits
		if uint(i) >= uint(len(h.counts)) {
			i = h.grow(i)
		}
		sum := uint64(h.counts[i]) + uint64(n)
		h.counts[i] = uint32(sum)
		if sum > math.MaxUint32 {
			h.carry(i, 1)
		}
	}
	for b, n := range o.more {
		i := b - int(h.first)<<histSubBits
		if uint(i) >= uint(len(h.counts)) {
			i = h.grow(i)
		}
		h.carry(i, n)
	}
	h.n += o.n
}

// Quantile returns the duration in ns below which a share q of the durations lies, such as 0.99: the middle of the
// bucket that holds it. It returns 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	// The smallest rank that is at least q of all.
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) {
		rank++
	}
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, n := range h.counts {
		abs := i + int(h.first)<<histSubBits
		if seen += uint64(n) + h.more[abs]<<32; seen < rank {
			continue
		}
		return middle(abs)
	}
	return 0
}

// Each calls fn with the buckets that are not empty, in order: n durations are at least low and at most high, in ns.
func (h *Histogram) Each(fn func(low, high int64, n uint64)) {
	h.each(func(b int, n uint64) {
		low, high := int64(b), int64(b)
		if o, sub := b>>histSubBits, uint64(b&(histSub-1)); o > 0 {
			first := (histSub + sub) << (o - 1)
			low, high = int64(min(first, math.MaxInt64)), int64(min(first+1<<(o-1)-1, math.MaxInt64))
		}
		fn(low, high, n)
	})
}
