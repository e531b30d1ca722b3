package stub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// tracers are the routines a thunk can call, with a configuration for each.
var tracers = []struct {
	name   string
	config Config
}{
	{"graph", Config{}},
	{"order", Config{Flags: FlagNoClock}},
	{"func", Config{Mode: ModeFunction}},
	{"profile", Config{Mode: ModeProfile}},
	{"count", Config{Mode: ModeCount}},
	{"opt", Config{Depth: 1000}},
}

// TestRegisters compares all registers before and behind traced calls.
func TestRegisters(t *testing.T) {
	forEach(t, testRegisters)
}

func testRegisters(t *testing.T, m *machine) {
	for _, tr := range tracers {
		if m == onARM64 {
			for _, flags := range [][]string{{"-DSVE"}, {"-DSVE", "-DSME"}} {
				t.Run(tr.name+strings.Join(flags, ""), func(t *testing.T) {
					t.Parallel()
					f := buildFixture(t, "regs.c", buildOptions{on: m, tracer: tr.name, config: tr.config, flags: append(flags, m.regs)})
					if out, err := f.command(t, "may").Output(); err != nil {
						t.Skipf("no processor with %v here: %v %s", flags, err, out)
					}
					out, ev := f.run(t)
					expectCounts(t, out, ev)
				})
			}
		}
		for _, behind := range []bool{false, true} {
			if tr.name != "profile" && tr.name != "count" {
				t.Run(fmt.Sprintf("%s-acting-%v", tr.name, behind), func(t *testing.T) {
					t.Parallel()
					flags := []string{m.regs}
					if behind {
						flags = append(flags, "-DBEHIND_PROLOGUE")
					}
					f := buildFixture(t, "regs.c", buildOptions{on: m, tracer: tr.name, config: tr.config, flags: flags, behind: behind,
						acts: map[string][]Action{"body": {{Kind: ActStackTrace, Words: 3}}}, leaves: true})
					out, ev := f.run(t)
					expectCounts(t, out, ev)
					if ev.codes[25] != ev.calls["body"] {
						t.Errorf("%d actions, %d calls", ev.codes[25], ev.calls["body"])
					}
				})
			}
			if tr.name != "profile" && tr.name != "count" && tr.name != "func" {
				t.Run(fmt.Sprintf("%s-capturing-%v", tr.name, behind), func(t *testing.T) {
					t.Parallel()
					flags := []string{m.regs}
					if behind {
						flags = append(flags, "-DBEHIND_PROLOGUE")
					}
					f := buildFixture(t, "regs.c", buildOptions{on: m, tracer: tr.name, config: tr.config, flags: flags, behind: behind,
						acts: map[string][]Action{"body": {{Kind: ActArgs, Plain: 6}, {Kind: ActResult, Plain: format.PlainFloat}}}})
					out, ev := f.run(t)
					expectCounts(t, out, ev)
					if ev.codes[format.RecArgs] != 2*ev.calls["body"] {
						t.Errorf("%d records, %d calls", ev.codes[format.RecArgs], ev.calls["body"])
					}
				})
			}
			name := tr.name
			flags := []string{m.regs}
			if behind {
				name += "-behind-prologue"
				flags = append(flags, "-DBEHIND_PROLOGUE")
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := buildFixture(t, "regs.c", buildOptions{on: m, tracer: tr.name, config: tr.config, flags: flags, behind: behind})
				out, ev := f.run(t)
				expectCounts(t, out, ev)
			})
		}
	}
}
