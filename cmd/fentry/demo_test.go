package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// demoOutput runs a build of the demo program.
func demoOutput(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v, stderr %q", path, err, stderr.String())
	}
	return string(out)
}

// The embedded program is what its source says: a fresh build does the same.
func TestDemoProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles")
	}
	want, err := os.ReadFile("demo/demo.out")
	if err != nil {
		t.Fatal(err)
	}
	if got := demoOutput(t, "demo/demo.elf"); got != string(want) {
		t.Errorf("demo.elf printed\n%s\ndemo.out has\n%s", got, want)
	}
	if len(demoProgram) > 60_000 {
		t.Errorf("the embedded program has %d bytes, at most 60,000 are wanted", len(demoProgram))
	}
	testtool.Need(t, "musl-gcc") // to build it again
	fresh := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.Command("demo/build.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	if got := demoOutput(t, fresh); got != string(want) {
		t.Errorf("a fresh build printed\n%s\ndemo.out has\n%s", got, want)
	}
}

// The program of info --machine is what its source says: a fresh build runs, and prints two numbers.
func TestCostProgram(t *testing.T) {
	testtool.Need(t, "gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
	dir := t.TempDir()
	if out, err := exec.Command("machine/build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	for _, from := range []string{"machine", dir} {
		for name, run := range map[string][]string{"cost-amd64.elf": nil, "cost-arm64.elf": {"qemu-aarch64"}} {
			path, err := filepath.Abs(filepath.Join(from, name))
			if err != nil {
				t.Fatal(err)
			}
			if runtime.GOARCH == "arm64" {
				run = map[string][]string{"cost-amd64.elf": {"qemu-x86_64"}}[name]
			}
			argv := append(run, path)
			out, err := exec.Command(argv[0], argv[1:]...).Output()
			var calls, reads int64
			if _, scan := fmt.Sscanf(string(out), "%d %d\n", &calls, &reads); err != nil || scan != nil || calls <= 0 || reads <= 0 {
				t.Errorf("%s: %v, %q", path, err, out)
			}
		}
	}
}
