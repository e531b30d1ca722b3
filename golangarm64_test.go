//go:build linux

package fentry_test

import (
	"bytes"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// emulatedCalls makes system calls on goroutines' stacks and threads' own, of threads that begin and end, in handlers of
// signals.
const emulatedCalls = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func main() {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGUSR1)
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // which ends with the goroutine
			for i := range 50 {
				syscall.Getppid()
				if _, err := os.Stat("/nonexistent"); err == nil {
					panic("it exists")
				}
				if i%25 == 0 {
					runtime.GC()
				}
			}
		}()
	}
	wg.Wait()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
		panic(err)
	}
	fmt.Println(<-ch)
}
`

// begunAndEnded are how often system calls of a trace begin, and end, by name. A thread that clone makes has its goroutine
// only later, so the call ends in the one that has made it.
func begunAndEnded(t *testing.T, dir string, machine syscalls.Machine) (begun, ended map[string]int) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	begun, ended = map[string]int{}, map[string]int{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		number, ok := ev.Func.Syscall()
		if !ok || ev.Kind != trace.Entry {
			return nil
		}
		name, m := machine.Name(number), tr.Made(ev)
		if begun[name]++; m.Ended {
			ended[name]++
		}
		if name == "clone" && m.Ended && m.Result == 0 {
			t.Error("a thread has ended its creator's clone")
		}
		return nil
	})
	if err != nil || tr.Lost != 0 {
		t.Fatalf("%d events are lost, %v", tr.Lost, err)
	}
	return begun, ended
}

// TestGoSyscallsEmulated compares the system calls of a Go program for arm64, by name, with those that the emulator says it
// makes in the same run. It says so when they have begun, so as many have begun in the trace, or more, and no more have ended:
// when the program ends, other threads are anywhere.
func TestGoSyscallsEmulated(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	testtool.Need(t, "qemu-aarch64")
	t.Setenv("GOARCH", "arm64")
	prog, dir := buildGo(t, emulatedCalls), t.TempDir()
	if refused := goRefused(t, prog); !slices.Equal(refused, []string{"no-thread-pointer", "stack-gone", "stack-gone"}) {
		t.Errorf("system calls stay where they are: %v", refused)
	}
	p, err := fentry.OpenWith(prog, symbol.Options{}, record.Options{Syscalls: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	untraced, err := goCommand(t, prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]patch.Options{"calls": {NoFunctions: true}, "both": {}} {
		o.Path, o.Dir = filepath.Join(dir, name), filepath.Join(dir, name+".trace")
		plan, err := p.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		image, err := plan.Image()
		if err != nil {
			t.Fatal(err)
		}
		if err := runfile.WriteFile(o.Path, image); err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		cmd := goCommand(t, o.Path)
		cmd.Args = slices.Insert(cmd.Args, 1, "-strace")
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil || out.String() != string(untraced) {
			t.Fatalf("%v\n%s\nuntraced:\n%s", err, out.String(), untraced)
		}
		compareEmulated(t, o.Dir, said.Bytes())
	}
}

// compareEmulated compares a trace with what the emulator said in the same run.
func compareEmulated(t *testing.T, dir string, said []byte) {
	t.Helper()
	made := map[string]int{}
	for _, m := range regexp.MustCompile(`\d ([a-z][a-z0-9_]*)\(`).FindAllSubmatch(said, -1) {
		made[string(m[1])]++
	}
	begun, ended := begunAndEnded(t, dir, syscalls.ARM64)
	// The tracer makes none of these itself.
	for _, name := range []string{"clone", "exit_group", "fcntl", "kill", "nanosleep", "newfstatat",
		"rt_sigaction", "sched_getaffinity", "sigaltstack", "write"} {
		if made[name] == 0 || begun[name] < made[name] {
			t.Errorf("%s: %d have begun, the emulator says %d", name, begun[name], made[name])
		}
	}
	for name, n := range ended {
		if n > made[name] {
			t.Errorf("%s: %d have ended, the emulator says %d have begun", name, n, made[name])
		}
	}
	for name, want := range map[string]int{"getppid": 5 * 50, "newfstatat": 5 * 50} {
		if begun[name] < want || begun[name] != ended[name] {
			t.Errorf("%s: %d have begun and %d ended, want %d", name, begun[name], ended[name], want)
		}
	}
}
