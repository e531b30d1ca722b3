package trace

import "math/bits"

const (
	histSubBits = 6 // 64 buckets an octave: a bucket is at most 1/64 wide, its middle at most 0.8 % off
	histSub     = 1 << histSubBits
)

// A Histogram counts durations in buckets whose width grows with the value:
// exact below 64 ns, within 0.8 % above. Histograms of different tasks or
// traces add up. The zero Histogram is empty.
type Histogram struct {
	n uint64
	// octaves[0] counts the values below histSub, octaves[i] those with
	// histSubBits+i bits. Most functions need few, so they are made on demand.
	octaves [65 - histSubBits]*[histSub]uint64
}

// Add counts a duration in ns; a negative one counts as 0.
func (h *Histogram) Add(ns int64) { h.AddN(ns, 1) }

// AddN counts n durations of ns.
func (h *Histogram) AddN(ns int64, n uint64) {
	v := uint64(max(ns, 0))
	o := bits.Len64(v >> histSubBits)
	oct := h.octaves[o]
	if oct == nil {
		oct = new([histSub]uint64)
		h.octaves[o] = oct
	}
	// The top histSubBits+1 bits of v, the first of which is 1 in all octaves
	// but 0, where the shift is 0 too.
	oct[v>>max(o-1, 0)&(histSub-1)] += n
	h.n += n
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 { return h.n }

// Merge adds the durations of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, oct := range o.octaves {
		if oct == nil {
			continue
		}
		if h.octaves[i] == nil {
			h.octaves[i] = new([histSub]uint64)
		}
		for j, n := range oct {
			h.octaves[i][j] += n
		}
	}
	h.n += o.n
}

// Quantile returns the duration in ns below which a share q of the durations
// lie, such as 0.99: the middle of the bucket that holds it. 0 when empty.
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
	for o, oct := range h.octaves {
		if oct == nil {
			continue
		}
		for i, n := range oct {
			if seen += n; seen >= rank {
				if o == 0 {
					return int64(i)
				}
				lo := uint64(histSub+i) << (o - 1)
				return int64(lo + (uint64(1)<<(o-1))/2)
			}
		}
	}
	return 0
}
