package trace

import (
	"math"
	"math/bits"
	"slices"
)

// A Clock turns the timestamp counter into nanoseconds.
type Clock struct {
	// Hz is the counter's frequency.
	Hz float64
	// Source says where Hz comes from: "pairs", "header", "info", "option", or "none" if it is unknown and one tick
	// is shown as one nanosecond.
	Source string
	// Base is the counter value at the trace's start, time 0.
	Base uint64
	// Monotonic is CLOCK_MONOTONIC at the trace's start in ns, 0 if unknown.
	Monotonic int64
	// Realtime is CLOCK_REALTIME at the trace's start in ns, 0 if unknown.
	Realtime int64

	mult  uint64 // ns = ticks * mult >> 64 << lshift
	shift uint
}

// maxSpan bounds times so that sums of two cannot overflow.
const maxSpan = math.MaxInt64 / 4

// Limits of a plausible counter. The slowest in use is arm64's at 1 MHz and
// more, the fastest x86's at its base clock.
const (
	minHz = 1e5
	maxHz = 1e11
)

func plausible(hz float64) bool { return hz >= minHz && hz <= maxHz }

// set fixes the frequency.
func (c *Clock) set(hz float64, source string) {
	c.Hz, c.Source = hz, source
	// mult is ns per tick as a fixed-point number with 63 significant bits.
	frac, exp := math.Frexp(1e9 / hz) // 0.5 <= frac < 1, exp in -6..14
	m := math.Ldexp(frac, 63)
	c.mult = uint64(m)
	c.shift = uint(63 - exp) // ns = ticks * mult >> shift, shift < 128
}

// Span returns a number of ticks in nanoseconds.
func (c *Clock) Span(ticks uint64) int64 {
	hi, lo := bits.Mul64(ticks, c.mult)
	var v uint64
	if c.shift >= 64 {
		v = hi >> (c.shift - 64)
	} else if hi>>c.shift != 0 {
		return maxSpan
	} else {
		v = hi<<(64-c.shift) | lo>>c.shift
	}
	return int64(min(v, maxSpan))
}

// Time returns a counter value in nanoseconds since the trace's start.
func (c *Clock) Time(counter uint64) int64 {
	if counter < c.Base {
		return -c.Span(c.Base - counter)
	}
	return c.Span(counter - c.Base)
}

// At returns the time of a reading of CLOCK_MONOTONIC, in nanoseconds since the trace's start; 0 if that is not known.
func (c *Clock) At(monotonic uint64) int64 {
	if c.Monotonic == 0 || monotonic > maxSpan {
		return 0
	}
	return int64(monotonic) - c.Monotonic
}

// Counter is the inverse of Time, to within two ticks.
func (c *Clock) Counter(ns int64) uint64 {
	t := float64(ns) * c.Hz / 1e9
	switch {
	case t < 0 && -t >= float64(c.Base):
		return 0
	case t >= float64(math.MaxUint64-c.Base):
		return math.MaxUint64
	case t < 0:
		return c.Base - uint64(-t)
	}
	return c.Base + uint64(t)
}

// pairLog keeps the first and the last pairs of a stream of them.
type pairLog struct {
	first []ClockPair
	last  [64]ClockPair
	n     int // pairs that went to last
}

func (l *pairLog) add(p ClockPair) {
	if p.Counter == 0 || p.Monotonic == 0 {
		return
	}
	if len(l.first) < len(l.last) {
		l.first = append(l.first, p)
		return
	}
	l.last[l.n%len(l.last)] = p
	l.n++
}

func (l *pairLog) all() []ClockPair {
	ps := append(slices.Clone(l.first), l.last[:min(l.n, len(l.last))]...)
	slices.SortFunc(ps, func(a, b ClockPair) int {
		switch {
		case a.Counter < b.Counter:
			return -1
		case a.Counter > b.Counter:
			return 1
		}
		return 0
	})
	return ps
}

// fit estimates the counter's frequency from pairs sorted by counter: the median
// of the slopes between the pairs of the first third and those of the last. The
// two clocks of a pair are not read at one instant, and a task can lose the
// processor between them; the median ignores those pairs. span is the time
// between the two groups in ns.
func fit(ps []ClockPair) (hz float64, span float64) {
	if len(ps) < 2 {
		return 0, 0
	}
	third := max(1, len(ps)/3)
	var slopes, spans []float64
	for _, a := range ps[:third] {
		for _, b := range ps[len(ps)-third:] {
			if b.Counter <= a.Counter || b.Monotonic <= a.Monotonic {
				continue
			}
			ns := float64(b.Monotonic - a.Monotonic)
			slopes = append(slopes, float64(b.Counter-a.Counter)*1e9/ns)
			spans = append(spans, ns)
		}
	}
	if len(slopes) == 0 {
		return 0, 0
	}
	return median(slopes), median(spans)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// How far apart in ns pairs must be to be trusted more than a stated frequency.
// Two clock reads lie some 100 ns apart, which makes an error below 1e-6. But
// among fewPairs one that was read late, by some 10 ms, can be the one that counts.
const (
	goodSpan    = 200e6
	goodSpanFew = 20e9
	fewPairs    = 16
)

// newClock chooses the frequency. stated are the frequencies somebody wrote
// down, best first; hook may be nil.
func newClock(ps []ClockPair, stated []float64, sources []string, hook func() float64) Clock {
	var c Clock
	hz, span := fit(ps)
	need := float64(goodSpan)
	if len(ps) < fewPairs {
		need = goodSpanFew
	}
	if plausible(hz) && span >= need {
		c.set(hz, "pairs")
		return c
	}
	for i, s := range stated {
		if plausible(s) {
			c.set(s, sources[i])
			return c
		}
	}
	if hook != nil {
		if s := hook(); plausible(s) {
			c.set(s, "option")
			return c
		}
	}
	// The pairs are still better than nothing.
	if plausible(hz) {
		c.set(hz, "pairs")
		return c
	}
	c.set(1e9, "none")
	return c
}

// anchor ties the base to CLOCK_MONOTONIC by the median offset of the pairs.
func (c *Clock) anchor(ps []ClockPair) {
	var off []float64
	for _, p := range ps {
		if p.Monotonic > maxSpan {
			continue
		}
		off = append(off, float64(int64(p.Monotonic)-c.Time(p.Counter)))
	}
	if len(off) > 0 {
		if m := median(off); m > 0 && m < maxSpan {
			c.Monotonic = int64(m)
		}
	}
}
