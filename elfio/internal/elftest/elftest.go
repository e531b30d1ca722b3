// Package elftest has what tests of elfio and of the packages below it share: images, programs to build, and ways to
// run and to rewrite them.
package elftest

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

	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// FixtureC prints what an injection could break: zeroed bss (small and large), initialised data, thread-local
// variables, RELRO data, constructors, the arguments and the environment. It exits with status 7.
const FixtureC = `
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
	printf("dirty %ld data %d tls %d relro %s constructed %d argc %d argv %s env %d heap %ld\n",
		dirty, data[2], tls, relro[3], constructed, argc, argc > 1 ? argv[1] : "", getenv("PATH") != 0, sum(heap, 100));
	free(heap);
	fflush(stdout);
	return 7;
}
`

const fixtureOutput = "dirty 0 data 3 tls 42 relro relocation constructed 5 argc 2 argv argument env 1 heap 700\n"

// Fixture is one way to build a program.
type Fixture struct {
	Name string
	Tool string // compiler; the test skips where it is missing
	Args []string
	// Sectionless removes the section headers and what only they describe.
	Sectionless bool
}

var Fixtures = []Fixture{
	{Name: "pie", Tool: "gcc", Args: []string{"-pie"}},
	{Name: "nopie", Tool: "gcc", Args: []string{"-no-pie"}},
	{Name: "static", Tool: "gcc", Args: []string{"-static"}},
	{Name: "static-pie", Tool: "gcc", Args: []string{"-static-pie"}},
	{Name: "noseparate", Tool: "gcc", Args: []string{"-pie", "-Wl,-z,noseparate-code"}},
	{Name: "nopie-noseparate-noid", Tool: "gcc", Args: []string{"-no-pie", "-Wl,-z,noseparate-code",
		"-Wl,--build-id=none", "-fcf-protection=none"}},
	{Name: "pie-2M-pages", Tool: "gcc", Args: []string{"-pie", "-Wl,-z,max-page-size=0x200000"}},
	{Name: "pie-relr", Tool: "gcc", Args: []string{"-pie", "-Wl,-z,pack-relative-relocs"}},
	{Name: "pie-emit-relocs", Tool: "gcc", Args: []string{"-pie", "-Wl,--emit-relocs"}},
	{Name: "pie-debug", Tool: "gcc", Args: []string{"-pie", "-g3"}},
	{Name: "pie-now", Tool: "gcc", Args: []string{"-pie", "-Wl,-z,now", "-Wl,--hash-style=both"}},
	{Name: "pie-norelro", Tool: "gcc", Args: []string{"-pie", "-Wl,-z,norelro"}},
	{Name: "pie-stripped", Tool: "gcc", Args: []string{"-pie", "-s"}},
	{Name: "pie-sectionless", Tool: "gcc", Args: []string{"-pie"}, Sectionless: true},
	{Name: "static-sectionless", Tool: "gcc", Args: []string{"-static"}, Sectionless: true},
	{Name: "gold-pie", Tool: "gcc", Args: []string{"-pie", "-fuse-ld=gold"}},
	{Name: "gold-static", Tool: "gcc", Args: []string{"-static", "-fuse-ld=gold"}},
	{Name: "clang-pie", Tool: "clang", Args: []string{"-pie", "-fPIE"}},
	{Name: "lld-pie", Tool: "clang", Args: []string{"-pie", "-fPIE", "-fuse-ld=lld"}},
	{Name: "lld-nopie", Tool: "clang", Args: []string{"-no-pie", "-fuse-ld=lld"}},
	{Name: "lld-static", Tool: "clang", Args: []string{"-static", "-fuse-ld=lld"}},
	{Name: "lld-static-pie", Tool: "clang", Args: []string{"-static-pie", "-fPIE", "-fuse-ld=lld"}},
	{Name: "lld-pie-sectionless", Tool: "clang", Args: []string{"-pie", "-fPIE", "-fuse-ld=lld"},
		Sectionless: true},
	{Name: "musl-dyn", Tool: "musl-gcc"},
	{Name: "musl-nopie", Tool: "musl-gcc", Args: []string{"-no-pie"}},
	{Name: "musl-static", Tool: "musl-gcc", Args: []string{"-static"}},
	{Name: "musl-static-pie", Tool: "musl-gcc", Args: []string{"-static-pie"}},
}

