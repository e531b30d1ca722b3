//go:build linux

package fentry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/golang"
)

// onCgoMachines runs a test for each machine whose Go programs are traced: go build makes what is for that, with C in it.
func onCgoMachines(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	onGoMachines(t, func(t *testing.T) {
		cc := "gcc"
		if os.Getenv("GOARCH") == "arm64" {
			cc = "aarch64-linux-gnu-gcc"
		}
		testtool.Need(t, cc)
		t.Setenv("CC", cc)
		test(t)
	})
}

// buildCgo builds a Go program of several files, with C in them.
func buildCgo(t *testing.T, files map[string]string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", "prog", ".")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "prog")
}

// TestGoExceptions records a Go program whose C++ functions throw exceptions through each other, in a call from Go, in one that
// Go was called back in, and on threads of their own.
func TestGoExceptions(t *testing.T) { onCgoMachines(t, testGoExceptions) }

func testGoExceptions(t *testing.T) {
	cxx := strings.TrimSuffix(os.Getenv("CC"), "gcc") + "g++"
	testtool.Need(t, cxx)
	t.Setenv("CXX", cxx)
	prog := buildCgo(t, map[string]string{
		"go.mod": "module exceptions\n\ngo 1.22\n",
		"main.go": `package main

// extern int catches(int), starts(int);
// extern long counted(int);
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var calls atomic.Int64

//go:noinline
//export goCall
func goCall(n C.int) C.int {
	calls.Add(1)
	runtime.GC()
	return C.catches(n)
}

func main() {
	var wg sync.WaitGroup
	var sum atomic.Int64
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 30 {
				sum.Add(int64(C.catches(C.int(i))) + int64(C.starts(C.int(i))))
			}
		}()
	}
	wg.Wait()
	fmt.Println(sum.Load())
	fmt.Fprintln(os.Stderr, "main.goCall", calls.Load())
	for i, name := range []string{"catches", "throws", "passes", "starts"} {
		fmt.Fprintln(os.Stderr, name, C.counted(C.int(i)))
	}
}
`,
		"calls.cpp": `#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

extern "C" int goCall(int);
static std::atomic<long> counts[4];
#define TRACED extern "C" __attribute__((noipa))

TRACED long counted(int i) { return counts[i]; }

TRACED int throws(int n)
{
	counts[1]++;
	if (n % 3)
		throw std::runtime_error(std::to_string(n));
	throw n;
}

TRACED int passes(int n)
{
	counts[2]++;
	std::string held(100, 'x');
	return (n % 4 ? passes(n - 1) : throws(n)) + int(held.size());
}

TRACED int catches(int n)
{
	counts[0]++;
	int sum = n > 8 && n % 8 == 1 ? goCall(n / 2) : 0;
	try {
		return passes(n) + sum;
	} catch (const std::exception &e) {
		return sum + std::stoi(e.what());
	} catch (int thrown) {
		return sum + 2 * thrown;
	}
}

TRACED int starts(int n)
{
	counts[3]++;
	int sum = 0;
	std::thread thread([&] { sum = goCall(n); });
	thread.join();
	return sum;
}
`,
	})
	envs := []string{"GOMAXPROCS=8 GOGC=1", "GOMAXPROCS=1"}
	if os.Getenv("GOARCH") == "arm64" && !testtool.Wide() {
		envs = envs[:1]
	}
	compareStress(t, prog, fentry.Options{}, envs...)
}

// TestGoCFunctions: C functions of a Go program are listed as in any other, by whoever it was linked. What is linked with a
// sanitizer is left alone.
func TestGoCFunctions(t *testing.T) { onCgoMachines(t, testGoCFunctions) }

func testGoCFunctions(t *testing.T) {
	files := map[string]string{
		"go.mod": "module c\n\ngo 1.22\n",
		"main.go": `package main

// #include <stdlib.h>
// __attribute__((noipa)) static int called(int n) { return abs(n) + 1; }
import "C"

func main() { println(C.called(-1)) }
`,
	}
	for _, test := range []struct {
		flag   string
		reason record.Reason
		wide   bool // it builds the standard library once more
	}{
		{flag: "-ldflags=-linkmode=external"},
		{flag: "-ldflags=-linkmode=internal"},
		{flag: "-race", reason: record.ReasonGoC, wide: true},
	} {
		t.Run(strings.TrimPrefix(test.flag, "-ldflags=-linkmode="), func(t *testing.T) {
			if test.wide && !testtool.Wide() {
				t.Skip("the standard library is built once more only in wide runs")
			}
			p, err := fentry.Open(buildCgo(t, files, test.flag))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			kinds, at := map[string]record.Kind{}, map[string]uint64{}
			for i := range p.Sites {
				s := &p.Sites[i]
				switch {
				case s.Name == "called" && s.Reason != test.reason:
					t.Errorf("%s: %q, want %q", s.Name, s.Reason, test.reason)
				case s.Name == "runtime.etext":
					t.Error("a mark of the linker is a function")
				case test.reason != "" && s.Traceable() && s.Kind != record.KindGo:
					t.Errorf("%s can be traced", s.Name)
				}
				kinds[s.Name], at[s.Name] = s.Kind, s.Func
			}
			im, err := golang.Read(p.File)
			if err != nil {
				t.Fatal(err)
			}
			from, to := im.GoCode()
			for name, isGo := range map[string]bool{"called": false, "runtime.asmcgocall": true, "main.main": true} {
				if in := at[name] >= from && at[name] < to; at[name] == 0 || in != isGo {
					t.Errorf("%s at %#x: Go's code is from %#x to %#x", name, at[name], from, to)
				}
			}
			if _, ok := kinds["called"]; !ok {
				t.Error("called is no function")
			}
			if kinds["main.main"] != record.KindGo {
				t.Errorf("main.main: %v", kinds["main.main"])
			}
		})
	}
}
