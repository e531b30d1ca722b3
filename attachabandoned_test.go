//go:build linux

package fentry_test

import (
	"bytes"
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
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A process whose recorder was killed is attached to anew, and what is recorded then is exact; or it is detached from. After both
// it is as it was before. A recorder that lives is left alone.
func TestAttachAbandoned(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder := buildRecorder(t)
	for name, options := range map[string][]string{"program": nil, "libraries": {"-L", "*"}, "system calls": {"--syscalls"}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program)
			c := startTold(t, cmd)
			t.Cleanup(func() { c.in.Close(); cmd.Wait() })
			if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
				t.Fatal(err)
			}
			c.do("work 10")
			c.do("thread 10")
			before, files, _ := state(t, c.pid)
			words := loaderWords(t, c.pid)
			args := append([]string{"record", "-q", "--overhead", "no", "-p", fmt.Sprint(c.pid)}, options...)
			// recorded has a recorder begin, and the program do something.
			recorded := func(dir string) *exec.Cmd {
				r := exec.Command(recorder, append(args, "-o", dir)...)
				r.Stderr = os.Stderr
				if err := r.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.Process.Kill(); r.Wait() })
				c.control("status")
				c.do("work 100")
				if bytes.Equal(loaderWords(t, c.pid), words) {
					t.Error("unwinders are not led to what was added")
				}
				return r
			}
			same := func() {
				t.Helper()
				if maps, fds, _ := state(t, c.pid); ofFiles(maps) != ofFiles(before) || fds != files || hasTracer(maps) || tracersMemory(maps) {
					t.Errorf("%d descriptors, %d before\n%s\n%s", fds, files, before, maps)
				}
				unchangedCode(t, c.pid, program)
				if !bytes.Equal(loaderWords(t, c.pid), words) {
					t.Error("unwinders are led to what is gone")
				}
			}
			first := recorded(filepath.Join(t.TempDir(), "first"))
			if err := session.Release(c.pid); err == nil || !strings.Contains(err.Error(), "records it") {
				t.Errorf("%v; a recorder lives", err)
			}
			if _, err := fentry.Attach(context.Background(), []int{c.pid}, fentry.Options{Dir: filepath.Join(t.TempDir(), "no")}); err == nil ||
				!strings.Contains(err.Error(), "records it") {
				t.Errorf("%v; a recorder lives", err)
			}
			first.Process.Kill()
			first.Wait()

			dir := filepath.Join(t.TempDir(), "second")
			second := recorded(dir)
			c.do("thread 100")
			if err := second.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := second.Wait(); err != nil {
				t.Errorf("the second recorder: %v", err)
			}
			if got := callsIn(t, dir); got["outer"] != 200 || got["leaf"] != 600 {
				t.Errorf("calls %v", got)
			}
			same()

			third := recorded(filepath.Join(t.TempDir(), "third"))
			third.Process.Kill()
			third.Wait()
			if out, err := exec.Command(recorder, "detach", fmt.Sprint(c.pid)).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("detach: %v, %s", err, out)
			}
			same()
			c.do("work 10")
			if out, err := exec.Command(recorder, "detach", fmt.Sprint(c.pid)).CombinedOutput(); err == nil ||
				!strings.Contains(string(out), "no recorder answers for it") {
				t.Errorf("detach: %v, %s", err, out)
			}
		})
	}
}

// loaderWords is what a process's dynamic loader has in memory that can only be read.
func loaderWords(t *testing.T, pid int) (all []byte) {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	maps, _, _ := state(t, pid)
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		var lo, hi int64
		if len(f) < 6 || f[1] != "r--p" || !strings.Contains(f[5], "/ld-linux") {
			continue
		}
		if _, err := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, hi-lo)
		if _, err := mem.ReadAt(b, lo); err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// tracersMemory tells whether mappings have code of no file.
func tracersMemory(maps string) bool {
	for line := range strings.Lines(maps) {
		if f := strings.Fields(line); len(f) == 5 && strings.Contains(f[1], "x") {
			return true
		}
	}
	return false
}

