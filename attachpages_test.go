//go:build linux && amd64

package fentry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// dirty is how many pages of its program's code a process has for itself.
func dirty(t *testing.T, pid int, program string) (pages int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		var kib int
		switch {
		case len(f) > 4 && len(f[1]) == 4:
			in = f[1] == "r-xp" && f[len(f)-1] == program
		case in && f[0] == "Anonymous:":
			if _, err := fmt.Sscan(f[1], &kib); err != nil {
				t.Fatal(err)
			}
			pages += kib / 4
		}
	}
	return pages
}

// Pages of code are the file's again when nothing in them is changed any more: those of functions that are off for long, and all
// at the end. What the program has changed itself stays.
func TestAttachPages(t *testing.T) {
	const n = 300
	var text strings.Builder
	text.WriteString("#include <poll.h>\n#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/prctl.h>\n")
	for i := range n { // 16 in a page
		fmt.Fprintf(&text, "__attribute__((noinline, aligned(256))) int f%d(int x) { __asm__ volatile (\"\"); return x + %d; }\n", i, i)
	}
	text.WriteString(`
__attribute__((aligned(4096), used)) static void own(void) { __asm__ volatile (".zero 8000"); }
int main(void)
{
	char *page = (char *)(((unsigned long)own + 4095) & -4096UL), *end = page + 4096;
	mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
	memset(end - 100, 7, 100);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	prctl(PR_SET_NAME, "ready");
	struct pollfd input = { 0, POLLIN | POLLHUP, 0 };
	for (int i = 0; !poll(&input, 1, 1); i++)
		if (f0(i) != i || f299(i) != i + 299)
			return 1;
	for (char *p = end - 100; p < end; p++)
		if (*p != 7)
			return 2;
	puts("right");
	return 0;
}
`)
	file := filepath.Join(t.TempDir(), "pages.c")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program := buildFile(t, file, "-O1", "-fpatchable-function-entry=5")
	r := start(t, program)
	pid := r.cmd.Process.Pid
	before := dirty(t, pid, program)
	if before == 0 {
		t.Fatal("it has not changed its code")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Policy: trace.PolicyOverwrite, Overhead: -1}
	ended := make(chan error, 1)
	go func() {
		_, err := fentry.Attach(ctx, []int{pid}, o)
		ended <- err
	}()
	control := func(line string) string {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got, err := session.Control(pid, line)
			if err == nil {
				return got
			}
			if len(ended) > 0 {
				if err := <-ended; err != nil && strings.Contains(err.Error(), "not permitted") {
					t.Skip(err)
				}
				t.Fatal("it has ended")
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	control("tracing_on = 1")
	const pages = n / 16
	if got := dirty(t, pid, program); got < before+pages {
		t.Errorf("%d pages are the process's own while all functions are recorded, %d before", got, before)
	}
	control("set_ftrace_filter = f299")
	answer := control("settle")
	if got := dirty(t, pid, program); got > before+3 {
		t.Errorf("%d pages are the process's own while one function is recorded, %d before: %s", got, before, answer)
	}
	control("set_ftrace_filter =")
	if got := dirty(t, pid, program); got < before+pages {
		t.Errorf("%d pages are the process's own while all functions are recorded again, %d before", got, before)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := dirty(t, pid, program); got != before {
		t.Errorf("%d pages are the process's own at the end, %d before", got, before)
	}
	r.end(t, 0, "right\n")
	if got := callsIn(t, o.Dir); got["f299"] == 0 {
		t.Errorf("recorded: %v", got["f299"])
	}
}
