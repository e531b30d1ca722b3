package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// TestIndex asks random questions of traces of real programs, with an index and without: the answers are the same, byte
// for byte.
func TestIndex(t *testing.T) {
	fixtures := []struct {
		name    string
		w       way
		options []string
	}{
		{name: "fork", w: byRecord},
		{name: "threads", w: byRecord},
		{name: "coroutines", w: byRecord},
		{name: "jumps", w: byPatching},
		{name: "tailcalls", w: byRecord},
		{name: "deep", w: byPatching},
		{name: "threads", w: byRecord, options: []string{"--buffer", "1M", "--policy", "drop"}},
		{name: "tailcalls", w: byRecord, options: []string{"--buffer", "1M", "--policy", "overwrite"}},
	}
	for i, f := range fixtures {
		t.Run(strings.Join(append([]string{f.name, string(f.w)}, f.options...), " "), func(t *testing.T) {
			t.Parallel()
			fx := loadFixture(t, f.name)
			if m := fx.missing(); m != "" {
				t.Skip(m)
			}
			p := build(t, fx, configsFor(fx, 0)[0])
			got := p.trace(t, f.w, fx.runs()[0], f.options...)
			checkIndex(t, got.dir, uint64(i))
		})
	}
	t.Run("lua", func(t *testing.T) {
		t.Parallel()
		scripts, err := filepath.Glob("testdata/lua/*.lua")
		if err != nil || len(scripts) == 0 {
			t.Fatalf("testdata/lua: %v, %d scripts", err, len(scripts))
		}
		k := kindNamed(t, "fentry")
		b := buildProgram(t, corpus.Lua, k)
		if !testtool.Wide() {
			scripts = scripts[:1]
		}
		for i, script := range scripts {
			data := filepath.Join(t.TempDir(), "data")
			runJob(t, job{kind: k, program: b.Program, args: []string{mustAbs(t, script)}}, byRecord, data).mustSucceed(t)
			checkIndex(t, data, uint64(i))
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		k := kindNamed(t, "fentry")
		b := buildProgram(t, corpus.SQLite, k)
		data := filepath.Join(t.TempDir(), "data")
		j := job{kind: k, program: b.Program, args: []string{":memory:"}, stdin: corpus.SQLScript(1000)}
		if r := runJob(t, j, byRecord, data); r.err != nil { // the script has errors
			t.Fatal(r.err)
		}
		checkIndex(t, data, 3)
	})
	// Its subshells are forked inside of dozens of calls.
	t.Run("bash", func(t *testing.T) {
		t.Parallel()
		needFentry(t)
		data := filepath.Join(t.TempDir(), "data")
		const script = "f() { for i in {1..200}; do echo $((i * $1)); done; }; " +
			"for i in 1 2 3 4 5 6; do (f $i; (f 2) | while read x; do :; done); f 1; done"
		argv := []string{fentry, "record", "-o", data, "--overhead", "no", needProgram(t, "bash"), "-c", script}
		run(t, command{dir: filepath.Dir(data), argv: argv}).mustSucceed(t)
		checkIndex(t, data, 4)
	})
}

// unread is what is said of patterns and the calls that were read, which are others with an index.
var unread = regexp.MustCompile(`(?m)^fentry: warning: pattern .* matches functions that were traced, but none of the .*\n`)

// checkIndex compares answers for the trace in dir.
func checkIndex(t *testing.T, dir string, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	indexed := filepath.Join(t.TempDir(), "data") // under the same name, which messages have
	copyDir(t, dir, indexed)
	for _, d := range []string{dir, indexed} {
		if err := os.RemoveAll(filepath.Join(d, trace.IndexFile)); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Open(indexed)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	t.Logf("%d MiB of %d tasks, %d events lost, %d overwritten", tr.Bytes>>20, len(tr.Tasks), tr.Lost, tr.Header.Overwritten)
	if ok, err := tr.MakeIndex(trace.IndexOptions{File: true, Block: 50 + rng.IntN(3000)}); !ok || err != nil {
		t.Fatalf("no index: %v", err)
	}
	q, n := newQuestions(t, tr, rng), 8
	if tr.Bytes > 8<<20 {
		n = 3 // answers are long
	}
	if testtool.Wide() {
		n *= 25
	}
	for range n {
		args := q.next()
		ask := func(dir string) *result {
			argv := append([]string{fentry}, args...)
			r := run(t, command{argv: argv, dir: filepath.Dir(dir), env: []string{"FENTRY_DATA=data"}})
			if r.err != nil {
				t.Fatal(r.err)
			}
			r.stderr = unread.ReplaceAllString(r.stderr, "")
			return r
		}
		want, have := ask(dir), ask(indexed)
		if want.stdout != have.stdout || want.stderr != have.stderr || want.status != have.status {
			t.Errorf("fentry %q: with an index %d bytes, %s, without %d bytes, %s\n%s", args,
				len(have.stdout), have.status+have.stderr, len(want.stdout), want.status+want.stderr,
				clip(firstDifference(want.stdout, have.stdout)))
		}
	}
	if b, err := trace.Open(indexed); err != nil {
		t.Error(err)
	} else {
		if ok, _ := b.MakeIndex(trace.IndexOptions{}); !ok {
			t.Error("the index was not used")
		}
		b.Close()
	}
}

// firstDifference is the first line that differs.
func firstDifference(want, have string) string {
	a, b := strings.Split(want, "\n"), strings.Split(have, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: %q, want %q", i+1, b[i], a[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(b), len(a))
}

// questions asks at random.
type questions struct {
	rng   *rand.Rand
	names []string // of functions, rare ones too
	tids  []int
	pids  []int
	durs  []int64 // of calls
	end   int64
}

func newQuestions(t *testing.T, tr *trace.Trace, rng *rand.Rand) *questions {
	q := &questions{rng: rng}
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		q.names = append(q.names, r.Name)
		q.durs = append(q.durs, r.Max, r.Avg, r.P99)
		q.end = max(q.end, r.Total)
	}
	for _, k := range tr.Tasks {
		q.tids, q.pids = append(q.tids, k.TID), append(q.pids, k.PID)
		q.end = max(q.end, k.Start)
	}
	if len(q.names) == 0 {
		t.Fatal("no calls in the trace")
	}
	return q
}

func one[T any](q *questions, from []T) T { return from[q.rng.IntN(len(from))] }

// next is a command with its options.
func (q *questions) next() []string {
	args := []string{one(q, []string{"replay", "report", "graph"})}
	add := func(in int, words ...string) {
		if q.rng.IntN(in) == 0 {
			args = append(args, words...)
		}
	}
	from := q.rng.Int64N(q.end + 1)
	add(2, "--time", fmt.Sprintf("%dns,%dns", from, from+1+q.rng.Int64N(q.end/4+2)))
	add(3, "-F", one(q, q.names))
	add(4, "-N", one(q, q.names))
	add(3, "-G", one(q, q.names))
	add(3, "-t", fmt.Sprintf("%dns", one(q, q.durs)))
	add(5, "--tid", fmt.Sprint(one(q, q.tids)))
	add(6, "--pid", fmt.Sprint(one(q, q.pids)))
	switch args[0] {
	case "replay":
		if slices.Contains(args, "-G") || q.rng.IntN(4) > 0 {
			add(5, "--graph-notrace", one(q, q.names))
			add(5, "--tail-calls", "nest")
			add(3, "-D", fmt.Sprint(1+q.rng.IntN(5)))
			add(2, "--format", "json")
		} else {
			args = append(args, "--slowest", fmt.Sprint(1+q.rng.IntN(10)))
		}
	default:
		add(5, "--graph-notrace", one(q, q.names))
		add(5, "--tail-calls", "nest")
		add(3, one(q, []string{"--process", "--task"}))
		add(2, "--json")
	}
	return args
}
