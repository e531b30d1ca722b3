//go:build linux

package fentry_test

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A controlled program is recorded, and does what it is told (testdata/control.c).
type controlled struct {
	t     *testing.T
	pid   int
	dir   string
	in    io.WriteCloser
	out   *bufio.Scanner
	ended chan *fentry.Result
}

// startControlled starts the program, recorded from its start or attached to.
func startControlled(t *testing.T, attached bool, o fentry.Options, flags ...string) *controlled {
	t.Helper()
	return startControlledProgram(t, attached, o, exec.Command(buildFile(t, "testdata/control.c", flags...)))
}

// startControlledProgram is startControlled for another program, which says its process id first.
func startControlledProgram(t *testing.T, attached bool, o fentry.Options, cmd *exec.Cmd) *controlled {
	t.Helper()
	return startControlledWith(t, attached, o, t.Logf, cmd)
}

// startControlledWith is startControlledProgram with somebody who is told what the recorder says.
func startControlledWith(t *testing.T, attached bool, o fentry.Options, logf func(string, ...any), cmd *exec.Cmd) *controlled {
	t.Helper()
	c := &controlled{t: t, dir: filepath.Join(t.TempDir(), "fentry.data"), ended: make(chan *fentry.Result, 1)}
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, c.in, c.out = in, out, w, bufio.NewScanner(r)
	t.Cleanup(func() { r.Close() })
	o.Dir, o.Logf, o.Overhead = c.dir, logf, -1
	ready := make(chan struct{})
	o.Live = func(*fentry.Live) { close(ready) }
	run := func(do func() (*fentry.Result, error)) {
		over := make(chan struct{})
		t.Cleanup(func() { w.Close(); <-over }) // not before: it says what it does to the test
		go func() {
			defer close(over)
			res, err := do()
			if err != nil {
				t.Error(err)
			}
			c.ended <- res
		}()
	}
	if attached {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in.Close()
		out.Close()
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait() // not before: who waits takes the stops of a process that is traced
		})
	} else {
		run(func() (*fentry.Result, error) {
			defer out.Close()
			defer in.Close()
			return fentry.Run(context.Background(), cmd, o)
		})
	}
	t.Cleanup(func() { w.Close() })
	if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
		t.Fatal(err)
	}
	if attached {
		run(func() (*fentry.Result, error) { return fentry.Attach(context.Background(), []int{c.pid}, o) })
	}
	select {
	case <-ready:
	case res := <-c.ended:
		t.Fatalf("the recorder has ended: %+v", res)
	}
	return c
}

// startTold starts a program that does what it is told.
func startTold(t *testing.T, cmd *exec.Cmd) *controlled {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &controlled{t: t, in: in, out: bufio.NewScanner(out)}
}

// line is the next line that the program says.
func (c *controlled) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatal("the program says nothing any more")
	}
	return c.out.Text()
}

// do has the program do something.
func (c *controlled) do(format string, args ...any) {
	c.t.Helper()
	fmt.Fprintf(c.in, format+"\n", args...)
	if got := c.line(); got != "done" {
		c.t.Fatalf("the program says %q", got)
	}
}

// control sends a line to the recorder.
func (c *controlled) control(line string) string {
	c.t.Helper()
	answer, err := c.ask(line)
	if err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return answer
}

// ask does so, until somebody answers.
func (c *controlled) ask(line string) (string, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		answer, err := session.Control(c.pid, line)
		if !errors.Is(err, session.ErrNotRecorded) || time.Now().After(deadline) {
			return answer, err
		}
	}
}

// calls ends the program, and returns how often which functions were recorded.
func (c *controlled) calls() map[string]uint64 {
	c.t.Helper()
	c.in.Close()
	res := <-c.ended
	if res == nil || res.WriteError != nil || res.BadChunks != 0 || res.Lost != 0 {
		c.t.Fatalf("%+v", res)
	}
	tr, err := trace.Open(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) > 0 {
		c.t.Error(tr.Problems)
	}
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, s := range rows {
		calls[s.Name] += s.Calls
	}
	return calls
}

