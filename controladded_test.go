//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// ofFunctions are options that record some functions.
func ofFunctions(t *testing.T, patterns ...string) (o fentry.Options) {
	t.Helper()
	var err error
	if o.Plan.Select, err = record.NewFilter(patterns, nil); err != nil {
		t.Fatal(err)
	}
	o.Buffer = 32 << 20
	return o
}

// Functions that were not chosen when a recording began are recorded from the moment at which a filter or a root that has them is
// answered for, in the program, its threads and its children, and others still are not.
func TestControlAdded(t *testing.T) {
	for _, flags := range [][]string{{"-fpatchable-function-entry=5"}, {"-pg", "-mfentry"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			testSettingsOf(t, ofFunctions(t, "outer"), settingRounds{
				{"", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter += leaf", 0, map[string]int{"outer": 1, "leaf": 3}},
				{"set_ftrace_filter -= leaf", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter += l*f other", 0, map[string]int{"outer": 1, "leaf": 3, "other": 1}},
				{"set_ftrace_filter += nobody", 22, map[string]int{"outer": 1, "leaf": 3, "other": 1}},
				{"set_ftrace_filter = leaf", 0, map[string]int{"leaf": 3}},
				{"set_ftrace_filter =", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter = leaf, other; max_graph_depth = 1", 0, map[string]int{"leaf": 2, "other": 1}},
				{"set_ftrace_filter = outer leaf", 0, map[string]int{"outer": 1, "leaf": 1}},
				{"max_graph_depth = 0; set_graph_function = other", 0, nil},
				{"set_ftrace_filter =; set_graph_function = middle", 0, map[string]int{"middle": 1}},
			}, flags...)
		})
	}
	t.Run("plain", func(t *testing.T) {
		testSettingsOf(t, ofFunctions(t, "other"), settingRounds{
			{"", 0, map[string]int{"other": 1}},
			{"set_ftrace_filter += leaf", 0, map[string]int{"other": 1, "leaf": 3}},
			{"set_ftrace_filter += mid*", 0, map[string]int{"other": 1, "leaf": 3, "middle": 1}},
			{"set_ftrace_filter =", 0, map[string]int{"other": 1}},
		}, "-O0")
	})
}

// What is done at calls is done at those of functions, too, that were not chosen when the recording began.
func TestControlAddedDoing(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, ofFunctions(t, "outer"), "-fpatchable-function-entry=5", "-g")
			c.control("set_ftrace_filter += middle:traceoff")
			c.do("work 1")
			if got := c.control("tracing_on"); got != "0" {
				t.Errorf("tracing_on is %q behind middle:traceoff", got)
			}
			c.control("trigger =; tracing_on = 1; arguments = leaf@arg1/d; results = other")
			c.do("work 8")
			if _, err := c.ask("arguments = nobody"); err == nil {
				t.Error("arguments of nobody")
			}
			got := c.calls()
			for name, n := range map[string]uint64{"outer": 9, "leaf": 24, "other": 8, "middle": 0} {
				if got[name] != n {
					t.Errorf("%s: %d calls, want %d", name, got[name], n)
				}
			}
		})
	}
}

// What is added and taken away again and again is put into a process once, and the recorder remembers it once.
func TestControlAddedAgain(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, ofFunctions(t, "outer"), "-fpatchable-function-entry=5")
			look := func() (mappings, descriptors int, filter string) {
				maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
				if err != nil {
					t.Fatal(err)
				}
				fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid))
				if err != nil {
					t.Fatal(err)
				}
				all := strings.Count(string(maps), "\n") - strings.Count(string(maps), "fentry-pool") // what of that is mapped depends on the drainer
				return all, len(fds), c.control("set_ftrace_filter")
			}
			own := func() int { // some come and go
				fds, err := os.ReadDir("/proc/self/fd")
				if err != nil {
					t.Fatal(err)
				}
				return len(fds)
			}
			const times, some = 100, 20
			had := own()
			var mappings, descriptors int
			var filter string
			for i := range times {
				c.control("set_ftrace_filter += leaf other")
				c.control("settle")
				c.do("work 1")
				c.control("set_ftrace_filter -= other, leaf")
				c.control("settle")
				c.do("work 1")
				m, d, f := look()
				if i == 0 {
					mappings, descriptors, filter = m, d, f
				} else if m > mappings+some || d > descriptors || f != filter {
					t.Fatalf("%d times: %d mappings, %d descriptors, filter %q; once: %d, %d, %q", i+1, m, d, f, mappings, descriptors, filter)
				}
			}
			if has := own(); has > had+some {
				t.Errorf("the recorder has %d descriptors, and had %d", has, had)
			}
			got := c.calls()
			for name, n := range map[string]uint64{"outer": 2 * times, "leaf": 3 * times, "other": times, "middle": 0} {
				if got[name] != n {
					t.Errorf("%s: %d calls, want %d", name, got[name], n)
				}
			}
		})
	}
}

