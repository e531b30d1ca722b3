package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// bigProgram returns a program and an object of several megabytes, which take long enough to read.
func bigProgram(t *testing.T) (program, object []byte) {
	t.Helper()
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src := filepath.Join(dir, "big.s")
	var b strings.Builder
	fmt.Fprint(&b, ".globl main\nmain: ret\n")
	const functions = 90_000
	for i := range functions {
		fmt.Fprintf(&b, ".globl function_number_%d\n.type function_number_%d,@function\nfunction_number_%d: call __fentry__\nret\n"+
			".size function_number_%d,.-function_number_%d\n", i, i, i, i, i)
	}
	fmt.Fprint(&b, ".globl __fentry__\n__fentry__: ret\n.section .note.GNU-stack,\"\",@progbits\n")
	if err := os.WriteFile(src, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-c", src, "-o", src + ".o"}, {src + ".o", "-o", src + ".x"}} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	program, err := os.ReadFile(src + ".x")
	if err != nil {
		t.Fatal(err)
	}
	object, err = os.ReadFile(src + ".o")
	if err != nil {
		t.Fatal(err)
	}
	return program, object
}

// TestTruncated: a program that is truncated while a command reads it is an error that names it, whatever the command
// does with it, and no output is left.
func TestTruncated(t *testing.T) {
	program, object := bigProgram(t)
	for _, c := range []struct {
		name, args string
		file       []byte
	}{
		{"list", "list FILE", program},
		{"list-json", "list --json FILE", program},
		{"patch", "patch -o OUT FILE", program},
		{"patch-in-place", "patch --in-place FILE", program},
		{"patch-plan", "patch --plan FILE", program},
		{"mcount", "mcount FILE", object},
		{"mcount-list", "mcount --list FILE", object},
		{"mcount-check", "mcount --check FILE", object},
		{"mcount-nop", "mcount --nop FILE", program},
		{"record", "record -o DATA FILE", program},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file, out := filepath.Join(dir, "file"), filepath.Join(dir, "out")
			args := strings.NewReplacer("FILE", file, "OUT", out, "DATA", filepath.Join(dir, "data")).Replace(c.args)
			caught := 0
			deadline := time.Now().Add(3 * time.Minute)
			for try := 0; caught < 2; try++ {
				if try >= 60 && time.Now().After(deadline) {
					t.Fatalf("truncated in time %d times of %d", caught, try)
				}
				if err := os.WriteFile(file, c.file, 0o755); err != nil {
					t.Fatal(err)
				}
				status, said := truncateWhile(t, file, strings.Fields(args), time.Duration(try%8)*2*time.Millisecond)
				if !strings.Contains(said, "truncated to 5000 bytes while it was read") {
					if strings.Contains(said, "goroutine") || strings.Contains(said, "panic") || strings.Contains(said, "fault address") {
						t.Fatalf("a dump:\n%s", said)
					}
					continue // before it was mapped, or when all was done
				}
				caught++
				if status == 0 || !strings.HasPrefix(said, "fentry: "+file+": truncated") || strings.Count(said, "\n") != 1 {
					t.Errorf("status %d: %s", status, said)
				}
				if left, err := filepath.Glob(filepath.Join(dir, "[^f]*")); err != nil || len(left) > 0 {
					t.Errorf("left behind: %q %v", left, err)
				}
			}
		})
	}
}

// truncateWhile runs a command and truncates the file some time after the command has mapped it.
func truncateWhile(t *testing.T, file string, args []string, after time.Duration) (status int, stderr string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FENTRY_TEST_MAIN=1")
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	maps := fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid)
	for mapped := false; !mapped; {
		select {
		case err := <-done:
			done <- err
			mapped = true
		default:
			b, _ := os.ReadFile(maps)
			mapped = bytes.Contains(b, []byte(file))
		}
	}
	time.Sleep(after)
	if err := os.Truncate(file, 5000); err != nil {
		t.Error(err)
	}
	<-done
	return cmd.ProcessState.ExitCode(), out.String()
}
