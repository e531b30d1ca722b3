package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
)

// abandoned is the counter for calls that end without a return.
const abandoned = "(abandoned)"

// readCounts reads what a fixture counted: calls by function. See testdata/count.h for the file.
func readCounts(t testing.TB, path string) map[string]int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("the program's own counters: %v", err)
	}
	counts := map[string]int64{}
	for ; len(b) >= 64; b = b[64:] {
		name := string(bytes.TrimRight(b[:56], "\x00"))
		if name == "" {
			break
		}
		if n := int64(binary.LittleEndian.Uint64(b[56:])); n != 0 {
			counts[name] += n
		}
	}
	return counts
}

// functionName is the name a counter has for a symbol: demangled without parameters' default noise, without the suffixes of compilers' copies
// (.constprop.0, .part.0) and the numbers of nested functions (outer.twice.2, twice.0).
func functionName(raw string) string {
	name := raw
	if strings.HasPrefix(raw, "_Z") {
		if d, err := demangle.ToString(raw, demangle.NoClones); err == nil {
			return d
		}
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return name
}

// counterName brings a fixture's name for a function to the form functionName gives.
func counterName(name string) string {
	if strings.Contains(name, "::") {
		return name
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[i+1:] // a nested function: its symbol is the inner name and a number
	}
	return name
}

// equalCounts compares the trace with the ground truth. If it may lose events, then only those it counts as lost.
func equalCounts(t testing.TB, p *program, truth map[string]int64, tr *decoded, mayLose bool) {
	t.Helper()
	f := p.fixture
	want := map[string]int64{}
	for name, n := range truth {
		if name != abandoned {
			want[counterName(name)] += n
		}
	}
	got := map[string]int64{}
	for fn, n := range tr.entries {
		got[functionName(fn.name)] += n
	}
	lacking := f.mayLack(p.config.kind)
	var names []string
	for n := range want {
		names = append(names, n)
	}
	for n := range got {
		if _, ok := want[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	ignored := f.words("ignore") // * are inline functions of the C++ library, which have no counters
	wrong, lost := 0, int64(0)
	for _, n := range names {
		if want[n] == got[n] || got[n] < want[n] && slices.Contains(lacking, n) {
			continue
		}
		if _, ok := want[n]; !ok && (slices.Contains(ignored, "*") || p.config.kind.plain) {
			continue // without sites also those are traced that the fixture tells compilers to leave alone, or links with
		}
		if mayLose && got[n] < want[n] {
			lost += want[n] - got[n]
			continue
		}
		if wrong++; wrong <= 12 {
			reason := ""
			if r, ok := tr.untraced[n]; ok {
				reason = " (not traceable: " + r + ")"
			}
			t.Errorf("calls of %s: trace %d, program counted %d%s", n, got[n], want[n], reason)
		}
	}
	if wrong > 12 {
		t.Errorf("... and %d more functions", wrong-12)
	}
	counted := func(raw string) bool { _, ok := want[functionName(raw)]; return ok }
	if mayLose { // entries are missing, and the exits that were made and are not there
		missing := 2*lost + tr.open(counted) - truth[abandoned]
		const lap = 256                                                                      // words that a task without a chunk of its own gives up and counts at a time
		if tr.lost < missing-lap*tr.uncounted || tr.lost > missing && !p.config.kind.plain { // of which more is traced than is counted
			t.Errorf("%d entries and %d exits are missing, but %d events are counted as lost, and %d tasks have not counted theirs",
				lost, missing-lost, tr.lost, tr.uncounted)
		}
		return
	}
	if tr.lost != 0 {
		t.Errorf("%d events lost", tr.lost)
	}
	if wrong == 0 && len(lacking) == 0 {
		if open := tr.open(counted); open != truth[abandoned] {
			t.Errorf("entries without an exit: trace %d, program abandoned %d calls%s", open, truth[abandoned], tr.openFunctions())
		}
	}
}

// TestGroundTruth checks the fixtures' own counters, without any tracing, with the compiler's -finstrument-functions.
func TestGroundTruth(t *testing.T) {
	for _, name := range fixtureNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := loadFixture(t, name)
			if m := f.missing(); m != "" {
				t.Skip(m)
			}
			if ks := f.words("kinds"); len(ks) > 0 && !slices.Contains(ks, "fentry") {
				t.Skipf("only for sites of kind %s", strings.Join(ks, ", "))
			}
			for _, c := range []config{
				{kind{name: "exits", compiler: "gcc", cflags: []string{"-finstrument-functions"}, ldflags: []string{mustAbs(t, "testdata/hooks.c")}}, link{}, "-O0"},
				{kind{name: "entries", compiler: "gcc", cflags: []string{"-pg", "-mfentry"}, ldflags: []string{mustAbs(t, "testdata/hooks.c")}}, link{}, "-O2"},
			} {
				t.Run(c.kind.name, func(t *testing.T) { checkTruth(t, build(t, f, c)) })
			}
		})
	}
}

// checkTruth compares a fixture's own counters with those of the compiler's hooks.
func checkTruth(t *testing.T, p *program) {
	f := p.fixture
	for _, args := range f.runs() {
		counts := filepath.Join(p.dir, "counts")
		_ = os.Remove(counts)
		r := run(t, command{dir: p.dir, argv: append([]string{"./" + f.name}, args...), env: []string{"FIXTURE_COUNTS=" + counts}, stdin: f.stdin()})
		if r.err != nil {
			t.Fatalf("%v: %v\n%s%s", args, r.err, clip(r.stdout), clip(r.stderr))
		}
		truth := readCounts(t, counts)
		var calls int64
		for n, k := range truth {
			if !strings.HasPrefix(n, "(") {
				calls += k
			}
		}
		if calls == 0 {
			t.Errorf("%v: no calls: %s\n%s%s", args, r.status, clip(r.stdout), clip(r.stderr))
		}
		entries := truth["(fentry)"]
		if p.config.kind.name == "exits" {
			entries = truth["(enter)"]
			// The compiler runs a function's exit hook when an exception passes through it, so only C can be compared.
			if open := entries - truth["(exit)"]; !f.cpp && open != truth[abandoned] {
				t.Errorf("%v: says it abandons %d calls, instrumented %d", args, truth[abandoned], open)
			}
		}
		if len(f.words("ignore")) == 0 && calls != entries {
			t.Errorf("%v: counted %d calls, instrumented %d", args, calls, entries)
		}
	}
}

// copyCounts keeps the counters of one run.
func copyCounts(t testing.TB, from string) map[string]int64 {
	t.Helper()
	c := readCounts(t, from)
	if err := os.Remove(from); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return c
}