// buildCache keeps what Fixtures were built from, so that tests share one build.
var buildCache = struct {
	sync.Mutex
	built map[string]*buildResult
}{built: map[string]*buildResult{}}

type buildResult struct {
	once sync.Once
	raw  []byte
	skip string
	// broken: it failed, and not for want of a linker, library or option.
	broken bool
}

// missingPart is what compilers say where a linker, a library or an option is not installed.
var missingPart = regexp.MustCompile(
	`cannot find|unable to find|invalid linker name|unrecognized|unknown|unsupported|No such file|not found`)

// Compile builds source with the given command line and returns the result's bytes.
func Compile(t testing.TB, key, suffix, source, tool string, args ...string) []byte {
	t.Helper()
	testtool.Need(t, tool)
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

// build compiles FixtureC as the fixture says.
func (x Fixture) Build(t testing.TB) []byte {
	t.Helper()
	testtool.Need(t, x.Tool)
	raw := Compile(t, x.Name, ".c", FixtureC, x.Tool, append([]string{"-O1", "-w"}, x.Args...)...)
	if x.Sectionless {
		return DropSections(t, raw)
	}
	return raw
}

// DropSections cuts a file behind its last segment and removes the section headers, as sstrip does.
func DropSections(t testing.TB, file []byte) []byte {
	t.Helper()
	c := raw.CodecOf(file)
	h := c.ReadHeader(file)
	at, size := uint64(4), uint64(16) // of p_offset and p_filesz
	if c.Is64 {
		at, size = 8, 32
	}
	end := uint64(0)
	for i := range uint64(h.Phnum) {
		p := file[h.Phoff+i*uint64(h.Phentsize):]
		end = max(end, c.Word(p[at:])+c.Word(p[size:]))
	}
	out := bytes.Clone(file[:end])
	h.Shoff, h.Shnum, h.Shstrndx = 0, 0, 0
	c.WriteHeader(out, h)
	return out
}

// Transform writes raw to a file, runs a command on it and reads it back. %s stands for the file.
func Transform(t testing.TB, raw []byte, command ...string) []byte {
	t.Helper()
	out, msg := TryTransform(t, raw, command...)
	if msg != "" {
		t.Fatal(msg)
	}
	return out
}

func TryTransform(t testing.TB, raw []byte, command ...string) (out []byte, msg string) {
	t.Helper()
	name := WriteExec(t, raw)
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

// WriteExec writes an executable file.
func WriteExec(t testing.TB, raw []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := runfile.WriteFile(name, raw); err != nil {
		t.Fatal(err)
	}
	return name
}

// RunFixture runs the program and checks that it behaves as it does untouched.
func RunFixture(t testing.TB, raw []byte, what string, wrapper ...string) {
	t.Helper()
	if msg := TryFixture(t, raw, wrapper...); msg != "" {
		t.Errorf("%s: %s", what, msg)
	}
}

func TryFixture(t testing.TB, raw []byte, wrapper ...string) string {
	t.Helper()
	name := WriteExec(t, raw)
	args := append(append([]string{}, wrapper...), name, "argument")
	out, code := Run(args)
	if out != fixtureOutput || code != 7 {
		return fmt.Sprintf("exit status %d, output %q", code, out)
	}
	return ""
}

// Run gives combined output and exit status, -1 for a signal.
func Run(args []string) (string, int) {
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

// PerByte is what a table read from an image takes in memory, for each byte of the image: an entry of 8 bytes becomes
// one of 56, in a slice that has grown.
const PerByte = 64
