package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// By the name recordmcount the program has that one's command line, report and layout.
func TestRecordmcountName(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	tool := filepath.Join(dir, "recordmcount")
	if err := os.Symlink(fentryCommand(t), tool); err != nil {
		t.Fatal(err)
	}
	const source = "int one(int x) { return x; }\n__attribute__((section(\".exit.text\"))) void bye(void) {}\n"
	obj := filepath.Join(dir, "x.o")
	if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O1", "-pg", "-fno-pie", "-c", filepath.Join(dir, "x.c"), "-o", obj).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	orig, err := os.ReadFile(obj)
	if err != nil {
		t.Fatal(err)
	}
	ftrace := filepath.Join(dir, "ftrace.o")
	if err := os.WriteFile(ftrace, orig, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{[]string{"-w", obj}, 0, "Section .exit.text has mcount callers being ignored\n", ""},
		{[]string{obj}, 0, "", "warning: __mcount_loc already exists: " + obj + "\n"},
		{[]string{ftrace}, 0, "", ""},
		{nil, 2, "", "usage: recordmcount [-w] file.o...\n"},
		{[]string{"-x", obj}, 2, "", "usage: recordmcount [-w] file.o...\n"},
		{[]string{"/nonexistent.o"}, 1, "", "/nonexistent.o: no such file or directory\n/nonexistent.o: failed\n"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(tool, tt.args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		status := 0
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != tt.status || stdout.String() != tt.stdout || stderr.String() != tt.stderr {
			t.Errorf("%q: status %d, stdout %q, stderr %q", tt.args, status, stdout.String(), stderr.String())
		}
	}
	if b, err := os.ReadFile(ftrace); err != nil || !bytes.Equal(b, orig) {
		t.Errorf("ftrace.o was changed (%v)", err)
	}
	if b, err := os.ReadFile(obj); err != nil || !bytes.HasPrefix(b[len(orig):], []byte("\x00.symtab")) {
		t.Errorf("the name table does not follow the original: recordmcount's layout (%v)", err)
	}
}

// fentryCommand builds the command.
func fentryCommand(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fentry")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// What --list and --check print of an object is not kept: they take few times the memory that the object has.
func TestMcountListMemory(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, obj := filepath.Join(dir, "x.s"), filepath.Join(dir, "x.o")
	var s bytes.Buffer
	for i := range 40_000 {
		fmt.Fprintf(&s, "f%d:\n\t.type f%[1]d, @function\n%s\tret\n", i, strings.Repeat("\tcall mcount\n", 8))
	}
	if err := os.WriteFile(src, s.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-c", src, "-o", obj).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, err := os.Stat(obj)
	if err != nil {
		t.Fatal(err)
	}
	bin := fentryCommand(t)
	for _, mode := range []string{"--list", "--check"} {
		lines, peak := readAll(t, exec.Command(bin, "mcount", mode, obj))
		if lines < 8*40_000 {
			t.Errorf("%s: %d lines", mode, lines)
		}
		if limit := 4*st.Size() + 40<<20; peak > limit {
			t.Errorf("%s took %d MB for an object of %d MB", mode, peak>>20, st.Size()>>20)
		}
	}
}

// readAll runs a command that prints much, and returns the number of lines and the most memory it had while it printed.
// The maximum that the kernel gives a parent is no measure: a child begins with that of the process it was forked from.
func readAll(t *testing.T, cmd *exec.Cmd) (lines int, peak int64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(out, b)
		lines += bytes.Count(b[:n], []byte("\n"))
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)); err == nil {
			if _, hwm, ok := strings.Cut(string(status), "VmHWM:"); ok {
				var kb int64
				fmt.Sscan(hwm, &kb)
				peak = max(peak, kb<<10)
			}
		}
		if err != nil {
			break
		}
	}
	cmd.Wait()
	if peak == 0 {
		t.Errorf("%v: its memory was not seen", cmd)
	}
	return lines, peak
}

// An entry of a table may name a section that is not there.
func TestMcountListSection(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, obj := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.o")
	if err := os.WriteFile(src, []byte("int f(int x) { return x; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O1", "-fpatchable-function-entry=5", "-c", src, "-o", obj).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(obj)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	syms := f.Section(".symtab")
	for at := syms.Offset; at < syms.Offset+syms.Size; at += 24 {
		if b[at+6] == 1 { // st_shndx, of .text
			b[at+7] = 0x80
		}
	}
	if err := os.WriteFile(obj, b, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(fentryCommand(t), "mcount", "--list", obj).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("section 32769 of ")) {
		t.Errorf("%v: %s", err, out)
	}
}
