//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

const folded = `#include <stdio.h>
#define NOINLINE __attribute__((noinline))
int counter;
NOINLINE int twice(int a) { counter++; return 2 * a + 1; }
NOINLINE int double_it(int a) { counter++; return 2 * a + 1; }
NOINLINE int other(int a) { counter++; return 3 * a; }
int main(int argc, char **argv) { printf("%d\n", twice(argc) + double_it(argc) + other(argc)); return 0; }
`

// Functions with identical code that a linker has made one are one function, with one id and one name wherever it is
// shown, and are found by all of their names: in programs and in traces, whoever wrote them, and also if a trace is of
// a program that is gone.
func TestFoldedFunctions(t *testing.T) {
	testtool.Need(t, "clang", "ld.lld", "ld.gold")
	for _, linker := range []string{"lld", "gold"} {
		t.Run(linker, func(t *testing.T) {
			dir := t.TempDir()
			link(t, dir)
			src := filepath.Join(dir, "folded.c")
			if err := os.WriteFile(src, []byte(folded), 0o666); err != nil {
				t.Fatal(err)
			}
			for _, prog := range []string{"prog", "plain"} {
				args := []string{"-O1", "-ffunction-sections", "-fuse-ld=" + linker, "-Wl,--icf=all", "-o", filepath.Join(dir, prog), src}
				if prog == "prog" {
					args = append(args, "-pg", "-mfentry")
				}
				if out, err := exec.Command("clang", args...).CombinedOutput(); err != nil {
					t.Fatalf("clang: %v\n%s", err, out)
				}
			}
			contains := func(what, text string, want ...string) {
				t.Helper()
				for _, w := range want {
					if !strings.Contains(text, w) {
						t.Errorf("%s: no %q in\n%s", what, w, text)
					}
				}
			}
			for _, prog := range []string{"prog", "plain"} {
				text, _ := fentryRun(t, dir, 0, "list", "-l", prog)
				contains("list -l", text, "ALIASES", "double_it", "twice")
				text, _ = fentryRun(t, dir, 0, "list", "-F", "twice", prog)
				if text != "double_it\n" {
					t.Errorf("list -F twice: %q", text)
				}
				text, _ = fentryRun(t, dir, 0, "list", "--json", "-F", "double_it", prog)
				contains("list --json", text, `"aliases":["twice"]`)
				fentryRun(t, dir, 0, "record", "-F", "twice", "./"+prog)
				for _, name := range []string{"twice", "double_it"} {
					text, errs := fentryRun(t, dir, 0, "replay", "-F", name)
					if strings.Count(text, "double_it();") != 2 || errs != "" {
						t.Errorf("replay -F %s: %s%s", name, text, errs)
					}
				}
				_, errs := fentryRun(t, dir, 0, "replay", "-F", "nobody", "-F", "other")
				contains("replay -F nobody", errs, `"nobody" matches no function`, `"other" matches no function`)
				text, _ = fentryRun(t, dir, 0, "record", "-N", "twice", "./"+prog)
				contains("record -N twice", text, "9\n")
				if text, _ = fentryRun(t, dir, 0, "replay"); strings.Contains(text, "double_it") || !strings.Contains(text, "other()") {
					t.Errorf("record -N twice: %s", text)
				}
			}
			// A program that traces itself has the names.
			fentryRun(t, dir, 0, "patch", "-F", "twice", "-o", "traced", "prog")
			cmd := exec.Command("./traced")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "9\n" {
				t.Errorf("%v: %q", err, out)
			}
			text, _ := fentryRun(t, dir, 0, "report", "-F", "twice")
			contains("report -F twice", text, "double_it")
		})
	}
}
