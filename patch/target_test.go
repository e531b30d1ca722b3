package patch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// target is a machine that programs are compiled and run for.
type target struct {
	name     string
	prefix   string   // of compilers and binutils
	emulator []string // what runs its programs; none: this machine
	kinds    map[string][]string
}

var onAMD64 = &target{
	name: "amd64",
	kinds: map[string][]string{
		"fentry":        {"-pg", "-mfentry"},
		"fentry-nopie":  {"-pg", "-mfentry", "-no-pie", "-fno-pie"},
		"fentry-static": {"-pg", "-mfentry", "-static"},
		"mcount":        {"-pg"},
		"patchable":     {"-fpatchable-function-entry=5"},
		"static-pie":    {"-fpatchable-function-entry=5", "-static-pie"},
	},
}

var onARM64 = &target{
	name: "arm64", prefix: "aarch64-linux-gnu-",
	emulator: []string{"qemu-aarch64", "-cpu", testtool.NewARM64, "-L", "/usr/aarch64-linux-gnu"},
	kinds: map[string][]string{
		"patchable":        {"-fpatchable-function-entry=2"},
		"patchable-nopie":  {"-fpatchable-function-entry=2", "-no-pie", "-fno-pie"},
		"patchable-before": {"-fpatchable-function-entry=4,2", "-Wl,-z,pack-relative-relocs"},
		"patchable-static": {"-fpatchable-function-entry=2", "-static"},
		"static-pie":       {"-fpatchable-function-entry=1", "-static-pie", "-fPIE"},
		"signed":           {"-fpatchable-function-entry=2", "-mbranch-protection=standard"},
		"signed-static":    {"-fpatchable-function-entry=2", "-mbranch-protection=standard", "-static"},
		"pages-4K":         {"-fpatchable-function-entry=2", "-Wl,-z,max-page-size=4096", "-Wl,-z,norelro", "-no-pie", "-fno-pie"},
		"mcount":           {"-pg"},
		"mcount-static":    {"-pg", "-static"},
		"mcount-large":     {"-pg", "-fstack-clash-protection", "-O0"},
	},
}

var targets = []*target{onAMD64, onARM64}

// compile builds a source, C or C++ by its name, and returns the program's name. If the first flag is clang, that is the
// compiler.
func (on *target) compile(t testing.TB, name, text string, flags ...string) string {
	t.Helper()
	cc := on.prefix + "gcc"
	if filepath.Ext(name) == ".cpp" {
		cc = on.prefix + "g++"
	}
	if len(flags) > 0 && flags[0] == "clang" {
		testtool.Need(t, cc) // whose linker and libraries it takes
		if flags = flags[1:]; on.prefix != "" {
			flags = append([]string{"--target=" + strings.TrimSuffix(on.prefix, "-")}, flags...)
		}
		if cc = "clang"; filepath.Ext(name) == ".cpp" {
			cc = "clang++"
		}
	}
	cc = testtool.Path(t, cc)
	dir := t.TempDir()
	src, out := filepath.Join(dir, name), filepath.Join(dir, "p")
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, append([]string{"-O2", "-o", out, src}, flags...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return out
}

// command runs a program.
func (on *target) command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	if len(on.emulator) > 0 {
		args = append(append(append([]string{}, on.emulator[1:]...), name), args...)
		name = testtool.Path(t, on.emulator[0])
	}
	return exec.Command(name, args...)
}
