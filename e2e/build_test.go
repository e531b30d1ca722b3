package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A kind is a way to ask a compiler for places where a tracer can be hooked.
type kind struct {
	name, compiler  string
	cflags, ldflags []string
	links           []string // names of the links it can be combined with
	target          target
	cpu             string   // what the emulator shall be; "": all it can
	needs           []string // beside the compiler
	plain           bool     // leaves no sites: functions' own first instructions are displaced
	wide            bool     // only in wide runs
}

// A link is a way to link an executable.
type link struct {
	name            string
	cflags, ldflags []string
}

type config struct {
	kind kind
	link link
	opt  string
}

func (c config) String() string {
	return c.kind.name + "-" + c.link.name + "-" + strings.TrimPrefix(c.opt, "-")
}

var (
	allLinks = []string{"pie", "nopie", "static", "staticpie"}
	untabled = []string{"-fno-asynchronous-unwind-tables"}
	kinds    = []kind{
		{name: "fentry", compiler: "gcc", cflags: []string{"-pg", "-mfentry"}, ldflags: []string{"-pg"}, links: allLinks},
		{name: "mcount", compiler: "gcc", cflags: []string{"-pg"}, ldflags: []string{"-pg"}, links: allLinks},
		{name: "patchable", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=5"}, links: allLinks},
		// gcc refuses -mnop-mcount in position independent code
		{name: "nop", compiler: "gcc", cflags: []string{"-pg", "-mfentry", "-mnop-mcount", "-mrecord-mcount"}, links: []string{"nopie", "static"}},
		// clang 14 -pg -static-pie makes programs that crash before main
		{name: "clang", compiler: "clang", cflags: []string{"-pg", "-mfentry"}, ldflags: []string{"-pg"}, links: allLinks[:3]},
		{name: "clangpatch", compiler: "clang", cflags: []string{"-fpatchable-function-entry=5"}, links: allLinks},
		{name: "xray", compiler: "clang", cflags: []string{"-fxray-instrument", "-fxray-instruction-threshold=1"},
			ldflags: []string{"-fxray-instrument"}, links: allLinks, needs: []string{testtool.XRayRuntime}},
		{name: "musl", compiler: "musl-gcc", cflags: []string{"-fpatchable-function-entry=5"}, links: allLinks},
		// no sites: functions' own first instructions
		{name: "plain", compiler: "gcc", links: allLinks, plain: true},
		{name: "plaincet", compiler: "gcc", cflags: []string{"-fcf-protection"}, links: allLinks, plain: true},
		{name: "plainclang", compiler: "clang", links: allLinks, plain: true},
		// too few nops for a site
		{name: "shortsite", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=4,2"}, links: allLinks[:1], plain: true},
		// and no unwind tables
		{name: "untabled", compiler: "gcc", cflags: untabled, links: allLinks, plain: true},
		{name: "untabledmusl", compiler: "musl-gcc", cflags: untabled, links: allLinks, plain: true},
	}
	// On arm64 a site is one instruction, and -pg's is behind the prologue. clang has its XRay runtime for the machine it runs on only.
	arm64Kinds = []kind{
		{name: "arm64-patchable", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=2"}, links: allLinks, target: arm64},
		{name: "arm64-mcount", compiler: "gcc", cflags: []string{"-pg"}, ldflags: []string{"-pg"}, links: allLinks, target: arm64, cpu: "cortex-a53"},
		{name: "arm64-bti", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=2", "-mbranch-protection=standard"}, links: allLinks, target: arm64, cpu: testtool.NewARM64},
		{name: "arm64-before", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=4,2", "-mno-outline-atomics"}, links: allLinks, target: arm64, cpu: "cortex-a53"},
		{name: "arm64-clang", compiler: "clang", cflags: []string{"-fpatchable-function-entry=2"}, links: allLinks, target: arm64},
		{name: "arm64-clangbti", compiler: "clang", cflags: []string{"-fpatchable-function-entry=2", "-mbranch-protection=standard"}, links: allLinks, target: arm64, cpu: testtool.NewARM64},
		// Static ones trace their C library, too: there a forked child's first events are lost under emulators (stub/src/thread.c).
		{name: "arm64-plain", compiler: "gcc", links: allLinks[:2], target: arm64, plain: true},
		{name: "arm64-untabled", compiler: "gcc", cflags: untabled, links: allLinks[:2], target: arm64, plain: true},
		{name: "arm64-shortsite", compiler: "gcc", cflags: []string{"-fpatchable-function-entry=2,2"}, links: allLinks[:1], target: arm64, plain: true, wide: true},
	}
	links = []link{
		{name: "pie", cflags: []string{"-fPIE"}, ldflags: []string{"-pie"}},
		{name: "nopie", cflags: []string{"-fno-pie"}, ldflags: []string{"-no-pie"}},
		{name: "static", cflags: []string{"-fno-pie"}, ldflags: []string{"-static"}},
		{name: "staticpie", cflags: []string{"-fPIE"}, ldflags: []string{"-static-pie"}},
	}
	optLevels = []string{"-O2", "-O0"}
)

// allConfigs is the whole matrix, the most common configuration first.
func allConfigs() []config { return configsOf(kinds) }

func configsOf(kinds []kind) []config {
	var out []config
	for _, o := range optLevels {
		for _, l := range links {
			for _, k := range kinds {
				if slices.Contains(k.links, l.name) && (!k.wide || testtool.Wide()) {
					out = append(out, config{k, l, o})
				}
			}
		}
	}
	return out
}

// configsFor picks what is tested by default for the i-th fixture: the first supported configuration always, and two that rotate with i,
// so that all fixtures together cover the matrix. FENTRY_WIDE=1 gives everything.
func configsFor(f *fixture, i int) []config { return choose(f, i, allConfigs()) }

func choose(f *fixture, i int, all []config) []config {
	all = slices.DeleteFunc(slices.Clone(all), func(c config) bool { return !f.supports(c) })
	if testtool.Wide() || len(all) <= 3 {
		return all
	}
	rest := all[1:]
	a := (i * 7) % len(rest)
	b := (a + len(rest)/2 + 1) % len(rest)
	return []config{all[0], rest[a], rest[b]}
}

// A program is a built fixture: a directory with the executable, named like the fixture, and what stands beside it.
type program struct {
	fixture *fixture
	config  config
	dir     string
}

func (p *program) path() string { return filepath.Join(p.dir, p.fixture.name) }

// build compiles and links a fixture, its library and its companion into a directory of its own.
func build(t testing.TB, f *fixture, c config) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{f, c, dir}
	compile(t, f, c, dir)
	for _, lib := range f.words("library") {
		if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
			t.Fatal(err)
		}
		argv := append(c.kind.target.compiler(t, "gcc"), "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall",
			"-o", filepath.Join("lib", "lib"+lib+".so"), mustAbs(t, filepath.Join("testdata", lib+".c")))
		run(t, command{dir: dir, argv: argv}).mustSucceed(t)
	}
	if len(f.words("library")) > 0 {
		compile(t, f, c, dir) // once more, now that there is something to link with
	}
	for _, name := range f.words("companion") {
		compile(t, loadFixture(t, name), c, dir)
		c.kind.makeExecutable(t, dir, name)
	}
	return p
}

func compile(t testing.TB, f *fixture, c config, dir string) {
	t.Helper()
	testtool.Need(t, c.kind.needs...)
	cc := c.kind.compiler
	std := "-std=gnu11"
	if f.cpp {
		cc = map[string]string{"gcc": "g++", "clang": "clang++"}[cc]
		std = "-std=gnu++17"
	}
	argv := append(c.kind.target.compiler(t, cc), std, c.opt, "-Wall", "-Wno-unused-function", "-Wno-ignored-attributes")
	if c.kind.compiler == "clang" {
		argv = append(argv, "-Wno-unknown-attributes", "-Wno-unused-command-line-argument")
	}
	argv = append(argv, c.kind.cflags...)
	argv = append(argv, c.link.cflags...)
	argv = append(argv, f.words("cflags")...)
	argv = append(argv, "-o", f.name, f.file)
	argv = append(argv, c.kind.ldflags...)
	argv = append(argv, c.link.ldflags...)
	argv = append(argv, "-pthread")
	argv = append(argv, f.words("link")...)
	for _, lib := range f.words("library") {
		if _, err := os.Stat(filepath.Join(dir, "lib")); err != nil {
			return
		}
		argv = append(argv, "-Llib", "-l"+lib, "-Wl,-rpath,$ORIGIN/lib")
	}
	argv = append(argv, f.words("libs")...)
	run(t, command{dir: dir, argv: argv}).mustSucceed(t)
}

func mustAbs(t testing.TB, p string) string {
	t.Helper()
	a, err := filepath.Abs(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// copyDir copies a program's directory, so that the copy has the same file names at another place.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(fmt.Errorf("copy of %s: %w", from, err))
	}
}
