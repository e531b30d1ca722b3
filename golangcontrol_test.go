package fentry_test

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// Functions of Go programs that are off run their own code, and are recorded again when they are on, however often that
// changes, and wherever the goroutines are that call them all the time.
func TestGoControl(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	for _, c := range []struct {
		name, flag string
		procs      int
	}{{"one processor", "-ldflags=-w", 1}, {"static", "-ldflags=-w", 4}, {"pie", "-buildmode=pie", 4}} {
		t.Run(c.name, func(t *testing.T) {
			prog := filepath.Join(t.TempDir(), "gocontrol")
			build := exec.Command("go", "build", c.flag, "-o", prog, "./testdata/gocontrol")
			build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			testGoControl(t, prog, c.procs)
		})
	}
}

func testGoControl(t *testing.T, prog string, procs int) {
	cmd := exec.Command(prog)
	cmd.Env = append(cmd.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	own := fileCode(t, prog, "main.pick")
	only, err := record.NewFilter([]string{"main.*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := startControlledProgram(t, false, fentry.Options{Buffer: 32 << 20, Plan: patch.Options{Select: only}}, cmd)
	traced := string(c.code("main.pick"))
	if own == traced {
		t.Fatal("a function that is recorded has its own code")
	}
	// It is so once no goroutine stands where it matters, which the recorder tries again and again.
	until := func(what string, done func(settled string) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			settled := c.control("settle")
			if done(settled) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q; main.pick is %x", what, settled, c.code("main.pick"))
			}
		}
	}
	// A thread overwrites chunks of its own alone, and can have got a few only, as those that came before it have the others:
	// the rounds that are not busy make so few events that they fit into one.
	const busy, rounds = 6, 10
	want := uint64(0)
	for i := range rounds {
		if i == busy {
			c.do("pause")
		}
		c.control([]string{"tracing_on = 0", "set_ftrace_filter = main.main"}[i%2])
		until("off", func(settled string) bool {
			var off, all int
			_, err := fmt.Sscanf(settled, "%d of %d", &off, &all)
			return err == nil && off > 0 && (off == all || i%2 == 1) && string(c.code("main.pick")) == own
		})
		if i < busy {
			c.do("check 5")
		}
		c.do("work 1000")
		c.control([]string{"tracing_on = 1", "set_ftrace_filter ="}[i%2])
		until("on", func(settled string) bool {
			return !strings.Contains(settled, "recorded") && string(c.code("main.pick")) == traced
		})
		if i < busy {
			c.do("check 5")
		}
		c.do("work %d", 1<<i)
		want += 1 << i
	}
	newest := func(n uint64) uint64 { return n &^ (1<<busy - 1) }
	if got := c.calls()["main.counted"]; newest(got) != newest(want) {
		t.Errorf("%#b calls of main.counted, want %#b, or those of the last %d rounds", got, want, rounds-busy)
	}
}

// fileCode is the code that a function has in its file.
func fileCode(t *testing.T, prog, name string) string {
	t.Helper()
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name {
			b := make([]byte, s.Size)
			in := f.Sections[s.Section]
			if _, err := in.ReadAt(b, int64(s.Value-in.Addr)); err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
	t.Fatalf("no symbol %s", name)
	return ""
}
