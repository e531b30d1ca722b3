package syscalls_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/internal/syscalls/internal/tables"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestGenerated: the tables are those that go generate makes.
func TestGenerated(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	calls, constants, err := tables.Make(filepath.Join(strings.TrimSpace(string(out)), "unix"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"zcalls.txt": calls, "zconstants.txt": constants} {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != want {
			t.Errorf("%s is not what go generate makes", name)
		}
	}
}

// TestNumbers compares some numbers with the kernel's headers of each machine.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		m    syscalls.Machine
		nr   uint64
		name string
	}{
		{syscalls.AMD64, 0, "read"}, {syscalls.AMD64, 257, "openat"}, {syscalls.AMD64, 262, "newfstatat"},
		{syscalls.AMD64, 435, "clone3"}, {syscalls.ARM64, 63, "read"}, {syscalls.ARM64, 56, "openat"},
		{syscalls.ARM64, 79, "newfstatat"}, {syscalls.ARM64, 435, "clone3"}, {syscalls.AMD64, 335 + 65, "syscall_0x190"},
		{syscalls.ARM64, 1 << 40, "syscall_0x10000000000"},
	} {
		if have := c.m.Name(c.nr); have != c.name {
			t.Errorf("call %d of machine %d is %s, want %s", c.nr, c.m, have, c.name)
		}
	}
	if syscalls.ARM64.Named("open") != nil || syscalls.AMD64.Named("open") == nil {
		t.Error("open is a call of amd64 only")
	}
	for m := range syscalls.ARM64 + 1 {
		for _, c := range m.Calls() {
			if m.Call(uint64(c.Number)) != c || m.Named(c.Name) != c || len(c.Args) > 6 {
				t.Errorf("%s: %d, %d arguments", c.Name, c.Number, len(c.Args))
			}
		}
	}
}

// TestErrnos compares the texts of errors with those of the C library.
func TestErrnos(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src := filepath.Join(dir, "errno.c")
	const prog = `#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
int main(void) { for (int i = 1; i < 134; i++)
	if (strerrorname_np(i)) printf("%d %s %s\n", i, strerrorname_np(i), strerror(i)); }`
	if err := os.WriteFile(src, []byte(prog), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", filepath.Join(dir, "errno"), src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "errno")).Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		var e int
		fmt.Sscan(f[0], &e)
		n++
		if name, text := syscalls.ErrnoName(e), syscalls.ErrnoText(e); name != f[1] && f[1] != "ENOTSUP" || text != f[2] {
			t.Errorf("%d is %s, %q, want %s, %q", e, name, text, f[1], f[2])
		}
	}
	if n < 130 {
		t.Errorf("%d errors", n)
	}
}

// TestFilter has every form of an item.
func TestFilter(t *testing.T) {
	all := func(m syscalls.Machine, f *syscalls.Filter) (names []string) {
		for _, c := range m.Calls() {
			if f.Match(m, uint64(c.Number)) {
				names = append(names, c.Name)
			}
		}
		return names
	}
	for _, c := range []struct{ filter, want string }{
		{"futex", "futex"},
		{"read,write,!read", "write"},
		{"/^p?read/", "read pread64 readv readlink readahead readlinkat preadv preadv2"},
		{"/^(a{1,2}cct|acct)$/,sync", "sync acct"},
		{"%fstat", "fstat"},
		{"%clock,!/time/", "nanosleep clock_getres clock_nanosleep"},
		{"all,!/./", ""},
	} {
		f, err := syscalls.ParseFilter(c.filter)
		if err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		if have := all(syscalls.AMD64, f); !slices.Equal(have, strings.Fields(c.want)) {
			t.Errorf("%s: %q", c.filter, have)
		}
	}
	f, err := syscalls.ParseFilter("!%file,openat")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"open": false, "openat": true, "read": true} {
		if have := f.Match(syscalls.AMD64, uint64(syscalls.AMD64.Named(name).Number)); have != want {
			t.Errorf("%s is meant: %v", name, have)
		}
	}
	if !f.Match(syscalls.AMD64, 1<<20) || !new(syscalls.Filter).Match(syscalls.ARM64, 1) {
		t.Error("what is not known, or all")
	}
	for _, s := range []string{"nosuch", "%nosuch", "/(/", "/x", "/nosuch/", "!", ",", "read,", "read,,write", ""} {
		if _, err := syscalls.ParseFilter(s); err == nil && s != "" {
			t.Errorf("%q is accepted", s)
		}
	}
	// open is a call of one machine, and no mistake on the other.
	if _, err := syscalls.ParseFilter("open"); err != nil {
		t.Error(err)
	}
}