// buildAdded makes a library with two functions, one of which calls the other.
func buildAdded(t *testing.T) string {
	t.Helper()
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	source, library := filepath.Join(dir, "added.c"), filepath.Join(dir, "libadded.so.1")
	code := "static volatile int n;\n" +
		"__attribute__((noinline)) int library_inner(int i) { n += i; return n; }\n" +
		"int library_function(int i) { n++; int r = library_inner(i); n++; return r; }\n"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O0", "-fPIC", "-shared", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library
}

// Functions of libraries that were not chosen are added if the library is named in front of them, one after the other: of
// libraries that nobody records, and of those of which other functions are.
func TestControlAddedLibrary(t *testing.T) {
	type round struct {
		set   string
		fails bool
		calls []string // recorded
	}
	for kind, rounds := range map[string][]round{
		"left alone": {
			{"set_ftrace_filter += libadded:library_function", true, nil}, // is not there yet
			{"tracing_on = 1", false, nil},
			{"set_ftrace_filter += library_function", true, nil}, // the program has none
			{"set_ftrace_filter += libadded:library_function", false, []string{"library_function"}},
			{"set_ftrace_filter -= library_function", false, nil},
			{"set_ftrace_filter += libadded.so:library_*", false, []string{"library_function", "library_inner"}},
			{"set_ftrace_filter = libadded:library_inner", false, []string{"library_inner"}},
		},
		"recorded": {
			{"tracing_on = 1", false, []string{"library_function"}},
			{"set_ftrace_filter += libadded:library_inner", false, []string{"library_function", "library_inner"}},
			{"set_ftrace_filter -= library_inner", false, []string{"library_function"}},
			{"set_ftrace_filter = library_inner", false, []string{"library_inner"}},
		},
	} {
		for name, attached := range map[string]bool{"started": false, "attached": true} {
			t.Run(kind+" "+name, func(t *testing.T) {
				c, library := startAdded(t, attached, kind == "recorded")
				want := map[string]uint64{}
				for i, r := range rounds {
					if _, err := c.ask(r.set); (err != nil) != r.fails {
						t.Fatalf("%s: %v", r.set, err)
					}
					c.do("load %s %d", library, 1<<i)
					for _, name := range r.calls {
						want[name] += 1 << i
					}
				}
				got := c.calls()
				for _, name := range []string{"library_function", "library_inner"} {
					if got[name] != want[name] {
						t.Errorf("%s: %#b calls, want %#b", name, got[name], want[name])
					}
				}
			})
		}
	}
}

// Functions are added to a program whose threads do nothing but call functions that are recorded, and to one that forks all the
// time.
func TestControlAddedBusy(t *testing.T) {
	for _, how := range []string{"busy 8", "storm 4"} {
		for name, attached := range map[string]bool{"started": false, "attached": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				o := ofFunctions(t, "empty", "other")
				o.Policy, o.Flight = trace.PolicyOverwrite, &session.Flight{}
				c := startControlled(t, attached, o, "-fpatchable-function-entry=5")
				c.do(how)
				began := time.Now()
				for _, set := range []string{"set_ftrace_filter += leaf", "set_ftrace_filter = middle leaf", "trigger = slow@stacktrace"} {
					if got, err := c.ask(set); got != "" || err != nil {
						t.Errorf("%s: %q, %v", set, got, err)
					}
				}
				t.Log("answered after", time.Since(began))
				c.do("work 1")
				if got := c.calls(); got["leaf"] == 0 || got["middle"] == 0 {
					t.Error("no calls at the end:", got)
				}
			})
		}
	}
}

