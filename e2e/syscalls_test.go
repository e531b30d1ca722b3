package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// blocked is stopped by a signal while it waits in the kernel, on a thread, too.
const blocked = `
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) static int in_poll(void) { return poll(0, 0, 600) + 1; }
__attribute__((noinline)) static int in_sleep(void) { struct timespec t = { 0, 500000000 }; return nanosleep(&t, 0) + 2; }
__attribute__((noinline)) static int last(void) { return getpgid(0) > 0 && getppid() > 0 ? 77 : 78; }
__attribute__((noinline)) static int steps(void) { return getpgid(0) > 0 && getppid() > 0; }
static void *thread(void *arg) { return in_poll() ? arg : 0; }
int main(void)
{
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
	ualarm(200000, 0);
	int n = in_sleep();
	pthread_join(t, 0);
	return last() + steps() + n - 80;
}
`

// TestDebuggerSyscalls: gdb shows the same frames of threads that wait in the kernel as in the original, and steps and
// finishes through system calls that have been moved.
func TestDebuggerSyscalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "gdb", "gcc")
	needFentry(t)
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "blocked.c"), filepath.Join(dir, "blocked")
	if err := os.WriteFile(src, []byte(blocked), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O1", "-static", "-o", prog, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := []string{"handle SIGALRM stop nopass", "break last", "break steps", "run", "printf \"=1\\n\"", "thread apply all bt",
		"continue", "printf \"=2\\n\"", "finish", "continue", "printf \"=3\\n\"", "stepi 60", "stepi 60", "bt", "continue"}
	session := func(program string) (parts []string) {
		parts = strings.Split(gdb(t, dir, program, commands...), "\n=")
		if len(parts) != 4 {
			t.Fatalf("%s: gdb stopped %d times, want 3\n%s", filepath.Base(program), len(parts)-1, clip(strings.Join(parts, "\n")))
		}
		return parts
	}
	names := func(text string) (out []string) {
		for _, m := range gdbFrame.FindAllStringSubmatch(text, -1) {
			// A function of the C library has several names, of which gdb shows any; what is below main it may show or not.
			if name := strings.TrimPrefix(strings.TrimPrefix(m[1], "__libc_"), "__"); name != "_start" && !strings.HasPrefix(name, "start_main") && !strings.HasPrefix(name, "start_call_main") {
				out = append(out, name)
			}
		}
		return out
	}
	original := session(prog)
	want := names(original[1])
	for _, name := range []string{"in_poll", "in_sleep", "main"} {
		if !slices.Contains(want, name) {
			t.Fatalf("gdb shows %v\n%s", want, clip(original[1]))
		}
	}
	for _, options := range [][]string{{"--syscalls", "-F", "none"}, {"--syscalls", "-F", "in_*", "-F", "main"}} {
		patched := filepath.Join(dir, "patched")
		patchFile(t, prog, patched, options)
		have := session(patched)
		if got := names(have[1]); !slices.Equal(got, want) {
			t.Errorf("%v: gdb shows %v, want %v\n%s", options, got, want, clip(have[1]))
		}
		if !strings.Contains(have[2], "Value returned is $1 = 77") {
			t.Errorf("%v: gdb has finished with\n%s", options, clip(have[2]))
		}
		if !slices.Contains(names(have[3]), "main") || !strings.Contains(have[3], "exited normally") {
			t.Errorf("%v: gdb has stepped to\n%s", options, clip(have[3]))
		}
	}
}