// Each setting has its effect from the moment at which it is answered for, in programs that were started and in those that
// were attached to; a set that is refused changes nothing. In round r each function is called 1<<r times, so the sum says
// in which rounds it was recorded.
func TestControlSettings(t *testing.T) {
	testSettings(t, fentry.Options{}, settingRounds{
		{"", 0, map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}},
		{"set_ftrace_filter = middle", 0, map[string]int{"middle": 1}},
		{"set_ftrace_filter += lea*", 0, map[string]int{"middle": 1, "leaf": 3}},
		{"set_ftrace_filter -= middle", 0, map[string]int{"leaf": 3}},
		{"set_ftrace_filter = ; set_ftrace_notrace = leaf, other", 0, map[string]int{"outer": 1, "middle": 1}},
		{"set_ftrace_notrace = ; set_ftrace_filter = middle nobody", 51, map[string]int{"outer": 1, "middle": 1}},
		{"set_ftrace_notrace =; set_graph_function = middle", 0, map[string]int{"middle": 1, "leaf": 1}},
		{"set_graph_function = other; max_graph_depth = 1", 0, map[string]int{"other": 1}},
		{"max_graph_depth = 0", 0, map[string]int{"other": 1, "leaf": 1}},
		{"set_graph_function =", 0, map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}},
		{"tracing_thresh = 1h", 0, nil}, // less may be a thread that waits for a processor
		{"tracing_thresh = 1ms; set_ftrace_filter = slow", 0, nil},
		{"tracing_thresh = x; tracing_on = 0", 18, nil},
		{"tracing_thresh = 0; tracing_on = 0; set_ftrace_filter =", 0, nil},
		{"tracing_on = 1; current_tracer = nop", 0, nil},
		{"current_tracer = function_graph", 0, map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}},
	})
}

// The tracer is changed while calls are open, with filters and limits beside it.
func TestControlTracer(t *testing.T) {
	testSettings(t, fentry.Options{}, settingRounds{
		{"current_tracer = function; set_ftrace_filter = middle, leaf", 0, map[string]int{"middle": 1, "leaf": 3}},
		{"current_tracer = function_graph; max_graph_depth = 1; set_ftrace_filter =; set_graph_function = outer other", 0, map[string]int{"outer": 1, "other": 1}},
		{"current_tracer = function", 0, map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}},
		{"current_tracer = count", 18, map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}},
		{"current_tracer = function_graph", 0, map[string]int{"outer": 1, "other": 1}},
	})
}

// Recordings without a clock, and those that begin with function and are prepared for more, can change their tracer, too: what
// is called inside of others is, as long as it is function_graph. Triggers are among what can be set then.
func TestControlTracers(t *testing.T) {
	for name, o := range map[string]patch.Options{"function": {Flat: true}, "clockless": {NoClock: true}} {
		for way, attached := range map[string]bool{"started": false, "attached": true} {
			t.Run(name+", "+way, func(t *testing.T) {
				c := startControlled(t, attached, fentry.Options{Plan: o, Buffer: 32 << 20}, "-fpatchable-function-entry=5")
				tracer := "function_graph"
				if o.Flat {
					tracer = "function"
				}
				if got := c.control("current_tracer"); got != tracer {
					t.Errorf("the tracer is %q", got)
				}
				var calls, inside uint64
				for i, next := range []string{"", "function_graph", "function", "nop", "function_graph", "function"} {
					if next != "" {
						tracer = next
						c.control("current_tracer = " + tracer)
					}
					c.do("%s %d", []string{"work", "thread", "fork"}[i%3], 1<<i)
					if tracer != "nop" {
						calls += 1 << i
					}
					if tracer == "function_graph" {
						inside += 1 << i
					}
				}
				_, err := c.ask("max_graph_depth = 1")
				if (err != nil) != o.NoClock {
					t.Errorf("a depth: %v", err)
				}
				if err == nil {
					c.control("current_tracer = function_graph")
					c.do("work 64")
					c.control("max_graph_depth = 0")
				}
				c.control("current_tracer = function; trigger = other@traceoff")
				c.do("work 128")
				got := c.calls()
				// The first call of work makes tracing pause: at its end it calls other.
				if want := calls + 1; got["middle"] != want || got["leaf"] != 3*want-1 {
					t.Errorf("%#b, %#b calls; want %#b", got["middle"], got["leaf"], want)
				}
				if got := c.inside("middle", "outer"); got != inside {
					t.Errorf("%#b calls are inside of others; want %#b", got, inside)
				}
			})
		}
	}
}