// Functions that are added to a recording that began with function are recorded as its tracer is by then.
func TestControlAddedTracer(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			o := ofFunctions(t, "outer")
			o.Plan.Flat = true
			c := startControlled(t, attached, o, "-fpatchable-function-entry=5")
			for i, line := range []string{"current_tracer = function_graph", "set_ftrace_filter += middle", "set_ftrace_filter += leaf",
				"current_tracer = function", "set_ftrace_filter += other", "current_tracer = function_graph"} {
				c.control(line)
				c.do("work %d", 1<<i)
			}
			got := c.calls()
			for name, n := range map[string]uint64{"outer": 0b111111, "middle": 0b111110, "leaf": 3 * 0b111100, "other": 0b110000} {
				if got[name] != n {
					t.Errorf("%s: %d calls, want %d", name, got[name], n)
				}
			}
			for _, in := range []struct {
				name, caller string
				n            uint64
			}{{"middle", "outer", 0b100110}, {"leaf", "middle", 0b100100}, {"leaf", "other", 0b100000}} {
				if got := c.inside(in.name, in.caller); got != in.n {
					t.Errorf("%d calls of %s inside of %s, want %d", got, in.name, in.caller, in.n)
				}
			}
		})
	}
}

// Functions are added to children, too, that were forked before, and are switched off, settled and taken out of all of them.
func TestControlAddedChildren(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, ofFunctions(t, "outer"), "-fpatchable-function-entry=5")
			const children = 3
			c.do("keep %d", children)
			waitFor(t, "children", func() int { return len(childrenOf(c.pid)) - children + 1 })
			for _, line := range []string{"set_ftrace_filter += leaf", "settle", "set_ftrace_filter += other", "settle",
				"set_ftrace_filter = outer", "settle", "set_ftrace_filter += leaf", "settle"} {
				c.control(line)
				time.Sleep(20 * time.Millisecond)
			}
			if !attached {
				return
			}
			if answer := c.control("detach unload"); answer != "" {
				t.Error(answer)
			}
			for _, pid := range append(childrenOf(c.pid), c.pid) {
				if maps, _, _ := state(t, pid); hasTracer(maps) {
					t.Errorf("the tracer is still in process %d", pid)
				}
			}
			c.do("work 1")
			if got := c.calls(); got["leaf"] == 0 || got["other"] == 0 {
				t.Error(got)
			}
		})
	}
}

// Functions are added to a process whose only thread waits in the tracer most of the time, until libraries are changed that it
// loads.
func TestControlAddedLoading(t *testing.T) {
	library := buildAdded(t)
	o := ofFunctions(t, "outer")
	o.Libraries = []string{filepath.Base(library)}
	c := startControlled(t, true, o, "-fpatchable-function-entry=5")
	c.do("reload %s", library)
	for _, line := range []string{"set_ftrace_filter += leaf", "set_ftrace_filter += other", "set_ftrace_filter += middle"} {
		c.control(line)
	}
	c.do("work 3")
	if got := c.calls(); got["leaf"] != 9 || got["other"] != 3 || got["middle"] != 3 {
		t.Error(got)
	}
}

// Functions are added to a process, and taken out of it, that one of several has forked which were attached to, and whose parent
// has ended.
func TestControlAddedOrphan(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	var all []*controlled
	var pids []int
	for range 2 {
		cmd := exec.Command(program)
		c := startTold(t, cmd)
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
			t.Fatal(err)
		}
		all, pids = append(all, c), append(pids, c.pid)
	}
	o, ready, over := ofFunctions(t, "outer"), make(chan struct{}), make(chan error, 1)
	o.Dir, o.Logf, o.Overhead, o.Live = filepath.Join(t.TempDir(), "fentry.data"), t.Logf, -1, func(*fentry.Live) { close(ready) }
	go func() {
		_, err := fentry.Attach(context.Background(), pids, o)
		over <- err
	}()
	select {
	case <-ready:
	case err := <-over:
		t.Fatal(err)
	}
	all[1].do("orphan 1")
	for _, line := range []string{"set_ftrace_filter += leaf", "settle", "detach unload"} {
		if _, err := session.Control(pids[0], line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// childrenOf are the children of a process that has one thread.
func childrenOf(pid int) (all []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(word); err == nil {
			all = append(all, child)
		}
	}
	return all
}

// Wherever a recorder is killed that adds functions to a program, switches them off again and detaches, the program goes on as if
// nothing had been: through exceptions, waits and forks (testdata/attach.cpp).
func TestKillRecorderAdds(t *testing.T) {
	testtool.Long(t)
	program, killer, recorder := buildAttached(t), buildFile(t, "testdata/killer.c"), buildRecorder(t)
	for name, args := range map[string][]string{"one thread": {"one"}, "busy": nil} {
		t.Run(name, func(t *testing.T) {
			stride := 431
			switch {
			case testtool.Wide():
				stride = 1
			case args == nil:
				stride = 1201
			}
			added := 0
			for n, steps := 1, 1<<30; n <= steps; n += stride {
				r := start(t, program, args...)
				pid := r.cmd.Process.Pid
				cmd := exec.Command(killer, fmt.Sprint("+", n), recorder, "record", "-q", "-o", filepath.Join(t.TempDir(), "fentry.data"),
					"--overhead", "no", "-F", "main", "-p", fmt.Sprint(pid))
				var out, message bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &message
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "recorder", func() int {
					if _, err := session.Control(pid, "ping"); err != nil {
						return 0
					}
					return 1
				})
				if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				for _, line := range []string{"set_ftrace_filter += _Z*", "set_ftrace_filter -= _Z*", "settle", "set_ftrace_filter += libstdc++:__cxa*", "detach"} {
					if _, err := session.Control(pid, line); err == nil {
						added++
					} else if errors.As(err, new(*session.ControlError)) {
						t.Errorf("%s: %v", line, err)
					}
				}
				_ = cmd.Wait()
				if _, err := fmt.Sscan(out.String(), &steps); err != nil || steps < n && message.Len() > 0 {
					t.Fatalf("the recorder: %v, %q, %s", err, &out, &message)
				}
				if steps == n { // killed
					steps = 1 << 30
				}
				if r.end(t, 7, "right\n"); t.Failed() {
					t.Fatalf("the recorder was killed at step %d", n)
				}
			}
			if added == 0 {
				t.Error("nothing was added")
			}
		})
	}
}

