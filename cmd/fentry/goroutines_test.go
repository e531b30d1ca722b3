//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// TestReplayGoroutines: of a Go program, each line says which goroutine and which thread it is of, in text and as JSON;
// -f noproc hides it.
func TestReplayGoroutines(t *testing.T) {
	dir := t.TempDir()
	link(t, dir)
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 12e9, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	const image = trace.ImageID(0xabcd)
	if err := w.WriteImage(trace.Image{ID: image, Path: "/server", Stacks: trace.StacksGoroutines}); err != nil {
		t.Fatal(err)
	}
	one := w.Task(trace.TaskID{PID: 4711, TID: 4711, Image: image, Comm: "server"})
	two := w.Task(trace.TaskID{PID: 4711, TID: 4712, Image: image, Comm: "server"})
	one.Stack(1003, 1<<63|17)
	one.Enter(1004, 1)
	two.Stack(2003, 1<<63|17)
	two.Enter(2004, 2)
	two.Exit(2005, 2)
	two.Exit(2006, 1)
	for _, k := range []*trace.TaskWriter{one, two} {
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "t"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "t", trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want []string // in the lines, in order
	}{
		{"", []string{" server-g17/4711 ", " server-g17/4712 ", " server-g17/4712 "}},
		{"--goroutine 17", []string{" server-g17/4711 ", " server-g17/4712 ", " server-g17/4712 "}},
		{"--format json", []string{
			`"tid":17,"comm":"server","task":0,"thread":4711,"depth":0,`, `"task":0,"thread":4712,"depth":1,`,
			`"task":0,"thread":4712,"depth":1,`, `"task":0,"thread":4712,"depth":0,`,
		}},
		{"-f noproc", []string{"0)               |  ", "0)   0.001 us    |    ", "0)   1.002 us    |  }"}},
	} {
		text, _ := fentryRun(t, dir, 0, append([]string{"replay", "-i", "t"}, strings.Fields(c.args)...)...)
		var lines []string
		for l := range strings.Lines(text) {
			if !strings.HasPrefix(l, "#") {
				lines = append(lines, l)
			}
		}
		if len(lines) != len(c.want) {
			t.Fatalf("replay %s:\n%s", c.args, text)
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("replay %s: line %d has no %q:\n%s", c.args, i, want, text)
			}
		}
	}
	each, _ := fentryRun(t, dir, 0, "report", "--goroutines", "-i", "t")
	if text, _ := fentryRun(t, dir, 0, "report", "--goroutine", "-i", "t"); text != each {
		t.Errorf("report --goroutine:\n%swant\n%s", text, each)
	}
}

// TestReportGoroutineArgs: report --goroutine without a number is --goroutines.
func TestReportGoroutineArgs(t *testing.T) {
	for args, want := range map[string]string{
		"report --goroutine":              "report --goroutines",
		"report --goroutine -f calls":     "report --goroutines -f calls",
		"report --goroutine traces":       "report --goroutines traces",
		"report --goroutine 17,18 traces": "report --goroutine 17,18 traces",
		"report --goroutine=17":           "report --goroutine=17",
		"report -- --goroutine":           "report -- --goroutine",
		"replay --goroutine":              "replay --goroutine",
	} {
		if got := strings.Join(reportArgs(strings.Fields(args)), " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
