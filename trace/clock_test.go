package trace

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestSpan compares the fixed-point conversion with exact arithmetic over the
// frequencies of real counters.
func TestSpan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, hz := range []float64{1e5, 1e6, 24e6, 1e9, 2.6e9, 2599.998e6, 5e9, 1e11} {
		var c Clock
		c.set(hz, "")
		for range 1000 {
			ticks := rng.Uint64() >> rng.UintN(64)
			want := new(big.Float).SetUint64(ticks)
			want.Mul(want, big.NewFloat(1e9/hz))
			exact, _ := want.Float64()
			have := float64(c.Span(ticks))
			if exact > maxSpan {
				exact = maxSpan
			}
			if math.Abs(have-exact) > 1+exact*1e-15 {
				t.Fatalf("%g Hz: %d ticks are %g ns, want %g", hz, ticks, have, exact)
			}
		}
		if c.Span(0) != 0 || c.Span(math.MaxUint64) < 0 {
			t.Errorf("%g Hz: limits %d %d", hz, c.Span(0), c.Span(math.MaxUint64))
		}
		c.Base = 1 << 40
		for _, ns := range []int64{0, 1e3, 1e12, -1e6} {
			if d := c.Time(c.Counter(ns)) - ns; math.Abs(float64(d)) > 1+2e9/hz {
				t.Errorf("%g Hz: there and back: %d ns off %d", hz, d, ns)
			}
		}
	}
}

// TestFit checks the frequency from pairs of which some were read late, as when
// a task loses the processor between its two clock reads.
func TestFit(t *testing.T) {
	const hz = 2_599_998_123.0
	rng := rand.New(rand.NewPCG(3, 4))
	pairs := func(n int, seconds float64) []ClockPair {
		var l pairLog
		for i := range n {
			s := seconds * float64(i) / float64(n-1)
			late := float64(rng.IntN(200))
			if rng.IntN(5) == 0 {
				late = float64(rng.IntN(20_000_000)) // 20 ms
			}
			l.add(ClockPair{uint64(1e12 + s*hz), uint64(5e9 + s*1e9 + late)})
		}
		return l.all()
	}
	for _, c := range []struct {
		n       int
		seconds float64
		within  float64
	}{{300, 100, 1e-6}, {300, 3600, 1e-7}, {50, 1, 1e-4}, {1000, 10, 1e-5}} {
		clock := newClock(pairs(c.n, c.seconds), []float64{2.5e9}, []string{"header"}, nil)
		if off := math.Abs(clock.Hz-hz) / hz; off > c.within || clock.Source != "pairs" {
			t.Errorf("%d pairs in %g s: %g Hz from %s, %g off", c.n, c.seconds, clock.Hz, clock.Source, off)
		}
	}
}

// TestClockSource checks which of several sources wins.
func TestClockSource(t *testing.T) {
	long := []ClockPair{{1e9, 1e9}, {51e9, 26e9}}            // 2 GHz over 25 s
	short := []ClockPair{{1e9, 1e9}, {1e9 + 2e6, 1e9 + 1e6}} // 2 GHz over a millisecond
	hook := func() float64 { return 3e9 }
	for _, c := range []struct {
		name   string
		pairs  []ClockPair
		stated []float64
		hook   func() float64
		hz     float64
		source string
	}{
		{"long", long, []float64{5e9, 6e9}, hook, 2e9, "pairs"},
		{"short, header", short, []float64{5e9, 6e9}, hook, 5e9, "header"},
		{"short, info", short, []float64{0, 6e9}, hook, 6e9, "info"},
		{"short, nonsense in the header", short, []float64{5, 0}, hook, 3e9, "option"},
		{"short, nothing else", short, []float64{0, 0}, nil, 2e9, "pairs"},
		{"one pair", long[:1], []float64{0, 0}, nil, 1e9, "none"},
		{"hook fails", nil, nil, func() float64 { return math.NaN() }, 1e9, "none"},
		{"backwards", []ClockPair{{1e9, 2e9}, {3e9, 1e9}}, nil, nil, 1e9, "none"},
		{"nonsense", []ClockPair{{1, 1}, {math.MaxUint64, 1e9}}, nil, nil, 1e9, "none"},
	} {
		clock := newClock(c.pairs, c.stated, []string{"header", "info"}, c.hook)
		if math.Abs(clock.Hz-c.hz) > 1 || clock.Source != c.source {
			t.Errorf("%s: %g from %s, want %g from %s", c.name, clock.Hz, clock.Source, c.hz, c.source)
		}
	}
}
