package stub

import (
	"testing"
)

// TestSurvive runs a program that does what real ones do to stacks, threads and
// processes, and compares the calls in the trace with those it counted.
func TestSurvive(t *testing.T) {
	f := buildFixture(t, "survive.c", buildOptions{})
	for _, args := range [][]string{
		{"calls"},
		{"signals", "0"},
		{"signals", "1"},
		{"signals", "2"},
		{"jumps"},
		{"threads", "64", "64"},
		{"threads", "2", "600"},
		{"forks"},
		{"middle"},
		{"again"},
		{"coroutines", "0"},
		{"coroutines", "1"},
		{"recursion", "1000000"},
		{"big"},
		{"closefds"},
	} {
		name := args[0]
		if len(args) > 1 {
			name += args[1]
		}
		t.Run(name, func(t *testing.T) {
			out, ev := f.run(t, args...)
			expectCounts(t, out, ev)
			if ev.strays != 0 && name != "middle" {
				t.Errorf("%d exits without entry", ev.strays)
			}
			if ev.lost != 0 {
				t.Errorf("%d events lost", ev.lost)
			}
			t.Logf("%d tasks, %d open, depth %d, codes %v", len(ev.tasks), ev.open, ev.depth, ev.codes)
		})
	}
}
