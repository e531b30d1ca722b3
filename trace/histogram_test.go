package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantile compares quantiles with those of the sorted values.
func TestQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var h, a, b Histogram
		var vals []int64
		scale := rng.UintN(62)
		for i := range 1 + rng.IntN(5000) {
			v := int64(rng.Uint64() >> 1 >> rng.UintN(scale+1))
			vals = append(vals, v)
			h.Add(v)
			if i%3 == 0 {
				a.Add(v)
			} else {
				b.Add(v)
			}
		}
		slices.Sort(vals)
		a.Merge(&b)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
			want := vals[max(0, int(math.Ceil(q*float64(len(vals))))-1)]
			have := h.Quantile(q)
			if math.Abs(float64(have-want)) > 0.01*float64(want) {
				t.Fatalf("%g of %d values: %d, want %d", q, len(vals), have, want)
			}
			if merged := a.Quantile(q); merged != have || a.Count() != h.Count() {
				t.Fatalf("%g: %d merged, %d at once", q, merged, have)
			}
		}
	}
	if (&Histogram{}).Quantile(0.5) != 0 {
		t.Error("empty")
	}
}

// TestBuckets checks every bucket border: buckets follow each other without gaps.
func TestBuckets(t *testing.T) {
	last := -1
	for v := uint64(0); v < 1<<16; v++ {
		b := bucket(v)
		if b != last && b != last+1 {
			t.Fatalf("value %d is in bucket %d, the one before in %d", v, b, last)
		}
		last = b
	}
	for o := 16; o < 64; o++ {
		if bucket(1<<o) != bucket(1<<o-1)+1 {
			t.Errorf("gap at 2^%d", o)
		}
	}
	if b := bucket(math.MaxUint64); b != histOctaves<<histSubBits-1 {
		t.Errorf("last bucket %d, want %d", b, histOctaves<<histSubBits-1)
	}
}

// TestBucketOverflow checks counts beyond 32 bits, by themselves and merged.
func TestBucketOverflow(t *testing.T) {
	var h Histogram
	h.Add(1000)
	i := bucket(1000) - int(h.first)<<histSubBits
	h.counts[i], h.n = math.MaxUint32, math.MaxUint32
	h.Add(1000)
	var sum Histogram
	sum.Add(5)
	sum.Merge(&h)
	sum.Merge(&h)
	if want := uint64(2<<32 + 1); sum.Count() != want {
		t.Errorf("count %d, want %d", sum.Count(), want)
	}
	for range 3 {
		sum.Add(1 << 40)
	}
	// 2^33 of 2^33+4 are 1000.
	if q := sum.Quantile(0.9999999); bucket(uint64(q)) != bucket(1000) {
		t.Errorf("quantile %d, want about 1000", q)
	}
	if q := sum.Quantile(1e-12); q != 5 {
		t.Errorf("smallest %d, want 5", q)
	}
}

// TestEach: the ranges are those of the buckets, and all values are in them.
func TestEach(t *testing.T) {
	var h Histogram
	values := []int64{0, 1, 63, 64, 65, 127, 128, 129, 1000, 1001, 1 << 40, 1<<40 + 1, math.MaxInt64}
	for _, v := range values {
		h.Add(v)
	}
	var all uint64
	last := int64(-1)
	h.Each(func(low, high int64, n uint64) {
		if low <= last || high < low {
			t.Errorf("%d to %d behind %d", low, high, last)
		}
		last = high
		if bucket(uint64(low)) != bucket(uint64(high)) || high < math.MaxInt64 && bucket(uint64(high)+1) != bucket(uint64(high))+1 ||
			low > 0 && bucket(uint64(low)-1) != bucket(uint64(low))-1 {
			t.Errorf("%d to %d is not a bucket", low, high)
		}
		var want uint64
		for _, v := range values {
			if low <= v && v <= high {
				want++
			}
		}
		if n != want {
			t.Errorf("%d to %d: %d, want %d", low, high, n, want)
		}
		all += n
	})
	if all != uint64(len(values)) {
		t.Errorf("%d of %d values", all, len(values))
	}
}
