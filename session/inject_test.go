//go:build linux && amd64

package session

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/runfile"
)

// The new entry point of the tests: it writes a word to the new data memory and
// a line to standard output, and goes on to the image's own entry point.
const (
	codeStart  = 64 // offset of the entry point in the code
	phdrsStart = 512
)

// assemble makes the code for given addresses.
func assemble(rx, rw, orig uint64) []byte {
	const msg = "injected\n"
	var c []byte
	at := func() uint64 { return rx + codeStart + uint64(len(c)) }
	rel := func(target uint64) { c = le.AppendUint32(c, uint32(target-(at()+4))) }
	c = append(c, 0x50, 0x57, 0x56, 0x52, 0x51, 0x41, 0x53) // push rax, rdi, rsi, rdx, rcx, r11
	c = append(c, 0xb8, 1, 0, 0, 0)                         // mov $1, %eax (write)
	c = append(c, 0x89, 0x05)                               // mov %eax, rw(%rip)
	rel(rw)
	c = append(c, 0xbf, 1, 0, 0, 0) // mov $1, %edi
	c = append(c, 0x48, 0x8d, 0x35) // lea msg(%rip), %rsi
	rel(rx)
	c = append(c, 0xba, byte(len(msg)), 0, 0, 0)            // mov $len, %edx
	c = append(c, 0x0f, 0x05)                               // syscall
	c = append(c, 0x41, 0x5b, 0x59, 0x5a, 0x5e, 0x5f, 0x58) // pop all
	c = append(c, 0xe9)                                     // jmp orig
	rel(orig)
	out := make([]byte, codeStart)
	copy(out, msg)
	return append(out, c...)
}

// answerPlan makes a plan for testdata/answer.c: answer returns another number.
func answerPlan(t testing.TB, path string) *Memory {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &Memory{OrigEntry: f.Entry}
	old := []byte{0xb8, 0x44, 0x33, 0x22, 0x11} // mov $0x11223344, %eax
	end := uint64(0)
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		end = max(end, p.Vaddr+p.Memsz)
		b := raw[p.Off : p.Off+p.Filesz]
		if i := bytes.Index(b, old); i >= 0 && p.Flags&elf.PF_X != 0 {
			m.Edits = []Edit{{p.Vaddr + uint64(i), old, []byte{0xb8, 0x88, 0x77, 0x66, 0x55}}}
		}
	}
	if m.Edits == nil {
		t.Fatalf("%s: no answer", path)
	}
	m.RWAddr = (end + 1<<30) &^ 0xfff
	m.RWSize = 5000
	m.RXAddr = m.RWAddr + 0x4000
	m.RX = append(assemble(m.RXAddr, m.RWAddr+4096, f.Entry), make([]byte, phdrsStart)...)
	m.Entry = m.RXAddr + codeStart
	m.NullCB = m.RWAddr + 8

	m.PhdrAddr = m.RXAddr + phdrsStart
	m.Phnum = len(f.Progs) + 1
	var b bytes.Buffer
	for _, p := range append(slices.Clone(f.Progs), &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Vaddr: m.RXAddr, Paddr: m.RXAddr, Filesz: 4096, Memsz: 4096, Align: 4096}}) {
		h := elf.Prog64{Type: uint32(p.Type), Flags: uint32(p.Flags), Off: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr, Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align}
		if p.Type == elf.PT_PHDR {
			h.Vaddr, h.Paddr = m.PhdrAddr, m.PhdrAddr
		}
		if err := binary.Write(&b, le, h); err != nil {
			t.Fatal(err)
		}
	}
	m.Phdrs = b.Bytes()
	m.RX = append(m.RX[:phdrsStart], make([]byte, len(m.Phdrs))...)
	return m
}

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
			path := cc(t, "answer", tt.flags...)
			m := answerPlan(t, path)
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
			if answer != 0x55667788 || bias%pageSize != 0 || gs != bias+m.NullCB || phdr != bias+m.PhdrAddr || phnum2 != phnum+1 || loads2 != loads+1 {
				t.Errorf("%q; untraced: %q", out, plain)
			}
		})
	}
}

// A plan for another version of the file: nothing is run.
func TestInjectMismatch(t *testing.T) {
	path := cc(t, "answer")
	m := answerPlan(t, path)
	e := &m.Edits[0]
	m.Edits = append([]Edit{{e.Addr - 1, []byte{0x12}, []byte{0x90}}}, m.Edits...)
	r := recorderCmd{Memory: m}
	x := r.run(t, path)
	if x.code != 200 || x.stdout != "" || !strings.Contains(x.stderr, fmt.Sprintf("changed since it was read: failed to modify %#x: actual ", e.Addr-1)) {
		t.Errorf("status %d, %q, %q", x.code, x.stdout, x.stderr)
	}
	if _, err := os.Stat(r.Dir); err == nil {
		t.Error("a trace is left")
	}
}