// TestClasses: each class has calls, those that strace's manual page names among them.
func TestClasses(t *testing.T) {
	for _, class := range syscalls.ClassNames() {
		f, err := syscalls.ParseFilter(class)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range syscalls.AMD64.Calls() {
			if f.Match(syscalls.AMD64, uint64(c.Number)) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("%s has no calls", class)
		}
	}
	for _, s := range []string{"%file openat", "%desc read", "%network sendmsg", "%memory mmap", "%process clone",
		"%signal kill", "%ipc shmget", "%creds getuid", "%clock clock_gettime", "%stat stat", "%lstat lstat",
		"%fstat newfstatat", "%%stat statx", "%statfs fstatfs"} {
		class, name, _ := strings.Cut(s, " ")
		f, err := syscalls.ParseFilter(class)
		if err != nil {
			t.Fatal(err)
		}
		have := f.Match(syscalls.AMD64, uint64(syscalls.AMD64.Named(name).Number))
		if want := !strings.Contains(s, "newfstatat") && !strings.Contains(s, "fstatfs"); have != want {
			t.Errorf("%s: %v", s, have)
		}
	}
}

// TestNamedTasks: tasks in arguments and results have their names, quoted.
func TestNamedTasks(t *testing.T) {
	c := syscalls.Made{Machine: syscalls.ARM64, Number: uint64(syscalls.ARM64.Named("tgkill").Number),
		Args: [6]uint64{7, 8, 15}, Ended: true,
		TaskName: func(tid int) string { return map[int]string{8: "a>b\x1b[2J"}[tid] }}
	if have, want := syscalls.Line(&c), `tgkill(7, 8 <a\>b\33[2J>, SIGTERM) = 0`; have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
	c = syscalls.Made{Number: 57, Result: 8, Ended: true, TaskName: c.TaskName}
	if have, want := syscalls.Line(&c), `fork() = 8 <a\>b\33[2J>`; have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

// FuzzLine: whatever was recorded, the text is printable, and not much longer than what was recorded.
func FuzzLine(f *testing.F) {
	f.Add(uint64(257), uint64(0), uint64(0x1000), uint64(3), []byte("/etc/passwd\x00\x1b[2J"), false, true)
	f.Add(uint64(46), uint64(3), uint64(0x1000), uint64(1<<63), []byte("\x00\x10\x00\x00\x00\x00\x00\x00\xff"), true, true)
	f.Add(uint64(16), uint64(0x1000), uint64(0x5401), uint64(0x1000), make([]byte, 300), true, false)
	f.Fuzz(func(t *testing.T, nr, a, b, c uint64, data []byte, arm, ended bool) {
		if len(data) > 1<<12 {
			return
		}
		var m syscalls.Machine
		if arm {
			m = syscalls.ARM64
		}
		for _, n := range []uint64{nr, nr % 480} {
			call := syscalls.Made{Machine: m, Number: n, Args: [6]uint64{a, b, c, 0x1000, a, b}, Ended: ended, Result: c}
			call.In = syscalls.Memory{{Address: 0x1000, Bytes: data}, {Address: a, Bytes: data, NUL: true}}
			call.Out = call.In
			line := syscalls.Line(&call)
			for i := range len(line) {
				if line[i] < ' ' || line[i] > 0x7e {
					t.Fatalf("%q is not printable", line)
				}
			}
			if len(line) > 1<<18 {
				t.Fatalf("%d bytes", len(line))
			}
		}
	})
}
