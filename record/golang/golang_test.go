package golang

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/moves"
)

// build builds a static program for x86-64.
func build(t testing.TB, args ...string) string { return testtool.Go(t, "amd64", args...) }

func parse(t testing.TB, path string) *elfio.File {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestCoverage: of the functions outside of the runtime that the compiler has made, nearly all can be traced, in real
// programs. Those of the installed toolchain are taken where they are static programs for x86-64.
func TestCoverage(t *testing.T) {
	paths := []string{
		build(t, "cmd/gofmt"), build(t, "-ldflags=-s -w", "cmd/gofmt"), testtool.Go(t, "arm64", "../../testdata/gostress"),
	}
	built := len(paths)
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH == "amd64" {
		dir := strings.TrimSpace(string(root))
		paths = append(paths, filepath.Join(dir, "bin/go"), filepath.Join(dir, "pkg/tool/linux_amd64/compile"))
	}
	for i, path := range paths {
		if _, err := os.Stat(path); i >= built && err != nil {
			continue
		}
		im, err := Read(parse(t, path))
		if refused := new(Refusal); i >= built && errors.As(err, &refused) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		why := map[Reason]int{}
		for k := range im.Funcs {
			m, r := im.Site(&im.Funcs[k], Options{})
			why[r]++
			if r == "" {
				checkMoves(t, im, &im.Funcs[k], &m)
			}
		}
		compiled := len(im.Funcs) - why[Runtime] - why[Assembly] - why[External] - why[Measured] - why[Wrapper]
		if share := float64(why[""]) / float64(compiled); share < 0.999 || why[""] < 400 {
			t.Errorf("%s: %.2f %% of %d functions: %v", path, 100*share, compiled, why)
		}
	}
}

// checkMoves holds the plan for a function against its code: every end has an event, the entry has one, nothing is
// rewritten twice, and nothing that must stay moves.
func checkMoves(t *testing.T, im *Image, f *Func, m *moves.Moves) {
	t.Helper()
	events := checkRuns(t, f, m)
	if im.machine == elf.EM_AARCH64 {
		checkMovesARM64(t, im, f, events)
		return
	}
	b, r := im.body(f)
	if r != "" {
		t.Fatalf("%s: %s", f.Name, r)
	}
	_, without := b.Plan(false)
	full := without == moves.NoRoom // so calls may move
	for i := range b.Ins {
		x := &b.Ins[i]
		if x.Exit != events[x.PC] {
			t.Errorf("%s: end at %#x: recorded is %v", f.Name, x.PC, events[x.PC])
		}
		k := slices.IndexFunc(m.Runs, func(r moves.Run) bool { return r.Addr <= x.PC && x.PC < r.Addr+uint64(r.Len) })
		inside := k >= 0 && x.PC != m.Runs[k].Addr
		moved := k >= 0 && moves.IsCall(x.Op)
		if inside && (x.Fixed || x.Back && !full) || moved && !full {
			t.Errorf("%s: the instruction at %#x moves", f.Name, x.PC)
		}
	}
}

// checkMovesARM64 holds the ends that are recorded against what another decoder says.
func checkMovesARM64(t *testing.T, im *Image, f *Func, events map[uint64]bool) {
	t.Helper()
	code, err := im.Code(f)
	if err != nil {
		t.Fatal(err)
	}
	tables := false
	for pc := f.Entry; pc < f.Next; pc += 4 {
		tables = tables || im.interior[pc]
	}
	for o := 0; o+4 <= len(code); o += 4 {
		pc := f.Entry + uint64(o)
		in, err := arm64asm.Decode(code[o:])
		if err != nil {
			continue
		}
		end := in.Op == arm64asm.RET
		if to, ok := in.Args[0].(arm64asm.PCRel); ok && in.Op == arm64asm.B {
			end = pc+uint64(int64(to))-f.Entry >= f.Next-f.Entry
		}
		if in.Op == arm64asm.BR {
			end = !tables
		}
		if end != events[pc] {
			t.Errorf("%s: %v at %#x: recorded is %v", f.Name, in, pc, events[pc])
		}
	}
}

// checkRuns returns where the ends are that are recorded.
func checkRuns(t *testing.T, f *Func, m *moves.Moves) map[uint64]bool {
	t.Helper()
	events, entries := map[uint64]bool{}, 0
	last := uint64(0)
	for i := range m.Runs {
		run := &m.Runs[i]
		if run.Addr < last {
			t.Errorf("%s: run at %#x begins in the one before", f.Name, run.Addr)
		}
		last = run.Addr + uint64(run.Len)
		for _, e := range run.Events {
			if e.Exit {
				events[run.Addr+uint64(e.At)] = true
			} else {
				entries++
			}
		}
	}
	if entries != 1 {
		t.Errorf("%s: %d entries are recorded", f.Name, entries)
	}
	return events
}

// TestPackage finds the packages of functions.
func TestPackage(t *testing.T) {
	for name, want := range map[string]string{
		"main.main": "main", "net/http.(*conn).serve": "net/http", "net/http.(*conn).serve.func1": "net/http",
		"gopkg.in/yaml%2ev3.Unmarshal": "gopkg.in/yaml.v3", "slices.Sort[go.shape.[]a/b.T,a/b.T]": "slices",
		"type:.eq.main.t": "type:", "go:buildid": "go:", "memeqbody": "", "a/b": "",
	} {
		if got := Package(name); got != want {
			t.Errorf("%s: package %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"main.Map[go.shape.int]": "main.Map[...]", "main.F[go.shape.[]uint8].func1": "main.F[...].func1", "main.main": "main.main",
	} {
		if got := PrintedName(name); got != want {
			t.Errorf("%s is printed %q, want %q", name, got, want)
		}
	}
}

// TestInlined: calls that the compiler has made part of their callers are known, in stripped programs, too, by who calls them
// and where.
func TestInlined(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	text := `package main

import "os"

func leaf(n int) int { return n + len(os.Args) }

func middle(n int) int {
	return leaf(n) +
		leaf(n*2)
}

//go:noinline
func outer(n int) int {
	if n > 1 {
		return middle(n)
	}
	return leaf(n)
}

func main() { os.Exit(outer(len(os.Args))) }
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-trimpath", "-ldflags=-s -w", "-buildmode=pie"} {
		im, err := ReadNames(parse(t, build(t, flag, source)))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(im.Funcs, func(f Func) bool { return f.Name == "main.outer" })
		if i < 0 {
			t.Fatal("no main.outer")
		}
		var got []string
		for _, c := range im.Inlined(&im.Funcs[i]) {
			got = append(got, fmt.Sprintf("%d %s %s:%d", c.Depth, c.Name, filepath.Base(c.Call.File), c.Call.Line))
		}
		want := []string{"0 main.middle main.go:15", "1 main.leaf main.go:8", "1 main.leaf main.go:9", "0 main.leaf main.go:17"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", flag, got, want)
		}
		at, ok := im.Line(im.Funcs[i].Entry)
		if !ok || filepath.Base(at.File) != "main.go" || at.Line < 13 || at.Line > 14 {
			t.Errorf("%s: main.outer begins at %v", flag, at)
		}
	}
}

// TestRefused: what is not traced says why.
func TestRefused(t *testing.T) {
	f := parse(t, build(t, "../../testdata/gostress"))
	for want, change := range map[string]func(*elfio.File){
		"a shared library":     func(f *elfio.File) { f.Header.Type = elf.ET_DYN },
		"those for x86-64 and": func(f *elfio.File) { f.Header.Machine = elf.EM_RISCV },
	} {
		changed := *f
		changed.Progs = slices.Clone(f.Progs)
		change(&changed)
		_, err := Read(&changed)
		if refused := new(Refusal); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	stripped := parse(t, build(t, "-ldflags=-s -w", "../../testdata/gostress"))
	for _, name := range []string{"go1.99", "devel go1.28-0123456"} {
		if v, err := versionOf(stripped, name); err != nil || v.Source != Derived {
			t.Errorf("version %q: %+v, %v", name, v, err)
		}
	}
	for _, name := range []string{"go1.20.1", "gccgo", ""} {
		for _, f := range []*elfio.File{f, stripped} {
			if _, err := versionOf(f, name); err == nil {
				t.Errorf("version %q is known", name)
			}
		}
	}
}

// TestDescribed: debug information says of the structures what the table has, and why goroutines wait.
func TestDescribed(t *testing.T) {
	for _, buildmode := range []string{"exe", "pie"} {
		f := parse(t, build(t, "-buildmode="+buildmode, "../../testdata/gostress"))
		want, _, ok := tried(runtime.Version())
		if !ok {
			t.Skipf("%s was not tried", runtime.Version())
		}
		for _, name := range []string{"go1.99", "devel go1.99-0123456"} {
			got, err := versionOf(f, name)
			if err != nil {
				t.Fatal(err)
			}
			if got.Source != Described || got.Name != name {
				t.Errorf("%+v", got)
			}
			if buildmode == "exe" && !slices.Equal(got.WaitReasons(), want.WaitReasons()) {
				t.Errorf("reasons: %q, want %q", got.WaitReasons(), want.WaitReasons())
			}
			got.Name, got.minor, got.Source, got.reasons = want.Name, want.minor, Tried, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
}

// made are structures as those of a version.
func made(v Version) map[string]layout {
	at := map[string]uint32{"goid": v.GoID, "parentGoid": v.Parent, "gopc": v.Parent + 8, "startpc": v.Parent + 24, "curg": v.CurG, "tls": v.TLS,
		"rodata": v.Rodata, "gofunc": v.Rodata + 8, "bad": v.Bad, "next": v.Next}
	out := map[string]layout{}
	for name, fields := range layouts {
		l := layout{size: 0x400, fields: map[string]int64{}}
		for field, want := range fields {
			if l.fields[field] = want; want == anywhere {
				l.fields[field] = int64(at[field])
			}
		}
		out[name] = l
	}
	for name, size := range map[string]int64{"runtime.moduledata": int64(v.Size), "runtime.pcHeader": 0x48} {
		out[name] = layout{size, out[name].fields}
	}
	return out
}

// checkVersion fails for a version whose offsets are outside of its structures.
func checkVersion(t *testing.T, v Version, found map[string]layout) {
	t.Helper()
	g, m := found["runtime.g"].size, found["runtime.m"].size
	if v.Size < 0xc0 || v.Size > 1<<12 || v.Rodata < 0xc0 || v.Rodata+16 > v.Size || v.Bad < 0xc0 || v.Bad >= v.Size ||
		v.Next < 0xc0 || v.Next+8 > v.Size || int64(v.GoID)+8 > g || int64(v.Parent)+32 > g || int64(v.CurG)+8 > m || int64(v.TLS)+8 > m {
		t.Errorf("%+v of %v", v, found)
	}
}

// TestLayouts: structures with fields outside of them are refused.
func TestLayouts(t *testing.T) {
	const md, size = "runtime.moduledata", ""
	for _, c := range []struct {
		name, field string
		at          int64
		ok          bool
	}{
		{md, "bad", 0x24f, true},
		{md, "bad", 0x250, false},
		{md, "bad", 0x3fff, false},
		{md, "bad", -1, false},
		{md, "bad", 0xb8, false},
		{md, "next", 0x248, true},
		{md, "next", 0x249, false},
		{md, "next", 1<<63 - 1, false},
		{md, "rodata", 0x1ff8, false},
		{md, "rodata", 0x248, false},
		{md, "rodata", 0xb8, false},
		{md, size, 0x1000, true},
		{md, size, 0x1001, false},
		{md, size, 0xb8, false},
		{md, size, -1 << 63, false},
		{"runtime.g", size, 0x118 + 32, true},
		{"runtime.g", size, 0x118 + 31, false},
		{"runtime.g", "goid", 0x3f9, false},
		{"runtime.m", "curg", 0x3f8, true},
		{"runtime.m", "curg", 0x3f9, false},
		{"runtime.m", "curg", -8, false},
		{"runtime._func", size, 4, false},
	} {
		found := made(versions[26])
		l := found[c.name]
		switch {
		case c.field == size:
			l.size = c.at
		case c.field == "rodata":
			l.fields["gofunc"] = c.at + 8
			fallthrough
		default:
			l.fields[c.field] = c.at
		}
		found[c.name] = l
		v, err := versionIn(found)
		if err == nil {
			checkVersion(t, v, found)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s.%s at %#x: %v", c.name, c.field, c.at, err)
		}
	}
}

// TestCheckSizes: debug information that becomes too large is not read.
func TestCheckSizes(t *testing.T) {
	section := func(name string, size, file uint64) *elf.Section {
		return &elf.Section{SectionHeader: elf.SectionHeader{Name: name, Size: size, FileSize: file}}
	}
	const image = 1 << 30
	for _, c := range []struct {
		ok       bool
		sections []*elf.Section
	}{
		{true, []*elf.Section{section(".debug_info", 1<<20, 1<<18), section(".text", 1<<40, 1<<40)}},
		{false, []*elf.Section{section(".zdebug_info", 1<<10, 1<<10)}},
		{false, []*elf.Section{section(".debug_info", 1<<20, 1<<10)}},
		{false, []*elf.Section{section(".debug_info", 1<<40, 1<<40)}},
		{true, []*elf.Section{section(".debug_info", 1<<29, 1<<28), section(".debug_line", 1<<29, 1<<28)}},
		{false, []*elf.Section{section(".debug_info", 1<<29, 1<<28), section(".debug_line", 1<<29, 1<<28), section(".debug_str", 1, 1)}},
		{false, []*elf.Section{section(".debug_info", 1, 1), section(".debug_str", 1<<64-1, 1<<64-1)}},
	} {
		if err := checkSizes(&elf.File{Sections: c.sections}, image); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.sections[len(c.sections)-1].SectionHeader, err)
		}
	}
}

// FuzzLayouts has structures of which some fields are elsewhere.
func FuzzLayouts(f *testing.F) {
	f.Add(uint8(1), uint8(2), int64(0x1ff8), int64(0x2000), int64(0x250))
	f.Add(uint8(0), uint8(0), int64(0x3fff), int64(-1), int64(-1<<63))
	var fields [][2]string
	for name, l := range layouts {
		for field, want := range l {
			if want == anywhere {
				fields = append(fields, [2]string{name, field})
			}
		}
	}
	slices.SortFunc(fields, func(a, b [2]string) int { return cmp.Compare(a[0]+a[1], b[0]+b[1]) })
	f.Fuzz(func(t *testing.T, first, second uint8, at, other, size int64) {
		found := made(versions[26])
		a, b := fields[int(first)%len(fields)], fields[int(second)%len(fields)]
		found[a[0]].fields[a[1]] = at
		found[b[0]].fields[b[1]] = other
		found[a[0]] = layout{size, found[a[0]].fields}
		if v, err := versionIn(found); err == nil {
			checkVersion(t, v, found)
		}
	})
}

// FuzzRead reads an image of which some bytes of pclntab are others: an error, or other functions, but nothing worse.
func FuzzRead(f *testing.F) {
	image := parse(f, build(f, "../../testdata/gostress"))
	s := &image.Sections[pclnSection(image)]
	for i := range uint32(60) {
		at := i * 8 // in the header
		if i >= 10 {
			at = i * 7919 * 16
		}
		f.Add(at, binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15))
	}
	f.Fuzz(func(t *testing.T, at uint32, b []byte) {
		raw := slices.Clone(image.Raw())
		copy(raw[s.Off:][:s.Size][uint64(at)%s.Size:], b)
		damaged, err := elfio.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		im, err := Read(damaged)
		if err != nil {
			return
		}
		for k := range im.Funcs {
			im.Site(&im.Funcs[k], Options{})
			im.Inlined(&im.Funcs[k])
			im.Line(im.Funcs[k].Entry)
		}
	})
}
