package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// By the name recordmcount the program has that one's command line, report and layout.
func TestRecordmcountName(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	tool := filepath.Join(dir, "recordmcount")
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "fentry"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink("fentry", tool); err != nil {
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