// inside is how many calls of a function are recorded inside of its caller, once the program has ended.
func (c *controlled) inside(name, caller string) (n uint64) {
	c.t.Helper()
	tr, err := trace.Open(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	defer tr.Close()
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry && tr.Name(ev.Func) == name && tr.Name(ev.Caller) == caller {
			n++
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// What a recording that began with function refuses keeps nothing else from being set.
func TestControlFunction(t *testing.T) {
	c := startControlled(t, false, fentry.Options{Plan: patch.Options{Tracer: patch.Function}}, "-fpatchable-function-entry=5")
	for _, impossible := range []string{"current_tracer = function_graph", "max_graph_depth = 2", "trigger = other@traceoff"} {
		if _, err := c.ask(impossible); err == nil {
			t.Errorf("%s: done", impossible)
		}
	}
	c.control("set_ftrace_filter = leaf")
	c.control("tracing_on = 1")
	c.do("work 2")
	if got := c.calls(); got["leaf"] != 6 || got["outer"] != 0 {
		t.Errorf("%v", got)
	}
}

// Functions that are available begin switched off, and without jumps soon, and are switched on like those that were chosen
// at the beginning.
func TestControlAvailable(t *testing.T) {
	var o fentry.Options
	for filter, patterns := range map[**record.Filter][]string{&o.Plan.First: {"outer"}, &o.Plan.Select: {"outer", "other", "leaf"}} {
		var err error
		if *filter, err = record.NewFilter(patterns, nil); err != nil {
			t.Fatal(err)
		}
	}
	testSettings(t, o, settingRounds{
		{"", 0, map[string]int{"outer": 1}},
		{"max_graph_depth = 1", 0, map[string]int{"outer": 1}},
		{"set_ftrace_filter += other", 0, map[string]int{"outer": 1, "other": 1}},
		{"max_graph_depth = 0; set_ftrace_filter += printf", 43, map[string]int{"outer": 1, "other": 1}},
		{"set_ftrace_filter = leaf", 0, map[string]int{"leaf": 3}},
		{"set_ftrace_filter =; max_graph_depth = 0", 0, map[string]int{"outer": 1, "other": 1, "leaf": 3}},
	})
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, o, "-fpatchable-function-entry=5")
			if got := c.control("set_ftrace_filter"); got != "outer" {
				t.Errorf("set_ftrace_filter is %q", got)
			}
			site := func(name string) string { return string(c.code(name)[:5]) }
			off := site("middle") // is not prepared
			for deadline := time.Now().Add(time.Minute); site("other") != off; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("other begins with %x", site("other"))
				}
			}
			if on := site("outer"); on == off {
				t.Errorf("outer begins with %x", on)
			}
			c.in.Close()
			<-c.ended
		})
	}
}

// settingRounds are what is set, and what has to be recorded then.
type settingRounds []struct {
	set    string
	column int            // of the error; 0: there is none
	calls  map[string]int // recorded, for each time that work calls its functions
}

