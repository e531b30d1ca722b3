package elfio

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
)

// fixtureC prints what an injection could break: zeroed bss (small and large), initialised data, thread-local
// variables, RELRO data, constructors, the arguments and the environment. It exits with status 7.
const fixtureC = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char bss[100003], page[8192] __attribute__((aligned(4096)));
int common;
static int data[5] = {1, 2, 3, 4, 5};
static __thread int tls = 42, tbss[77];
static const char *const relro[] = {"read", "only", "after", "relocation"};
static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = data[4]; }
__attribute__((noinline)) static long sum(const char *p, size_t n) { long s = 0; while (n--) s += *p++; return s; }
int main(int argc, char **argv) {
	long dirty = sum(bss, sizeof bss) + sum(page, sizeof page) + common;
	memset(bss, 1, sizeof bss); memset(page, 1, sizeof page); common = 1;
	for (int i = 0; i < 77; i++) dirty += tbss[i];
	char *heap = malloc(3 << 20);
	memset(heap, 7, 3 << 20);
	printf("dirty %ld data %d tls %d relro %s constructed %d argc %d argv %s env %d heap %ld\n", dirty, data[2], tls, relro[3],
		constructed, argc, argc > 1 ? argv[1] : "", getenv("PATH") != 0, sum(heap, 100));
	free(heap);
	fflush(stdout);
	return 7;
}
`

const fixtureOutput = "dirty 0 data 3 tls 42 relro relocation constructed 5 argc 2 argv argument env 1 heap 700\n"

// fixture is one way to build a program.
type fixture struct {
	name string
	tool string // compiler; the test skips where it is missing
	args []string
	pkg  string // Debian package of the tool
	// sectionless removes the section headers and what only they describe.
	sectionless bool
}

var fixtures = []fixture{
	{name: "pie", tool: "gcc", pkg: "gcc", args: []string{"-pie"}},
	{name: "nopie", tool: "gcc", pkg: "gcc", args: []string{"-no-pie"}},
	{name: "static", tool: "gcc", pkg: "gcc", args: []string{"-static"}},
	{name: "static-pie", tool: "gcc", pkg: "gcc", args: []string{"-static-pie"}},
	{name: "noseparate", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,-z,noseparate-code"}},
	{name: "nopie-noseparate-noid", tool: "gcc", pkg: "gcc", args: []string{"-no-pie", "-Wl,-z,noseparate-code", "-Wl,--build-id=none", "-fcf-protection=none"}},
	{name: "pie-2M-pages", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,-z,max-page-size=0x200000"}},
	{name: "pie-relr", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,-z,pack-relative-relocs"}},
	{name: "pie-emit-relocs", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,--emit-relocs"}},
	{name: "pie-debug", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-g3"}},
	{name: "pie-now", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,-z,now", "-Wl,--hash-style=both"}},
	{name: "pie-norelro", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-Wl,-z,norelro"}},
	{name: "pie-stripped", tool: "gcc", pkg: "gcc", args: []string{"-pie", "-s"}},
	{name: "pie-sectionless", tool: "gcc", pkg: "gcc", args: []string{"-pie"}, sectionless: true},
	{name: "static-sectionless", tool: "gcc", pkg: "gcc", args: []string{"-static"}, sectionless: true},
	{name: "gold-pie", tool: "gcc", pkg: "binutils", args: []string{"-pie", "-fuse-ld=gold"}},
	{name: "gold-static", tool: "gcc", pkg: "binutils", args: []string{"-static", "-fuse-ld=gold"}},
	{name: "clang-pie", tool: "clang", pkg: "clang", args: []string{"-pie", "-fPIE"}},
	{name: "lld-pie", tool: "clang", pkg: "clang lld", args: []string{"-pie", "-fPIE", "-fuse-ld=lld"}},
	{name: "lld-nopie", tool: "clang", pkg: "clang lld", args: []string{"-no-pie", "-fuse-ld=lld"}},
	{name: "lld-static", tool: "clang", pkg: "clang lld", args: []string{"-static", "-fuse-ld=lld"}},
	{name: "lld-static-pie", tool: "clang", pkg: "clang lld", args: []string{"-static-pie", "-fPIE", "-fuse-ld=lld"}},
	{name: "lld-pie-sectionless", tool: "clang", pkg: "clang lld", args: []string{"-pie", "-fPIE", "-fuse-ld=lld"}, sectionless: true},
	{name: "musl-dyn", tool: "musl-gcc", pkg: "musl-tools"},
	{name: "musl-nopie", tool: "musl-gcc", pkg: "musl-tools", args: []string{"-no-pie"}},
	{name: "musl-static", tool: "musl-gcc", pkg: "musl-tools", args: []string{"-static"}},
	{name: "musl-static-pie", tool: "musl-gcc", pkg: "musl-tools", args: []string{"-static-pie"}},
}

// need skips the test where a tool is missing.
func need(t testing.TB, tool, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is missing (Debian package %s)", tool, pkg)
	}
}

// buildCache keeps what fixtures were built from, so that tests share one build.
var buildCache struct {
	sync.Mutex
	built map[string]*buildResult
}

type buildResult struct {
	once sync.Once
	raw  []byte
	skip string
	// broken: it failed, and not for want of a linker, library or option.
	broken bool
}

// missingPart is what compilers say where a linker, a library or an option is not installed.
var missingPart = regexp.MustCompile(`cannot find|unable to find|invalid linker name|unrecognized|unknown|unsupported|No such file|not found`)

func TestMain(m *testing.M) {
	buildCache.built = map[string]*buildResult{}
	os.Exit(m.Run())
}

// compile builds source with the given command line and returns the result's bytes.
func compile(t testing.TB, key, suffix, source, tool string, args ...string) []byte {
	t.Helper()
	buildCache.Lock()
	r := buildCache.built[key]
	if r == nil {
		r = &buildResult{}
		buildCache.built[key] = r
	}
	buildCache.Unlock()
	r.once.Do(func() {
		dir, err := os.MkdirTemp("", "elfio-fixture")
		if err != nil {
			r.skip = err.Error()
			return
		}
		defer os.RemoveAll(dir)
		src, out := filepath.Join(dir, "fixture"+suffix), filepath.Join(dir, "fixture.out")
		if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
			r.skip = err.Error()
			return
		}
		cmd := exec.Command(tool, append([]string{src, "-o", out}, args...)...)
		if b, err := cmd.CombinedOutput(); err != nil {
			r.skip = fmt.Sprintf("%s does not work here: %v\n%s", strings.Join(cmd.Args, " "), err, b)
			r.broken = !missingPart.Match(b)
			return
		}
		if r.raw, err = os.ReadFile(out); err != nil {
			r.skip = err.Error()
		}
	})
	if r.broken {
		t.Fatal(r.skip)
	}
	if r.skip != "" {
		t.Skip(r.skip)
	}
	return r.raw
}

// build compiles fixtureC as the fixture says.
func (x fixture) build(t testing.TB) []byte {
	t.Helper()
	need(t, x.tool, x.pkg)
	raw := compile(t, x.name, ".c", fixtureC, x.tool, append([]string{"-O1", "-w"}, x.args...)...)
	if x.sectionless {
		return dropSections(t, raw)
	}
	return raw
}

// dropSections cuts a file behind its last segment and removes the section headers, as sstrip does.
func dropSections(t testing.TB, raw []byte) []byte {
	t.Helper()
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	end := uint64(0)
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	out := bytes.Clone(raw[:end])
	h := f.hdr
	h.shoff, h.shnum, h.shstrndx = 0, 0, 0
	f.c.writeHeader(out, h)
	return out
}

// transform writes raw to a file, runs a command on it and reads it back. %s stands for the file.
func transform(t testing.TB, raw []byte, command ...string) []byte {
	t.Helper()
	out, msg := tryTransform(t, raw, command...)
	if msg != "" {
		t.Fatal(msg)
	}
	return out
}

func tryTransform(t testing.TB, raw []byte, command ...string) (out []byte, msg string) {
	t.Helper()
	name := writeExec(t, raw)
	args := make([]string, len(command)-1)
	for i, a := range command[1:] {
		args[i] = strings.ReplaceAll(a, "%s", name)
	}
	if b, err := exec.Command(command[0], args...).CombinedOutput(); err != nil {
		return nil, fmt.Sprintf("%s: %v\n%s", strings.Join(command, " "), err, b)
	}
	out, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return out, ""
}

// writeExec writes an executable file.
func writeExec(t testing.TB, raw []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := runfile.WriteFile(name, raw); err != nil {
		t.Fatal(err)
	}
	return name
}

// runFixture runs the program and checks that it behaves as it does untouched.
func runFixture(t testing.TB, raw []byte, what string, wrapper ...string) {
	t.Helper()
	if msg := tryFixture(t, raw, wrapper...); msg != "" {
		t.Errorf("%s: %s", what, msg)
	}
}

func tryFixture(t testing.TB, raw []byte, wrapper ...string) string {
	t.Helper()
	name := writeExec(t, raw)
	args := append(append([]string{}, wrapper...), name, "argument")
	out, code := run(args)
	if out != fixtureOutput || code != 7 {
		return fmt.Sprintf("exit status %d, output %q", code, out)
	}
	return ""
}

// run gives combined output and exit status, -1 for a signal.
func run(args []string) (string, int) {
	for {
		cmd := exec.Command(args[0], args[1:]...)
		b, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(err.Error(), "text file busy") {
			continue // a fork elsewhere still holds the descriptor the file was written through
		}
		out := string(b)
		if cmd.ProcessState == nil {
			return fmt.Sprint(err), -1
		}
		if cmd.ProcessState.ExitCode() < 0 {
			out += cmd.ProcessState.String()
		}
		return out, cmd.ProcessState.ExitCode()
	}
}
