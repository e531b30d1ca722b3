package formats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// exported writes a trace to a file, or a directory, of a new directory.
func exported(t *testing.T, tr *trace.Trace, name string) string {
	t.Helper()
	f := Named(name)
	file := filepath.Join(t.TempDir(), "out"+f.Suffixes[0])
	if f.WriteDir != nil {
		if err := os.Mkdir(file, 0o777); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(file)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if _, err := f.WriteDir(root, export.From(tr)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var b bytes.Buffer
	if _, err := f.Write(&b, export.From(tr)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// output runs a client.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return string(out)
}

// TestClients: each format's own program reads it, and tells of each function what a report tells.
func TestClients(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	want, _ := reported(t, tr)
	for _, c := range []struct {
		format string
		needs  []string
		read   func(t *testing.T, file string) map[string]sums
	}{
		{"trace.dat", []string{"trace-cmd"}, askTraceCmd},
		{"uftrace", []string{"uftrace"}, askUftrace},
		{"pprof", []string{"go"}, askPprof},
		{"callgrind", []string{"callgrind_annotate"}, askCallgrindAnnotate},
		{"perfetto", []string{"protoc"}, askProtoc},
		{"ctf", []string{"babeltrace2"}, askBabeltrace},
		{"csv", []string{"/usr/bin/python3"}, askPython},
		{"chrome", []string{"chromium"}, askCatapult},
	} {
		t.Run(c.format, func(t *testing.T) {
			t.Parallel()
			if c.needs[0] != "go" {
				testtool.Need(t, c.needs...)
			}
			got := c.read(t, exported(t, tr, c.format))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-report +%s:\n%s", c.needs[0], diff)
			}
		})
	}
}

// askTraceCmd reads trace-cmd report with names, and the same with raw fields for the times.
func askTraceCmd(t *testing.T, file string) map[string]sums {
	got := map[string]sums{}
	entry := regexp.MustCompile(`funcgraph_entry: .*\|\s+(\w+)\(\)`)
	for _, m := range entry.FindAllStringSubmatch(output(t, "trace-cmd", "report", "-i", file), -1) {
		got[m[1]] = sums{got[m[1]].Calls + 1, 0}
	}
	raw := regexp.MustCompile(`(?m)^\s*prog-\d+ +\[(\d+)\] .*funcgraph_(entry|exit):\s+func=(\w+) depth=\d+` +
		`(?: overrun=0 calltime=([0-9a-f]+) rettime=([0-9a-f]+))?`)
	stacks := map[string]*stack{}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	timed := map[string]sums{}
	for _, m := range raw.FindAllStringSubmatch(output(t, "trace-cmd", "report", "-R", "-i", file), -1) {
		s := stacks[m[1]]
		if s == nil {
			s = &stack{}
			stacks[m[1]] = s
		}
		if m[2] == "entry" {
			s.begin(m[3], 0)
			continue
		}
		s.begins[len(s.begins)-1] = number(m[4])
		s.end(t, number(m[5]), timed)
	}
	for name, s := range timed {
		if s.Calls != got[name].Calls {
			t.Errorf("%s: %d calls, %d in raw fields", name, got[name].Calls, s.Calls)
		}
	}
	out := output(t, "trace-cmd", "report", "-F", "funcgraph_entry: depth == 0", "-i", file)
	if strings.Contains(out, "|    ") || !strings.Contains(out, "|  ") {
		t.Errorf("a filter by depth gives:\n%.2000s", out)
	}
	return timed
}

// askUftrace reads what its dump says of each call, and compares the numbers of calls with its report.
func askUftrace(t *testing.T, dir string) map[string]sums {
	var file struct {
		TraceEvents []struct {
			Ts       json.Number
			Ph, Name string
			Tid, Pid int
		}
	}
	if err := json.Unmarshal([]byte(output(t, "uftrace", "dump", "--chrome", "-d", dir)), &file); err != nil {
		t.Fatal(err)
	}
	got, stacks := map[string]sums{}, map[int]*stack{}
	for _, ev := range file.TraceEvents {
		tid := ev.Tid + ev.Pid
		if stacks[tid] == nil {
			stacks[tid] = &stack{}
		}
		if ev.Ph != "B" && ev.Ph != "E" {
			continue
		}
		at, err := strconv.ParseInt(strings.Replace(string(ev.Ts), ".", "", 1), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Ph == "B" {
			stacks[tid].begin(ev.Name, at)
		} else {
			stacks[tid].end(t, at, got)
		}
	}
	for l := range strings.Lines(output(t, "uftrace", "report", "-d", dir)) {
		f := strings.Fields(l)
		if n, err := strconv.ParseInt(f[max(0, len(f)-2)], 10, 64); err == nil && got[f[len(f)-1]].Calls != n {
			t.Errorf("report says %q, dump %d calls", l, got[f[len(f)-1]].Calls)
		}
	}
	return got
}

func askPprof(t *testing.T, file string) map[string]sums {
	top := func(index, unit string) map[string]float64 {
		flat := map[string]float64{}
		out := output(t, "go", "tool", "pprof", "-top", "-nodecount=9999", "-nodefraction=0", "-edgefraction=0",
			"-sample_index="+index, "-unit="+unit, file)
		_, rows, _ := strings.Cut(out, "flat%")
		for l := range strings.Lines(rows) {
			f := strings.Fields(l)
			if len(f) != 6 {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSuffix(f[0], unit), 64)
			if err != nil {
				continue
			}
			flat[f[5]] = v
		}
		return flat
	}
	calls, times := top("calls", "count"), top("time", "ns")
	got := map[string]sums{}
	for name, n := range calls {
		got[name] = sums{int64(n), int64(math.Round(times[name]))}
	}
	return got
}

// annotated is what callgrind_annotate says of each function.
func annotated(t *testing.T, file string, args ...string) map[string]int64 {
	row := regexp.MustCompile(`(?m)^\s*([0-9,]+) \([ 0-9.]+%\)\s+\S+:(\S+) `)
	all := map[string]int64{}
	out := output(t, "callgrind_annotate", append(args, "--threshold=100", file)...)
	for _, m := range row.FindAllStringSubmatch(out, -1) {
		n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[2]] = n
	}
	return all
}

// TestCallgrindInclusive: times with what is called are a report's totals, so recursion counts once.
func TestCallgrindInclusive(t *testing.T) {
	testtool.Need(t, "callgrind_annotate")
	tr := sample.Random(t, rand.New(rand.NewPCG(6, 5)), 4000)
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for _, r := range rows {
		want[r.Name] = r.Total
	}
	got := annotated(t, exported(t, tr, "callgrind"), "--inclusive=yes")
	delete(got, "(start)")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-report +callgrind_annotate:\n%s", diff)
	}
}

// TestPprofRaw: what pprof prints of each sample adds up to a report's calls and times.
func TestPprofRaw(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(6, 5)), 4000)
	want, _ := reported(t, tr)
	out := output(t, "go", "tool", "pprof", "-raw", exported(t, tr, "pprof"))
	samples, locations, _ := strings.Cut(out, "\nLocations\n")
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\d+): 0x[0-9a-f]+ M=1 (\w+) `).FindAllStringSubmatch(locations, -1) {
		names[m[1]] = m[2]
	}
	got := map[string]sums{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\d+)\s+(\d+): (\d+) `).FindAllStringSubmatch(samples, -1) {
		calls, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		self, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		of := got[names[m[3]]]
		got[names[m[3]]] = sums{of.Calls + calls, of.Self + self}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-report +pprof -raw:\n%s", diff)
	}
}

