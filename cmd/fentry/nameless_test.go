//go:build linux && amd64

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A function without a symbol has one name, everywhere it is shown: by list, in plans, by all readers of traces.
// Patterns match it.
func TestNameless(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	link(t, dir)
	prog := filepath.Join(dir, "prog")
	for _, args := range [][]string{
		{"-O2", "-pg", "-mfentry", "-c", "demo/demo.c", "-o", prog + ".o"},
		{"-s", prog + ".o", "-o", prog, "-pthread"},
	} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	text, _ := fentryRun(t, dir, 0, "list", "prog")
	names := strings.Fields(text)
	if len(names) != 15 || !strings.HasPrefix(names[0], "func_") {
		t.Fatalf("list: %q", names)
	}
	// name is what prints of one function alone contain, and no other has.
	one, others := names[3], slices.Delete(slices.Clone(names), 3, 4)
	only := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, one) || strings.Contains(text, "0x0000") {
			t.Errorf("%s: no %s:\n%s", what, one, text)
		}
		for _, o := range others {
			if strings.Contains(text, o) {
				t.Errorf("%s: shows %s, too", what, o)
			}
		}
	}
	text, _ = fentryRun(t, dir, 0, "list", "-F", one, "prog")
	only("list -F", text)
	text, _ = fentryRun(t, dir, 0, "list", "--json", "-F", one, "prog")
	only("list --json", text)
	text, _ = fentryRun(t, dir, 0, "patch", "--plan", "-F", one, "--keep-calls", "prog")
	only("patch --plan", text)
	var plan struct {
		Functions []struct{ Name, Action string }
		Edits     []struct{ Func string }
	}
	text, _ = fentryRun(t, dir, 0, "patch", "--plan", "--json", "-F", one, "--keep-calls", "prog")
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	traced := ""
	for _, f := range plan.Functions {
		if f.Action == "trace" {
			traced += f.Name
		}
	}
	edited := ""
	for _, e := range plan.Edits {
		edited += e.Func // "" for one of the image's unwind information
	}
	if traced != one || edited != one {
		t.Errorf("patch --plan --json: traces %q, edits %+v", traced, plan.Edits)
	}

	readers := func(how string) {
		t.Helper()
		for _, args := range [][]string{
			{"replay"}, {"replay", "--format", "function", "-f", "noparent"}, {"replay", "--format", "json", "-F", one},
			{"report"}, {"report", "--json"}, {"graph"}, {"graph", "--json"}, {"graph", "--focus", one},
			{"replay", "-G", one}, {"report", "-F", one},
		} {
			text, errs := fentryRun(t, dir, 0, args...)
			only(how+" "+fmt.Sprint(args), text)
			if errs != "" {
				t.Errorf("%s %v: %s", how, args, errs)
			}
		}
	}
	fentryRun(t, dir, 0, "record", "-F", one, "./prog")
	readers("recorded,")
	fentryRun(t, dir, 0, "record", "-G", one, "-F", one, "./prog")
	readers("recorded inside,")
	os.RemoveAll(filepath.Join(dir, "fentry.data"))
	fentryRun(t, dir, 0, "patch", "-F", one, "-o", "traced", "prog")
	cmd := exec.Command("./traced")
	cmd.Dir = dir
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	readers("alone,")
}
