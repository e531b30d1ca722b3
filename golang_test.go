//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// goCounts are the calls that gostress has counted.
func goCounts(t *testing.T, stderr string) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for line := range strings.Lines(stderr) {
		var name string
		var n int64
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if n != 0 {
			counts[name] = n
		}
	}
	if len(counts) < 2 {
		t.Fatalf("only %d functions", len(counts))
	}
	return counts
}

// recorded are the calls that a trace has of functions.
func recorded(t *testing.T, dir string, of map[string]int64) map[string]int64 {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if tr.Lost != 0 {
		t.Errorf("%d events are lost", tr.Lost)
	}
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	total := map[string]int64{}
	for _, r := range rows {
		total[r.Name] = r.Total
		if _, ok := of[r.Name]; ok {
			counts[r.Name] += int64(r.Calls)
		}
	}
	// The goroutine goes from thread to thread inside these calls.
	if total["main.main"] == 0 || max(total["main.round"], total["main.many"]) > total["main.main"] {
		t.Errorf("main.main takes %d ns, and what it calls %d", total["main.main"], total["main.round"])
	}
	for _, k := range tr.Tasks {
		if k.Goroutine == 0 && k.TID < 1 {
			t.Errorf("a task that is neither a thread nor a goroutine: %+v", k)
		}
	}
	if len(tr.Goroutines(1)) != 1 {
		t.Error("goroutine 1 is no task")
	}
	return counts
}

// A goBuild is a way in which people build Go programs.
type goBuild struct {
	name, prog, flag string
	env              string
	needs            []string
	wide             bool // it builds the standard library once more
}

// arm64C is what builds programs for arm64 with C code.
const arm64C = "CGO_ENABLED=1 GOARCH=arm64 CC=aarch64-linux-gnu-gcc"