// testSettings makes settings in programs that were started and in those that were attached to.
func testSettings(t *testing.T, o fentry.Options, rounds settingRounds) {
	o.Buffer = 32 << 20
	testSettingsOf(t, o, rounds, "-fpatchable-function-entry=5")
}

// testSettingsOf does so in programs that are compiled with flags.
func testSettingsOf(t *testing.T, o fentry.Options, rounds settingRounds, flags ...string) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, o, flags...)
			want := map[string]uint64{}
			for i, r := range rounds {
				if r.set != "" {
					_, err := c.ask(r.set)
					var wrong *session.ControlError
					if err == nil != (r.column == 0) || r.column != 0 && (!errors.As(err, &wrong) || wrong.Column != r.column) {
						t.Fatalf("%s: %+v", r.set, err)
					}
				}
				how := []string{"work", "thread", "fork"}[i%3]
				c.do("%s %d", how, 1<<i)
				for name, n := range r.calls {
					want[name] += uint64(n) << i
				}
				if strings.HasPrefix(r.set, "tracing_thresh = 1ms") {
					c.do("slow")
					want["slow"] = 1
				}
			}
			got := c.calls()
			for _, name := range []string{"outer", "middle", "leaf", "other", "slow"} {
				if got[name] != want[name] {
					t.Errorf("%s: %#b calls, want %#b", name, got[name], want[name])
				}
			}
		})
	}
}

// Functions that are off run without jumps, and with them when they are on again, however often that changes and whoever
// calls them meanwhile.
func TestControlSites(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20}, "-fpatchable-function-entry=5")
			want := map[string]uint64{}
			code := func() string { return string(c.code("outer")) }
			traced := code()
			var off, all int
			for i := range 12 {
				if i%2 == 0 {
					c.control("set_ftrace_filter = leaf")
					if _, err := fmt.Sscanf(c.control("settle"), "%d of %d", &off, &all); err != nil || off == 0 || off >= all {
						t.Errorf("%d of %d functions are off: %v", off, all, err)
					}
					if nops := code(); nops == traced {
						t.Errorf("outer begins with %x as ever", nops)
					}
				} else {
					c.control("set_ftrace_filter =")
					if now := code(); now != traced {
						t.Errorf("outer begins with %x, want %x", now, traced)
					}
					want["outer"] += 1 << i
				}
				c.do("%s %d", []string{"work", "thread", "fork"}[i%3], 1<<i)
				want["leaf"] += 3 << i
			}
			got := c.calls()
			for name, n := range want {
				if got[name] != n {
					t.Errorf("%s: %#b calls, want %#b", name, got[name], n)
				}
			}
		})
	}
}

// A function that is on again while a thread is in the middle of where its calls are caught is not recorded yet, which whoever
// has asked is told, and is recorded when the thread is there no more, without anybody asking.
func TestControlHeld(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20}, "-fpatchable-function-entry=5")
			code := func() string { return string(c.code("outer")) }
			traced := code()
			c.control("set_ftrace_filter = leaf")
			c.control("settle")
			c.do("hold 1")
			want := fmt.Sprintf("process %d: not recorded yet: outer", c.pid)
			if got := c.control("set_ftrace_filter ="); got != want {
				t.Fatalf("the answer is %q, want %q", got, want)
			}
			if got := c.control("settle"); !strings.HasSuffix(got, "; "+want) || code() == traced {
				t.Errorf("settled: %q; outer begins with %x", got, code())
			}
			c.do("work 1")
			c.do("hold 0")
			for deadline := time.Now().Add(time.Minute); code() != traced; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("outer begins with %x, want %x", code(), traced)
				}
			}
			c.do("work 2")
			if got := c.control("settle"); strings.Contains(got, "recorded") {
				t.Errorf("settled: %q", got)
			}
			if got := c.calls()["outer"]; got != 2 {
				t.Errorf("%#b calls of outer, want 0b10", got)
			}
		})
	}
}

