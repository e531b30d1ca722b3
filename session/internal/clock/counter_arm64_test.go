package clock

import "testing"

// The counter goes as often as it says.
func TestCounterFrequency(t *testing.T) {
	hz := counterFrequency()
	if hz < 1e6 || hz > 1e11 || Hz() != hz {
		t.Fatalf("%d Hz", hz)
	}
	a := Read()
	for Read().Monotonic-a.Monotonic < 50e6 {
	}
	b := Read()
	have := float64(b.Counter-a.Counter) / float64(b.Monotonic-a.Monotonic) * 1e9
	if have/float64(hz) < 0.98 || have/float64(hz) > 1.02 {
		t.Errorf("%.0f Hz, says %d", have, hz)
	}
}
