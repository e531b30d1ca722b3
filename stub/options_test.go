package stub

import (
	"maps"
	"testing"
)

// TestOptions: what depth, threshold and roots leave in the trace.
func TestOptions(t *testing.T) {
	forEach(t, testOptions)
}

func testOptions(t *testing.T, m *machine) {
	build := func(t *testing.T, c Config, roots ...string) *fixture {
		return buildFixture(t, "options.c", buildOptions{on: m, tracer: "opt", config: c, roots: roots})
	}
	check := func(t *testing.T, ev *events, want map[string]int, depth int) {
		t.Helper()
		if !maps.Equal(ev.calls, want) {
			t.Errorf("calls %v, want %v", ev.calls, want)
		}
		if ev.depth != depth {
			t.Errorf("depth %d, want %d", ev.depth, depth)
		}
		if ev.strays != 0 || ev.open != 0 {
			t.Errorf("%d exits without entry, %d open calls", ev.strays, ev.open)
		}
	}
	t.Run("depth", func(t *testing.T) {
		_, ev := build(t, Config{Depth: 3}).run(t, "calls")
		// outside: quick, root: quick, all_quick; quick. The rest is deeper.
		check(t, ev, map[string]int{
			"all_quick": 30 + 10 + 20, "quick": 10*2 + 10*(1+1+1) + 10 + 20, "outside": 10, "root": 10, "quick_jumper": 30,
		}, 3)
	})
	t.Run("depth 1", func(t *testing.T) {
		_, ev := build(t, Config{Depth: 1}).run(t, "calls")
		check(t, ev, map[string]int{"all_quick": 20, "quick": 10, "outside": 10, "quick_jumper": 10}, 1)
	})
	t.Run("roots", func(t *testing.T) {
		_, ev := build(t, Config{}, "root").run(t, "calls")
		check(t, ev, map[string]int{"root": 10, "quick": 10 * (1 + 3), "all_quick": 30}, 5)
	})
	t.Run("roots and depth", func(t *testing.T) {
		_, ev := build(t, Config{Depth: 2}, "root").run(t, "calls")
		check(t, ev, map[string]int{"root": 10, "quick": 10, "all_quick": 10}, 2)
	})
	t.Run("threshold", func(t *testing.T) {
		// 2 ms: a quick call that the scheduler makes so long is possible, and
		// found in the trace with everything around it. Of 80,000 there are few.
		_, ev := build(t, Config{Threshold: 2e6}).run(t, "times")
		long := map[string]int{"slow_child": 1, "slow_leaf": 1, "sum_slow": 1, "tail_target": 1, "jumper": 4}
		for name, n := range long {
			if ev.calls[name] != n {
				t.Errorf("%s: %d calls, want %d", name, ev.calls[name], n)
			}
		}
		if n := ev.calls["quick"] + ev.calls["all_quick"] + ev.calls["quick_jumper"]; n > 2000 {
			t.Errorf("%d short calls: %v", n, ev.calls)
		}
		if ev.strays != 0 || ev.open != 0 {
			t.Errorf("%d exits without entry, %d open calls", ev.strays, ev.open)
		}
	})
	t.Run("tail calls", func(t *testing.T) {
		_, ev := build(t, Config{Depth: 9}).run(t, "tails")
		check(t, ev, map[string]int{"chain": 1000, "even": 51000, "odd": 50000, "quick": 1000}, 2)
		_, ev = build(t, Config{Threshold: 1e9}).run(t, "tails")
		check(t, ev, map[string]int{}, 0)
	})
	t.Run("threshold 1ns", func(t *testing.T) {
		_, ev := build(t, Config{Threshold: 1}).run(t, "calls")
		// Where the counter goes in large steps, some calls take no time at all.
		if n := ev.calls["quick"]; n == 0 || n > 10*21+10*(1+3+1+1)+10+20 || ev.calls["all_quick"] > 210+30+20 || ev.calls["outside"] != 10 || ev.strays != 0 || ev.open != 0 {
			t.Errorf("calls %v, %d strays, %d open", ev.calls, ev.strays, ev.open)
		}
	})
}