// Functions that were added to a library are added again if that is unloaded and loaded again, at the same place or at another one,
// whether anybody asks for something meanwhile or not.
func TestControlAddedReload(t *testing.T) {
	for _, kind := range []string{"left alone", "recorded"} {
		for name, attached := range map[string]bool{"started": false, "attached": true} {
			t.Run(kind+" "+name, func(t *testing.T) {
				c, library := startAdded(t, attached, kind == "recorded")
				c.do("load %s 1", library)
				c.control("set_ftrace_filter += libadded:library_inner")
				c.do("load %s 2", library)
				want := uint64(2)
				for i, elsewhere := range []int{0, 1, 0, 1} {
					c.do("unload %s %d", library, elsewhere)
					c.do("load %s 0", library)
					if i < 2 { // nobody asks for anything
						waitFor(t, "change of the library", func() int { return changedIn(t, c.pid, library, "library_inner") })
					}
					c.control("tracing_on = 1")
					c.do("load %s %d", library, 4<<i)
					want += 4 << i
				}
				got := c.calls()
				if got["library_inner"] != want {
					t.Errorf("library_inner: %#b calls, want %#b", got["library_inner"], want)
				}
				if kind == "recorded" && got["library_function"] != want+1 {
					t.Errorf("library_function: %#b calls, want %#b", got["library_function"], want+1)
				}
			})
		}
	}
}

// startAdded starts a controlled program, for a library that it loads later, of which a function is recorded or nothing.
func startAdded(t *testing.T, attached, recorded bool) (c *controlled, library string) {
	t.Helper()
	library, o := buildAdded(t), ofFunctions(t, "outer", "library_function")
	if recorded {
		o.Libraries = []string{"libadded"}
	}
	return startControlled(t, attached, o, "-fpatchable-function-entry=5", "-ldl"), library
}

// changedIn is 1 if the beginning of a function of a library is another one in a process than in the file, and else 0.
func changedIn(t *testing.T, pid int, library, function string) int {
	t.Helper()
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == function })
	j := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_LOAD && p.Vaddr <= symbols[i].Value && symbols[i].Value < p.Vaddr+p.Filesz
	})
	file, memory := make([]byte, 8), make([]byte, 8)
	if _, err := f.Progs[j].ReadAt(file, int64(symbols[i].Value-f.Progs[j].Vaddr)); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var at int64
		if !strings.HasSuffix(line, "/"+filepath.Base(library)+"\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x", &at); err != nil {
			t.Fatal(err)
		}
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		if _, err := mem.ReadAt(memory, at+int64(symbols[i].Value)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(file, memory) {
			return 1
		}
		return 0
	}
	return 0
}

