//go:build linux

package fentry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A family is a process whose recorder was killed, and two children of it, that were forked before and after that.
type family struct {
	t       *testing.T
	program string
	tools   string // fentry
	members map[string]int
	c       *controlled
}

func newFamily(t *testing.T, program, recorder string) *family {
	t.Helper()
	cmd := exec.Command(program)
	f := &family{t: t, program: program, tools: recorder, members: make(map[string]int), c: startTold(t, cmd)}
	if _, err := fmt.Sscan(f.c.line(), &f.c.pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.c.in.Close(); cmd.Wait() })
	f.members["parent"] = f.c.pid
	r := f.record(f.c.pid)
	f.fork("before")
	r.Process.Kill()
	r.Wait()
	f.fork("after")
	for name, pid := range f.members {
		if maps, _, _ := state(t, pid); !hasTracer(maps) {
			t.Fatalf("%s has no tracer\n%s", name, maps)
		}
	}
	return f
}

// fork forks a child that works as long as its parent is there.
func (f *family) fork(name string) {
	f.t.Helper()
	f.c.do("keep 1")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", f.c.pid, f.c.pid))
	if err != nil {
		f.t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(b)) {
		var pid int
		fmt.Sscan(child, &pid)
		if !slices.Contains([]int{f.members["before"], f.members["after"]}, pid) {
			f.members[name] = pid
		}
	}
}

// record begins to record a process.
func (f *family) record(pid int, more ...string) *exec.Cmd {
	f.t.Helper()
	args := []string{"record", "-q", "--overhead", "no", "-p", fmt.Sprint(pid), "-o", filepath.Join(f.t.TempDir(), "fentry.data")}
	r := exec.Command(f.tools, append(args, more...)...)
	r.Stderr = os.Stderr
	if err := r.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { r.Process.Kill(); r.Wait() })
	(&controlled{t: f.t, pid: pid}).control("status")
	return r
}

// recordable fails unless a process can be recorded by itself, and is as it was afterwards.
func (f *family) recordable(name string) {
	f.t.Helper()
	pid, dir := f.members[name], filepath.Join(f.t.TempDir(), "its")
	r := f.record(pid, "-o", dir)
	if name == "parent" {
		f.c.do("work 10")
	} else {
		f.works(pid)
	}
	if err := r.Process.Signal(os.Interrupt); err != nil {
		f.t.Fatal(err)
	}
	if err := r.Wait(); err != nil {
		f.t.Errorf("the recorder of %s: %v", name, err)
	}
	// A child can be in the middle of a call at the beginning and at the end.
	calls := callsIn(f.t, dir)
	if o, m, l := calls["outer"], calls["middle"], calls["leaf"]; o < 5 || m+1 < o || m > o+1 || l+3 < 3*o || l > 3*o+3 {
		f.t.Errorf("calls of %s: %v", name, calls)
	}
	f.clean(name)
}

// works waits until a child has gone to sleep some times, which it does once it has worked.
func (f *family) works(pid int) {
	f.t.Helper()
	sleeps := func() (n int) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			f.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		fmt.Sscan(rest, &n)
		return n
	}
	from := sleeps()
	waitFor(f.t, "work of the child", func() int { return max(0, sleeps()-from-20) })
}

// clean fails if something of a tracer is in a process.
func (f *family) clean(name string) {
	f.t.Helper()
	if maps, _, _ := state(f.t, f.members[name]); hasTracer(maps) || tracersMemory(maps) {
		f.t.Errorf("%s is not as it was\n%s", name, maps)
	}
	unchangedCode(f.t, f.members[name], f.program)
}

// Each of a process whose recorder was killed, and its children, can be recorded by itself, whenever these were forked; and who is
// detached from one has the tracer taken out of all.
func TestAttachAbandonedChildren(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder := buildRecorder(t)
	t.Run("record", func(t *testing.T) {
		f := newFamily(t, program, recorder)
		order := []string{"before", "parent", "after"}
		for i, name := range order {
			f.recordable(name)
			for _, other := range order[i+1:] {
				if maps, _, _ := state(t, f.members[other]); !hasTracer(maps) {
					t.Errorf("%s has no tracer any more, as %s was recorded", other, name)
				}
			}
		}
	})
	for _, name := range []string{"before", "after"} {
		t.Run("detach "+name, func(t *testing.T) {
			f := newFamily(t, program, recorder)
			if out, err := exec.Command(recorder, "detach", fmt.Sprint(f.members[name])).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("detach: %v, %s", err, out)
			}
			for member := range f.members {
				f.clean(member)
			}
			f.recordable(name)
		})
	}
}
