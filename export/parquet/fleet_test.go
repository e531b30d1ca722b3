package parquet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/parquet"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

// DuckDB, as npm has it.
const duckdb = "@duckdb/node-api@1.5.6-r.1"

// ask runs statements in DuckDB, in a directory, and returns what each answers, a row a line.
const ask = `
const { DuckDBInstance } = require("@duckdb/node-api");
(async () => {
  const c = await (await DuckDBInstance.create(":memory:")).connect();
  const answers = [];
  for (const sql of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
    const r = await c.runAndReadAll(sql);
    answers.push(r.getRowsJson());
  }
  process.stdout.write(JSON.stringify(answers));
})().catch((e) => { console.error(e.message); process.exit(1); });
`

// query asks DuckDB.
func query(t *testing.T, dir string, statements ...string) [][][]any {
	t.Helper()
	modules := os.Getenv("FENTRY_DUCKDB")
	if modules == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("no directory for DuckDB: ", err)
		}
		modules = filepath.Join(cache, "fentry-tests", "duckdb")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs node and npm, which has DuckDB")
		}
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "@duckdb", "node-api")); err != nil {
		if err := os.MkdirAll(modules, 0o777); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("npm", "install", "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=60000",
			"--no-audit", "--no-fund", "--ignore-scripts", "--prefix", modules, duckdb)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("npm install %s: %v: no network?\n%s", duckdb, err, out)
		}
	}
	script := filepath.Join(t.TempDir(), "ask.js")
	if err := os.WriteFile(script, []byte(ask), 0o666); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(statements)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	probe := exec.Command("node", "-e", `require("@duckdb/node-api")`)
	probe.Env = env
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("DuckDB does not load here: %v\n%s", err, out)
	}
	cmd := exec.Command("node", script)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, bytes.NewReader(in), env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var answers [][][]any
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return answers
}

// A fleet is a data set of runs, and what is known of them.
type fleet struct {
	dir   string // lake is in it
	calls []known
	lost  map[string]int // runs by host
}

type known struct {
	host, build, name, stack string
	start, duration, self    int64
}

// newFleet makes runs of ten hosts, each of a build that is slower or of one that is not.
func newFleet(
	t *testing.T, runs int, write func(*os.Root, *export.Source) (export.Summary, error),
) *fleet {
	rng := rand.New(rand.NewPCG(1, 2))
	f := &fleet{dir: t.TempDir(), lost: map[string]int{}}
	lake := filepath.Join(f.dir, "lake")
	if err := os.Mkdir(lake, 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(lake)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for i := range runs {
		host, build := fmt.Sprintf("web-%d", i%10), []string{"aaaa", "bbbb"}[i/10%2]
		f.lost[host]++
		h := trace.Header{Counter: 1000, Monotonic: 5e9, Realtime: 17e17 + uint64(i)*1e9, CounterHz: 1e9, Closed: true}
		im := trace.Image{ID: sample.Image, Path: "/srv/a server", BuildID: build, Sites: 3}
		tr := sample.BuildOf(t, h, im, []string{"main", "handle", "parse"}, func(w *trace.Writer) {
			k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: sample.Image, Comm: "server"})
			now := uint64(1000)
			began := now
			k.Enter(now, 1)
			inside := uint64(0)
			for range 20 {
				now += 10
				start := now
				k.Enter(now, 2)
				now += 1 + rng.Uint64N(1000)
				parse := 1 + rng.Uint64N(1000)
				if build == "bbbb" {
					parse += 2000
				}
				k.Enter(now, 3)
				f.add(host, build, "parse", "handle;parse", now, parse, parse)
				now += parse
				k.Exit(now, 3)
				now += 5
				k.Exit(now, 2)
				f.add(host, build, "handle", "handle", start, now-start, now-start-parse)
				inside += now - start
			}
			now += 10
			k.Exit(now, 1)
			f.add(host, build, "main", "", began, now-began, now-began-inside)
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
		})
		tr.Info = &trace.Info{Host: host, Start: time.Unix(17e8+int64(i), 0), Command: []string{"server", "-v"}}
		for range 1 + i%2 { // again: its files are replaced
			if sum, err := write(root, export.From(tr)); err != nil || sum.Calls != 41 || len(sum.Left) > 0 {
				t.Fatal(sum, err)
			}
		}
	}
	return f
}

func (f *fleet) add(host, build, name, stack string, start, duration, self uint64) {
	f.calls = append(f.calls, known{host, build, name, stack, int64(start) - 1000, int64(duration), int64(self)})
}

