package stub

import (
	"maps"
	"strings"
	"testing"
)

// TestActions: what is done at calls of functions that have actions, with every tracer that has events.
func TestActions(t *testing.T) {
	forEach(t, testActions)
}

func testActions(t *testing.T, m *machine) {
	one := func(k ActionKind) []Action { return []Action{{Kind: k, Words: 3}} }
	limited := func(k ActionKind, n uint32) []Action { return []Action{{Kind: k, Words: 3, Limit: n}} }
	depth := func(n uint64) []Action { return []Action{{Kind: ActDepth, Value: n}} }
	late := func(k ActionKind, n uint32) []Action { return []Action{{Kind: k, Words: 3, Value: 1, Limit: n}} }
	const triggers = 25
	all := map[string]int{"work": 10*5 + 3 + 1 + 1 + 2 + 1 + 1 + 1, "on": 12, "off": 12, "around": 1, "tail_off": 1}
	for _, tt := range []struct {
		name, run string
		acts      map[string][]Action
		want      map[string]int
		records   int // of triggers
		depth     int // of the tracer's with options only
	}{
		// The loop: two calls of work in a round, and on with one inside. Then work in around, work in off's
		// place not, the one behind on, tail_off with work, on with work, and the last.
		{"off and on", "", map[string][]Action{"off": one(ActTraceOff), "on": one(ActTraceOn)},
			map[string]int{"work": 10*3 + 1 + 1 + 1 + 1 + 1, "on": 12, "around": 1, "tail_off": 1}, 24, 0},
		{"limited", "", map[string][]Action{"off": limited(ActTraceOff, 2), "on": one(ActTraceOn)},
			map[string]int{"work": 2*3 + 8*5 + 3 + 1 + 1 + 2 + 1 + 1 + 1, "on": 12, "off": 10, "around": 1, "tail_off": 1}, 4, 0},
		{"off for good", "", map[string][]Action{"off": limited(ActTraceOff, 1)}, map[string]int{"work": 1}, 1, 0},
		{"quiet", "", map[string][]Action{"off": {{Kind: ActQuiet}, {Kind: ActTraceOff, Words: 3}}, "on": {{Kind: ActQuiet}, {Kind: ActTraceOn, Words: 3}}},
			map[string]int{"work": 10*3 + 1 + 1 + 1 + 1 + 1, "around": 1, "tail_off": 1}, 24, 0},
		{"finish", "", map[string][]Action{"on": limited(ActFinish, 1)}, map[string]int{"work": 3, "off": 1}, 1, 0},
		{"stack trace", "", map[string][]Action{"work": limited(ActStackTrace, 7)}, all, 7, 0},
		{"snapshot", "", map[string][]Action{"work": limited(ActSnapshot, 5)}, all, 5, 0},
		{"depth", "deep", map[string][]Action{"deep": depth(2)}, map[string]int{"top": 2, "deep": 4 + 2, "work": 3, "jumps": 40}, 0, 4},
		{"depth of a caller", "deep", map[string][]Action{"top": depth(3), "jumps": depth(1)},
			map[string]int{"top": 2, "deep": 4 + 3, "work": 2 + 3, "jumps": 10}, 0, 4},
		// At the ends of calls that took longer than a nanosecond. What ends by a jump does not come by.
		{"stack trace at the end", "deep", map[string][]Action{"deep": late(ActStackTrace, 5), "jumps": late(ActStackTrace, 0)},
			map[string]int{"top": 2, "deep": 15, "work": 15, "jumps": 40}, 5, 4},
		{"off at the end", "", map[string][]Action{"off": late(ActTraceOff, 0), "on": one(ActTraceOn)},
			map[string]int{"work": 10*4 + 2 + 1 + 2 + 1 + 1, "on": 12, "off": 12, "around": 1, "tail_off": 1}, 24, 4},
		{"finish at the end", "", map[string][]Action{"on": late(ActFinish, 1)}, map[string]int{"work": 4, "on": 1, "off": 1}, 1, 4},
		{"snapshot at the end", "", map[string][]Action{"on": late(ActSnapshot, 3)}, all, 3, 4},
		{"never", "", map[string][]Action{"on": {{Kind: ActFinish, Words: 3, Value: 1 << 60}}}, all, 0, 4},
	} {
		for _, tr := range tracers {
			if tr.name == "profile" || tr.name == "count" || (tt.depth != 0) != (tr.name == "opt") && tt.depth != 0 {
				continue
			}
			t.Run(strings.ReplaceAll(tt.name, " ", "-")+"/"+tr.name, func(t *testing.T) {
				t.Parallel()
				c := tr.config
				if tr.name == "opt" {
					c.Depth = 100
				}
				f := buildFixture(t, "act.c", buildOptions{on: m, tracer: tr.name, config: c, acts: tt.acts})
				_, ev := f.run(t, tt.run)
				if !maps.Equal(ev.calls, tt.want) {
					t.Errorf("calls %v, want %v", ev.calls, tt.want)
				}
				if ev.codes[triggers] != tt.records {
					t.Errorf("%d triggers, want %d", ev.codes[triggers], tt.records)
				}
				if tr.name != "func" && (ev.open != 0 || ev.strays != 0) {
					t.Errorf("%d calls left open, %d exits without entry", ev.open, ev.strays)
				}
			})
		}
	}
}

// TestActionsOfThreads: of threads that come to a limited action at once, as many do it as are to; and where tracing pauses
// and goes on all the time, each change is in the trace.
func TestActionsOfThreads(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "act.c", buildOptions{on: m, acts: map[string][]Action{
			"work": {{Kind: ActStackTrace, Words: 3, Limit: 1001}},
		}})
		_, ev := f.run(t, "threads")
		if ev.codes[25] != 1001 || ev.calls["work"] != 4*2000*3 {
			t.Errorf("%d stack traces, %d calls", ev.codes[25], ev.calls["work"])
		}
		f = buildFixture(t, "act.c", buildOptions{on: m, acts: map[string][]Action{
			"off": {{Kind: ActTraceOff, Words: 3, Limit: 999}}, "on": {{Kind: ActTraceOn, Words: 3}},
		}})
		_, ev = f.run(t, "threads")
		if n := ev.codes[25]; n < 2*999-1 || n > 2*999 {
			t.Errorf("%d changes, want 999 pauses and as many ends of one, or one fewer", n)
		}
		if ev.open != 0 || ev.strays != 0 {
			t.Errorf("%d calls left open, %d exits without entry", ev.open, ev.strays)
		}
	})
}
