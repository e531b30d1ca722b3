//go:build linux && amd64

package session

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// Every kind of executable starts at the new entry point with the edits made,
// sees the new program headers and has its control block.
func TestInject(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
	}{
		{"pie", []string{"-pie", "-fPIE"}},
		{"no-pie", []string{"-no-pie", "-fno-pie"}},
		{"static", []string{"-static", "-fno-pie"}},
		{"static-pie", []string{"-static-pie", "-fPIE"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := fixture.CC(t, "testdata/answer", tt.flags...)
			m := fixture.Answer(t, path)
			plain, err := exec.Command(path).Output()
			if err != nil || !strings.HasPrefix(string(plain), "answer 11223344,") {
				t.Fatalf("untraced: %q, %v", plain, err)
			}
			parse := func(s string) (answer, gs, entry, phdr uint64, phnum, loads int, fn uint64) {
				if _, err := fmt.Sscanf(s, "answer %x, gs %x, entry %x, phdr %x, phnum %d, loads %d, bias %x\n", &answer, &gs, &entry, &phdr, &phnum, &loads, &fn); err != nil {
					t.Fatalf("%q: %v", s, err)
				}
				return
			}
			_, _, _, _, phnum, loads, _ := parse(string(plain))
			r := recorderCmd{Memory: m}
			x := r.run(t, path, "arg")
			if x.code != 7 || x.stderr != "" || !x.res.Injected {
				t.Errorf("status %d, %+v: %s", x.code, x.res, x.stderr)
			}
			out, ok := strings.CutPrefix(x.stdout, "injected\n")
			if !ok {
				t.Fatalf("%q", x.stdout)
			}
			answer, gs, entry, phdr, phnum2, loads2, _ := parse(out)
			// With an interpreter the new entry point has been run before it; without
			// one, it is where the process begins.
			bias := entry - m.OrigEntry
			if strings.HasPrefix(tt.name, "static") {
				bias = entry - m.Entry
			}
			if answer != 0x55667788 || bias%tracee.PageSize != 0 || gs != bias+m.NullCB || phdr != bias+m.PhdrAddr || phnum2 != phnum+1 || loads2 != loads+1 {
				t.Errorf("%q; untraced: %q", out, plain)
			}
		})
	}
}

// A plan for another version of the file: nothing is run.
func TestInjectMismatch(t *testing.T) {
	path := fixture.CC(t, "testdata/answer")
	m := fixture.Answer(t, path)
	e := &m.Edits[0]
	m.Edits = append([]arch.Edit{{Addr: e.Addr - 1, Old: []byte{0x12}, New: []byte{0x90}}}, m.Edits...)
	r := recorderCmd{Memory: m}
	x := r.run(t, path)
	if x.code != 200 || x.stdout != "" || !strings.Contains(x.stderr, fmt.Sprintf("changed since it was read: %#x: rewriting code: EINVAL: actual ", e.Addr-1)) {
		t.Errorf("status %d, %q, %q", x.code, x.stdout, x.stderr)
	}
	if _, err := os.Stat(r.Dir); err == nil {
		t.Error("a trace is left")
	}
}

// What execve runs is not the file that was planned.
func TestScripts(t *testing.T) {
	path := fixture.CC(t, "testdata/answer")
	m := fixture.Answer(t, path)
	for _, tt := range []struct{ head, want string }{
		{"#!/bin/sh\n", "which is not traced"},
		{"", "is a script, which is not traced"},
	} {
		script := filepath.Join(t.TempDir(), "script")
		if err := runfile.WriteFile(script, []byte(tt.head+"echo \"$0\" \"$@\"; exit 9\n")); err != nil {
			t.Fatal(err)
		}
		r := recorderCmd{Memory: m}
		x := r.run(t, script, "a", "b c")
		if x.code != 9 || x.stdout != script+" a b c\n" || !strings.Contains(x.stderr, tt.want) || x.res.Injected {
			t.Errorf("%q: status %d, %q, %q", tt.head, x.code, x.stdout, x.stderr)
		}
	}
}