// Of many threads that do nothing but call empty functions always one is in the tracer, and each nearly always. What is
// recorded of them changes all the same, at once.
func TestControlBusy(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20, Policy: trace.PolicyOverwrite,
				Flight: &session.Flight{}}, "-fpatchable-function-entry=5")
			c.do("busy 8")
			for _, set := range []string{"max_graph_depth = 1", "max_graph_depth = 0; trigger = other@depth=1", "set_graph_function = other",
				"current_tracer = function", "current_tracer = function_graph; set_graph_function = ; trigger = empty@depth=1",
				"trigger = ", "trigger = empty@traceoff:1; tracing_thresh = 1ms", "tracing_on = 1; tracing_thresh = 0; trigger ="} {
				if got := c.control(set); got != "" {
					t.Errorf("%s: %q", set, got)
				}
			}
			c.do("work 1")
			if got := c.calls(); got["leaf"] == 0 || got["empty"] == 0 {
				t.Error("no calls at the end:", got)
			}
		})
	}
}

// A program that forks all the time is changed while it does: nobody waits until there is no new process.
func TestControlForks(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20, Policy: trace.PolicyOverwrite,
				Flight: &session.Flight{}}, "-fpatchable-function-entry=5")
			c.do("storm 4")
			answered, began := make(chan error, 1), time.Now()
			go func() {
				_, err := c.ask("max_graph_depth = 1; set_ftrace_filter = other")
				answered <- err
			}()
			select {
			case err := <-answered:
				if t.Log("answered after", time.Since(began)); err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("nobody answers")
			}
			c.calls()
		})
	}
}

// code is the code of a function of the program, as it runs.
func (c *controlled) code(name string) []byte {
	c.t.Helper()
	exe := fmt.Sprintf("/proc/%d/exe", c.pid)
	f, err := elf.Open(exe)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		c.t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	path, err := os.Readlink(exe)
	if err != nil {
		c.t.Fatal(err)
	}
	var base uint64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), path) && f.Type == elf.ET_DYN {
			fmt.Sscanf(line, "%x-", &base)
			first := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD })
			base -= f.Progs[first].Vaddr
			break
		}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	defer mem.Close()
	for _, s := range symbols {
		if s.Name == name {
			b := make([]byte, s.Size)
			if _, err := mem.ReadAt(b, int64(base+s.Value)); err != nil {
				c.t.Fatal(err)
			}
			return b
		}
	}
	c.t.Fatal("no such function")
	return nil
}