var goBuilds = []goBuild{
	{name: "default", prog: "gostress", flag: "-trimpath", env: "CGO_ENABLED=0"},
	{name: "stripped", prog: "gostress", flag: "-ldflags=-s -w", env: "CGO_ENABLED=0"},
	{name: "unoptimised", prog: "gostress", flag: "-gcflags=-N -l", env: "CGO_ENABLED=0"},
	{name: "pie", prog: "gostress", flag: "-buildmode=pie", env: "CGO_ENABLED=0"},
	{name: "cgo", prog: "gocgo", flag: "-trimpath", env: "CGO_ENABLED=1", needs: []string{"gcc"}},
	{name: "cgo internally linked", prog: "gocgo", flag: "-ldflags=-linkmode=internal", env: "CGO_ENABLED=1",
		needs: []string{"gcc"}},
	{name: "cgo pie", prog: "gocgo", flag: "-buildmode=pie", env: "CGO_ENABLED=1", needs: []string{"gcc"}},
	{name: "externally linked, stripped", prog: "gostress", flag: "-ldflags=-linkmode=external -s -w",
		env: "CGO_ENABLED=1", needs: []string{"gcc"}},
	{name: "arm64", prog: "gostress", flag: "-ldflags=-s -w", env: "CGO_ENABLED=0 GOARCH=arm64", needs: []string{"qemu-aarch64"}},
	{name: "arm64 unoptimised", prog: "gostress", flag: "-gcflags=-N -l", env: "CGO_ENABLED=0 GOARCH=arm64",
		needs: []string{"qemu-aarch64"}, wide: true},
	{name: "arm64 pie", prog: "gostress", flag: "-buildmode=pie", env: "CGO_ENABLED=0 GOARCH=arm64",
		needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	{name: "arm64 cgo", prog: "gocgo", flag: "-trimpath", env: arm64C, needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}},
	{name: "arm64 cgo internally linked", prog: "gocgo", flag: "-ldflags=-linkmode=internal", env: arm64C,
		needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	{name: "arm64 cgo pie", prog: "gocgo", flag: "-buildmode=pie", env: arm64C,
		needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	{name: "arm64 cgo static", prog: "gocgo", flag: "-ldflags=-linkmode=external -extldflags=-static", env: arm64C,
		needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	{name: "arm64 externally linked, stripped", prog: "gostress", flag: "-ldflags=-linkmode=external -s -w", env: arm64C,
		needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	{name: "race", prog: "gostress", flag: "-race", env: "CGO_ENABLED=1", needs: []string{"gcc"}, wide: true},
}

// build builds the program, with the standard library that it needs.
func (b *goBuild) build(t *testing.T, dir string) string {
	t.Helper()
	testtool.Need(t, b.needs...)
	prog := filepath.Join(dir, b.prog)
	build := exec.Command("go", "build", "-o", prog)
	if flag, more, ok := strings.Cut(b.flag, " -ldflags"); ok {
		build.Args = append(build.Args, flag, "-ldflags"+more)
	} else {
		build.Args = append(build.Args, b.flag)
	}
	build.Args = append(build.Args, "./testdata/"+b.prog)
	build.Env = append(append(os.Environ(), strings.Fields(b.env)...), "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// TestGo records Go programs that do what is hard on who moves their code: with and without symbols and optimisation, at
// fixed addresses and position-independent, with and without C, with the collector at work all the time, and on one
// processor and several. They print what they print untraced, and their own counts are those of the trace.
func TestGo(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	for _, b := range goBuilds {
		t.Run(b.name, func(t *testing.T) {
			if b.wide && !testtool.Wide() {
				t.Skip("the standard library is built once more only in wide runs")
			}
			dir := t.TempDir()
			prog := b.build(t, dir)
			compareStress(t, prog, fentry.Options{}, stressed...)
		})
	}
}

// stressed are the ways in which a program is run that does what is hard on who moves its code.
var stressed = []string{
	"GOMAXPROCS=1", "GOMAXPROCS=8 GOGC=1", "GODEBUG=clobberfree=1,gccheckmark=1,gcstoptheworld=1 GOGC=5",
}

// compareStress records such a program, which must print what it prints untraced, and has counted its own calls.
func compareStress(t *testing.T, prog string, o fentry.Options, envs ...string) {
	t.Helper()
	compareArgs(t, prog, nil, o, envs...)
}

func compareArgs(t *testing.T, prog string, args []string, o fentry.Options, envs ...string) {
	t.Helper()
	compareCounts(t, prog, args, o, nil, envs...)
}

// compareCounts does so for a program of whose functions some are left alone.
func compareCounts(t *testing.T, prog string, args []string, o fentry.Options, left map[string]record.Reason, envs ...string) {
	t.Helper()
	untraced, err := goCommand(t, prog, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range envs {
		var out, counted bytes.Buffer
		cmd := exec.Command(prog, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), strings.Fields(env)...), &out, &counted
		o.Dir, o.Overhead = filepath.Join(filepath.Dir(prog), "trace"), -1
		res, err := fentry.Run(context.Background(), cmd, o)
		if err != nil || res.Status.ExitStatus() != 0 || res.Untraced != "" {
			t.Fatalf("%s: %+v, %v\n%s", env, res, err, counted.String())
		}
		if d := cmp.Diff(string(untraced), out.String()); d != "" {
			t.Errorf("%s: output (-untraced +traced):\n%s", env, d)
		}
		want := goCounts(t, counted.String())
		leaveOut(t, prog, want)
		maps.DeleteFunc(want, func(name string, _ int64) bool { return left[name] != "" })
		if d := cmp.Diff(want, recorded(t, o.Dir, want)); d != "" {
			t.Errorf("%s: calls (-counted +recorded):\n%s", env, d)
		}
	}
}

// leaveOut forgets counts of C functions that cannot be traced: all where none are, and some that have no unwind tables, which
// Go's own linker leaves out.
func leaveOut(t *testing.T, prog string, counts map[string]int64) {
	t.Helper()
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range p.Sites {
		s := &p.Sites[i]
		untabled := s.Reason == record.ReasonNoUnwindInfo && p.File.SectionIndex(".eh_frame") < 0
		if _, ok := counts[s.Name]; ok && (s.Reason == record.ReasonGoC || untabled) {
			t.Logf("%s: %s", s.Name, s.Reason)
			delete(counts, s.Name)
		}
	}
}

// goCommand runs a program untraced, of whatever machine.
func goCommand(t *testing.T, prog string, args ...string) *exec.Cmd {
	t.Helper()
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var emulator []string
	if f.Machine == elf.EM_AARCH64 && runtime.GOARCH != "arm64" {
		emulator = []string{testtool.Path(t, "qemu-aarch64"), "-L", "/usr/aarch64-linux-gnu"}
	}
	command := slices.Concat(emulator, []string{prog}, args)
	return exec.Command(command[0], command[1:]...)
}

// onGoMachines runs a test for each machine whose Go programs are traced: go build makes what is for that.
func onGoMachines(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			if arch == "arm64" {
				testtool.Need(t, "qemu-aarch64")
			}
			t.Setenv("GOARCH", arch)
			test(t)
		})
	}
}

// TestGoMany records 100,000 goroutines that are there at the same time, each of which is a task of the trace.
func TestGoMany(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	const many = 100000
	compareArgs(t, goBuilds[0].build(t, dir), []string{fmt.Sprint(many)}, fentry.Options{}, "GOMAXPROCS=4")
	tr, err := trace.Open(filepath.Join(dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	made := 0
	for _, k := range tr.Tasks {
		if b, ok := tr.Birth(k); ok && b.By == "main.many" && b.Parent == 1 {
			made++
		}
	}
	if made != many {
		t.Errorf("%d goroutines of main.many are tasks", made)
	}
}

// TestGoMeasured: a program that verifies its own cryptographic code runs traced, because that code is left alone.
func TestGoMeasured(t *testing.T) { onGoMachines(t, testGoMeasured) }

func testGoMeasured(t *testing.T) {
	t.Helper()
	prog := buildGo(t, `package main

import (
	"crypto/fips140"
	"crypto/sha256"
	"fmt"
)

//go:noinline
func sum(b []byte) [32]byte { return sha256.Sum256(b) }

func main() { fmt.Printf("%v %x\n", fips140.Enabled(), sum([]byte("x"))) }
`)
	var out bytes.Buffer
	cmd := exec.Command(prog)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "GODEBUG=fips140=on"), &out, &out
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1}
	if res, err := fentry.Run(context.Background(), cmd, o); err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v\n%s", res, err, out.String())
	}
	if want := fmt.Sprintf("true %x\n", sha256.Sum256([]byte("x"))); out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	sums := 0
	for fn := range tr.FunctionsOf(0) {
		if strings.HasPrefix(fn.Name, "crypto/internal/fips140.") || strings.HasPrefix(fn.Name, "crypto/internal/fips140/") {
			t.Errorf("%s is traced", fn.Name)
		}
		if fn.Name == "main.sum" {
			sums++
		}
	}
	if sums != 1 {
		t.Errorf("main.sum is traced %d times", sums)
	}
}

// TestGoRuntime records the functions of Go's runtime, too, on one processor up to sixteen: all that can be traced but
// those that never return. In programs with C code they are left alone.
func TestGoRuntime(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	prog := goBuilds[0].build(t, dir)
	p, err := fentry.OpenWith(prog, symbol.Options{}, record.Options{GoRuntime: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	why := map[string]record.Reason{}
	traced := 0
	for i := range p.Sites {
		s := &p.Sites[i]
		why[s.Name] = s.Reason
		if strings.HasPrefix(s.Name, "runtime.") && s.Reason == "" {
			traced++
		}
	}
	for name, want := range map[string]record.Reason{
		"runtime.mallocgc": "", "runtime.findRunnable": "", "runtime.chansend": "", "runtime.schedule": record.ReasonGoSwitches,
		"runtime.goexit0": record.ReasonGoSwitches, "runtime.newstack": record.ReasonGoSwitches, "runtime.mcall": record.ReasonGoAssembly,
		"runtime.sigtrampgo": record.ReasonGoHandler,
	} {
		if got, ok := why[name]; !ok || got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if traced < 1000 {
		t.Errorf("only %d functions of the runtime can be traced", traced)
	}
	envs := []string{"GOMAXPROCS=8 GOGC=1"}
	if testtool.Wide() {
		envs = append(slices.Clone(stressed), "GOMAXPROCS=2 GOGC=1", "GOMAXPROCS=16")
	}
	compareStress(t, prog, fentry.Options{GoRuntime: true}, envs...)

	if !testtool.Have(t, "gcc") {
		return
	}
	c, err := fentry.OpenWith(goBuilds[4].build(t, dir), symbol.Options{}, record.Options{GoRuntime: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range c.Sites {
		if s := &c.Sites[i]; s.Name == "runtime.mallocgc" && s.Reason != record.ReasonGoRuntime {
			t.Errorf("with C code: %s: %q", s.Name, s.Reason)
		}
	}
}

// TestGoProfiled has a traced program make a CPU profile and an execution trace of itself: the time is that of its
// functions, by their callers, and not of code that nobody knows; and both can be read.
func TestGoProfiled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	prog := buildGo(t, `package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"sync"
)

//go:noinline
func leaf(n int) (s int) {
	for i := 0; i < 300; i++ {
		s += i * n
	}
	return s
}

//go:noinline
func loop(n int) (s int) {
	for i := 0; i < n; i++ {
		s += leaf(i)
	}
	return s
}

func main() {
	cpu, _ := os.Create(os.Args[1])
	exec, _ := os.Create(os.Args[2])
	if err := pprof.StartCPUProfile(cpu); err != nil {
		panic(err)
	}
	if err := trace.Start(exec); err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for g := 0; g < 4; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			fmt.Println(loop(1000000))
		}()
	}
	wg.Wait()
	trace.Stop()
	pprof.StopCPUProfile()
}
`)
	dir := t.TempDir()
	cpu, events := filepath.Join(dir, "cpu"), filepath.Join(dir, "exec")
	filter, err := record.NewFilter([]string{"own"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := fentry.Options{Dir: filepath.Join(dir, "trace"), Overhead: -1, Plan: patch.Options{Select: filter}}
	if res, err := fentry.Run(context.Background(), exec.Command(prog, cpu, events), o); err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	top := testtool.Output(t, "go", "tool", "pprof", "-top", "-cum", "-unit=ms", prog, cpu)
	cum := map[string]float64{}
	for line := range strings.Lines(top) {
		var flat, flatPart, sumPart, sum, part, name string
		if n, _ := fmt.Sscan(line, &flat, &flatPart, &sumPart, &sum, &part, &name); n == 6 {
			v := 0.0
			fmt.Sscanf(part, "%f", &v)
			cum[name] = v
		}
	}
	// Some fifty samples, of which the tracer's own code, which is not Go's, has a few.
	if cum["main.loop"] < 70 || cum["main.leaf"] < 50 || cum["main.main.func1"] < 70 || cum["runtime._ExternalCode"] > 20 {
		t.Errorf("the profile:\n%s", top)
	}
	parsed := testtool.Output(t, "go", "tool", "trace", "-d=parsed", events)
	if n := strings.Count(parsed, "NotExist->Runnable"); n < 4 || !strings.Contains(parsed, "main.main.func1") {
		t.Errorf("the execution trace has %d new goroutines in %d bytes", n, len(parsed))
	}
}

// TestGoServer: a server of JSON over HTTP, under load by a process that is not traced, gives the same answers with its
// packages and net/http traced.
func TestGoServer(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	text, err := os.ReadFile("bench/testdata/goserver/main.go")
	if err != nil {
		t.Fatal(err)
	}
	prog := buildGo(t, string(text))
	const requests = 2000
	answers := func(out []byte) string {
		line, _, _ := strings.Cut(string(out), "\n")
		return line
	}
	untraced, err := exec.Command(prog, fmt.Sprint(requests)).Output()
	if err != nil {
		t.Fatal(err)
	}
	filter, err := record.NewFilter([]string{"own", "net/http/..."}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(prog, fmt.Sprint(requests))
	cmd.Stdout = &out
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1, Plan: patch.Options{Select: filter}}
	if res, err := fentry.Run(context.Background(), cmd, o); err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v\n%s", res, err, out.String())
	}
	if want, got := answers(untraced), answers(out.Bytes()); got != want || !strings.HasPrefix(want, "answers ") {
		t.Errorf("%q, untraced %q", got, want)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, r := range rows {
		calls[r.Name] = r.Calls
	}
	if tr.Lost != 0 || calls["main.handle"] != requests || calls["main.price"] != 20*requests || calls["net/http.(*conn).serve"] == 0 {
		t.Errorf("%d lost, %d requests, %d prices, %d connections", tr.Lost, calls["main.handle"], calls["main.price"],
			calls["net/http.(*conn).serve"])
	}
}

// goVersions are toolchains whose programs are traced, the last of each minor version when it was tried.
var goVersions = []string{
	"go1.21.13", "go1.22.12", "go1.23.12", "go1.24.11", "go1.25.5", "go1.26.8", "go1.27.1",
}

// TestGoVersions is TestGo with programs of all versions of Go that are known, by toolchains from the module proxy.
func TestGoVersions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("other versions of Go are fetched only in wide runs")
	}
	testtool.Long(t)
	src, err := os.ReadFile("testdata/gostress/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range goVersions {
		for _, how := range [][2]string{
			{"amd64", ""}, {"amd64", "-ldflags=-s -w"}, {"amd64", "-buildmode=pie"}, {"arm64", "-ldflags=-s -w"},
		} {
			arch, flags := how[0], how[1]
			t.Run(version+flags+" "+arch, func(t *testing.T) {
				if arch != runtime.GOARCH {
					testtool.Need(t, "qemu-aarch64")
				}
				dir := t.TempDir()
				for name, text := range map[string][]byte{"main.go": src, "go.mod": []byte("module gostress\n\ngo 1.21\n")} {
					if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
						t.Fatal(err)
					}
				}
				build := exec.Command("go", "build", "-o", "prog")
				if flags != "" {
					build.Args = append(build.Args, flags)
				}
				build.Dir = dir
				build.Env = append(os.Environ(), "GOTOOLCHAIN="+version, "GOARCH="+arch, "CGO_ENABLED=0",
					"GOFLAGS=-buildvcs=false")
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				compareStress(t, filepath.Join(dir, "prog"), fentry.Options{}, stressed...)
			})
		}
	}
}

// TestGoUnknown: programs of a version of Go that was not tried are traced by what their debug information says of the
// runtime, and those without it by what the code of their runtime says, as far as that can be done without telling it of moved
// code. The trace tells.
func TestGoUnknown(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	minor, _, _ := strings.Cut(strings.TrimPrefix(runtime.Version(), "go1."), ".")
	if len(minor) != 2 {
		t.Skipf("%s has another form", runtime.Version())
	}
	for _, b := range []goBuild{
		goBuilds[0], goBuilds[1],
		{name: "not described, with C", prog: "gocgo", flag: "-ldflags=-w", env: "CGO_ENABLED=1", needs: []string{"gcc"}},
		{name: "stripped pie", prog: "gostress", flag: "-buildmode=pie -ldflags=-s -w", env: "CGO_ENABLED=0", wide: true},
	} {
		t.Run(b.name, func(t *testing.T) {
			if b.wide && !testtool.Wide() {
				t.Skip("the standard library is built once more only in wide runs")
			}
			dir := t.TempDir()
			prog, version := b.build(t, dir), "go1.9"+minor[1:]
			changeVersion(t, prog, "go1."+minor, version)
			want, left := golang.Described, map[string]record.Reason(nil)
			if b.name != "default" {
				want, left = golang.Derived, leftAlone(t, prog)
			}
			envs := stressed[1:]
			if b.name == "stripped" {
				envs = stressed
			}
			compareCounts(t, prog, nil, fentry.Options{}, left, envs...)
			tr, err := trace.Open(filepath.Join(dir, "trace"))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if name, from := tr.GoRuntime(0); !strings.HasPrefix(name, version) || from != want {
				t.Errorf("the trace says %q, %s", name, from)
			}
			reasons := parkReasons(t, tr)
			if want == golang.Described && reasons["chan receive"] == 0 || want == golang.Derived && len(reasons) > 0 {
				t.Errorf("reasons: %v", reasons)
			}
		})
	}
}

// changeVersion has a program say that another version of Go has linked it.
func changeVersion(t *testing.T, prog, from, to string) {
	t.Helper()
	text, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	if err := runfile.WriteFile(prog, bytes.ReplaceAll(text, []byte(from), []byte(to))); err != nil {
		t.Fatal(err)
	}
}

// leftAlone are the functions of a program that are left alone whose runtime cannot be told of moved code, which those are
// that do not look for room on the stack, and hardly any others.
func leftAlone(t *testing.T, prog string) map[string]record.Reason {
	t.Helper()
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Untraced != "" {
		t.Fatal(p.Untraced)
	}
	left, found, why := map[string]record.Reason{}, map[string]record.Reason{}, map[record.Reason]int{}
	for i := range p.Sites {
		s := &p.Sites[i]
		why[s.Reason]++
		if found[s.Name] = s.Reason; s.Reason != "" {
			left[s.Name] = s.Reason
		}
	}
	if n := why[""]; n < 300 || why[record.ReasonGoChecks] > n/3 || why[record.ReasonGoModule] > n/20 {
		t.Errorf("%v", why)
	}
	for name, want := range map[string]record.Reason{
		"main.fib": "", "main.grow": "", "main.panics": "", "main.leaf": record.ReasonGoChecks, "runtime.gopark": "",
	} {
		if got, ok := found[name]; ok && got != want { // a program with C code has others
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	return left
}

// TestGoPatched runs patched files of Go programs, which trace themselves. Their traces have the names that the stripped
// program's runtime knows.
func TestGoPatched(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	for _, b := range []goBuild{
		{name: "stripped", prog: "gostress", flag: "-ldflags=-s -w", env: "CGO_ENABLED=0"},
		{name: "stripped pie", prog: "gostress", flag: "-buildmode=pie -ldflags=-s", env: "CGO_ENABLED=0"},
		{name: "cgo", prog: "gocgo", flag: "-ldflags=-w", env: "CGO_ENABLED=1", needs: []string{"gcc"}},
		{name: "cgo internally linked", prog: "gocgo", flag: "-ldflags=-linkmode=internal -s", env: "CGO_ENABLED=1",
			needs: []string{"gcc"}},
		{name: "arm64", prog: "gostress", flag: "-ldflags=-s -w", env: "CGO_ENABLED=0 GOARCH=arm64", needs: []string{"qemu-aarch64"}},
		{name: "arm64 cgo", prog: "gocgo", flag: "-ldflags=-w", env: arm64C, needs: []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"}, wide: true},
	} {
		t.Run(b.name, func(t *testing.T) {
			if b.wide && !testtool.Wide() {
				t.Skip("the emulated machine takes its time")
			}
			dir := t.TempDir()
			prog := b.build(t, dir)
			p, err := fentry.Open(prog)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			traced := filepath.Join(dir, "traced")
			o := patch.Options{Dir: filepath.Join(dir, "trace"), Path: traced}
			plan, err := p.Plan(o)
			if err != nil {
				t.Fatal(err)
			}
			image, err := plan.Image()
			if err != nil {
				t.Fatal(err)
			}
			if err := runfile.WriteFile(traced, image); err != nil {
				t.Fatal(err)
			}
			untraced, err := goCommand(t, prog).Output()
			if err != nil {
				t.Fatal(err)
			}
			var out, counted bytes.Buffer
			cmd := goCommand(t, traced)
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &counted
			if err := cmd.Run(); err != nil || out.String() != string(untraced) {
				t.Fatalf("%v\n%s\n%s", err, out.String(), counted.String())
			}
			want := goCounts(t, counted.String())
			leaveOut(t, prog, want)
			if d := cmp.Diff(want, recorded(t, o.Dir, want)); d != "" {
				t.Errorf("calls (-counted +recorded):\n%s", d)
			}
		})
	}
}

// TestGoOff: a patched program that records nothing has its own code, byte by byte, so that it costs nothing to have been
// patched; and behaves as it did.
func TestGoOff(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	text := `package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

func main() {
	var addr, size int64
	fmt.Sscan(os.Args[1], &addr)
	fmt.Sscan(os.Args[2], &size)
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		panic(err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, addr, size)); err != nil {
		panic(err)
	}
	fmt.Printf("%x\n", h.Sum(nil))
}
`
	prog := buildGo(t, text)
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dir := t.TempDir()
	traced := filepath.Join(dir, "traced")
	plan, err := p.Plan(patch.Options{Dir: filepath.Join(dir, "trace"), Path: traced})
	if err != nil {
		t.Fatal(err)
	}
	image, err := plan.Image()
	if err != nil {
		t.Fatal(err)
	}
	if err := runfile.WriteFile(traced, image); err != nil {
		t.Fatal(err)
	}
	code := p.File.Sections[p.File.SectionIndex(".text")]
	sum := func(prog string, env ...string) string {
		cmd := exec.Command(prog, fmt.Sprint(code.Addr), fmt.Sprint(code.Size))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", prog, env, err, out)
		}
		return string(out)
	}
	want := sum(prog)
	if got := sum(traced); got == want {
		t.Error("a program that is recorded has its own code")
	}
	if got := sum(traced, "FENTRY_OFF=1"); got != want {
		t.Error("with FENTRY_OFF=1 it has other code than it had")
	}
}

// buildGo builds a program of one file.
func buildGo(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "main.go"), filepath.Join(dir, "prog")
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", prog, src)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// TestGoGoroutines: the trace says of each goroutine which function it began with and who made it, of each time that one
// waited why, and when there were collections; and nothing of it where patterns leave the runtime out.
func TestGoGoroutines(t *testing.T) { onGoMachines(t, testGoGoroutines) }

func testGoGoroutines(t *testing.T) {
	t.Helper()
	prog := buildGo(t, `package main

import (
	"runtime"
	"sync"
	"time"
)

//go:noinline
func child(c chan int) { c <- 1 }

//go:noinline
func middle(c chan int, wg *sync.WaitGroup) {
	defer wg.Done()
	for range 50 {
		go child(c)
	}
	for range 50 {
		<-c
	}
	time.Sleep(time.Millisecond)
}

func main() {
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go middle(make(chan int), &wg)
	}
	wg.Wait()
	runtime.GC()
}
`)
	for _, exclude := range [][]string{nil, {"runtime.*"}} {
		filter, err := record.NewFilter([]string{"own"}, exclude)
		if err != nil {
			t.Fatal(err)
		}
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1, Plan: patch.Options{Select: filter}}
		if res, err := fentry.Run(context.Background(), exec.Command(prog), o); err != nil || res.Status.ExitStatus() != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		tr, err := trace.Open(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		births := map[string]int{}
		middles := map[uint64]bool{}
		for _, k := range tr.Tasks {
			if b, ok := tr.Birth(k); ok {
				if strings.HasPrefix(b.Function, b.By+".") { // what calls the function in the go statement
					births[b.By]++
				}
				if b.By == "main.main" && b.Parent == 1 {
					middles[k.Goroutine] = true
				}
				if b.By == "main.middle" && !middles[b.Parent] {
					t.Errorf("%s was made by goroutine %d, which is none of main.middle", k, b.Parent)
				}
			}
		}
		rows, err := tr.Report(trace.ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]uint64{}
		for _, r := range rows {
			calls[r.Name] = r.Calls
		}
		if exclude != nil {
			if len(births) != 0 || calls["runtime.gcStart"] != 0 {
				t.Errorf("without runtime.*: %v, %v", births, calls)
			}
			continue
		}
		if births["main.middle"] != 200 || births["main.main"] != 4 {
			t.Errorf("goroutines: %v", births)
		}
		for _, name := range []string{"GC", "gcStart", "gcDrain", "stopTheWorldWithSema", "startTheWorldWithSema"} {
			if calls["runtime."+name] == 0 {
				t.Errorf("no call of runtime.%s: %v", name, calls)
			}
		}
		if calls["runtime.newproc1"] != 0 {
			t.Error("calls of runtime.newproc1 are recorded")
		}
		if never, err := tr.Never(rows); err != nil || slices.ContainsFunc(never, func(s trace.FuncStat) bool {
			return s.Name == "runtime.newproc1"
		}) {
			t.Errorf("runtime.newproc1 was never called, they say: %v", err)
		}
		reasons := parkReasons(t, tr)
		if reasons["sleep"] != 4 || reasons["sync.WaitGroup.Wait"] > 1 || reasons["none"] != 0 {
			t.Errorf("reasons: %v", reasons)
		}
	}
}

// TestGoUnwound: calls that a panic or runtime.Goexit has ended are unwound, when that was, and those that have recovered
// return, also where calls of the same function are inside them. Who made a goroutine ready is known, too.
func TestGoUnwound(t *testing.T) { onGoMachines(t, testGoUnwound) }

func testGoUnwound(t *testing.T) {
	t.Helper()
	prog := buildGo(t, `package main

import (
	"runtime"
	"time"
)

//go:noinline
func unwinds(n int) (r int) {
	defer func() {
		if n%4 == 0 && recover() != nil {
			r = n
		}
	}()
	if n == 11 {
		panic(n)
	}
	return unwinds(n+1) + 1
}

//go:noinline
func leaves(n int) {
	if n == 0 {
		runtime.Goexit()
	}
	leaves(n - 1)
}

//go:noinline
func waits(c chan int) { <-c }

//go:noinline
func wakes(c chan int) { c <- 1 }

func main() {
	unwinds(0)
	done := make(chan int)
	go func() {
		defer close(done)
		leaves(3)
	}()
	<-done
	for range 100 { // until the other one waits before it is woken
		c := make(chan int)
		go waits(c)
		time.Sleep(time.Millisecond)
		wakes(c)
	}
}
`)
	filter, err := record.NewFilter([]string{"own"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1, Plan: patch.Options{Select: filter}}
	if res, err := fentry.Run(context.Background(), exec.Command(prog), o); err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var ends []string
	woken := 0
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		name := tr.Name(ev.Func)
		switch {
		case ev.Kind != trace.Entry && (name == "main.unwinds" || name == "main.leaves"):
			ends = append(ends, fmt.Sprintf("%s %s", name, ev.Kind))
		case ev.Kind == trace.Entry && name == "runtime.ready" && tr.Name(ev.Caller) == "main.wakes":
			woken++
			tr.EachValue(ev, func(_ string, v *arguments.Value, of *trace.Captured) {
				number := string(v.AppendText(nil, of.Words, of.Memory()))
				if ks := slices.DeleteFunc(slices.Clone(tr.Tasks), func(k *trace.Task) bool { return fmt.Sprint(k.Goroutine) != number }); len(ks) != 1 {
					t.Errorf("%d goroutines %s are made ready", len(ks), number)
				}
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Repeat([]string{"main.unwinds unwound"}, 3)
	want = append(want, slices.Repeat([]string{"main.unwinds exit"}, 9)...)
	want = append(want, slices.Repeat([]string{"main.leaves unwound"}, 4)...)
	if d := cmp.Diff(want, ends); d != "" {
		t.Errorf("ends of calls (-want +got):\n%s", d)
	}
	if woken == 0 {
		t.Error("nobody is made ready by main.wakes")
	}
}

// parkReasons counts why goroutines have waited.
func parkReasons(t *testing.T, tr *trace.Trace) map[string]int {
	t.Helper()
	reasons := map[string]int{}
	err := tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry && tr.Parks(ev.Func) {
			tr.EachValue(ev, func(_ string, v *arguments.Value, of *trace.Captured) {
				reasons[string(v.AppendText(nil, of.Words, of.Memory()))]++
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return reasons
}

// TestGoWaiting: the time that calls have waited is that of their goroutines being parked, and -N leaves that unknown. The
// function that goroutines wait in is traced whatever else is.
func TestGoWaiting(t *testing.T) { onGoMachines(t, testGoWaiting) }

func testGoWaiting(t *testing.T) {
	t.Helper()
	prog := buildGo(t, `package main

import "time"

//go:noinline
func sleeps() {
	for range 3 {
		time.Sleep(time.Millisecond)
	}
}

//go:noinline
func works(n int) (s int) {
	for i := range n {
		s += i * s
	}
	return s
}

func main() {
	sleeps()
	works(1000)
	done := make(chan bool)
	go func() {
		sleeps()
		close(done)
	}()
	<-done
}
`)
	for _, exclude := range [][]string{nil, {"runtime.*"}} {
		filter, err := record.NewFilter([]string{"own"}, exclude)
		if err != nil {
			t.Fatal(err)
		}
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1, Plan: patch.Options{Select: filter}}
		res, err := fentry.Run(context.Background(), exec.Command(prog), o)
		if err != nil || res.Status.ExitStatus() != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		tr, err := trace.Open(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		rows, err := tr.Report(trace.ReportOptions{Waits: true})
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]trace.FuncStat{}
		for _, r := range rows {
			by[r.Name] = r
		}
		sleeps, works, main, park := by["main.sleeps"], by["main.works"], by["main.main"], by["runtime.gopark"]
		if exclude != nil {
			if main.Waiting != -1 || park.Calls != 0 || sleeps.Calls != 2 {
				t.Errorf("without runtime.*: %+v, %+v", main, park)
			}
			continue
		}
		if park.Calls < 6 || park.Waiting != park.Total || park.Running != 0 {
			t.Errorf("runtime.gopark: %+v", park)
		}
		if sleeps.Waiting <= 0 || sleeps.Waiting >= sleeps.Total || sleeps.Waiting > park.Total || works.Waiting != 0 {
			t.Errorf("main.sleeps: %+v, main.works: %+v", sleeps, works)
		}
		if main.Running+main.Waiting != main.Total {
			t.Errorf("main.main: %+v", main)
		}
		goroutines := 0
		for _, k := range tr.Tasks {
			if k.Goroutine != 0 {
				goroutines++
			}
		}
		if goroutines != 2 {
			t.Errorf("%d goroutines, want 2: the runtime's own only park", goroutines)
		}
	}
}

// TestGoOwn: patterns choose the packages of a module, the main one by its word.
func TestGoOwn(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":   "module example.org/own\n\ngo 1.26\n",
		"main.go":  "package main\n\nimport \"example.org/own/a/b\"\n\nfunc main() { b.Print() }\n",
		"a/b/b.go": "package b\n\nimport \"fmt\"\n\nfunc Print() { fmt.Println(1) }\n",
		"a/b/b_test.go": "package b_test\n\nimport (\n\t\"testing\"\n\n\t\"example.org/own/a/b\"\n)\n\n" +
			"func TestB(*testing.T) { b.Print() }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for args, wants := range map[string]map[string]string{
		"build -gcflags=-l -o prog .": {
			"own": "example.org/own/a/b.Print main.main", "example.org/own/...": "example.org/own/a/b.Print",
			"example.org/own/a/b.*": "example.org/own/a/b.Print", "example.org/own/b/...": "",
		},
		"test -c -gcflags=-l -o prog ./a/b": {
			"own": "example.org/own/a/b.Print example.org/own/a/b_test.TestB main.init.0 main.main",
		},
	} {
		cmd := exec.Command("go", strings.Fields(args)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args, err, out)
		}
		prog := filepath.Join(dir, "prog")
		if read := ownRead(t, prog); read != wants["own"] {
			t.Errorf("%s: a reader's own functions: %q, want %q", args, read, wants["own"])
		}
		p, err := fentry.Open(prog)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for pattern, want := range wants {
			f, err := record.NewFilter([]string{pattern}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range p.Sites {
				if s := &p.Sites[i]; s.Traceable() && f.MatchSite(s) {
					got = append(got, s.Name)
				}
			}
			slices.Sort(got)
			if all := strings.Join(got, " "); all != want {
				t.Errorf("%s: -F %s: %q, want %q", args, pattern, all, want)
			}
		}
	}
}

// ownRead records a program, and returns the functions that a reader of the trace takes for the program's own.
func ownRead(t *testing.T, prog string) string {
	t.Helper()
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "trace"), Overhead: -1}
	if res, err := fentry.Run(context.Background(), exec.Command(prog), o); err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var own []string
	for fn := range tr.FunctionsOf(0) {
		if tr.IsOwn(0, fn) {
			own = append(own, fn.Name)
		}
	}
	slices.Sort(own)
	return strings.Join(own, " ")
}

// TestGoCompiler has a traced compiler, of which all functions are recorded, compile a package: the object is the one that
// it makes untraced.
func TestGoCompiler(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	config := filepath.Join(dir, "importcfg")
	list := run("list", "-deps", "-export", "-f", "{{if .Export}}packagefile {{.ImportPath}}={{.Export}}{{end}}", "strconv")
	if err := os.WriteFile(config, []byte(list+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	src := run("list", "-f", "{{.Dir}}", "strconv")
	files := strings.Fields(run("list", "-f", "{{join .GoFiles \" \"}}", "strconv"))
	compile := func(out string) *exec.Cmd {
		cmd := exec.Command(run("tool", "-n", "compile"), append([]string{
			"-p", "strconv", "-importcfg", config, "-o", filepath.Join(dir, out),
		}, files...)...)
		cmd.Dir = src
		return cmd
	}
	if out, err := compile("untraced").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := compile("traced")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	res, err := fentry.Run(context.Background(), cmd, fentry.Options{Dir: filepath.Join(dir, "trace"), Overhead: -1})
	if err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v\n%s", res, err, out.String())
	}
	if res.Traced < 10000 {
		t.Errorf("only %d functions of the compiler are traced: %s", res.Traced, res.Untraced)
	}
	want, err := os.ReadFile(filepath.Join(dir, "untraced"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "traced"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the object differs (%v)", err)
	}
}

// TestGoOptions: what cannot be done with a Go program is refused with a sentence, and not left out in silence.
func TestGoOptions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	prog := filepath.Join(dir, "gostress")
	build := exec.Command("go", "build", "-o", prog, "./testdata/gostress")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, o := range map[string]patch.Options{
		"count": {Tracer: patch.Count}, "function": {Tracer: patch.Function}, "clock": {NoClock: true}, "depth": {Depth: 3},
		"actions": {Actions: &patch.Actions{}},
	} {
		if _, err := p.Plan(o); !errors.Is(err, patch.ErrGoTracer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if plan, err := p.Plan(patch.Options{}); err != nil || plan.Traced() < 300 {
		t.Errorf("%v", err)
	}
}