// Where memory cannot be had, or ptrace not used, a patched copy runs instead,
// under the program's name, and nothing is left of it.
func TestPatchedCopy(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	src, err := os.ReadFile(fixture.CC(t, "testdata/answer"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "answer")
	if err := runfile.WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	m := fixture.Answer(t, path)
	// The copy shall be recognisable.
	e := m.Edits[0]
	patched := bytes.Replace(src, e.Old, e.New, 1)
	file := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, patched, 0o666); err != nil {
		t.Fatal(err)
	}
	taken := *m
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	taken.RWAddr = f.Progs[0].Vaddr // in use by the image
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			taken.RWAddr = p.Vaddr &^ 0xfff
		}
	}
	check := func(t *testing.T, r recorderCmd, wantMsg string) {
		r.prefix = append([]string{"env", "TMPDIR=" + tmp}, r.prefix...)
		x := r.run(t, path, "arg")
		if x.code != 7 || !strings.HasPrefix(x.stdout, "answer 55667788") || !x.res.Copied {
			t.Errorf("status %d, %q", x.code, x.stdout)
		}
		if !strings.Contains(x.stderr, wantMsg) {
			t.Errorf("%q", x.stderr)
		}
		for _, d := range []string{dir, tmp} {
			left, err := os.ReadDir(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range left {
				if l.Name() != "answer" {
					t.Errorf("left behind: %s", l.Name())
				}
			}
		}
	}
	t.Run("wanted", func(t *testing.T) { check(t, recorderCmd{Memory: m, Copy: file, NoPtrace: true}, "") })
	t.Run("no memory", func(t *testing.T) { check(t, recorderCmd{Memory: &taken, Copy: file}, "running a patched copy") })
	t.Run("no ptrace", func(t *testing.T) {
		// A process that is traced already cannot be traced a second time, but
		// TRACEME in a child can; a seccomp filter is what containers have.
		check(t, recorderCmd{Memory: m, Copy: file, prefix: []string{withoutPtrace(t)}}, "ptrace: ")
	})
	t.Run("read-only directory", func(t *testing.T) {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("needs to mount (root): %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		check(t, recorderCmd{Memory: m, Copy: file, NoPtrace: true}, "")
	})
}

// Code that cannot be read is not changed in place.
func TestExecuteOnly(t *testing.T) {
	src, err := os.ReadFile(fixture.CC(t, "testdata/answer"))
	if err != nil {
		t.Fatal(err)
	}
	phoff, n := int(le.Uint64(src[32:])), int(le.Uint16(src[56:]))
	for i := range n {
		if b := src[phoff+i*tracee.Phentsize:]; le.Uint32(b) == uint32(elf.PT_LOAD) && le.Uint32(b[4:]) == uint32(elf.PF_R|elf.PF_X) {
			le.PutUint32(b[4:], uint32(elf.PF_X))
		}
	}
	path := filepath.Join(t.TempDir(), "answer")
	if err := runfile.WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	m := fixture.Answer(t, path)
	file := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, bytes.Replace(src, m.Edits[0].Old, m.Edits[0].New, 1), 0o666); err != nil {
		t.Fatal(err)
	}
	r := recorderCmd{Memory: m, Copy: file}
	x := r.run(t, path, "arg")
	if x.code != 7 || !strings.HasPrefix(x.stdout, "answer 55667788") || !x.res.Copied || !strings.Contains(x.stderr, "its code cannot be read") {
		t.Errorf("status %d, %q, %q", x.code, x.stdout, x.stderr)
	}
}

// withoutPtrace is a program that runs another one without the right to ptrace.
func withoutPtrace(t *testing.T) string { return fixture.CC(t, "testdata/noptrace") }

// The name of the process and its first argument are the program's own.
func TestPatchedCopyName(t *testing.T) {
	path := fixture.CC(t, "testdata/state")
	m := &patch.Memory{}
	*m = *fixture.Answer(t, fixture.CC(t, "testdata/answer"))
	r := recorderCmd{Memory: m, Copy: path, NoPtrace: true, Path: path}
	x := r.run(t, "other-name", "x")
	for _, want := range []string{"Name:\t" + filepath.Base(path)[:5], "arg other-name\narg x\n", "exe " + filepath.Dir(path) + "/"} {
		if !strings.Contains(x.stdout, want) {
			t.Errorf("no %q in %s", want, x.stdout)
		}
	}
}

// A program that is killed at its exec stop counts as one that ended.
func TestExitStatus(t *testing.T) {
	var r recorderCmd
	for _, tt := range []struct {
		script string
		code   int
	}{
		{"exit 0", 0}, {"exit 77", 77},
		{"kill -SEGV $$", 100 + int(syscall.SIGSEGV)}, {"kill -KILL $$", 100 + int(syscall.SIGKILL)},
	} {
		if x := r.run(t, "/bin/sh", "-c", tt.script); x.code != tt.code {
			t.Errorf("%s: %d, want %d", tt.script, x.code, tt.code)
		}
	}
}

// A program with privileges of its file cannot have them and be traced, when the
// recorder has none: a copy is.
func TestPrivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to make a set-user-ID program (root)")
	}
	dir, err := os.MkdirTemp("", "session-suid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	src, err := os.ReadFile(fixture.CC(t, "testdata/answer"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "answer")
	if err := runfile.WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, d := range []string{dir, fixture.Dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	r := recorderCmd{Memory: fixture.Answer(t, path), Copy: path, Dir: filepath.Join(work, "data")}
	cmd := r.command(t, path)
	// The options are in a directory that is root's alone.
	opts, err := os.ReadFile(cmd.Args[1])
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[1] = filepath.Join(dir, "options")
	opts = bytes.ReplaceAll(opts, []byte(r.Result), []byte(filepath.Join(work, "result")))
	if err := os.WriteFile(cmd.Args[1], opts, 0o644); err != nil {
		t.Fatal(err)
	}
	r.Result = filepath.Join(work, "result")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = work
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := r.finish(t, cmd, &out, &errb)
	if x.code != 0 || !x.res.Copied || !strings.HasPrefix(x.stdout, "answer 11223344") || !strings.Contains(x.stderr, "without the privileges") {
		t.Errorf("status %d, %+v, %q, %q", x.code, x.res, x.stdout, x.stderr)
	}
}