// Who knows perf's words and FIFOs has them followed, and is told when that is done.
func TestControlPipe(t *testing.T) {
	dir := t.TempDir()
	fifo := func(name string) (ours *bufio.ReadWriter, theirs *os.File) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		var files [2]*os.File
		for i := range files {
			fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			files[i] = os.NewFile(uintptr(fd), name)
		}
		t.Cleanup(func() { files[0].Close() })
		return bufio.NewReadWriter(bufio.NewReader(files[0]), bufio.NewWriter(files[0])), files[1]
	}
	commands, theirs := fifo("commands")
	answers, back := fifo("answers")
	said := make(chan string, 10)
	c := startControlledWith(t, false, fentry.Options{Buffer: 8 << 20, Pipe: &session.ControlPipe{Commands: theirs, Answers: back}},
		func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
		exec.Command(buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")))
	say := func(line, want string) {
		t.Helper()
		fmt.Fprintln(commands, line)
		if err := commands.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	say("ping", "ack")
	say("disable", "ack")
	say("evlist -v", "ack")
	if got := <-said; !strings.HasPrefix(got, "tracing_on = 0; current_tracer = function_graph; ") {
		t.Errorf("a list of %q", got)
	}
	c.do("work 1")
	say("tracing_on = 2", "error 14: 0 or 1")
	say(strings.Repeat("x", 70_000), "error 65536: a line has at most 65536 bytes")
	c.do("work 2")
	say("tracing_on", "ack 0")
	say("enable", "ack")
	c.do("work 4")
	say("stop", "ack")
	if res := <-c.ended; res == nil || res.Ended {
		t.Fatalf("%+v", res)
	} else {
		c.ended <- res
	}
	if got := c.calls()["outer"]; got != 4 {
		t.Errorf("%#b calls, want 0b100", got)
	}
}

// Who asks for it is told when the tracer's code has been taken out of a process, or that it stays and why.
func TestControlUnload(t *testing.T) {
	tracer := func(c *controlled) bool {
		maps, _, _ := state(t, c.pid)
		return hasTracer(maps)
	}
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{}, "-fpatchable-function-entry=5")
			c.do("thread 1000")
			if !tracer(c) {
				t.Error("the tracer is not where it is looked for")
			}
			if answer := c.control("detach unload"); answer != "" || tracer(c) {
				t.Errorf("%q, and the tracer is still there: %v", answer, tracer(c))
			}
			c.do("work 1000")
			if got := c.calls()["outer"]; got != 1000 {
				t.Errorf("%d calls, want 1000", got)
			}
		})
	}
	c := startControlled(t, false, fentry.Options{Libraries: []string{"libc.so*"}}, "-fpatchable-function-entry=5")
	var wrong *session.ControlError
	if _, err := c.ask("detach unload"); !errors.As(err, &wrong) || !strings.Contains(wrong.Why, "libraries are traced") || !tracer(c) {
		t.Errorf("%v", err)
	}
	c.do("work 1000")
	if res := <-c.ended; res == nil || len(res.Stays) != 1 {
		t.Errorf("%+v", res)
	}
}

// System calls are left out, and recorded again, while the program makes them: n times 1<<4r in round r.
func TestControlSyscalls(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20, Syscalls: true, Libraries: []string{"libc"}},
				"-fpatchable-function-entry=5")
			for r, set := range []string{"syscalls = 1", "syscalls = 0", "syscalls = 1", "tracing_on = 0"} {
				c.control(set)
				c.do("work %d", 1<<(4*r))
			}
			c.in.Close()
			<-c.ended
			tr, err := trace.Open(c.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			// At each change its only thread waits for the next line.
			calls, open := 0, ""
			err = tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
				switch {
				case e.Func.Image != trace.SyscallImage:
				case e.Kind == trace.Entry && open == "":
					if open = tr.Name(e.Func); open == "sys_getppid" {
						calls++
					}
				case e.Kind == trace.Exit && open == tr.Name(e.Func):
					open = ""
				default:
					t.Errorf("%v of %s in %q", e.Kind, tr.Name(e.Func), open)
				}
				return nil
			})
			if err != nil || calls != 0x101 || open != "" {
				t.Errorf("%#x system calls, want 0x101; %q is open: %v", calls, open, err)
			}
		})
	}
}