// What execve runs is not the file that was planned.
func TestScripts(t *testing.T) {
	path := cc(t, "answer")
	m := answerPlan(t, path)
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
	src, err := os.ReadFile(cc(t, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "answer")
	if err := runfile.WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	m := answerPlan(t, path)
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
	src, err := os.ReadFile(cc(t, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	phoff, n := int(le.Uint64(src[32:])), int(le.Uint16(src[56:]))
	for i := range n {
		if b := src[phoff+i*phentsize:]; le.Uint32(b) == uint32(elf.PT_LOAD) && le.Uint32(b[4:]) == uint32(elf.PF_R|elf.PF_X) {
			le.PutUint32(b[4:], uint32(elf.PF_X))
		}
	}
	path := filepath.Join(t.TempDir(), "answer")
	if err := runfile.WriteFile(path, src); err != nil {
		t.Fatal(err)
	}
	m := answerPlan(t, path)
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
func withoutPtrace(t *testing.T) string { return cc(t, "noptrace") }

// The name of the process and its first argument are the program's own.
func TestPatchedCopyName(t *testing.T) {
	path := cc(t, "state")
	m := &Memory{}
	*m = *answerPlan(t, cc(t, "answer"))
	r := recorderCmd{Memory: m, Copy: path, NoPtrace: true, Path: path}
	x := r.run(t, "other-name", "x")
	for _, want := range []string{"Name:\t" + filepath.Base(path)[:5], "arg other-name\narg x\n", "exe " + filepath.Dir(path) + "/"} {
		if !strings.Contains(x.stdout, want) {
			t.Errorf("no %q in %s", want, x.stdout)
		}
	}
}

// Plans that contradict themselves are refused before anything is started.
func TestMemoryCheck(t *testing.T) {
	good := func() *Memory {
		return &Memory{RX: make([]byte, 4096), RXAddr: 0x10000, Entry: 0x10010, RWAddr: 0x20000, RWSize: 10, Edits: []Edit{{0x1000, []byte{1, 2}, []byte{3, 4}}, {0x1002, []byte{1}, []byte{2}}}}
	}
	if err := good().check(); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(m *Memory){
		func(m *Memory) { m.RX = nil },
		func(m *Memory) { m.RXAddr++ },
		func(m *Memory) { m.RXAddr = ^uint64(0xfff); m.RX = make([]byte, 8192) },
		func(m *Memory) { m.RWSize = ^uint64(0) - 0x10000 },
		func(m *Memory) { m.Entry = 0x11000 },
		func(m *Memory) { m.PhdrAddr = 0x10ff0; m.Phnum = 1 },
		func(m *Memory) { m.PhdrAddr = 0x10000 },
		func(m *Memory) { m.PhdrAddr, m.Phnum, m.Phdrs = 0x10000, 1, make([]byte, 55) },
		func(m *Memory) { m.Edits[1].Addr-- },
		func(m *Memory) { m.Edits[0].New = nil },
		func(m *Memory) { m.Edits[0].Old, m.Edits[0].New = nil, nil },
		func(m *Memory) { m.Edits[1].Addr = ^uint64(0) },
	} {
		m := good()
		change(m)
		if err := m.check(); err == nil {
			t.Errorf("change %d is accepted", i)
		}
	}
}

// Runs of edits hold every edit once, within the window and without large gaps.
func TestSpans(t *testing.T) {
	var m Memory
	addr := uint64(0x1000)
	for i := range 5000 {
		m.Edits = append(m.Edits, Edit{Addr: addr, Old: make([]byte, 5), New: make([]byte, 5)})
		addr += uint64(16 + i%7*(i%500)*3)
	}
	var all []Edit
	for _, run := range m.spans() {
		if _, n := extent(run); n > 1<<20 {
			t.Errorf("run of %d bytes", n)
		}
		for i := 1; i < len(run); i++ {
			if run[i].Addr-run[i-1].Addr-5 >= pageSize {
				t.Errorf("gap at %#x", run[i].Addr)
			}
		}
		all = append(all, run...)
	}
	if !slices.EqualFunc(all, m.Edits, func(a, b Edit) bool { return a.Addr == b.Addr }) {
		t.Error("edits are missing")
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
	src, err := os.ReadFile(cc(t, "answer"))
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
	for _, d := range []string{dir, buildDir} {
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
	r := recorderCmd{Memory: answerPlan(t, path), Copy: path, Dir: filepath.Join(work, "data")}
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

// Where /proc/PID/mem does not write to read-only memory, ptrace does.
func TestPoke(t *testing.T) {
	path := cc(t, "answer", "-static", "-fno-pie")
	m := answerPlan(t, path)
	copy(m.RX[codeStart:], append([]byte{0xe9}, le.AppendUint32(nil, uint32(m.OrigEntry-(m.RXAddr+codeStart+5)))...)) // jmp orig
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in := readInherited()
	l := launcher{in: in, env: os.Environ()}
	pid, err := l.fork(path, []string{"answer", "x", "code"}, true)
	if err != nil {
		t.Skipf("needs ptrace: %v", err)
	}
	tr, _, _, err := stopAtExec(pid)
	if err != nil {
		t.Fatal(err)
	}
	tr.mem.Close()
	if tr.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err != nil {
		t.Fatal(err)
	}
	if err := tr.inject(m); err != nil || !tr.poke {
		tr.kill()
		t.Fatalf("poked %t: %v", tr.poke, err)
	}
	if err := tr.setSignals(in); err != nil {
		t.Fatal(err)
	}
	if err := tr.detach(); err != nil {
		t.Fatal(err)
	}
	if ws := waitFor(pid); ws.ExitStatus() != 8 {
		t.Errorf("status %d", ws.ExitStatus())
	}
}
