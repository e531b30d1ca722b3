//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
)

// Exceptions that are thrown while a process is attached to and detached from are caught, whoever unwinds: libgcc_s, a copy
// of it in the program, that of a static program.
func TestAttachUnwinders(t *testing.T) {
	for name, flags := range map[string][]string{
		"libgcc_s": nil, "own": {"-static-libgcc", "-static-libstdc++"}, "static": {"-static-pie", "-fPIE"},
		"static, fixed": {"-static", "-no-pie"}, "static, fixed, with a search table": {"-static", "-no-pie", "-Wl,--eh-frame-hdr"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildAttached(t, flags...))
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for range 3 {
				attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 50*time.Millisecond, "_Z3suml", "_Z4leafi")
			}
			r.end(t, 7, "right\n")
		})
	}
	// Its start-up code registers the unwind information.
	t.Run("static, fixed, stripped", func(t *testing.T) {
		r := start(t, buildAttached(t, "-static", "-no-pie", "-s"))
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
		_, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o)
		if err == nil || !strings.Contains(err.Error(), "its start-up code registers its unwind information, and who unwinds is not known") {
			t.Error(err)
		}
		r.end(t, 7, "right\n")
	})
}

// blind are the flags for a library that asks glibc as unwinders do that do not ask where they find what.
func blind(t *testing.T) []string {
	const code = `
#define _GNU_SOURCE
#include <link.h>
int (*volatile iterates)(int (*)(struct dl_phdr_info *, size_t, void *), void *) = dl_iterate_phdr;
`
	library := testtool.Compile(t, "libiterates.so", code, "-shared", "-fPIC")
	return []string{"-Wl,--no-as-needed", library, "-Wl,-rpath," + filepath.Dir(library)}
}

// Exceptions pass, and destructors of threads that are cancelled are called, where a function jumps to another image, in a process
// that runs already, and so with calls of libraries' functions.
func TestAttachJumpsAway(t *testing.T) {
	library := filepath.Join(filepath.Dir(buildFile(t, "testdata/jumpsaway.cpp", "-DLIBRARY", "-shared", "-fPIC")), "attached")
	for name, flags := range map[string][]string{
		"stubs": nil, "no stubs": {"-fno-plt"}, "prepared": {"-fpatchable-function-entry=5"}, "own": {"-static-libgcc", "-static-libstdc++"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildFile(t, "testdata/jumpsaway.cpp", append(flags, library, "-Wl,-rpath,"+filepath.Dir(library))...))
			o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
			attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, "_Z4leafi", "_Z6directi", "_Z7pointerPFviEi", "_Z4waitPc")
			o.LibraryCalls = name != "no stubs"
			functions := []string{"_Z4leafi"}
			if o.LibraryCalls {
				functions = []string{"_Z6throwsi@plt", "read@plt"}
			}
			attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, functions...)
			r.end(t, 7, "right\n")
		})
	}
}

// Where unwinders would not find what they return to, such functions are left alone, with the reason.
func TestAttachLeavesJumpsAway(t *testing.T) {
	library := filepath.Join(filepath.Dir(buildFile(t, "testdata/jumpsaway.cpp", "-DLIBRARY", "-shared", "-fPIC")), "attached")
	for name, flags := range map[string][]string{
		"stubs": nil, "no stubs": {"-fno-plt"}, "no tail calls": {"-fno-optimize-sibling-calls"}, "prepared": {"-fpatchable-function-entry=5"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildFile(t, "testdata/jumpsaway.cpp", slices.Concat(flags, blind(t), []string{library, "-Wl,-rpath," + filepath.Dir(library)})...))
			o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
			attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, "_Z4leafi")
			var said messages
			o.LibraryCalls, o.For = true, 100*time.Millisecond
			o.Logf = said.logf
			if _, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o); err != nil || !strings.Contains(fmt.Sprint(said.list), "jumps-away") {
				t.Errorf("calls of libraries: %v, %q", err, said.list)
			}
			// Entries alone are recorded of all of them.
			o.For, o.Plan.Tracer = 0, patch.Function
			functions := []string{"_Z4leafi", "_Z6directi", "_Z7pointerPFviEi"}
			if name == "no tail calls" { // but for those that begin with a call
				functions = functions[:1]
			}
			attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, functions...)
			r.end(t, 7, "right\n")
		})
	}
}

// A handler finds all its callers, and threads clean up, wherever they are interrupted or cancelled: in a function, the tracer, or
// what has moved.
func TestAttachProfiled(t *testing.T) {
	program := buildFile(t, "testdata/profiled.c")
	for name, o := range map[string]fentry.Options{
		"graph": {}, "function": {Plan: patch.Options{Tracer: patch.Function}},
		"system calls": {Syscalls: true}, "libraries": {Libraries: []string{"*"}, LibraryCalls: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, program, "cancels")
			o.Dir = filepath.Join(t.TempDir(), "fentry.data")
			for range 3 {
				attachUntil(t, r.cmd.Process.Pid, o, 300*time.Millisecond, "leaf")
			}
			r.end(t, 7, "right\n")
		})
	}
}

// Threads clean up that are cancelled at any instruction between what is called before a system call and what is called behind it,
// as glibc's functions have it that wait. Where their unwinder would not find the tracer, these two are left alone.
func TestAttachBesideSyscall(t *testing.T) {
	for name, flags := range map[string][]string{"known": nil, "blind": blind(t)} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildFile(t, "testdata/besidesyscall.c", slices.Concat([]string{"-pthread", "-fexceptions"}, flags)...))
			o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
			for range 3 {
				attachUntil(t, r.cmd.Process.Pid, o, 300*time.Millisecond, "leaf", "waits")
			}
			calls := attach(t, r.cmd.Process.Pid, o, 100*time.Millisecond)
			if left := calls["before"] == 0 && calls["behind"] == 0; left != (name == "blind") {
				t.Errorf("calls beside the system call: %v", calls)
			}
			r.end(t, 7, "right\n")
		})
	}
}

// So it is with functions that are added to a recording. Of a program that was started nobody knows who unwinds it.
func TestAddedJumpsAway(t *testing.T) {
	library := filepath.Join(filepath.Dir(buildFile(t, "testdata/jumpsaway.cpp", "-DLIBRARY", "-shared", "-fPIC")), "attached")
	for _, tt := range []struct {
		name     string
		flags    []string
		attached bool
		refused  bool
	}{{"started", nil, false, true}, {"attached", nil, true, false}, {"attached, blind", blind(t), true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			program := buildFile(t, "testdata/jumpsaway.cpp", slices.Concat(tt.flags, []string{library, "-Wl,-rpath," + filepath.Dir(library)})...)
			c := startControlledProgram(t, tt.attached, ofFunctions(t, "main", "_Z*cancelsPv"), exec.Command(program, "pid"))
			for _, name := range []string{"_Z6directi", "_Z5inneri", "_Z7pointerPFviEi", "_Z6eitheri", "_Z4waitPc"} {
				_, err := c.ask("set_ftrace_filter += " + name)
				refused := err != nil && strings.Contains(err.Error(), "no function matches")
				if want := tt.refused || name == "_Z5inneri"; refused != want || err != nil && !refused { // that one begins with a call
					t.Errorf("%s: %v", name, err)
				}
			}
			for range 3 {
				c.control("set_ftrace_filter += _Z4leafi")
				time.Sleep(100 * time.Millisecond)
				c.control("set_ftrace_filter -= _Z4leafi")
			}
			c.in.Close()
			if got := c.line(); got != "right" {
				t.Error(got)
			}
		})
	}
}
