package trace

import "math"

// A pathHist is the histogram of a path's calls: the buckets that are not empty, in order. There are thousands of paths,
// and the calls of most of them are few, and of all durations.
type pathHist []pathBucket

type pathBucket struct {
	bucket uint16
	n      uint32
}

// pathRoom: the histograms of a run's paths have one bucket for so many counters of its builder's room.
const pathRoom = 8

// at returns the position of a bucket, or where it would be.
func (h pathHist) at(bucket uint16) int {
	lo, n := 0, len(h)
	for n > 1 {
		half := n / 2
		if h[lo+half].bucket <= bucket {
			lo += half
		}
		n -= half
	}
	if n > 0 && h[lo].bucket < bucket {
		lo++
	}
	return lo
}

func (h pathHist) each(fn func(bucket int, n uint64)) {
	for _, c := range h {
		fn(int(c.bucket), uint64(c.n))
	}
}

// duration counts calls of a path in a bucket, if there is room for it among so many.
func (p *runPaths) duration(path *runPath, bucket int, n uint32, room int) {
	h := path.hist
	i := h.at(uint16(bucket))
	switch {
	case i < len(h) && int(h[i].bucket) == bucket:
		p.less = p.less || h[i].n > math.MaxUint32-n
		h[i].n += n
	case p.buckets >= room:
		p.less = true
	default:
		p.buckets++
		h = append(h, pathBucket{})
		copy(h[i+1:], h[i:])
		h[i] = pathBucket{uint16(bucket), n}
		path.hist = h
	}
}