// askCallgrindAnnotate reads self times; all of them are below what calls all.
func askCallgrindAnnotate(t *testing.T, file string) map[string]sums {
	// It has no table of calls: those are from the file.
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := readCallgrind(t, b)
	for name, n := range annotated(t, file) {
		if name != "(start)" {
			got[name] = sums{got[name].Calls, n}
		}
	}
	var self, start int64
	for _, s := range got {
		self += s.Self
	}
	if start = annotated(t, file, "--inclusive=yes")["(start)"]; start != self {
		t.Errorf("%d ns inclusive in all, %d ns self", start, self)
	}
	return got
}

// decodeProto decodes by the schema: a field that it does not know shows as a number.
func decodeProto(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("protoc", "--decode=perfetto.protos.Trace", "-I", "testdata", "testdata/perfetto.proto")
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("protoc: %v\n%.2000s", err, out)
	}
	if m := regexp.MustCompile(`(?m)^\s*\d+[ :].*$`).Find(out); m != nil {
		t.Errorf("a field that the schema does not have: %s", m)
	}
	return string(out)
}

func askProtoc(t *testing.T, file string) map[string]sums {
	out := decodeProto(t, file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := readPerfetto(t, b)
	var calls int64
	for _, s := range got {
		calls += s.Calls
	}
	if n := strings.Count(out, "TYPE_SLICE_BEGIN"); int64(n) != calls {
		t.Errorf("protoc sees %d beginnings of slices, want %d", n, calls)
	}
	return got
}

// askBabeltrace reads what it prints of each event.
func askBabeltrace(t *testing.T, dir string) map[string]sums {
	line := regexp.MustCompile(`^\[(\d+)\.(\d{9})\] .* func_(entry|exit): \{ .*vtid = (\d+), stack = (\d+).* \}, ` +
		`\{ func = \( "(\w+)" : container = \d+ \) \}$`)
	got, stacks := map[string]sums{}, map[string]*stack{}
	for l := range strings.Lines(output(t, "babeltrace2", "--clock-seconds", dir)) {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			t.Fatalf("babeltrace2 prints %q", l)
		}
		at, err := strconv.ParseInt(m[1]+m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		track := m[4] + "/" + m[5]
		if stacks[track] == nil {
			stacks[track] = &stack{}
		}
		if m[3] == "entry" {
			stacks[track].begin(m[6], at)
		} else {
			stacks[track].end(t, at, got)
		}
	}
	return got
}

func askPython(t *testing.T, file string) map[string]sums {
	out := output(t, "/usr/bin/python3", "-c", `
import csv, collections, json, sys
rows = collections.defaultdict(lambda: [0, 0])
for row in csv.DictReader(open(sys.argv[1], newline="")):
    rows[row["function"]][0] += 1
    rows[row["function"]][1] += int(row["self"])
print(json.dumps(rows))
`, file)
	var rows map[string][2]int64
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	got := map[string]sums{}
	for name, r := range rows {
		got[name] = sums{r[0], r[1]}
	}
	return got
}

// TestBabeltraceNotes: labels with any text, marks, and lost events, of which babeltrace2 itself warns.
func TestBabeltraceNotes(t *testing.T) {
	testtool.Need(t, "babeltrace2")
	cmd := exec.Command("babeltrace2", "--clock-seconds", exported(t, sample.Small(t), "ctf"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for _, want := range []string{
		`func_entry: { vpid = 7, vtid = 7, stack = 9, procname = "prog" }, { func = ( "g;\"h\"" : container = `,
		`mark: { vpid = 7, vtid = 7, stack = 0, procname = "prog" }, { text = "half`,
		`[1700000000.000001000] (+0.000000990) func_entry: { vpid = 7, vtid = 9, stack = 0, procname = "worker \"1\"" }`,
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no line has %s", want)
		}
	}
	if !strings.Contains(stderr.String(), "Tracer discarded 5 events") {
		t.Errorf("no warning of lost events, but: %s", stderr.String())
	}
	if t.Failed() {
		t.Log(stdout.String())
	}
}
