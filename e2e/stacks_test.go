package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestStacks asks where the threads of traced programs are: in the functions that the program has called, whatever tracing
// has put between them, be it in the program's memory or in its file.
func TestStacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' && os.Geteuid() != 0 {
		t.Skip("kernel.yama.ptrace_scope keeps debuggers from processes of others")
	}
	needFentry(t)
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	prog, patched := filepath.Join(dir, "threads"), filepath.Join(dir, "patched")
	cmd := exec.Command("gcc", "-O2", "-fno-optimize-sibling-calls", "-o", prog, "../stacks/testdata/threads.c", "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	run(t, command{argv: []string{fentry, "patch", "--plain=all", "-o", patched, prog}}).mustSucceed(t)
	data := filepath.Join(dir, "data")
	for _, argv := range [][]string{
		{fentry, "record", "-o", data, "--overhead", "no", prog},
		{fentry, "record", "-o", data, "--overhead", "no", "--syscalls", prog},
		{patched},
	} {
		t.Run(filepath.Base(argv[0])+fmt.Sprint(len(argv)), func(t *testing.T) {
			pid := startThreads(t, argv, "FENTRY_DATA="+data)
			want := []string{
				"spin around run",
				"stay deep deep deep deep deep deep recurse",
				"stay deep deep deep handler interrupted",
				"stay deep deep deep handler main",
				"stay deep deep room", // whose frame only rbp knows
			}
			var got []string
			for end := time.Now().Add(hangs); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if got = threadsOf(t, pid, "stacks", "--json"); slices.Equal(got, want) {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got = threadsOf(t, pid, "stacks", "--json", "--all-threads"); !slices.Equal(got, want) {
				t.Errorf("all that is traced: %q, want %q", got, want)
			}
			text := run(t, command{argv: []string{fentry, "stacks", fmt.Sprint(pid)}}).mustSucceed(t).stdout
			for _, line := range []string{`process \d+: /.*`, `task \d+ \(.*\): in pause, partial`, `task \d+ \(.*\): running, full`,
				`#3 +0x[0-9a-f]{14} deep\+0x[0-9a-f]+ \[.*\]`, `#\d+ +0x[0-9a-f]{14} <signal handler called> \[libc.so.6.*\]`,
				`     outermost`, `     undefined:rbp`} {
				if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
					t.Errorf("no line %q:\n%s", line, text)
				}
			}
			// All registers are known of a thread that is stopped.
			want[4] += " alloc"
			got = threadsOf(t, pid, "stacks", "--json", "--exact")
			if i := slices.Index(got, "stay deep deep deep handler"); i >= 0 { // on another stack, which was not read
				got[i] += " interrupted"
			}
			if !slices.Equal(got, want) {
				t.Errorf("exact: %q, want %q", got, want)
			}
		})
	}
}

// startThreads starts the program of threads, directly or under fentry record, and returns its process id when it is ready.
func startThreads(t *testing.T, argv []string, env string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(baseEnv(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the program dies with it, whatever comes
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() { // fentry record ends when the program has
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if t.Failed() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q: %v", line, err)
	}
	if len(argv) > 1 {
		pid = childThatRuns(t, pid, argv[len(argv)-1])
	}
	return pid
}

// childThatRuns is the child of a process that runs a program. The recorder soon has another one, which keeps its trace.
func childThatRuns(t *testing.T, pid int, prog string) int {
	t.Helper()
	want, err := os.Stat(prog)
	if err != nil {
		t.Fatal(err)
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []string
	for _, name := range tasks {
		b, _ := os.ReadFile(name)
		for _, child := range strings.Fields(string(b)) {
			if exe, err := os.Stat("/proc/" + child + "/exe"); err == nil && os.SameFile(exe, want) {
				n, _ := strconv.Atoi(child)
				return n
			}
			name, _ := os.ReadFile("/proc/" + child + "/cmdline")
			all = append(all, child+" "+string(name))
		}
	}
	t.Fatalf("process %d has no child that runs %s, but %q", pid, prog, all)
	return 0
}

// threadsOf are the program's own functions of each thread, innermost first, sorted.
func threadsOf(t *testing.T, pid int, args ...string) []string {
	t.Helper()
	argv := append([]string{fentry}, args...)
	if !slices.Contains(args, "--all-threads") {
		argv = append(argv, fmt.Sprint(pid))
	}
	r := run(t, command{argv: argv}).mustSucceed(t)
	ours := []string{"stay", "deep", "handler", "main", "recurse", "spin", "around", "run", "room", "alloc", "interrupted"}
	var all []string
	for line := range strings.Lines(r.stdout) {
		var th struct {
			PID    int
			Frames []struct{ Function, Image string }
		}
		if err := json.Unmarshal([]byte(line), &th); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if th.PID != pid {
			continue
		}
		var names []string
		for _, f := range th.Frames {
			if slices.Contains(ours, f.Function) {
				names = append(names, f.Function)
			}
		}
		all = append(all, strings.Join(names, " "))
	}
	slices.Sort(all)
	return all
}
