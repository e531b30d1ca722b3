package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reportRow is a line of fentry report --json.
type reportRow struct {
	Name       string `json:"name"`
	Symbol     string `json:"symbol"`
	Calls      int64  `json:"calls"`
	Total      int64  `json:"total_ns"`
	Self       int64  `json:"self_ns"`
	Min        int64  `json:"min_ns"`
	Max        int64  `json:"max_ns"`
	Unwound    int64  `json:"unwound"`
	Unfinished int64  `json:"unfinished"`
}

func report(t testing.TB, dir string) []reportRow {
	t.Helper()
	r := run(t, command{argv: []string{fentry, "report", "--json", "-i", dir}})
	r.mustSucceed(t)
	var rows []reportRow
	for d := json.NewDecoder(strings.NewReader(r.stdout)); ; {
		var row reportRow
		err := d.Decode(&row)
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatalf("report --json: %v\n%s", err, clip(r.stdout))
		}
		rows = append(rows, row)
	}
}

// TestReaders compares what report says with the program's own counters, and sees that replay and graph read every trace without complaint.
func TestReaders(t *testing.T) {
	for _, name := range fixtureNames(t) {
		f := loadFixture(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if m := f.missing(); m != "" {
				t.Skip(m)
			}
			c := configsFor(f, 0)[0]
			p := build(t, f, c)
			for _, args := range f.runs() {
				w := byRecord
				if len(f.words("library")) > 0 {
					w = byPatching
				}
				got := p.trace(t, w, args)
				checkReaders(t, p, args, got)
			}
		})
	}
}

func checkReaders(t *testing.T, p *program, args []string, got *traced) {
	t.Helper()
	if slices.Contains(p.fixture.words("may-lose"), strings.Join(args, " ")) {
		return
	}
	want := map[string]int64{}
	for n, k := range got.truth {
		if n != abandoned {
			want[counterName(n)] += k
		}
	}
	var open int64
	calls := map[string]int64{}
	for _, row := range report(t, got.dir) {
		n := functionName(row.Symbol)
		if _, ok := want[n]; !ok {
			if len(p.fixture.words("ignore")) == 0 {
				t.Errorf("%v: report has %q, which the program does not count", args, row.Symbol)
			}
			continue
		}
		calls[n] += row.Calls
		open += row.Unwound + row.Unfinished
		if row.Total < row.Self || row.Min > row.Max || row.Self < 0 {
			t.Errorf("%v: %s: total %d, self %d, min %d, max %d", args, row.Symbol, row.Total, row.Self, row.Min, row.Max)
		}
	}
	lacking := p.fixture.mayLack(p.config.kind)
	for n, k := range want {
		if calls[n] != k && !slices.Contains(lacking, n) {
			t.Errorf("%v: calls of %s: report %d, program counted %d", args, n, calls[n], k)
		}
	}
	// What a forked child has open when it ends was entered in its parent.
	forks := slices.Contains([]string{"fork", "debugger", "daemon"}, p.fixture.name)
	if truth := got.truth[abandoned]; open != truth && !forks && len(lacking) == 0 {
		t.Errorf("%v: unwound and unfinished calls: report %d, program abandoned %d", args, open, truth)
	}
	commands := []string{"replay", "graph", "info"}
	if p.fixture.name == "deep" {
		commands = commands[2:] // two million lines that are indented by up to two million columns
	}
	for _, cmd := range commands {
		r := run(t, command{dir: filepath.Dir(got.dir), argv: []string{fentry, cmd, "-i", got.dir}})
		r.mustSucceed(t)
		if r.stderr != "" {
			t.Errorf("%v: %s complains: %s", args, cmd, clip(r.stderr))
		}
		if r.stdout == "" {
			t.Errorf("%v: %s prints nothing", args, cmd)
		}
	}
}
