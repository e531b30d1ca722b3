package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// buildUncovered compiles a program that comes to the kernel in other ways than by the syscall instruction.
func buildUncovered(t *testing.T, name string, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "gcc")
	needFentry(t)
	program := filepath.Join(t.TempDir(), name)
	args := append([]string{"-O2", "-pthread", "-o", program, "testdata/uncovered/" + name + ".c"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// recordUncovered records the system calls of a program in several ways, in each of which it does what it does untraced, and
// returns what was recorded, by name.
func recordUncovered(t *testing.T, argv ...string) (out string, recorded []map[string]int) {
	t.Helper()
	untraced := run(t, command{argv: argv})
	untraced.mustSucceed(t)
	numbers := syscallNumbers(t)
	for _, options := range [][]string{{"-F", "none"}, {"--overhead", "no", "--plain=all"}, {"--stack-at=getppid,io_uring_enter"}} {
		data := filepath.Join(t.TempDir(), "data")
		r := run(t, command{argv: append(append([]string{fentry, "record", "--syscalls", "-o", data}, options...), argv...)})
		r.mustSucceed(t)
		if r.stdout != untraced.stdout {
			t.Errorf("%v: %q, untraced %q", options, r.stdout, untraced.stdout)
		}
		recorded = append(recorded, recordedSyscalls(t, data, numbers))
	}
	return untraced.stdout, recorded
}

// TestUncovered: what docs/coverage.md says is not recorded is not, has the results that it has untraced, and is all that
// strace has besides: calls by int 0x80, of the vdso and of the vsyscall page.
func TestUncovered(t *testing.T) {
	program := buildUncovered(t, "ways")
	testtool.Need(t, "strace")
	const times = 100
	out, recorded := recordUncovered(t, program, fmt.Sprint(times))
	for _, way := range []string{"vdso", "vdsocall", "syscall"} {
		if !strings.Contains(out, fmt.Sprintf("%s %d\n", way, times)) {
			t.Fatalf("untraced: %q", out)
		}
	}
	want := straced(t, t.TempDir(), []string{program, fmt.Sprint(times)})
	want["execve"]--
	if want["clock_gettime"] < 2*times || want["getppid"] != times {
		t.Fatalf("strace has %v", want)
	}
	for _, have := range recorded {
		// The instruction made each of these once.
		if have["clock_gettime"] != times || have["getppid"] != times {
			t.Errorf("clock_gettime %d, getppid %d times", have["clock_gettime"], have["getppid"])
		}
		byInterrupt := 0
		if strings.Contains(out, fmt.Sprintf("int80 %d\n", times)) {
			byInterrupt = times // it compares them with as many by the instruction
		}
		for name, n := range map[string]int{"getpid": byInterrupt, "gettimeofday": 0, "time": 0, "write": want["write"],
			"rt_sigaction": want["rt_sigaction"]} {
			if have[name] != n {
				t.Errorf("%s: %d, want %d", name, have[name], n)
			}
		}
	}
}

// TestUncoveredRing: of io_uring the calls that fill and empty its queues are recorded, not what the kernel does for it.
func TestUncoveredRing(t *testing.T) {
	out, recorded := recordUncovered(t, buildUncovered(t, "uring"))
	if out == "none\n" {
		t.Skip("this machine has no io_uring")
	}
	if out != "opened 1, read 6: Linux\n" {
		t.Fatalf("untraced: %q", out)
	}
	for _, have := range recorded {
		if have["io_uring_setup"] != 1 || have["io_uring_enter"] != 2 {
			t.Errorf("%v", have)
		}
		if have["openat"] != recorded[0]["openat"] || have["read"] != have["openat"]-1 {
			t.Errorf("openat %d, read %d: the loader opens its cache, which it maps, and libraries", have["openat"], have["read"])
		}
	}
}

// TestRestartable: restartable sequences are whole in traced programs and begin again when they are interrupted, and the
// system calls between them are all recorded.
func TestRestartable(t *testing.T) {
	out, recorded := recordUncovered(t, buildUncovered(t, "rseq"))
	if out == "none\n" {
		t.Skip("this machine has no restartable sequences")
	}
	if out != "sum 80000, traps 4, enough aborts 1\n" {
		t.Fatalf("untraced: %q", out)
	}
	for _, have := range recorded {
		if have["getppid"] != 800 || have["rseq"] != 5 {
			t.Errorf("getppid %d, rseq %d times; want 800 and 5", have["getppid"], have["rseq"])
		}
	}
}
