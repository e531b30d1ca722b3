//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// TestGoExecutes: programs that Go programs execute are traced, also where these have no C library, by many goroutines at
// once, with system calls recorded, some or all, and without. They print what they print untraced.
func TestGoExecutes(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	var openat patch.SyscallSets
	openat.Set(elf.EM_X86_64, patch.SyscallSet{257 / 64: 1 << (257 % 64)})
	child, err := record.NewFilter([]string{"main.child"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []goBuild{
		{name: "default", flag: "-trimpath", env: "CGO_ENABLED=0"},
		{name: "pie", flag: "-buildmode=pie", env: "CGO_ENABLED=0"},
		{name: "externally linked", flag: "-ldflags=-linkmode=external", env: "CGO_ENABLED=1", needs: []string{"gcc"}},
	} {
		b.prog = "goexecutes"
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			prog := b.build(t, dir)
			untraced, err := exec.Command(prog).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, untraced)
			}
			for _, o := range []fentry.Options{
				{}, {Syscalls: true}, {Syscalls: true, Plan: patch.Options{Only: openat}}, {Plan: patch.Options{Select: child}}, {NoInherit: true},
			} {
				var out bytes.Buffer
				o.Dir, o.Overhead = filepath.Join(dir, "trace"), -1
				cmd := exec.Command(prog)
				cmd.Stdout, cmd.Stderr = &out, &out
				res, err := fentry.Run(context.Background(), cmd, o)
				if err != nil || res.Status.ExitStatus() != 0 || res.Untraced != "" {
					t.Fatalf("%+v, %v\n%s", res, err, out.String())
				}
				if out.String() != string(untraced) {
					t.Errorf("output:\n%s\nuntraced:\n%s", out.String(), untraced)
				}
				executed, children := 8*5+2, strings.Count(string(untraced), "child ")
				if o.NoInherit {
					executed, children = 0, 0
				}
				times := 0
				for _, x := range res.Executed {
					if times += x.Times; x.Path != prog || x.Untraced != "" {
						t.Errorf("executed: %+v", x)
					}
				}
				if times != executed {
					t.Errorf("%d programs are followed, want %d", times, executed)
				}
				if n := processesThatCall(t, o.Dir, "main.child"); n != children {
					t.Errorf("%d processes call main.child, want %d", n, children)
				}
			}
		})
	}
}

// processesThatCall is how many processes in a trace call a function.
func processesThatCall(t *testing.T, dir, name string) int {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	pids := map[int]bool{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry && tr.Name(ev.Func) == name {
			pids[int(ev.Task.PID)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(pids)
}

// TestGoExecutesUnrecorded: what a Go program executes while its system calls are not recorded, as somebody has said meanwhile, is
// traced as ever.
func TestGoExecutesUnrecorded(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	b := goBuild{prog: "goexecutes", flag: "-trimpath", env: "CGO_ENABLED=0"}
	prog := b.build(t, t.TempDir())
	for _, off := range []string{"syscalls = 0", "tracing_on = 0"} {
		cmd := exec.Command(prog)
		cmd.Env = append(os.Environ(), "TOLD=1")
		c := startControlledProgram(t, false, fentry.Options{Syscalls: true}, cmd)
		c.do("execute")
		c.control(off)
		c.do("execute")
		c.in.Close()
		res := <-c.ended
		if res == nil || len(res.Executed) != 1 || res.Executed[0].Times != 2 {
			t.Errorf("%s: %+v", off, res)
		}
	}
}
