//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// goCounts are the calls that gostress has counted.
func goCounts(t *testing.T, stderr string) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for line := range strings.Lines(stderr) {
		var name string
		var n int64
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		counts[name] = n
	}
	if len(counts) < 15 {
		t.Fatalf("only %d functions", len(counts))
	}
	return counts
}

// recorded are the calls that a trace has of functions.
func recorded(t *testing.T, dir string, of map[string]int64) map[string]int64 {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if tr.Lost != 0 {
		t.Errorf("%d events are lost", tr.Lost)
	}
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	total := map[string]int64{}
	for _, r := range rows {
		total[r.Name] = r.Total
		if _, ok := of[r.Name]; ok {
			counts[r.Name] += int64(r.Calls)
		}
	}
	// The goroutine goes from thread to thread inside these calls.
	if total["main.round"] == 0 || total["main.round"] > total["main.main"] {
		t.Errorf("main.main takes %d ns, and what it calls %d", total["main.main"], total["main.round"])
	}
	for _, k := range tr.Tasks {
		if k.Goroutine == 0 && k.TID < 1 {
			t.Errorf("a task that is neither a thread nor a goroutine: %+v", k)
		}
	}
	if len(tr.Goroutines(1)) != 1 {
		t.Error("goroutine 1 is no task")
	}
	return counts
}

// TestGo records a Go program that does what is hard on who moves its code: with and without symbols and optimisation,
// with the collector at work all the time, and on one processor and several. It prints what it prints untraced, and its
// own counts are those of the trace.
func TestGo(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	envs := []string{"GOMAXPROCS=1", "GOMAXPROCS=8 GOGC=1", "GODEBUG=clobberfree=1,gccheckmark=1,gcstoptheworld=1 GOGC=5"}
	for name, flag := range map[string]string{
		"default": "-trimpath", "stripped": "-ldflags=-s -w", "unoptimised": "-gcflags=-N -l",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prog := filepath.Join(dir, "gostress")
			build := exec.Command("go", "build", flag, "-o", prog, "./testdata/gostress")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			untraced, err := exec.Command(prog).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, env := range envs {
				var out, counted bytes.Buffer
				cmd := exec.Command(prog)
				cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), strings.Fields(env)...), &out, &counted
				o := fentry.Options{Dir: filepath.Join(dir, "trace"), Overhead: -1}
				res, err := fentry.Run(context.Background(), cmd, o)
				if err != nil || res.Status.ExitStatus() != 0 || res.Untraced != "" {
					t.Fatalf("%s: %+v, %v\n%s", env, res, err, counted.String())
				}
				if d := cmp.Diff(string(untraced), out.String()); d != "" {
					t.Errorf("%s: output (-untraced +traced):\n%s", env, d)
				}
				want := goCounts(t, counted.String())
				if d := cmp.Diff(want, recorded(t, o.Dir, want)); d != "" {
					t.Errorf("%s: calls (-counted +recorded):\n%s", env, d)
				}
			}
		})
	}
}

// TestGoCompiler has a traced compiler, of which all functions are recorded, compile a package: the object is the one that
// it makes untraced.
func TestGoCompiler(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	config := filepath.Join(dir, "importcfg")
	list := run("list", "-deps", "-export", "-f", "{{if .Export}}packagefile {{.ImportPath}}={{.Export}}{{end}}", "strconv")
	if err := os.WriteFile(config, []byte(list+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	src := run("list", "-f", "{{.Dir}}", "strconv")
	files := strings.Fields(run("list", "-f", "{{join .GoFiles \" \"}}", "strconv"))
	compile := func(out string) *exec.Cmd {
		cmd := exec.Command(run("tool", "-n", "compile"), append([]string{
			"-p", "strconv", "-importcfg", config, "-o", filepath.Join(dir, out),
		}, files...)...)
		cmd.Dir = src
		return cmd
	}
	if out, err := compile("untraced").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := compile("traced")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	res, err := fentry.Run(context.Background(), cmd, fentry.Options{Dir: filepath.Join(dir, "trace"), Overhead: -1})
	if err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v\n%s", res, err, out.String())
	}
	if res.Traced < 10000 {
		t.Errorf("only %d functions of the compiler are traced: %s", res.Traced, res.Untraced)
	}
	want, err := os.ReadFile(filepath.Join(dir, "untraced"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "traced"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the object differs (%v)", err)
	}
}

// TestGoOptions: what cannot be done with a Go program is refused with a sentence, and not left out in silence.
func TestGoOptions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	prog := filepath.Join(dir, "gostress")
	build := exec.Command("go", "build", "-o", prog, "./testdata/gostress")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, o := range map[string]patch.Options{
		"count": {Tracer: patch.Count}, "function": {Tracer: patch.Function}, "clock": {NoClock: true}, "depth": {Depth: 3},
		"actions": {Actions: &patch.Actions{}},
	} {
		if _, err := p.Plan(o); !errors.Is(err, patch.ErrGoTracer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if plan, err := p.Plan(patch.Options{}); err != nil || plan.Traced() < 300 {
		t.Errorf("%v", err)
	}
}