// Where a program has no memory for functions that are to be added, that is refused at whatever step, what was done for them is undone,
// and when there is memory they are added.
func TestControlAddedMemory(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, ofFunctions(t, "outer"), "-fpatchable-function-entry=5")
			c.do("work 1")
			first, page := c.anonymous(), os.Getpagesize()
			refused, made := map[string]int{}, false
			for more := 0; !made && more < 64<<20; more += 3 * page {
				_, err := c.limited(uint64(more), "set_ftrace_filter += leaf")
				var wrong *session.ControlError
				switch {
				case err == nil:
					made = true
				case !errors.As(err, &wrong):
					t.Errorf("%d bytes: %v", more, err)
				default:
					refused[wrong.Why]++
					if now := c.anonymous(); now > first+4*page { // a table of the runtime's can have become larger
						t.Errorf("%d bytes: %v: it has %d bytes of memory, and had %d", more, err, now, first)
					}
				}
				c.do("work 1")
			}
			if !made || len(refused) == 0 {
				t.Errorf("refused: %v, made: %v", refused, made)
			}
			t.Log(refused)
			if got := c.calls(); got["leaf"] != 3 {
				t.Errorf("%d calls of leaf", got["leaf"])
			}
		})
	}
}

// Functions that the tracer in a process does not accept, here as there are no ids left for them, leave nothing in it, and are added
// when they can be.
func TestControlAddedRefused(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, ofFunctions(t, "outer"), "-fpatchable-function-entry=5")
			give := c.takeIDs()
			c.do("work 1")
			first := c.anonymous()
			for range 3 {
				var wrong *session.ControlError
				if _, err := c.ask("set_ftrace_filter += leaf"); !errors.As(err, &wrong) || !strings.Contains(wrong.Why, "does not accept more functions") {
					t.Errorf("without ids: %v", err)
				}
				if now := c.anonymous(); now > first+4*os.Getpagesize() { // a table of the runtime's can have become larger
					t.Errorf("it has %d bytes of memory, and had %d", now, first)
				}
				c.do("work 1")
			}
			give()
			c.control("set_ftrace_filter += leaf")
			c.do("work 1")
			if got := c.calls(); got["leaf"] != 3 || got["outer"] != 5 {
				t.Error(got)
			}
		})
	}
}

// anonymous is how many bytes of memory the program has that are no file's, nor the recorder's.
func (c *controlled) anonymous() (size int) {
	c.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var lo, hi int
		if f := strings.Fields(line); len(f) != 5 {
			continue
		} else if _, err := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); err != nil {
			c.t.Fatal(err)
		}
		size += hi - lo
	}
	return size
}

// takeIDs takes all ids of functions that are left in the recorder's buffer, until the function that it returns gives them back.
func (c *controlled) takeIDs() (give func()) {
	c.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	var pool int64
	for line := range strings.Lines(string(maps)) {
		var lo, hi, offset int64
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &lo, &hi, &perms, &offset); n == 4 && offset == 0 && strings.Contains(line, "fentry-pool") {
			pool = lo
		}
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if err != nil || pool == 0 {
		c.t.Fatalf("no buffer: %v\n%s", err, maps)
	}
	c.t.Cleanup(func() { mem.Close() })
	le := binary.LittleEndian
	read := func(at int64, n int) []byte {
		b := make([]byte, n)
		if _, err := mem.ReadAt(b, at); err != nil {
			c.t.Fatal(err)
		}
		return b
	}
	write := func(at int64, v uint64) {
		if _, err := mem.WriteAt(le.AppendUint64(nil, v), at); err != nil {
			c.t.Fatal(err)
		}
	}
	next := uint64(1)
	at := pool + int64(le.Uint32(read(pool+format.HRanges, 4)))
	for ; ; at += format.RangeEntry {
		v := le.Uint64(read(at+format.RFirst, 8))
		if v == 0 {
			break
		}
		next = v&(1<<32-1) + v>>32
	}
	const nobody = 1 << 60
	write(at+format.RImage, nobody)
	write(at+format.RFirst, next|(format.IDMax-next+1)<<32)
	return func() { write(at+format.RFirst, 0) }
}

// Functions whose first instructions have been changed to follow what a process executes are not added, which is said; others are.
func TestControlAddedForeign(t *testing.T) {
	c := startControlled(t, false, ofFunctions(t, "outer"), "-fpatchable-function-entry=5")
	answer, err := c.ask("set_ftrace_filter += libc.so.6:*execve libc.so.6:syscall leaf")
	if err != nil || !strings.Contains(answer, "execve") || strings.Contains(answer, "syscall") {
		t.Errorf("%q, %v", answer, err)
	}
	if answer, err := c.ask("set_ftrace_filter += other"); answer != "" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	c.do("work 2")
	if got := c.calls(); got["leaf"] != 6 || got["other"] != 2 || got["syscall"] != 2 {
		t.Error(got)
	}
}