// TestFleet: the questions of docs/fleet.md, asked of a hundred runs of ten hosts, have the answers that are known.
func TestFleet(t *testing.T) {
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	statements := statementsOf(string(page), "sql")
	const views = 5
	if len(statements) != views+5 {
		t.Fatalf("%d statements in docs/fleet.md", len(statements))
	}
	const runs = 100
	f := newFleet(t, runs, parquet.Write)
	statements = append(statements, `SELECT count(*), count(DISTINCT run), min(program), min(strftime(started, '%Y')) FROM runs`)
	answers := query(t, f.dir, statements...)[views:]
	for i, c := range []struct {
		name string
		want [][]string
	}{
		{"slowest", f.slowest()}, {"builds", f.builds()}, {"p99", f.p99(func(n int) int { return (99*n+99)/100 - 1 })}, {"flame", f.flame()}, {"lost", f.hosts()},
		{"runs", [][]string{{fmt.Sprint(runs), fmt.Sprint(runs), "a server", "2023"}}},
	} {
		var got [][]string
		for _, row := range answers[i] {
			var texts []string
			for _, v := range row {
				texts = append(texts, text(v))
			}
			got = append(got, texts)
		}
		checkAnswer(t, c.name, c.want, got)
	}
}

// checkAnswer compares the answer to a question with what it is to be.
func checkAnswer(t *testing.T, name string, want, got [][]string) {
	t.Helper()
	if name == "slowest" { // a run's number is not known
		for _, row := range got {
			row[1] = ""
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// statementsOf returns the statements of a page in a language.
func statementsOf(page, language string) (statements []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?);\n```").FindAllStringSubmatch(page, -1) {
		statements = append(statements, strings.Split(m[1], ";\n")...)
	}
	return statements
}

// text is a value, a number without a fraction.
func text(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatInt(int64(v), 10)
	case string:
		return v
	}
	return fmt.Sprint(v)
}

func (f *fleet) slowest() (rows [][]string) {
	calls := slices.DeleteFunc(slices.Clone(f.calls), func(c known) bool { return c.name != "handle" })
	slices.SortStableFunc(calls, func(a, b known) int {
		if a.duration != b.duration {
			return int(b.duration - a.duration)
		}
		return strings.Compare(a.host, b.host)
	})
	for _, c := range calls[:10] {
		rows = append(rows, []string{c.host, "", c.name, fmt.Sprint(c.start), fmt.Sprint(c.duration)})
	}
	return rows
}

func (f *fleet) builds() (rows [][]string) {
	sums := map[string]map[string]int64{"aaaa": {}, "bbbb": {}}
	for _, c := range f.calls {
		sums[c.build][c.name] += c.self
	}
	names := []string{"main", "handle", "parse"}
	slices.SortFunc(names, func(a, b string) int {
		return int(sums["bbbb"][b] - sums["aaaa"][b] - sums["bbbb"][a] + sums["aaaa"][a])
	})
	for _, n := range names {
		rows = append(rows, []string{n, fmt.Sprint(sums["aaaa"][n] / 50), fmt.Sprint(sums["bbbb"][n] / 50)})
	}
	return rows
}

// p99 takes the value at a position, of which there is one more convention than engines.
func (f *fleet) p99(at func(n int) int) (rows [][]string) {
	for _, build := range []string{"aaaa", "bbbb"} {
		var d []int64
		for _, c := range f.calls {
			if c.build == build && c.name == "handle" {
				d = append(d, c.duration)
			}
		}
		slices.Sort(d)
		rows = append(rows, []string{build, fmt.Sprint(len(d)), fmt.Sprint(d[at(len(d))])})
	}
	return rows
}

func (f *fleet) flame() (rows [][]string) {
	sums := map[string]int64{}
	for _, c := range f.calls {
		sums[c.stack] += c.self
	}
	for _, s := range []string{"handle", "handle;parse"} {
		rows = append(rows, []string{s, fmt.Sprint(sums[s])})
	}
	return rows
}

func (f *fleet) hosts() (rows [][]string) {
	for i := range 10 {
		host := fmt.Sprintf("web-%d", i)
		rows = append(rows, []string{host, "a server", fmt.Sprint(f.lost[host]), "0", "0"})
	}
	return rows
}

// TestSample: what a report says of a trace with one of everything, the tables say, too.
func TestSample(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 300_000)
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := parquet.Write(root, export.From(tr)); err != nil {
		t.Fatal(err)
	}
	want := reported(t, tr)
	got := map[string]string{}
	for _, r := range query(t, dir, `SELECT name, count(*), sum(self_ns), max(duration_ns) FROM 'calls/**/*.parquet' c
		JOIN 'functions/**/*.parquet' f USING (function) GROUP BY name`)[0] {
		got[text(r[0])] = fmt.Sprintf("%s calls, %s self", text(r[1]), text(r[2]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-report +DuckDB:\n%s", diff)
	}
}

// reported is what a report says of functions.
func reported(t *testing.T, tr *trace.Trace) map[string]string {
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, r := range rows {
		m[r.Name] = fmt.Sprintf("%d calls, %d self", r.Calls, r.Self)
	}
	return m
}
