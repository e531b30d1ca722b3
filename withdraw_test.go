//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A leftProgram is one that a recorder has started, which has ended, and the program goes on.
type leftProgram struct {
	t   *testing.T
	pid int
	in  *os.File
	out string // its file
}

// runFor records a command from its start until it has been ready for a while.
func runFor(t *testing.T, long time.Duration, o fentry.Options, argv ...string) *leftProgram {
	t.Helper()
	p := &leftProgram{t: t, out: filepath.Join(t.TempDir(), "out")}
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(p.out)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, p.in = in, out, out, w
	o.Dir, o.Logf, o.Policy, o.Overhead = filepath.Join(t.TempDir(), "fentry.data"), t.Logf, trace.PolicyDrop, -1
	ended := make(chan *fentry.Result, 1)
	t.Cleanup(func() {
		w.Close()
		if p.pid != 0 {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	go func() {
		defer in.Close()
		defer out.Close()
		res, err := fentry.Run(context.Background(), cmd, o)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	for deadline := time.Now().Add(time.Minute); p.pid == 0; time.Sleep(time.Millisecond) {
		p.find()
		if time.Now().After(deadline) {
			t.Fatal("the program does not begin")
		}
	}
	testtool.AwaitReady(t, p.pid)
	time.Sleep(long)
	if _, err := session.Control(p.pid, "detach"); err != nil {
		t.Error(err)
	}
	if res := <-ended; res == nil || res.Ended || res.Events == 0 || res.WriteError != nil {
		t.Fatalf("%+v", res)
	} else {
		t.Logf("%d events, stopped for %v", res.Events, res.Held)
	}
	return p
}

// find finds which of this process's children it is, by where its output goes.
func (p *leftProgram) find() {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(b)) {
			threads, _ := filepath.Glob("/proc/" + child + "/task/*/fd/1") // the first thread may have ended
			for _, fd := range threads {
				if out, err := os.Readlink(fd); err == nil && out == p.out {
					fmt.Sscan(child, &p.pid)
				}
			}
		}
	}
}

// withoutTracer checks that the process has no tracer, and its code as in the file, but for so many bytes at most.
func (p *leftProgram) withoutTracer(program string, most int) {
	p.t.Helper()
	maps, _, _ := state(p.t, p.pid)
	if hasTracer(maps) || strings.Contains(maps, "fentry-pool") {
		p.t.Errorf("the tracer is still there\n%s", maps)
	}
	if n := changed(p.t, p.pid, program); n > most {
		p.t.Errorf("%d bytes of its code are changed", n)
	}
}

// end ends the program, which is to have said something. Its status may have been taken by the recorder, which waits, too.
func (p *leftProgram) end(output string) {
	p.t.Helper()
	p.in.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		if syscall.Kill(p.pid, 0) != nil {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the program does not end")
		}
	}
	p.pid = 0
	if b, err := os.ReadFile(p.out); err != nil || string(b) != output {
		p.t.Errorf("the program said %q: %v", b, err)
	}
}

// A program that goes on when its recording has ended is left by the tracer, if it was started with it or executed by one that was,
// whatever its threads do; and can be attached to.
func TestWithdraw(t *testing.T) {
	program := buildAttached(t)
	for _, c := range []struct {
		name    string
		o       fentry.Options
		program string
		argv    []string
	}{
		{"started", fentry.Options{}, program, []string{program}},
		{"executed", fentry.Options{}, program, []string{"sh", "-c", `exec "$0"`, program}},
		{"function", fentry.Options{Plan: patch.Options{Tracer: patch.Function}}, program, []string{program}},
		{"static", fentry.Options{}, "", nil},
		{"prepared", fentry.Options{}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch c.name {
			case "static":
				c.program = buildAttached(t, "-static")
			case "prepared":
				c.program = buildAttached(t, "-fpatchable-function-entry=5")
			}
			if c.argv == nil {
				c.argv = []string{c.program}
			}
			p := runFor(t, 200*time.Millisecond, c.o, c.argv...)
			p.withoutTracer(c.program, 64)
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for range 2 {
				attachUntil(t, p.pid, fentry.Options{Dir: dir}, 30*time.Millisecond, "_Z3suml", "_Z4leafi")
			}
			p.withoutTracer(c.program, 64)
			p.end("right\n")
		})
	}
}

// So is one whose first thread has ended.
func TestWithdrawLeader(t *testing.T) {
	program := buildStates(t)
	p := runFor(t, 300*time.Millisecond, fentry.Options{}, program, "leader")
	dir := filepath.Join(t.TempDir(), "fentry.data")
	attachUntil(t, p.pid, fentry.Options{Dir: dir}, 30*time.Millisecond, "sum")
	p.end("right\n")
}

// Who returns to a call that has moved finds it when the tracer has gone.
func TestWithdrawMovedCall(t *testing.T) {
	program := buildFile(t, "testdata/callfirst.c")
	p := runFor(t, 200*time.Millisecond, fentry.Options{}, program)
	p.withoutTracer(program, 0)
	fmt.Fprint(p.in, "ab\n\nabc\n")
	p.end("42\n40\n43\n")
}

// Jumps that lie in two pages stay, and lead to the program's own code.
func TestWithdrawTwoPages(t *testing.T) {
	program := buildFile(t, "testdata/twopages.c", "-no-pie")
	p := runFor(t, 200*time.Millisecond, fentry.Options{}, program)
	p.withoutTracer(program, 4*8)
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 2 {
		attachUntil(t, p.pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "g5", "g6", "g7", "g8", "g9")
	}
	p.withoutTracer(program, 4*8)
	p.end("")
}

// Where a program has libraries that are traced, or functions were added to it, the tracer stays, and runs the program's own code.
func TestWithdrawNot(t *testing.T) {
	program := buildAttached(t, "-shared-libgcc")
	p := runFor(t, 300*time.Millisecond, fentry.Options{Libraries: []string{"libstdc++*"}}, program)
	if maps, _, _ := state(t, p.pid); !hasTracer(maps) {
		t.Error("libraries are traced, and the tracer has gone")
	}
	p.end("right\n")
}
