package stub

import (
	"slices"
	"strconv"
	"testing"
)

// TestSwitches: a function whose byte has bit 0 clear is not traced, whatever its other
// bits say; the calls of it that are open are closed.
func TestSwitches(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		for _, tracer := range []string{"graph", "func", "opt", "profile", "count"} {
			t.Run(tracer, func(t *testing.T) {
				t.Parallel()
				c := map[string]Config{"func": {Mode: ModeFunction}, "profile": {Mode: ModeProfile}, "count": {Mode: ModeCount}, "opt": {Depth: 100}}[tracer]
				f := buildFixture(t, "switches.c", buildOptions{on: m, tracer: tracer, config: c})
				id := func(name string) string { return strconv.Itoa(slices.Index(f.sites, name) + 1) }
				out, ev := f.run(t, id("outer"), id("leaf"))
				expectCounts(t, out, ev)
				if tracer != "func" && (ev.open != 0 || ev.strays != 0) {
					t.Errorf("%d calls left open, %d exits without entry", ev.open, ev.strays)
				}
			})
		}
	})
}
