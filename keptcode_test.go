//go:build linux

package fentry

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A program has another plan when a file with its names has been installed, and the code that goes with that.
func TestKeptCodeNamed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var text strings.Builder
	text.WriteString(`
#ifdef __x86_64__
#define BODY "lea 1(%rdi), %eax; imul $3, %eax, %eax; xor $5, %eax; ret"
#else
#define BODY "add w0, w0, 1; mul w0, w0, w0; eor w0, w0, 1; ret"
#endif
#define FUNCTION(name) asm(".text; .type " name ", %function; " name ": " BODY "; .size " name ", . - " name)
FUNCTION("first"); // only names tell of these
FUNCTION("second");
FUNCTION("third");
int first(int), second(int), third(int);
int (*volatile pointers[])(int) = { first, second, third };
`)
	var calls strings.Builder
	for i := range 2 * codeFrom { // each on a page of its own
		fmt.Fprintf(&text, "__attribute__((noinline, noclone, aligned(4096))) int f%d(int i) { volatile int a = i; return a + %d; }\n", i, i)
		fmt.Fprintf(&calls, " f%d(0);", i)
	}
	text.WriteString("int main(void) { pointers[0](0);" + calls.String() + " return 0; }\n")
	path := testtool.Compile(t, "p", text.String(), "-O1", "-g", "-fno-toplevel-reorder", "-Wl,--build-id")
	objcopy, debug := testtool.Path(t, "objcopy"), path+".debug"
	for _, args := range [][]string{{"--only-keep-debug", path, debug}, {"--strip-all", "--add-gnu-debuglink=" + debug, path}} {
		if out, err := exec.Command(objcopy, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	hidden := debug + ".later"
	if err := os.Rename(debug, hidden); err != nil {
		t.Fatal(err)
	}
	aged(t, path)
	o := Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Overhead: -1}
	run := func(name string) int {
		t.Helper()
		res, err := Run(context.Background(), exec.Command(path), o)
		if err != nil || !res.Injected || !res.Status.Exited() || res.Status.ExitStatus() != 0 || res.Events < 4 {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		return res.Traced
	}
	before := run("without names")
	kept, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fentry", codeKind, "*"))
	if err != nil || len(kept) == 0 {
		t.Skip("no code is kept here")
	}
	run("without names, again")
	if err := os.Rename(hidden, debug); err != nil {
		t.Fatal(err)
	}
	if named := run("with names"); named <= before {
		t.Fatalf("%d functions are traced with names, %d without", named, before)
	}
	run("with names, again")
}