// unchangedCode fails if the code of a program is not what its file has.
func unchangedCode(t *testing.T, pid int, program string) {
	t.Helper()
	maps, _, _ := state(t, pid)
	var base int64
	if _, err := fmt.Sscanf(maps[strings.Index("\n"+maps, "\n"+firstOf(maps, program)):], "%x-", &base); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".text", ".eh_frame_hdr", ".eh_frame"} {
		if want, got := code(t, program, pid, name, base); !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// firstOf is the first line of mappings that is of a file.
func firstOf(maps, file string) string {
	for line := range strings.Lines(maps) {
		if strings.HasSuffix(line, " "+file+"\n") {
			return line
		}
	}
	return ""
}

// So is a program that has its own code for executing others, of which a part has moved; and what it executes is recorded.
func TestAttachAbandonedStatic(t *testing.T) {
	program := buildFile(t, "testdata/runs.c", "-static")
	executed := testtool.Compile(t, "executed", "__attribute__((noinline)) int called(void) { return 0; } int main(void) { return called(); }")
	recorder := buildRecorder(t)
	c := startTold(t, exec.Command(program))
	t.Cleanup(func() { c.in.Close() })
	if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
		t.Fatal(err)
	}
	before, files, _ := state(t, c.pid)
	dir := filepath.Join(t.TempDir(), "fentry.data")
	r := exec.Command(recorder, "record", "-q", "--overhead", "no", "-p", fmt.Sprint(c.pid), "-o", dir)
	r.Stderr = os.Stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill(); r.Wait() })
	c.control("status")
	runs := func() {
		t.Helper()
		if fmt.Fprintln(c.in, executed); c.line() != "0" {
			t.Error("what it executes has failed")
		}
	}
	runs()
	awaitCalls(t, dir, "called")
	r.Process.Kill()
	r.Wait()
	if err := session.Release(c.pid); err != nil {
		t.Error(err)
	}
	if maps, fds, _ := state(t, c.pid); ofFiles(maps) != ofFiles(before) || fds != files || hasTracer(maps) || tracersMemory(maps) {
		t.Errorf("%d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
	runs()
}

// A program that was started by a recorder which was killed keeps its tracer, and that is said.
func TestAttachAbandonedStarted(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder := buildRecorder(t)
	dir := filepath.Join(t.TempDir(), "fentry.data")
	cmd := exec.Command(recorder, "record", "-q", "--overhead", "no", "-o", dir, "--", program)
	c := startTold(t, cmd)
	t.Cleanup(func() { c.in.Close(); cmd.Wait() })
	if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
		t.Fatal(err)
	}
	c.control("status")
	cmd.Process.Kill() // it need not have ended yet
	for _, err := range []error{session.Release(c.pid), func() error {
		_, err := fentry.Attach(context.Background(), []int{c.pid}, fentry.Options{Dir: filepath.Join(t.TempDir(), "no"), Policy: trace.PolicyDrop})
		return err
	}()} {
		if err == nil || !strings.Contains(err.Error(), "stays in it until it is started anew") {
			t.Errorf("%v", err)
		}
	}
	c.do("work 10")
}

// Who comes while a recorder that was killed has not ended yet waits for that: it may still have threads of the process stopped, and
// is its recorder until it is gone.
func TestAttachDying(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	killer, recorder := buildFile(t, "testdata/killer.c"), buildRecorder(t)
	tracer := func(pid int) (tracer int) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(b), "\nTracerPid:")
		fmt.Sscan(rest, &tracer)
		return tracer
	}
	for _, way := range []string{"record", "detach"} {
		// held returns what lets a recorder end that was killed: at a step, or by whom it asks when it has begun.
		held := func(c *controlled, step int, kill func(recorder int)) *controlled {
			cmd := exec.Command(killer, fmt.Sprint("=", step), recorder, "record", "-q", "--overhead", "no", "-p", fmt.Sprint(c.pid),
				"-o", filepath.Join(t.TempDir(), "first"))
			cmd.Stderr = os.Stderr
			k := startTold(t, cmd)
			t.Cleanup(func() { k.in.Close(); cmd.Wait() })
			if kill != nil {
				c.control("status")
				kill(childOf(t, cmd.Process.Pid))
			}
			if got := k.line(); got != "ending" {
				t.Fatalf("the recorder's tracer says %q", got)
			}
			return k
		}
		// comes has somebody come, and then the recorder end.
		comes := func(t *testing.T, c, k *controlled) {
			args := []string{"detach", fmt.Sprint(c.pid)}
			if way == "record" {
				args = []string{"record", "-q", "--overhead", "no", "-p", fmt.Sprint(c.pid), "--for", "20ms", "-o", filepath.Join(t.TempDir(), "second")}
			}
			done := make(chan string, 1)
			go func() {
				out, err := exec.Command(recorder, args...).CombinedOutput()
				done <- fmt.Sprint(err, ", ", string(out))
			}()
			select {
			case said := <-done:
				t.Fatalf("%s has not waited: %s", way, said)
			case <-time.After(200 * time.Millisecond): // in which others would have given up; if not, this finds nothing
			}
			fmt.Fprintln(k.in)
			if said := <-done; said != "<nil>, " {
				t.Errorf("%s: %s", way, said)
			}
			if maps, _, _ := state(t, c.pid); hasTracer(maps) || tracersMemory(maps) {
				t.Error(maps)
			}
			unchangedCode(t, c.pid, program)
			c.do("work 10")
		}
		started := func() *controlled {
			cmd := exec.Command(program)
			c := startTold(t, cmd)
			t.Cleanup(func() { c.in.Close(); cmd.Wait() })
			if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
				t.Fatal(err)
			}
			return c
		}
		t.Run(way, func(t *testing.T) {
			c := started()
			comes(t, c, held(c, 0, func(recorder int) { syscall.Kill(recorder, syscall.SIGKILL) }))
		})
		if way == "record" {
			t.Run("stopped", func(t *testing.T) {
				for step := 2; step < 50; step++ {
					c := started()
					k := held(c, step, nil)
					if tracer(c.pid) != 0 {
						comes(t, c, k)
						return
					}
					fmt.Fprintln(k.in)
				}
				t.Error("the recorder was never killed while it had the process stopped")
			})
		}
	}
}

// childOf is the only child of a process.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &child); err != nil {
		t.Fatal(err)
	}
	return child
}