// What is done at calls is changed like all else while the program runs: in all of its threads and children, with counts
// that go on while something else changes, and none of it where a set is refused.
func TestControlTriggers(t *testing.T) {
	all := map[string]int{"outer": 1, "middle": 1, "leaf": 3, "other": 1}
	rounds := []struct {
		set    string
		column int // of the error; 0: there is none
		// recorded for each time that work calls its functions, and besides only once
		calls, once map[string]int
		on          string // tracing_on afterwards
	}{
		{"trigger = ", 0, all, nil, "1"},
		// The call at which it pauses is not recorded.
		{"set_ftrace_filter += other:traceoff:2", 0, nil, map[string]int{"outer": 1, "middle": 1, "leaf": 2}, "0"},
		{"tracing_on = 1; trigger += slow@stacktrace", 0, nil, map[string]int{"outer": 1, "middle": 1, "leaf": 2}, "0"},
		{"set_ftrace_notrace = outer", 0, nil, nil, "0"}, // nobody has it go on
		{"tracing_on = 1", 0, map[string]int{"middle": 1, "leaf": 3, "other": 1}, nil, "1"},
		{"set_ftrace_notrace =; set_ftrace_filter += !other:traceoff:0; trigger += middle@depth=1", 0,
			map[string]int{"outer": 1, "middle": 1, "leaf": 2, "other": 1}, nil, "1"},
		{"trigger = other@traceof", 17, map[string]int{"outer": 1, "middle": 1, "leaf": 2, "other": 1}, nil, "1"},
		{"trigger =; trigger = nobody@traceoff", 22, map[string]int{"outer": 1, "middle": 1, "leaf": 2, "other": 1}, nil, "1"},
		{"trigger -= other@traceoff", 12, map[string]int{"outer": 1, "middle": 1, "leaf": 2, "other": 1}, nil, "1"},
		// Functions that are not recorded have triggers all the same, and leave nothing.
		{"trigger =; set_ftrace_filter = middle outer:traceoff", 0, nil, nil, "0"},
		{"trigger = middle@traceon:1", 0, map[string]int{"middle": 1}, nil, "1"},
		{"trigger =; set_ftrace_filter =", 0, all, nil, "1"},
	}
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20}, "-fpatchable-function-entry=5")
			want := map[string]uint64{}
			for i, r := range rounds {
				_, err := c.ask(r.set)
				var wrong *session.ControlError
				if err == nil != (r.column == 0) || r.column != 0 && (!errors.As(err, &wrong) || wrong.Column != r.column) {
					t.Fatalf("%s: %+v", r.set, err)
				}
				how := []string{"work", "thread", "fork"}[i%3]
				if r.once != nil || r.on == "0" {
					how = "work" // a child's tracing is its own
				}
				c.do("%s %d", how, 1<<i)
				for name, n := range r.calls {
					want[name] += uint64(n) << i
				}
				for name, n := range r.once {
					want[name] += uint64(n)
				}
				if got := c.control("tracing_on"); got != r.on {
					t.Errorf("%s: tracing_on is %s, want %s", r.set, got, r.on)
				}
			}
			got := c.calls()
			for _, name := range []string{"outer", "middle", "leaf", "other"} {
				if got[name] != want[name] {
					t.Errorf("%s: %#b calls, want %#b", name, got[name], want[name])
				}
			}
		})
	}
}

// Arguments and results are captured, and not any more, while the program runs, with their types; of a function always the
// same.
func TestControlArguments(t *testing.T) {
	rounds := []struct {
		set          string
		column       int // of the error; 0: there is none
		leaf, middle int // arguments and results captured for each time that work calls its functions
	}{
		{"arguments =", 0, 0, 0},
		{"arguments = leaf@arg1/x; results = nobody", 36, 0, 0}, // nobody has heard of it
		{"arguments += leaf", 0, 3, 0},
		{"results = middle@retval", 0, 3, 1},
		{"arguments =", 0, 0, 1},
		{"trigger = slow@stacktrace; arguments = nobody", 40, 0, 1},
		{"arguments = nobody", 13, 0, 1},
		{"results += leaf; arguments += leaf", 0, 3, 1},
		{"set_ftrace_filter = middle", 0, 3, 1}, // what is captured is recorded
		{"results = ; arguments = ; set_ftrace_filter = leaf", 0, 0, 0},
	}
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20}, "-fpatchable-function-entry=5", "-g")
			want := map[string]uint64{}
			for i, r := range rounds {
				_, err := c.ask(r.set)
				var wrong *session.ControlError
				if err == nil != (r.column == 0) || r.column != 0 && (!errors.As(err, &wrong) || wrong.Column != r.column) {
					t.Fatalf("%s: %+v", r.set, err)
				}
				c.do("%s %d", []string{"work", "thread", "fork"}[i%3], 1<<i)
				sum := uint64(1) << i * (1<<i - 1) / 2 // of the numbers that are passed
				want["leaf"] += uint64(r.leaf) << i
				want["sum"] += uint64(r.leaf) * sum
				want["middle"] += uint64(r.middle) << i
				want["results"] += uint64(r.middle) * (sum + 1<<i)
			}
			for set, why := range map[string]string{
				"arguments = leaf@nobody":         `leaf has no parameter "nobody"; it has n`,
				"results = middle middle@nobody":  `middle has no parameter "nobody"; it has n`,
				"arguments += leaf leaf@nobody>1": `leaf: nobody: no such argument; it has n`,
			} {
				if _, err := c.ask(set); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: %v, want %s", set, err, why)
				}
			}
			c.in.Close()
			<-c.ended
			tr, err := trace.Open(c.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			got := map[string]uint64{}
			err = tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
				name := tr.Name(e.Func)
				if e.Kind == trace.Entry && e.Args != nil && name == "leaf" {
					got[name]++
					got["sum"] += e.Args.Words[0]
				}
				if e.Kind == trace.Exit && e.Result != nil && name == "middle" {
					got[name]++
					got["results"] += e.Result.Words[0] & 0xffffffff
				}
				return nil
			})
			for name, n := range want {
				if err != nil || got[name] != n {
					t.Errorf("%s: %d, want %d: %v", name, got[name], n, err)
				}
			}
		})
	}
}

