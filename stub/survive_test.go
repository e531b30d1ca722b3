package stub

import (
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSurvive runs a program that does what real ones do to stacks, threads and
// processes, and compares the calls in the trace with those it counted: with every
// tracer, and once with gs in use by the program.
func TestSurvive(t *testing.T) {
	for _, v := range []struct {
		name, tracer string
		config       Config
		gs           bool
		on           *machine
		cpu          string
		flags        []string
		wide         bool
	}{
		{name: "graph", tracer: "graph"},
		{name: "gs", tracer: "graph", gs: true},
		{name: "order", tracer: "order", config: Config{Flags: FlagNoClock}},
		{name: "order-gs", tracer: "order", config: Config{Flags: FlagNoClock}, gs: true, wide: true},
		{name: "func", tracer: "func", config: Config{Mode: ModeFunction}},
		{name: "func-gs", tracer: "func", config: Config{Mode: ModeFunction}, gs: true, wide: true},
		{name: "profile", tracer: "profile", config: Config{Mode: ModeProfile}},
		{name: "profile-gs", tracer: "profile", config: Config{Mode: ModeProfile}, gs: true, wide: true},
		{name: "count", tracer: "count", config: Config{Mode: ModeCount}},
		{name: "count-gs", tracer: "count", config: Config{Mode: ModeCount}, gs: true},
		{name: "depth", tracer: "opt", config: Config{Depth: 1 << 30}},
		{name: "depth-gs", tracer: "opt", config: Config{Depth: 1 << 30}, gs: true, wide: true},
		{name: "arm64", tracer: "graph", on: onARM64, cpu: "cortex-a53"},
		{name: "arm64-static", tracer: "graph", on: onARM64, cpu: testtool.NewARM64, flags: []string{"-static"}, wide: true},
		{name: "arm64-order", tracer: "order", config: Config{Flags: FlagNoClock}, on: onARM64, cpu: "cortex-a53"},
		{name: "arm64-profile", tracer: "profile", config: Config{Mode: ModeProfile}, on: onARM64, cpu: "cortex-a53"},
		{name: "arm64-count", tracer: "count", config: Config{Mode: ModeCount}, on: onARM64, cpu: testtool.NewARM64},
		{name: "arm64-depth", tracer: "opt", config: Config{Depth: 1 << 30}, on: onARM64, cpu: testtool.NewARM64},
		{name: "arm64-func", tracer: "func", config: Config{Mode: ModeFunction}, on: onARM64, cpu: testtool.NewARM64},
	} {
		if v.wide && !testtool.Wide() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := buildFixture(t, "survive.c", buildOptions{on: v.on, tracer: v.tracer, config: v.config, flags: v.flags})
			f.cpu = v.cpu
			if v.gs {
				f.env = []string{"SURVIVE_GS=1"}
			}
			for _, args := range []string{
				"calls", "signals 0", "signals 1", "signals 2", "jumps", "threads 64 64", "threads 2 600", "forks", "middle",
				"again", "coroutines 0", "coroutines 1", "recursion 1000000", "big", "closefds",
			} {
				t.Run(args, func(t *testing.T) {
					if args == "again" && f.on.emulated() {
						cmd := f.command(t, args)
						cmd.Env = append(cmd.Env, "FENTRY_OFF=1")
						if err := cmd.Run(); err != nil {
							t.Skipf("untraced, under qemu, which cannot exec: %v", err)
						}
					}
					out, ev := f.run(t, strings.Fields(args)...)
					expectCounts(t, out, ev)
					if v.tracer == "graph" || v.tracer == "order" {
						expectThreads(t, args, ev)
					}
					// What children leave was entered by their parents.
					if ev.strays != 0 && args != "middle" && v.tracer != "func" {
						t.Errorf("%d exits without entry", ev.strays)
					}
					if ev.lost != 0 {
						t.Errorf("%d events lost", ev.lost)
					}
					for name, p := range ev.profile {
						// Calls of a function on several stacks at once are not nested.
						if !strings.HasPrefix(args, "coroutines") && (p.self > p.total || p.max > p.total && p.total > 0) {
							t.Errorf("%s: %+v", name, p)
						}
					}
				})
			}
		})
	}
}

// A thread whose stack shares a piece of shadow memory with that of a thread that is
// mapping it waits for that, however long it takes, and loses nothing.
func TestSharedPiece(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "piece.c", buildOptions{on: m})
		if f.on.emulated() {
			t.Skip("needs filters of system calls, which qemu does not have")
		}
		t.Parallel()
		out, ev := f.run(t)
		if out == "no filter\n" {
			t.Skip("needs a filter of system calls that asks (Linux 5.5)")
		}
		expectCounts(t, out, ev)
		if ev.lost != 0 {
			t.Errorf("%d events lost", ev.lost)
		}
	})
}
