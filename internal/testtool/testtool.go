// Package testtool finds what tests use that is not Go: compilers, debuggers, emulators.
//
// tools.txt is the one list of them, and widetools.txt of those that only wide tests need. make tools and make wide-tools
// install what they name, and a test that needs something of it which is missing is skipped by name, with the package that
// has it. A test that asks for what is not on a list fails everywhere: otherwise it would be skipped on every fresh machine,
// and nobody would know.
package testtool

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// XRayRuntime is the file without which clang links no program with -fxray-instrument.
const XRayRuntime = "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.xray-x86_64.a"

// NewARM64 is the newest arm64 processor as qemu's -cpu wants it. Pointers are signed by an algorithm of the emulator's
// own: the architecture's takes programs that sign return addresses ten times as long.
const NewARM64 = "max,pauth-impdef=on"

//go:embed tools.txt
var list string

//go:embed widetools.txt
var wideList string

// packages are the Debian packages of tools: commands, or paths and patterns of files.
var packages = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(list + wideList) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		pkg, tools, _ := strings.Cut(line, ":")
		for _, tool := range strings.Fields(tools) {
			m[tool] = pkg
		}
	}
	return m
})

// Package returns the Debian package that has a tool, "" for one that is not on the list.
func Package(tool string) string { return packages()[tool] }

// Need skips the test unless all these tools are there.
func Need(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		Path(t, tool)
	}
}

// Path returns the path of a tool, and skips the test if it is missing.
func Path(t testing.TB, tool string) string {
	t.Helper()
	path, ok := find(t, tool)
	if !ok {
		t.Skipf("%s is missing: apt-get install %s", tool, Package(tool))
	}
	return path
}

// Have says whether a tool is there, for a test that checks less without it, which it logs.
func Have(t testing.TB, tool string) bool {
	t.Helper()
	_, ok := find(t, tool)
	if !ok {
		t.Logf("%s is missing, and nothing is checked by it: apt-get install %s", tool, Package(tool))
	}
	return ok
}

func find(t testing.TB, tool string) (path string, ok bool) {
	t.Helper()
	if Package(tool) == "" {
		t.Fatalf("%s is not in internal/testtool/tools.txt, so make tools would not install it", tool)
	}
	if filepath.IsAbs(tool) {
		found, err := filepath.Glob(tool)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			return "", false
		}
		return found[0], true
	}
	path, err := exec.LookPath(tool)
	return path, err == nil
}

// Output runs a command that has to succeed, in the C locale, and returns its standard output.
func Output(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return string(out)
}

// Compile has gcc compile a program in C, and returns its path, which ends in name. It skips the test if gcc is missing.
func Compile(t testing.TB, name, text string, args ...string) string {
	t.Helper()
	gcc := Path(t, "gcc")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "program.c"), filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	Output(t, gcc, append(args, "-o", prog, src)...)
	return prog
}

// Go has a Go program without C built for a machine of GOARCH, and returns its path. args are go build's: options, a package.
func Go(t testing.TB, machine string, args ...string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append([]string{"build", "-o", prog}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+machine, "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// AwaitReady waits until a program that the test has started has given its first thread the name "ready", or has ended.
// Before, it may still be executed, map libraries and begin threads.
func AwaitReady(t testing.TB, pid int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if stat := string(b); strings.Contains(stat, "(ready) ") || strings.Contains(stat, ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not ready: %s", pid, b)
		}
	}
}

// Soak is for how long a test that goes on and on is to do so: FENTRY_SOAK, such as 1h. Without it the test is skipped.
func Soak(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("FENTRY_SOAK")
	if text == "" {
		t.Skip("FENTRY_SOAK does not say for how long")
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		t.Fatalf("FENTRY_SOAK=%s: want a time such as 1h", text)
	}
	return limit
}

// Wide says whether a test shall look at whole matrices and at everything that is installed: make wide.
func Wide() bool { return os.Getenv("FENTRY_WIDE") == "1" }

// Long skips a test that takes a minute of a processor or more where a whole package has go test's ten minutes: a slow
// machine would not end in time. make test gives it more, and whoever chooses tests by name means these.
func Long(t testing.TB) {
	t.Helper()
	const enough = 20 * time.Minute
	if chosen := flag.Lookup("test.run"); chosen != nil && chosen.Value.String() != "" {
		return
	}
	f := flag.Lookup("test.timeout")
	if f == nil {
		return
	}
	if d, ok := f.Value.(flag.Getter).Get().(time.Duration); ok && d > 0 && d < enough {
		t.Skipf("takes long: go test -timeout 45m, or make test")
	}
}
