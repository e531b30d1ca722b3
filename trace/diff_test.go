package trace

import (
	"math"
	"math/rand/v2"
	"testing"
)

// stat makes the row of a function's calls of these durations, in ns.
func stat(name string, ns ...int64) FuncStat {
	s := FuncStat{Name: name, Calls: uint64(len(ns))}
	if len(ns) == 0 {
		return s
	}
	s.Hist, s.Min, s.Max = new(Histogram), math.MaxInt64, 0
	for _, v := range ns {
		s.Hist.Add(v)
		s.Sum += v
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	s.Total, s.Self, s.Avg = s.Sum, s.Sum, s.Sum/int64(len(ns))
	var sq float64
	for _, v := range ns {
		d := float64(v) - float64(s.Sum)/float64(len(ns))
		sq += d * d
	}
	s.StdDev = math.Sqrt(sq / float64(len(ns)))
	s.P99 = min(max(s.Hist.Quantile(0.99), s.Min), s.Max)
	return s
}

// TestCompareReports: what functions of one name have together is what one function with all of their calls has.
func TestCompareReports(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var parts [3][]int64
		var all []int64
		for range rng.IntN(40) {
			v := int64(rng.Uint64() >> (20 + rng.UintN(40)))
			all = append(all, v)
			i := rng.IntN(len(parts))
			parts[i] = append(parts[i], v)
		}
		var rows []FuncStat
		for _, p := range parts {
			rows = append(rows, stat("f", p...))
		}
		changes := CompareReports(append(rows, stat("gone", 1)), []FuncStat{stat("new", 2), stat("f", all...)})
		if len(changes) != 3 || changes[0].Name != "f" || changes[1].Name != "gone" || changes[2].Name != "new" {
			t.Fatalf("%+v", changes)
		}
		if changes[1].New.Name != "" || changes[2].Old.Name != "" || changes[1].Old.Calls != 1 {
			t.Fatalf("%+v", changes[1:])
		}
		f := changes[0]
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1+1e-6*max(a, b) }
		if f.Old.Calls != f.New.Calls || f.Old.Total != f.New.Total || f.Old.Self != f.New.Self || f.Old.Min != f.New.Min ||
			f.Old.Max != f.New.Max || f.Old.P99 != f.New.P99 || !near(float64(f.Old.Avg), float64(f.New.Avg)) {
			t.Fatalf("%v: %+v\nwant %+v", parts, f.Old, f.New)
		}
		// Averages are whole nanoseconds, so the squares of deviations from them are a little off.
		if d := math.Abs(f.Old.StdDev - f.New.StdDev); d > 2+1e-3*f.New.StdDev {
			t.Fatalf("%v: deviation %v, want %v", parts, f.Old.StdDev, f.New.StdDev)
		}
	}
}

// TestCompareUnknown: a sum with something unknown is unknown.
func TestCompareUnknown(t *testing.T) {
	none := FuncStat{Name: "f", Calls: 3, Total: -1, Sum: -1, Self: -1, CPU: -1, Wait: -1, Unknown: -1, Avg: -1, Min: -1,
		Max: -1, P99: -1, StdDev: -1}
	profile := FuncStat{Name: "p", Calls: 2, Total: 20, Sum: 20, Self: 20, Avg: 10, Max: 12, Min: -1, P99: -1, StdDev: -1}
	changes := CompareReports([]FuncStat{none, none, profile, profile}, nil)
	if f := changes[0].Old; f.Calls != 6 || f.Total != -1 || f.Avg != -1 || f.Max != -1 || f.CPU != -1 {
		t.Errorf("%+v", f)
	}
	if p := changes[1].Old; p.Calls != 4 || p.Total != 40 || p.Avg != 10 || p.Max != 12 || p.Min != -1 || p.StdDev != -1 {
		t.Errorf("%+v", p)
	}
}

// TestCompareGraphs: paths are the same if their names are, and each side has all of its tree.
func TestCompareGraphs(t *testing.T) {
	leaf := func(name string, calls uint64, total int64) *Node {
		return &Node{Name: name, Calls: calls, Total: total, Self: total}
	}
	before := &Node{Total: 100, Children: []*Node{
		{Name: "main", Calls: 1, Total: 100, Self: 40, Children: []*Node{leaf("a", 2, 30), leaf("b", 1, 20), leaf("a", 1, 10)}},
	}}
	after := &Node{Total: 90, Children: []*Node{
		leaf("worker", 1, 10),
		{Name: "main", Calls: 1, Total: 80, Self: 10, Children: []*Node{leaf("c", 5, 5), leaf("a", 4, 65)}},
	}}
	root := CompareGraphs(before, after)
	if root.Old.Total != 100 || root.New.Total != 90 || len(root.Children) != 2 {
		t.Fatalf("%+v", root)
	}
	main := root.Children[0]
	if main.Name != "main" || main.Old.Self != 40 || main.New.Self != 10 || len(main.Children) != 3 {
		t.Fatalf("%+v", main)
	}
	a, b, c := main.Children[0], main.Children[1], main.Children[2]
	if a.Old.Calls != 3 || a.Old.Total != 40 || a.New.Calls != 4 || a.New.Total != 65 {
		t.Errorf("%+v", a)
	}
	if b.Old.Total != 20 || b.New.Name != "" || c.Old.Name != "" || c.New.Calls != 5 {
		t.Errorf("%+v %+v", b, c)
	}
	if w := root.Children[1]; w.Name != "worker" || w.Old.Name != "" || w.New.Total != 10 {
		t.Errorf("%+v", w)
	}
}
