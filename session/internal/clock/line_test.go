//go:build linux

package clock

import "testing"

// Times between readings of the clocks become counters between them.
func TestLine(t *testing.T) {
	l := Line{Now: Reading{Counter: 5000, Monotonic: 100}}
	l.add(Reading{Counter: 7000, Monotonic: 1100})
	for ns, want := range map[uint64]uint64{100: 5000, 600: 6000, 1100: 7000, 0: 4800} {
		if have := l.Counter(ns); have != want {
			t.Errorf("%d ns: %d, want %d", ns, have, want)
		}
	}
	l.add(Reading{Counter: 17000, Monotonic: 2100}) // it became faster
	for ns, want := range map[uint64]uint64{600: 6000, 1100: 7000, 1600: 12000} {
		if have := l.Counter(ns); have != want {
			t.Errorf("%d ns, later: %d, want %d", ns, have, want)
		}
	}
}