// Arguments, results and errno of a library's functions, and of others, can be asked for while it is recorded, though it is a patched copy whose plan nobody
// has kept.
func TestControlArgumentsCopy(t *testing.T) {
	dir := t.TempDir()
	source, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "libcontrolled.so")
	code := "#include <errno.h>\nint library_helper(int n) { return n * 3; }\nint library_fails(int n) { errno = n; return -1; }\n" +
		"int library_function(int n) { library_fails(n + 1); return library_helper(n) + 1; }\n"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	testtool.Need(t, "gcc")
	out, err := exec.Command("gcc", "-O1", "-fno-inline", "-g", "-shared", "-fPIC", "-fpatchable-function-entry=5", "-o", library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, kept := range []string{"made now", "from the cache"} {
		t.Run(kept, func(t *testing.T) {
			o := fentry.Options{Buffer: 32 << 20, Libraries: []string{"libcontrolled*"}}
			c := startControlled(t, false, o, "-fpatchable-function-entry=5")
			c.do("load %s 3", library)
			c.control("arguments = library_function")
			c.do("load %s 4", library)
			c.control("results = library_helper")
			c.do("load %s 5", library)
			c.control("arguments =; results = *fails@errno")
			c.do("load %s 6", library)
			c.do("fail 7")
			c.control("results =")
			c.do("load %s 7", library)
			c.do("fail 8")
			c.in.Close()
			<-c.ended
			tr, err := trace.Open(c.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			got := map[string]int{}
			err = tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
				name := tr.Name(e.Func)
				if e.Kind == trace.Entry && name == "library_function" {
					got["calls"]++
				}
				if e.Kind == trace.Entry && e.Args != nil {
					got[name+" arguments"]++
					got["passed"] += int(e.Args.Words[0])
				}
				if e.Kind == trace.Exit && e.Result != nil && len(e.Result.Words) == 2 {
					got[name+" errno"] += int(e.Result.Words[0] & 0xffffffff)
				} else if e.Kind == trace.Exit && e.Result != nil {
					got[name+" results"]++
					got["returned"] += int(e.Result.Words[0] & 0xffffffff)
				}
				return nil
			})
			want := map[string]int{"calls": 3 + 4 + 5 + 6 + 7, "library_fails errno": 1 + 2 + 3 + 4 + 5 + 6, "fails errno": 7, "library_function arguments": 4 + 5, "passed": 6 + 10,
				"library_helper results": 5, "returned": 30}
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%v, want %v: %v", got, want, err)
			}
		})
	}
}
