package stub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// command makes a command of a fixture, in a directory of its own.
func (f *fixture) command(t testing.TB, args ...string) *exec.Cmd {
	cmd := f.on.command(t, f.cpu, f.path, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), f.env...)
	return cmd
}

// run runs a fixture in a directory of its own and returns its output and the trace.
func (f *fixture) run(t testing.TB, args ...string) (string, *events) {
	t.Helper()
	cmd := f.command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", f.path, err, out.String(), errs.String())
	}
	if errs.Len() > 0 {
		t.Errorf("standard error: %s", errs.String())
	}
	return out.String(), f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events"))
}

// madeNothing checks that a command has left nothing in its directory.
func madeNothing(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it has made %v, %v", left, err)
	}
}

func (f *fixture) read(t testing.TB, path string) *events {
	t.Helper()
	b, err := readUsed(path)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := decode(b, f.sites, f.guests)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// readUsed reads what is in use of an events file: the rest of it is a hole.
func readUsed(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 4096)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := make([]byte, uint64(le.Uint32(head[12:]))+le.Uint64(head[32:])*uint64(le.Uint32(head[16:])))
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

// expectCounts compares the calls in a trace with lines "name count" of the output.
func expectCounts(t *testing.T, out string, ev *events) {
	t.Helper()
	n := 0
	for _, line := range strings.Split(out, "\n") {
		var name string
		var want int
		if c, _ := fmt.Sscanf(line, "%s %d", &name, &want); c != 2 || strings.Count(line, " ") != 1 {
			continue
		}
		n++
		if ev.calls[name] != want {
			t.Errorf("%s: %d calls in the trace, %d counted by the program", name, ev.calls[name], want)
		}
	}
	if n == 0 {
		t.Fatalf("no counts in output %q", out)
	}
}

// variants are the machines, and how programs for them are linked and run.
var variants = []struct {
	name, cpu string
	on        *machine
	flags     []string
	wide      bool
}{
	{"amd64", "", onAMD64, nil, false},
	{"arm64", "cortex-a53", onARM64, nil, false},
	{"arm64-static", "max", onARM64, []string{"-static"}, false},
	{"arm64-max", "max", onARM64, nil, true},
	{"arm64-static-a53", "cortex-a53", onARM64, []string{"-static"}, true},
}

func TestGraph(t *testing.T) {
	for _, v := range variants {
		if v.wide && !testtool.Wide() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := buildFixture(t, "basic.c", buildOptions{on: v.on, flags: v.flags})
			f.cpu = v.cpu
			out, ev := f.run(t)
			if !strings.HasPrefix(out, "17711 0 66.5\n") {
				t.Errorf("output %q", out)
			}
			expectCounts(t, out, ev)
			if ev.open != 0 || ev.strays != 0 {
				t.Errorf("%d calls left open, %d exits without entry", ev.open, ev.strays)
			}
		})
	}
}

// BenchmarkThunk measures a call and return of an empty traced function against
// the clock reads it contains.
func BenchmarkThunk(b *testing.B) {
	for _, c := range []struct {
		name, tracer string
		reads        int
		config       Config
	}{
		{"graph", "graph", 2, Config{}},
		{"function", "func", 1, Config{Mode: ModeFunction}},
		{"profile", "profile", 2, Config{Mode: ModeProfile}},
		{"depth", "opt", 2, Config{Depth: 100}},
		{"threshold", "opt", 2, Config{Threshold: 1e6}},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := buildFixture(b, "bench.c", buildOptions{tracer: c.tracer, config: c.config})
			for b.Loop() {
				cmd := f.command(b, fmt.Sprint(c.reads), "2000")
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				var reads, call, ratio float64
				if _, err := fmt.Sscan(string(out), &reads, &call, &ratio); err != nil {
					b.Fatal(err)
				}
				if c.config.Mode == ModeProfile || c.config.Threshold != 0 {
					// no events
				} else if ev := f.read(b, filepath.Join(cmd.Dir, "fentry.data", "events")); ev.calls["empty"] != 2000*2000 {
					b.Fatalf("%d calls recorded", ev.calls["empty"])
				}
				b.ReportMetric(call, "ns/call")
				b.ReportMetric(reads, "ns/reads")
				b.ReportMetric(ratio, "x")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
