package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	a64 "github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// TestBacktraces compares the stacks that record --stack takes with what libgcc finds at the same calls, address by
// address, through handlers on both kinds of stack, recursion, moved instructions, aligned frames and those of any size. In
// programs that are traced in memory and in their file, with most functions traced and with only one.
func TestBacktraces(t *testing.T) {
	needFentry(t)
	plain, signing := "-fno-optimize-sibling-calls", "-mbranch-protection=standard"
	for _, m := range []struct {
		target
		all [][]string
	}{
		{target{}, [][]string{{"-O2", plain}, {"-O0"}, {"-O1", "-mstackrealign", "-fno-omit-frame-pointer"},
			{"-O2", "-fpatchable-function-entry=5", plain}, {"-O2", "-pg"}}},
		{arm64, [][]string{{"-O2", plain}, {"-O2", "-static", signing, plain}, {"-O0"}, {"-O1", "-fomit-frame-pointer", plain},
			{"-O2", signing, plain}, {"-O2", "-static-pie", plain}, {"-O2", "-fpatchable-function-entry=2", plain}, {"-O2", "-pg"}}},
	} {
		m.need(t)
		gcc := m.compiler(t, "gcc")
		if !testtool.Wide() {
			m.all = m.all[:2]
		}
		for _, flags := range m.all {
			t.Run(m.name()+strings.Join(flags, ""), func(t *testing.T) { testBacktraces(t, gcc, flags) })
		}
	}
}

// testBacktraces does so with a program that is compiled with some flags.
func testBacktraces(t *testing.T, gcc, flags []string) {
	dir := t.TempDir()
	prog, data := filepath.Join(dir, "prog"), filepath.Join(dir, "data")
	args := slices.Concat(gcc, []string{"-g", "-o", prog, "testdata/stacks/backtraces.c", "-lpthread"}, flags)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	record := []string{fentry, "record", "-o", data, "--overhead", "no", "--stack", "leaf"}
	compareStacks(t, data, 0, command{argv: append(slices.Clone(record), prog)})
	compareStacks(t, data, 0, command{argv: append(slices.Clone(record), "-F", "leaf", prog)})
	compareStacks(t, data, 0, command{argv: append(slices.Clone(record), "-T", "function", prog)})
	// In front of leaf's callers are the C library's function that makes the system call, and leaf.
	at := []string{fentry, "record", "-o", data, "--overhead", "no", "--stack-at", "getppid"}
	compareStacks(t, data, 2, command{argv: append(slices.Clone(at), "-F", "none", prog)})
	compareStacks(t, data, 2, command{argv: append(slices.Clone(at), "--syscalls", prog)})
	run(t, command{argv: []string{fentry, "patch", "--plain=all", "--stack", "leaf", "-o", prog + ".traced", prog}}).mustSucceed(t)
	compareStacks(t, data, 0, command{argv: []string{fentry, "record", "-o", data, prog + ".traced"}})
}

// TestBacktracesEnd: where a stack cannot be walked, the trace says why, and the program goes on: code without tables, and a
// process that would end if the walk made a system call. And a library that lies where another one was is walked by its own
// tables.
func TestBacktracesEnd(t *testing.T) {
	for _, tg := range []target{{}, arm64} {
		t.Run(tg.name(), func(t *testing.T) { testBacktracesEnd(t, tg) })
	}
}

