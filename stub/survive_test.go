package stub

import (
	"os"
	"strings"
	"testing"
)

// TestSurvive runs a program that does what real ones do to stacks, threads and
// processes, and compares the calls in the trace with those it counted: with every
// tracer, and once with gs in use by the program.
func TestSurvive(t *testing.T) {
	for _, v := range []struct {
		name, tracer string
		config       Config
		gs           bool
	}{
		{"graph", "graph", Config{}, false},
		{"gs", "graph", Config{}, true},
		{"func", "func", Config{Mode: ModeFunction}, false},
		{"func-gs", "func", Config{Mode: ModeFunction}, true},
		{"profile", "profile", Config{Mode: ModeProfile}, false},
		{"profile-gs", "profile", Config{Mode: ModeProfile}, true},
		{"depth", "opt", Config{Depth: 1 << 30}, false},
		{"depth-gs", "opt", Config{Depth: 1 << 30}, true},
	} {
		if strings.Contains(v.name, "-gs") && os.Getenv("FENTRY_WIDE") == "" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := buildFixture(t, "survive.c", buildOptions{tracer: v.tracer, config: v.config})
			if v.gs {
				f.env = []string{"SURVIVE_GS=1"}
			}
			for _, args := range []string{
				"calls", "signals 0", "signals 1", "signals 2", "jumps", "threads 64 64", "threads 2 600", "forks", "middle",
				"again", "coroutines 0", "coroutines 1", "recursion 1000000", "big", "closefds",
			} {
				t.Run(args, func(t *testing.T) {
					out, ev := f.run(t, strings.Fields(args)...)
					expectCounts(t, out, ev)
					// What children leave was entered by their parents.
					if ev.strays != 0 && args != "middle" && v.tracer != "func" {
						t.Errorf("%d exits without entry", ev.strays)
					}
					if ev.lost != 0 {
						t.Errorf("%d events lost", ev.lost)
					}
					for name, p := range ev.profile {
						// Calls of a function on several stacks at once are not nested.
						if !strings.HasPrefix(args, "coroutines") && p.self > p.total || p.max > p.total && p.total > 0 {
							t.Errorf("%s: %+v", name, p)
						}
					}
				})
			}
		})
	}
}