// TestOff: functions that are off at first leave nothing in the trace; what is inside them does.
func TestOff(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "options.c", buildOptions{on: m, tracer: "graph", off: []string{"root", "quick"}})
		out, ev := f.run(t, "calls")
		want := map[string]int{"all_quick": 260, "outside": 10, "quick_jumper": 60}
		if out != "done\n" || !maps.Equal(ev.calls, want) || ev.strays != 0 || ev.open != 0 {
			t.Errorf("%q: calls %v, want %v; %d exits without entry, %d open", out, ev.calls, want, ev.strays, ev.open)
		}
	})
}

// TestHidden: functions that are left out leave nothing in the trace, nor does anything inside them, however they end.
func TestHidden(t *testing.T) {
	forEach(t, testHidden)
}

func testHidden(t *testing.T, m *machine) {
	all := map[string]int{"all_quick": 260, "quick": 300, "outside": 10, "root": 10, "quick_jumper": 60}
	but := func(changes map[string]int) map[string]int {
		want := maps.Clone(all)
		maps.Copy(want, changes)
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		return want
	}
	for _, tt := range []struct {
		name, run string
		config    Config
		hidden    []string
		roots     []string
		want      map[string]int
	}{
		{"nothing", "calls", Config{Depth: 1 << 31}, []string{"nobody"}, nil, all},
		{"leaf", "calls", Config{}, []string{"quick"}, nil, but(map[string]int{"quick": 0})},
		{"inner", "calls", Config{}, []string{"root"}, nil, but(map[string]int{"root": 0, "all_quick": 230, "quick": 260})},
		{"recursive", "calls", Config{}, []string{"all_quick"}, nil, but(map[string]int{"all_quick": 0, "quick": 40})},
		{"one in another", "calls", Config{}, []string{"outside", "root", "quick"}, nil,
			map[string]int{"all_quick": 230, "quick_jumper": 60}},
		{"left by longjmp", "calls", Config{}, []string{"quick_jumper"}, nil, but(map[string]int{"quick_jumper": 0})},
		{"and depth", "calls", Config{Depth: 2}, []string{"root"}, nil,
			map[string]int{"all_quick": 40, "quick": 50, "outside": 10, "quick_jumper": 20}},
		{"too deep itself", "calls", Config{Depth: 1}, []string{"root"}, nil,
			map[string]int{"all_quick": 20, "quick": 10, "outside": 10, "quick_jumper": 10}},
		{"a root", "calls", Config{}, []string{"root"}, []string{"root"}, map[string]int{}},
		{"around a root", "calls", Config{}, []string{"outside"}, []string{"root", "quick_jumper"}, map[string]int{"quick_jumper": 60}},
		{"in a root", "calls", Config{}, []string{"all_quick"}, []string{"root"}, map[string]int{"root": 10, "quick": 10}},
		{"jumps away", "tails", Config{}, []string{"even"}, nil, map[string]int{"chain": 1000, "quick": 1000}},
		{"is jumped to", "tails", Config{}, []string{"odd"}, nil, map[string]int{"chain": 1000, "even": 1000, "quick": 1000}},
		{"jumps away, short", "tails", Config{Threshold: 1e9}, []string{"even"}, nil, map[string]int{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := buildFixture(t, "options.c", buildOptions{on: m, tracer: "opt", config: tt.config, roots: tt.roots, hidden: tt.hidden})
			out, ev := f.run(t, tt.run)
			if out != "done\n" || !maps.Equal(ev.calls, tt.want) || ev.strays != 0 || ev.open != 0 {
				t.Errorf("%q: calls %v, want %v; %d exits without entry, %d open", out, ev.calls, tt.want, ev.strays, ev.open)
			}
		})
	}
	t.Run("long ones", func(t *testing.T) {
		f := buildFixture(t, "options.c", buildOptions{on: m, tracer: "opt", config: Config{Threshold: 2e6}, hidden: []string{"slow_child", "jumper"}})
		_, ev := f.run(t, "times")
		if ev.calls["slow_child"]+ev.calls["slow_leaf"]+ev.calls["jumper"] != 0 || ev.calls["sum_slow"] != 1 || ev.calls["tail_target"] != 1 ||
			ev.strays != 0 || ev.open != 0 {
			t.Errorf("calls %v, %d strays, %d open", ev.calls, ev.strays, ev.open)
		}
	})
}
