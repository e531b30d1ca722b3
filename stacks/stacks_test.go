//go:build linux

package stacks_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/stacks"
	"github.com/fentry-dev/fentry/symbol"
)

// start runs the program of threads, and returns when all are where they stay.
func start(t *testing.T, flags ...string) int {
	t.Helper()
	testtool.Need(t, "gcc")
	prog := filepath.Join(t.TempDir(), "threads")
	args := append([]string{"-g", "-o", prog, "testdata/threads.c", "-lpthread"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command(prog)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q: %v", line, err)
	}
	return cmd.Process.Pid
}

// gdbFrames asks gdb for the frames of all threads of a process, by thread id, as stacks has them.
func gdbFrames(t *testing.T, pid int) map[int][]stacks.Frame {
	t.Helper()
	testtool.Need(t, "gdb")
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' && os.Geteuid() != 0 {
		t.Skip("kernel.yama.ptrace_scope keeps debuggers from processes of others")
	}
	script := filepath.Join("testdata", "frames.py")
	cmd := exec.Command("gdb", "-nx", "-batch", "-p", fmt.Sprint(pid), "-x", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, out)
	}
	all := map[int][]stacks.Frame{}
	exact := map[int]bool{}
	for line := range strings.Lines(string(out)) {
		var tid, trampoline int
		var pc uint64
		if n, _ := fmt.Sscanf(line, "frame %d %x %d", &tid, &pc, &trampoline); n != 3 {
			continue
		}
		f := stacks.Frame{PC: pc, Exact: len(all[tid]) == 0 || exact[tid], Trampoline: trampoline == 1}
		exact[tid] = f.Trampoline
		all[tid] = append(all[tid], f)
	}
	if len(all) == 0 {
		t.Fatalf("gdb shows no frames:\n%s", out)
	}
	return all
}

// settled returns a thread's stack when it is where it stays: a handler that is on its way to it is not.
func settled(t *testing.T, p *stacks.Process, tid int) *stacks.Thread {
	t.Helper()
	for end := time.Now().Add(testtool.Patience); ; time.Sleep(time.Millisecond) {
		th, err := p.Thread(tid, false)
		if err != nil {
			t.Fatal(err)
		}
		names := functions(p, th)
		// One that a debugger has held runs for a moment before it waits again.
		if slices.Contains(names, "stay") && th.Mode == stacks.Partial || slices.Contains(names, "spin") {
			return th
		}
		if time.Now().After(end) {
			t.Fatalf("task %d stays in %v: %s", tid, names, th.End)
		}
	}
}

// functions are the names of a stack's frames.
func functions(p *stacks.Process, th *stacks.Thread) []string {
	var out []string
	for _, f := range th.Frames {
		for _, n := range p.Names(f) {
			out = append(out, n.Func)
		}
	}
	return out
}

// TestAsGDB compares stacks of all threads with what gdb shows. Those of blocked threads, of which only two registers are
// known, begin as gdb's do, and say why they are shorter.
func TestAsGDB(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O0"}, {"-O2", "-static"}} {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			pid := start(t, flags...)
			p, err := stacks.Open(pid, symbol.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			tids, err := p.Threads()
			if err != nil || len(tids) != 5 {
				t.Fatalf("%d threads, %v", len(tids), err)
			}
			for _, tid := range tids {
				settled(t, p, tid)
			}
			want := gdbFrames(t, pid)
			ends := map[string]int{}
			for _, tid := range tids {
				partial := settled(t, p, tid)
				ends[partial.Mode.String()+" "+partial.End]++
				full, err := p.Thread(tid, true)
				if err != nil {
					t.Fatal(err)
				}
				if full.Mode != stacks.Full || full.Stopped <= 0 || full.End != stacks.EndOutermost && !gone(full) {
					t.Errorf("task %d: %v, stopped for %v, %s", tid, full.Mode, full.Stopped, full.End)
				}
				compare(t, full, want[tid])
				compare(t, partial, want[tid])
			}
			// With -O0 every frame is relative to rbp, which the first one that is compiled so has saved.
			wantEnds := map[string]int{"partial outermost": 3, "partial undefined:rbp": 1, "full outermost": 1}
			if flags[0] == "-O0" {
				wantEnds = map[string]int{"partial undefined:rbp": 4, "full outermost": 1}
			}
			if !maps.Equal(ends, wantEnds) {
				t.Errorf("stacks end in %v, want %v", ends, wantEnds)
			}
		})
	}
}

// gone: a thread that was stopped on its alternate stack has gone on, and what it has interrupted may, too.
func gone(th *stacks.Thread) bool {
	return th.End == stacks.EndGone && slices.ContainsFunc(th.Frames, func(f stacks.Frame) bool { return f.Trampoline })
}

// compare compares a stack with gdb's, as far as it goes.
func compare(t *testing.T, th *stacks.Thread, want []stacks.Frame) {
	t.Helper()
	if th.Running { // it goes on between the two
		th.Frames[0].PC = want[0].PC
	}
	n := min(len(th.Frames), len(want))
	if !slices.Equal(th.Frames[:n], want[:n]) || len(th.Frames) > len(want) ||
		len(th.Frames) < len(want) && th.End == stacks.EndOutermost {
		t.Errorf("task %d, %v, %s:\n%#v, gdb shows\n%#v", th.TID, th.Mode, th.End, th.Frames, want)
	}
}

// TestNames compares names and lines of a thread with what the program is.
func TestNames(t *testing.T) {
	pid := start(t, "-O2", "-fno-optimize-sibling-calls")
	p, err := stacks.Open(pid, symbol.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tid := range tids {
		th := settled(t, p, tid)
		var names []string
		for _, f := range th.Frames {
			for _, n := range p.Names(f) {
				if strings.HasSuffix(n.Line.File, "threads.c") && filepath.Base(n.Image) == "threads" {
					names = append(names, n.Func)
				}
			}
		}
		got = append(got, strings.Join(names, " "))
	}
	want := []string{
		"stay deep deep deep handler main",
		"stay deep deep deep deep deep deep recurse",
		"spin around run",
		"stay deep deep room", // whose frame only rbp knows
		"stay deep deep deep handler interrupted",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOpen(t *testing.T) {
	if p, err := stacks.Open(1<<22+1, symbol.Options{}); err == nil {
		t.Errorf("process %d exists", p.PID)
	}
}