func testBacktracesEnd(t *testing.T, tg target) {
	needFentry(t)
	tg.need(t)
	gcc := tg.compiler(t, "gcc")
	dir := t.TempDir()
	prog, data := filepath.Join(dir, "prog"), filepath.Join(dir, "data")
	for _, args := range [][]string{
		{"-o", prog, "testdata/stacks/robust.c"},
		{"-shared", "-fPIC", "-DROOM=64", "-o", filepath.Join(dir, "a.so"), "testdata/stacks/through.c"},
		{"-shared", "-fPIC", "-DROOM=640", "-o", filepath.Join(dir, "b.so"), "testdata/stacks/through.c"},
	} {
		args = slices.Concat(gcc, args, []string{"-g", "-O1", "-fno-stack-protector", "-fno-optimize-sibling-calls"})
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	record := []string{fentry, "record", "-o", data, "--overhead", "no", "-F", "leaf", "--stack", "leaf", prog}
	stacks := func(mode string) (out []string) {
		r := run(t, command{argv: append(slices.Clone(record), mode)})
		if r.status == "exit 77" {
			t.Skip("needs seccomp filters")
		}
		r.mustSucceed(t)
		tr, err := trace.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			if ev.Kind == trace.Stacktrace {
				out = append(out, fmt.Sprintf("%.40s %s", strings.Join(labels(tr, ev.Backtrace), " "), ev.Backtrace.End))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Run("unload", func(t *testing.T) {
		compareStacks(t, data, 0, command{argv: append(slices.Clone(record), "unload", dir)})
	})
	t.Run("jit", func(t *testing.T) {
		if s := stacks("jit"); len(s) != 1 || !strings.HasSuffix(s[0], " no-table") {
			t.Errorf("%q", s)
		}
	})
	if len(tg.emulator) > 0 {
		return // it has no filters
	}
	t.Run("filter", func(t *testing.T) {
		s := stacks("filter")
		// What the C library's function looks like nobody knew before, and what the program's own does need not be asked for.
		if len(s) != 6 || !strings.HasPrefix(s[4], "met filter main ") || !strings.HasSuffix(s[4], " outermost") ||
			!strings.HasPrefix(s[5], "compare ") || !strings.HasSuffix(s[5], " filtered") {
			t.Fatalf("%q", s)
		}
		for _, known := range s[:4] {
			if !strings.HasPrefix(known, "known filter main ") || !strings.HasSuffix(known, " outermost") {
				t.Errorf("%q", known)
			}
		}
	})
}

// compareStacks runs a program and compares the stacks of its trace, but for so many frames in front, with those that it
// has printed.
func compareStacks(t *testing.T, data string, front int, c command) {
	t.Helper()
	compareSaid(t, data, front, c, run(t, c).mustSucceed(t))
}

// compareSaid does so with a program that has been run.
func compareSaid(t *testing.T, data string, front int, c command, r *result) {
	t.Helper()
	var want [][]uint64
	for sc := bufio.NewScanner(strings.NewReader(r.stdout)); sc.Scan(); {
		var pcs []uint64
		for _, word := range strings.Fields(sc.Text())[1:] {
			pc, err := strconv.ParseUint(word, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			pcs = append(pcs, pc)
		}
		want = append(want, pcs)
	}
	tr, err := trace.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	// Of the program and its libraries, with what is added to them: the C library has 1.7 MiB, and 0.9 more on arm64 if all its
	// entries describe what thunks hide. The tracer's memory is hundreds of megabytes away.
	const largest = 4 << 20
	n, moved := 0, 0
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind != trace.Stacktrace {
			return nil
		}
		if n++; n > len(want) {
			return fmt.Errorf("more than %d stacks", len(want))
		}
		b, pcs := ev.Backtrace, want[n-1]
		if mode := map[bool]string{false: "full", true: "entry"}[front > 0]; b.Mode != mode {
			t.Errorf("%v: mode %s, want %s", c.argv, b.Mode, mode)
		}
		b.Frames = b.Frames[min(front, len(b.Frames)):]
		pcs = withoutThunks(b, pcs)
		if b.End != "outermost" || len(b.Frames) != len(pcs) {
			t.Errorf("%v: stack %d has %d frames, %s; libgcc finds %d:\n%v\n%x", c.argv, n, len(b.Frames), b.End, len(pcs), labels(tr, b), pcs)
			return nil
		}
		for i, f := range b.Frames {
			if f.PC == 0 && f.Func != (trace.FuncID{}) {
				moved++ // its address is that of moved instructions, for libgcc, too
			} else if f.PC != pcs[i] {
				t.Errorf("%v: stack %d, frame %d: %#x, libgcc finds %#x", c.argv, n, i, f.PC, pcs[i])
			}
			if f.File != nil && f.File.Size > largest {
				t.Errorf("%v: %s is %#x bytes large, which has the tracer's memory in it", c.argv, f.File.Path, f.File.Size)
			}
		}
		return nil
	})
	if err != nil || n != len(want) || n < 15 {
		t.Errorf("%v: %d stacks, want %d: %v", c.argv, n, len(want), err)
	}
}

// withoutThunks leaves out what libgcc has between traced functions of arm64 that sign their return address and their callers:
// thunks, in whose place there is nothing in the original.
func withoutThunks(b *trace.Backtrace, pcs []uint64) []uint64 {
	for i := 0; len(pcs) > len(b.Frames) && i < len(b.Frames); i++ {
		if pcs[i] != b.Frames[i].PC && pcs[i]%a64.BackSize == a64.ThunkRet {
			pcs = slices.Delete(pcs, i, i+1)
		}
	}
	return pcs
}

func labels(t *trace.Trace, b *trace.Backtrace) []string {
	var out []string
	for _, f := range b.Frames {
		out = append(out, strings.Join(t.FrameLabels(f), "+"))
	}
	return out
}
