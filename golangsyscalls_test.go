//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// goMade are the system calls in a trace of a Go program, by name, and how many of them were made inside a call of
// main.stat by a goroutine.
func goMade(t *testing.T, dir string, machine syscalls.Machine) (made map[string]int, inStat int) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if tr.Lost != 0 {
		t.Errorf("%d events are lost", tr.Lost)
	}
	made = map[string]int{}
	type place struct {
		task  *trace.Task
		depth int
	}
	open := map[place]string{}
	ended := 0 // of getegid
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		number, ok := ev.Func.Syscall()
		if ev.Kind != trace.Entry {
			if m := tr.Made(ev); ok && ev.Kind == trace.Exit && machine.Name(number) == "getegid" {
				if ended++; ev.Task.Goroutine == 0 || !m.Ended || int(m.Result) != os.Getegid() {
					return fmt.Errorf("goroutine %d: the end of getegid: %d, %v", ev.Task.Goroutine, m.Result, m.Ended)
				}
			}
			return nil
		}
		if !ok {
			open[place{ev.Task, ev.Depth}] = tr.Name(ev.Func)
			return nil
		}
		name := machine.Name(number)
		made[name]++
		if name == "getegid" { // which says who makes it
			m := tr.Made(ev)
			want := [6]uint64{uint64(ev.Task.Goroutine), 2, 3, 4, 5, 6}
			if m.Args != want || ev.Task.Goroutine == 0 {
				return fmt.Errorf("goroutine %d: getegid%v", ev.Task.Goroutine, m.Args)
			}
		}
		for d := range ev.Depth {
			if ev.Task.Goroutine != 0 && name == "newfstatat" && open[place{ev.Task, d}] == "main.stat" {
				inStat++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ended != made["getegid"] {
		t.Errorf("%d ends of %d calls of getegid", ended, made["getegid"])
	}
	return made, inStat
}

// goRefused are the reasons why system calls of Go's own code stay where they are.
func goRefused(t *testing.T, prog string) (reasons []string) {
	t.Helper()
	b, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := record.Syscalls(f, nil)
	if err != nil || len(calls) < 30 {
		t.Fatalf("%d system calls: %v", len(calls), err)
	}
	for i := range calls {
		if s := &calls[i]; s.Go && s.Reason != "" {
			reasons = append(reasons, string(s.Reason))
		}
	}
	slices.Sort(reasons)
	return reasons
}

// TestGoSyscalls records system calls of Go programs, with functions and without: all that programs make on goroutines'
// stacks, on threads' own, of threads that begin and end, in handlers of signals and by children, while stacks grow and
// collections run. They do what they do untraced, and say where they are.
func TestGoSyscalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	for _, b := range goBuilds {
		t.Run(b.name, func(t *testing.T) {
			if often := b.name == "default" || b.name == "pie" || b.name == "cgo"; !often && !testtool.Wide() {
				t.Skip("other builds are for wide runs")
			}
			dir := t.TempDir()
			if b.name == "default" {
				compareStress(t, b.build(t, dir), fentry.Options{Syscalls: true}, stressed[1])
			}
			b.prog = "gosyscalls"
			prog := b.build(t, dir)
			machine, stay := syscalls.AMD64, []string{"no-thread-pointer", "signal-return", "stack-gone", "stack-gone"}
			if strings.Contains(b.env, "GOARCH=arm64") {
				machine, stay = syscalls.ARM64, []string{"no-thread-pointer", "stack-gone", "stack-gone"}
			}
			refused := goRefused(t, prog)
			if b.name == "arm64 cgo static" { // code has the address of a page that begins behind one of them
				refused = slices.DeleteFunc(refused, func(r string) bool { return r == "address-taken" })
			}
			if !slices.Equal(refused, stay) {
				t.Errorf("system calls stay where they are: %v", refused)
			}
			for _, none := range []bool{true, false} {
				o := fentry.Options{Dir: filepath.Join(dir, "calls"), Syscalls: true, Overhead: -1, Logf: t.Logf,
					Plan: patch.Options{NoFunctions: none}}
				var out bytes.Buffer
				cmd := exec.Command(prog)
				cmd.Stdout, cmd.Stderr = &out, &out
				res, err := fentry.Run(context.Background(), cmd, o)
				if err != nil || res.Status.ExitStatus() != 0 || res.Untraced != "" {
					t.Fatalf("%+v, %v\n%s", res, err, out.String())
				}
				made, inStat := goMade(t, o.Dir, machine)
				for line := range strings.Lines(out.String()) {
					var name string
					var want int
					if fmt.Sscan(line, &name, &want); made[name] < max(want, 1) || (name == "getppid" || name == "getegid") && made[name] != want {
						t.Errorf("%s: %d, want %d", name, made[name], want)
					}
				}
				if n := strings.Count(out.String(), "\n"); n != 5 {
					t.Errorf("output:\n%s", out.String())
				}
				if want := 8010; !none && inStat != want {
					t.Errorf("%d system calls in main.stat, want %d", inStat, want)
				}
			}
		})
	}
}

// TestGoSyscallsKept: what Go's runtime says of goroutines that are in a system call, and a profile of its time there, is what
// it says untraced.
func TestGoSyscallsKept(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	b := goBuild{prog: "gosyscalls", flag: "-trimpath", env: "CGO_ENABLED=0"}
	prog := b.build(t, dir)
	recordOne := func(arg string) string {
		var out bytes.Buffer
		cmd := exec.Command(prog, arg)
		cmd.Stdout, cmd.Stderr = &out, &out
		o := fentry.Options{Dir: filepath.Join(dir, arg), Syscalls: true, Plan: patch.Options{NoFunctions: true}}
		if res, err := fentry.Run(context.Background(), cmd, o); err != nil || !res.Ended || res.Untraced != "" {
			t.Fatalf("%+v, %v\n%s", res, err, out.String())
		}
		return out.String()
	}
	text := recordOne("quit")
	for _, want := range []string{"SIGQUIT: quit", "syscall.read(", "main.waits(", "main.quit("} {
		if !strings.Contains(text, want) {
			t.Errorf("a program that is told to quit does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "unknown pc") {
		t.Errorf("it does not know where it is:\n%s", text)
	}
	if got := recordOne("profile"); !strings.HasPrefix(got, "true ") {
		t.Errorf("a profile has no Syscall6: %s", got)
	}
}
