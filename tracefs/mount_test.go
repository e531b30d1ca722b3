//go:build linux

package tracefs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
	"github.com/fentry-dev/fentry/tracefs"
)

// The files must be used by another process than the one that serves them: a thread that waits for its own process cannot
// be ended. So the test's program serves in a child.

// serve is a child of the test: it mounts a process's tracefs until its standard input ends.
const serve = "FENTRY_TEST_TRACEFS"

func TestMain(m *testing.M) {
	if os.Getenv(serve) == "" {
		os.Exit(testtool.Main(m))
	}
	var pid int
	var dir, tmp string
	if _, err := fmt.Sscanf(os.Getenv(serve), "%d %s %s", &pid, &dir, &tmp); err != nil {
		log.Fatal(err)
	}
	if err := serveTracefs(pid, dir, tmp); err != nil {
		log.Fatal(err)
	}
}

// serveTracefs mounts a process's tracefs on a directory.
func serveTracefs(pid int, dir, tmp string) error {
	copies := filepath.Join(tmp, "copies")
	if err := os.Mkdir(copies, 0o700); err != nil {
		return err
	}
	var m *tracefs.Mounted
	var failed error
	_, err := fentry.Attach(context.Background(), []int{pid}, fentry.Options{
		Dir: filepath.Join(tmp, "fentry.data"), Buffer: buffer, Logf: log.Printf, Overhead: -1, NoSwitches: true, Syscalls: true,
		Libraries: []string{module},
		Live: func(l *fentry.Live) {
			if m, failed = tracefs.Mount(dir, &target{Live: l, pid: pid, dir: copies}, tracefs.Options{Name: "fentry", Console: func(b []byte) {
				_ = os.WriteFile(filepath.Join(tmp, "console"), b, 0o600)
			}}); failed != nil {
				l.End()
				return
			}
			l.AtEnd(func() { m.Rest(time.Second) })
			fmt.Println("ready")
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				l.End()
			}()
		},
	})
	if m != nil {
		failed = errors.Join(failed, m.Unmount())
	}
	return errors.Join(err, failed)
}

// mounted is a program that runs, and its tracefs.
type mounted struct {
	t           *testing.T
	dir         string
	program     *exec.Cmd
	programIn   io.WriteCloser
	programOut  io.Reader
	server      *exec.Cmd
	serverIn    io.WriteCloser
	serverWords bytes.Buffer
}

// target is a recording as a tracefs needs it.
type target struct {
	*fentry.Live
	pid  int
	dir  string
	mark session.Mark
}

func (t *target) Functions() (all []tracefs.Function) {
	for _, f := range t.Live.Functions() {
		fn := tracefs.Function{Image: f.Image, ID: f.ID, Name: f.Name}
		if base := filepath.Base(f.Path); base == module {
			fn.Module = base
		}
		all = append(all, fn)
	}
	return all
}

func (t *target) Images() ([]trace.ImageID, error) { return t.Mapped(t.pid) }

func (t *target) Moved() bool {
	moved, err := t.Move(&t.mark)
	return moved || err != nil
}

func (t *target) Size() int64 { return buffer }

func (t *target) Syscalls(on bool) error {
	_, err := t.Control(map[bool]string{false: "syscalls = 0", true: "syscalls = 1"}[on])
	return err
}

const buffer = 4 << 20 // bytes

// module is the library that the program can load.
const module = "trace_printk"

// load has the program load its library, or unload it.
func (m *mounted) load(loaded bool) {
	m.t.Helper()
	ask := map[bool]string{true: "l", false: "u"}[loaded]
	b := make([]byte, 1)
	_, err := io.WriteString(m.programIn, ask)
	if err == nil {
		_, err = m.programOut.Read(b)
	}
	if err != nil || string(b) != ask {
		m.t.Fatalf("%q, %v", b, err)
	}
}

func (t *target) Open(from uint64) (*trace.Trace, error) {
	tr, err := t.Live.OpenSince(t.dir, from)
	if errors.Is(err, session.ErrOver) {
		err = tracefs.ErrOver
	}
	return tr, err
}

// needFUSE skips a test where nothing can be mounted.
func needFUSE(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("FUSE cannot be used: %v", err)
	}
	f.Close()
	testtool.Need(t, "gcc", "fusermount3")
}

// mount starts a program and mounts its tracefs.
func mount(t *testing.T) *mounted { t.Helper(); return mountAs(t, nil) }

// mountAs does so as another user.
func mountAs(t *testing.T, user *syscall.Credential) *mounted {
	t.Helper()
	needFUSE(t)
	tmp, self := t.TempDir(), os.Args[0]
	program, library := filepath.Join(tmp, "kernel"), filepath.Join(tmp, module)
	testtool.Output(t, "gcc", "-O2", "-pthread", "-o", program, "testdata/kernel.c", "-ldl")
	testtool.Output(t, "gcc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/trace_printk.c")
	m := &mounted{t: t, dir: filepath.Join(tmp, "mnt"), program: exec.Command(program, library)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if user != nil {
		self = filepath.Join(tmp, "server")
		b, rerr := os.ReadFile(os.Args[0])
		err = errors.Join(rerr, runfile.WriteFile(self, b), os.Chmod(filepath.Dir(tmp), 0o755), os.Chmod(tmp, 0o755))
		for _, path := range []string{tmp, m.dir, program} {
			err = errors.Join(err, os.Chown(path, int(user.Uid), int(user.Gid)))
		}
		if err != nil {
			t.Fatal(err)
		}
		m.program.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	}
	if m.programIn, err = m.program.StdinPipe(); err == nil {
		m.programOut, err = m.program.StdoutPipe()
	}
	if err == nil {
		err = m.program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 1); err == nil {
		if _, err = io.ReadFull(m.programOut, b); err != nil || b[0] != 'r' { // until then the kernel may still be executing it
			t.Fatalf("the program says %q, %v", b, err)
		}
	}
	m.server = exec.Command(self)
	m.server.SysProcAttr, m.server.Dir = m.program.SysProcAttr, tmp
	m.server.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", serve, m.program.Process.Pid, m.dir, tmp))
	m.server.Stderr = &m.serverWords
	out, err := m.server.StdoutPipe()
	if err == nil {
		m.serverIn, err = m.server.StdinPipe()
	}
	if err == nil {
		err = m.server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line == "ready\n" {
		t.Cleanup(m.end)
		return m
	}
	m.server.Wait()
	m.programIn.Close()
	m.program.Wait()
	if strings.Contains(m.serverWords.String(), "not permitted") {
		t.Skip(m.serverWords.String())
	}
	t.Fatal(m.serverWords.String())
	return nil
}

// end unmounts, detaches, and has the program end, which must be as it was.
func (m *mounted) end() {
	m.serverIn.Close()
	if err := m.server.Wait(); err != nil {
		m.t.Errorf("%v\n%s", err, m.serverWords.String())
	}
	m.programIn.Close()
	if err := m.program.Wait(); err != nil {
		m.t.Error(err)
	}
	if b, _ := os.ReadFile("/proc/mounts"); strings.Contains(string(b), m.dir) {
		m.t.Error("it is still mounted")
	}
}

func (m *mounted) read(name string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// write writes as a shell's > does.
func (m *mounted) write(name, text string) { m.t.Helper(); m.put(name, text, os.O_TRUNC, 0) }

// add writes as >> does.
func (m *mounted) add(name, text string) { m.t.Helper(); m.put(name, text, os.O_APPEND, 0) }

// refuse writes what is an error.
func (m *mounted) refuse(name, text string, want syscall.Errno) {
	m.t.Helper()
	m.put(name, text, os.O_APPEND, want)
}

func (m *mounted) put(name, text string, flags int, want syscall.Errno) {
	m.t.Helper()
	f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_WRONLY|flags, 0)
	if err == nil {
		_, err = f.WriteString(text + "\n")
		err = errors.Join(err, f.Close())
	}
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		m.t.Errorf("%s: writing %q: %v, want %v", name, text, err, want)
	}
}

func (m *mounted) is(name, want string) {
	m.t.Helper()
	if got := m.read(name); got != want {
		m.t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// becomes waits until a file has a text.
func (m *mounted) becomes(name, want string) {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if m.read(name) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.is(name, want)
}

// until waits until something is the case.
func (m *mounted) until(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("not after 2 minutes: %s", what)
		}
	}
}

// lines are the lines of trace but for comments.
func (m *mounted) lines(name string) (out []string) {
	m.t.Helper()
	for line := range strings.Lines(m.read(name)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// wait waits until trace has a line with a text, and returns the lines that it has then.
func (m *mounted) wait(name, want string) []string {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		lines := m.lines(name)
		if strings.Contains(strings.Join(lines, ""), want) {
			return lines
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.t.Fatalf("%s has no %q", name, want)
	return nil
}

// all fails for lines that have none of some texts.
func (m *mounted) all(lines []string, want ...string) {
	m.t.Helper()
line:
	for _, l := range lines {
		for _, w := range want {
			if strings.Contains(l, w) {
				continue line
			}
		}
		m.t.Errorf("a line without %q: %q", want, l)
		return
	}
}

func TestMount(t *testing.T) {
	m := mount(t)
	m.is("current_tracer", "nop\n")
	m.is("available_tracers", "function_graph function nop\n")
	m.is("tracing_on", "1\n")
	m.is("enabled_functions", "")
	m.is("set_ftrace_filter", "#### all functions enabled ####\n")
	m.is("set_ftrace_notrace", "#### no functions disabled ####\n")
	if names := m.read("available_filter_functions"); !strings.Contains(names, "\nschedule\n") {
		t.Errorf("available_filter_functions:\n%s", names)
	}
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("nothing is to be recorded at first: %q", lines)
	}

	// Filters: words in any number of writes, globs, ! and what cannot be.
	m.write("set_ftrace_filter", "sched* !schedule_idle")
	m.is("set_ftrace_filter", "scheduler_tick\nschedule\n")
	m.add("set_ftrace_filter", "kernel_clone")
	m.is("set_ftrace_filter", "scheduler_tick\nschedule\nkernel_clone\n")
	m.add("set_ftrace_filter", "!scheduler_tick")
	m.refuse("set_ftrace_filter", "nosuch", syscall.EINVAL)
	m.refuse("set_ftrace_filter", "schedule:nosuch", syscall.EINVAL)
	m.is("set_ftrace_filter", "schedule\nkernel_clone\n")
	m.refuse("current_tracer", "wakeup", syscall.EINVAL)
	m.refuse("tracing_on", "x", syscall.EINVAL)
	m.refuse("trace_options", "nosuch", syscall.EINVAL)

	// Tracers.
	m.write("current_tracer", "function")
	m.is("enabled_functions", "schedule\nkernel_clone\n")
	m.all(m.wait("trace", ": kernel_clone <-"), ": schedule <-", ": kernel_clone <-")
	m.write("set_ftrace_notrace", "schedule")
	m.write("trace", "")
	m.all(m.wait("trace", ": kernel_clone <-"), ": kernel_clone <-")
	m.write("set_ftrace_notrace", "")
	m.write("set_ftrace_filter", "")
	m.write("current_tracer", "function_graph")
	m.wait("trace", "   |  everything() {\n")
	m.write("set_graph_function", "do_execveat")
	m.write("max_graph_depth", "2")
	m.write("trace", "")
	m.all(m.wait("trace", "|    kernel_clone() {\n"), "|  do_execveat() {", "|    kernel_clone() {", "|    }", "|  }")
	m.write("max_graph_depth", "0")

	// Less of the buffer is shown if it is to be smaller.
	m.is("buffer_size_kb", "4096\n")
	m.refuse("buffer_size_kb", "0", syscall.EINVAL)
	m.refuse("buffer_size_kb", "18446744073709551615", syscall.ENOMEM)
	numbers := []string{"buffer_size_kb", "per_cpu/cpu0/buffer_size_kb", "tracing_on", "tracing_thresh", "max_graph_depth",
		"snapshot", "function_profile_enabled", "options/markers", "events/enable", "events/syscalls/enable"}
	for _, name := range numbers {
		for text, want := range map[string]syscall.Errno{
			"18446744073709551616": syscall.ERANGE, "99999999999999999999x": syscall.ERANGE,
			"": syscall.EINVAL, "+": syscall.EINVAL, "-1": syscall.EINVAL, "++1": syscall.EINVAL, " 1": syscall.EINVAL,
			"1 ": syscall.EINVAL, "1x": syscall.EINVAL, "0x1": syscall.EINVAL, "1_0": syscall.EINVAL,
		} {
			m.refuse(name, text, want)
		}
	}
	m.write("max_graph_depth", "+010")
	m.is("max_graph_depth", "10\n")
	m.write("max_graph_depth", "0")
	m.until("more than there is room for then", func() bool { return len(m.lines("trace")) > 2*1024/8 })
	m.write("tracing_on", "0")
	all := len(m.lines("trace"))
	m.write("buffer_size_kb", "1")
	if n := len(m.lines("trace")); n == 0 || n > 2*1024/8 || n >= all {
		t.Errorf("%d lines of %d with a buffer of 1 KiB for each thread", n, all)
	}
	m.write("buffer_size_kb", "4096")
	m.write("tracing_on", "1")
	m.write("set_graph_function", "")
	if names := m.read("saved_cmdlines"); !strings.Contains(names, " kernel\n") {
		t.Errorf("saved_cmdlines: %q", names)
	}

	// A pause keeps what there is.
	m.write("tracing_on", "0")
	m.is("enabled_functions", "")
	first := m.read("trace")
	m.is("trace", first)
	m.write("current_tracer", "nop")
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("another tracer begins with %d lines", len(lines))
	}
}

func TestMarks(t *testing.T) {
	m := mount(t)
	m.write("trace_marker", "hello\x1b[31m")
	want := ": tracing_mark_write: hello"
	for range 2 {
		lines := m.lines("trace")
		if len(lines) != 1 || !strings.Contains(lines[0], want) || strings.Contains(lines[0], "\x1b") {
			t.Errorf("trace has %q", lines)
		}
	}
	pipe, err := os.Open(filepath.Join(m.dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := pipe.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), want) {
		t.Errorf("trace_pipe has %q, %v", b[:n], err)
	}
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("trace has what trace_pipe has taken: %q", lines)
	}
	// It waits for more.
	got := make(chan string)
	go func() {
		n, _ := pipe.Read(b)
		got <- string(b[:n])
	}()
	m.write("trace_marker", "again")
	if s := <-got; !strings.Contains(s, "again") {
		t.Errorf("trace_pipe has %q", s)
	}
	pipe.Close()
	m.write("trace_options", "nomarkers")
	m.refuse("trace_marker", "no", syscall.EINVAL)
	m.is("options/markers", "0\n")
}

// TestPipe: whoever reads trace_pipe and nothing else sees each call of a slow program once.
func TestPipe(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "do_execveat kernel_clone")
	m.write("current_tracer", "function")
	pipe, err := os.Open(filepath.Join(m.dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	var text bytes.Buffer
	b := make([]byte, 64<<10)
	for strings.Count(text.String(), "\n") < 2000 {
		n, err := pipe.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b[:n])
	}
	// Both are called in turn. It can begin inside of the first.
	outer := !strings.Contains(strings.SplitN(text.String(), "\n", 2)[0], ": kernel_clone <-")
	for line := range strings.Lines(text.String()) {
		want := ": kernel_clone <-do_execveat\n"
		if outer {
			want = ": do_execveat <-0\n"
		}
		if !strings.HasSuffix(line, want) {
			t.Fatalf("%q, want %q", line, want)
		}
		outer = !outer
	}
}

// TestNumbers: ids, counts and places of functions are numbers in any base.
func TestNumbers(t *testing.T) {
	m := mount(t)
	for _, name := range []string{"set_ftrace_pid", "set_ftrace_notrace_pid", "set_event_pid", "set_event_notrace_pid"} {
		m.write(name, "10 0x10 010 +7")
		m.is(name, "7\n8\n10\n16\n")
		for text, want := range map[string]syscall.Errno{
			"08": syscall.EINVAL, "-1": syscall.EINVAL, "1_0": syscall.EINVAL, "0b1": syscall.EINVAL, "1x": syscall.EINVAL,
			"18446744073709551616": syscall.EINVAL, "1073741824": syscall.EPERM, "4294967295": syscall.EPERM,
			"99 100 x": syscall.EINVAL, // all or nothing
		} {
			m.refuse(name, text, want)
			m.is(name, "7\n8\n10\n16\n")
		}
		m.add(name, "4294967297 1073741823")
		m.is(name, "1\n7\n8\n10\n16\n1073741823\n")
		m.write(name, "")
	}
	const list, trigger = "set_ftrace_filter", "events/syscalls/sys_enter_poll/trigger"
	const function, event = "schedule:traceoff", "traceoff"
	remove := func(name, command string) { m.add(name, "!"+command) }
	m.write("tracing_on", "0") // then none of these counts
	for count, left := range map[string]string{
		"3": "3", "0x10": "16", "010": "8", "+1": "1", "3:junk": "3", "18446744073709551615": "",
	} {
		want := "count=" + left
		if left == "" {
			want = "unlimited"
		}
		m.add(list, function+":"+count)
		m.is(list, "#### all functions enabled ####\n"+function+":"+want+"\n")
		remove(list, function)
		m.write(trigger, event+":"+count)
		m.is(trigger, event+":"+want+"\n")
		remove(trigger, event)
	}
	for count, want := range map[string]syscall.Errno{
		"x": syscall.EINVAL, "08": syscall.EINVAL, "-1": syscall.EINVAL, "1_0": syscall.EINVAL, "0b1": syscall.EINVAL,
		"18446744073709551616": syscall.ERANGE, "99999999999999999999x": syscall.ERANGE,
	} {
		m.refuse(list, function+":"+count, want)
		m.refuse(trigger, event+":"+count, want)
	}
	m.refuse(list, "schedule:enable_event:syscalls:sys_enter_poll:", syscall.EINVAL)
	m.refuse(trigger, event+":", syscall.EINVAL)
	names := strings.Fields(m.read("available_filter_functions"))
	for text, place := range map[string]int{"1": 1, "0x2": 2, "02": 2, "2x": 2} {
		m.write(list, text)
		m.is(list, names[place-1]+"\n")
	}
	for _, text := range []string{"0", "08", "99999999999999999999", "0x"} {
		m.refuse(list, text, syscall.EINVAL)
	}
}

// TestCommands: what is done when functions are called.
func TestCommands(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "do_execveat")
	m.write("current_tracer", "function")
	m.wait("trace", ": do_execveat <-")
	m.add("set_ftrace_filter", "schedule:traceoff:1")
	m.becomes("tracing_on", "0\n")
	m.is("set_ftrace_filter", "do_execveat\nschedule:traceoff:count=0\n")
	m.all(m.lines("trace"), ": do_execveat <-")
	m.write("tracing_on", "1") // the count is used up
	m.write("trace", "")
	m.wait("trace", ": do_execveat <-")
	m.is("tracing_on", "1\n")
	m.refuse("set_ftrace_filter", "!schedule:traceon", syscall.EINVAL)
	m.add("set_ftrace_filter", "!schedule:traceoff:0")
	m.is("set_ftrace_filter", "do_execveat\n")

	m.add("set_ftrace_filter", "kernel_clone:stacktrace")
	stack := strings.Join(m.wait("trace", "<stack trace>\n"), "")
	if !strings.Contains(stack, "<stack trace>\n => kernel_clone\n => do_execveat\n") {
		t.Errorf("the stack of a call of kernel_clone:\n%s", stack)
	}
	m.add("set_ftrace_filter", "!*:stacktrace")

	m.write("snapshot", "1")
	m.write("tracing_on", "0")
	if n := len(m.lines("snapshot")); n == 0 {
		t.Error("the snapshot is empty")
	}
	m.write("snapshot", "0")
	if s := m.read("snapshot"); !strings.Contains(s, "Snapshot is freed") {
		t.Errorf("snapshot: %s", s)
	}
}

// TestInstances: each has what it has asked for, and no more.
func TestInstances(t *testing.T) {
	m := mount(t)
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(m.dir, "instances", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(m.dir, "instances/a"), 0o700); !errors.Is(err, syscall.EEXIST) {
		t.Error(err)
	}
	m.write("instances/a/set_ftrace_filter", "schedule")
	m.write("instances/a/current_tracer", "function")
	m.write("instances/b/set_ftrace_filter", "kernel_clone")
	m.write("instances/b/current_tracer", "function_graph")
	m.all(m.wait("instances/a/trace", ": schedule <-"), ": schedule <-")
	m.all(m.wait("instances/b/trace", "kernel_clone();"), "|  kernel_clone();")
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("the top has what instances ask for: %q", lines[0])
	}
	m.is("enabled_functions", "schedule\nkernel_clone\n")
	m.all(m.wait("instances/a/per_cpu/cpu0/trace", ": schedule <-"), "[000]")
	if err := os.Remove(filepath.Join(m.dir, "instances/a")); err != nil {
		t.Error(err)
	}
	m.is("enabled_functions", "kernel_clone\n")
	if _, err := os.Stat(filepath.Join(m.dir, "instances/a")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestEnd: who waits for events gets the end of the file when the program has ended, and nothing is mounted any more, even
// if somebody has a file open.
func TestEnd(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "schedule_idle")
	pipe, err := os.Open(filepath.Join(m.dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	trace, err := os.Open(filepath.Join(m.dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	got := make(chan error)
	go func() {
		b, err := io.ReadAll(pipe)
		if err == nil && len(b) > 0 {
			err = fmt.Errorf("%q", b)
		}
		got <- err
	}()
	time.Sleep(100 * time.Millisecond) // it may or may not wait by then
	m.programIn.Close()
	if err := <-got; err != nil {
		t.Errorf("trace_pipe ends with %v", err)
	}
}

// TestRest: who reads trace_pipe gets what the process has done last, and others who have it open do not keep it.
func TestRest(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "kernel_halt")
	m.write("current_tracer", "function")
	var pipes [2]*os.File
	for i := range pipes {
		var err error
		if pipes[i], err = os.Open(filepath.Join(m.dir, "trace_pipe")); err != nil {
			t.Fatal(err)
		}
		defer pipes[i].Close()
	}
	type result struct {
		text []byte
		err  error
	}
	got := make(chan result)
	go func() {
		b, err := io.ReadAll(pipes[0])
		got <- result{b, err}
	}()
	time.Sleep(50 * time.Millisecond)
	m.programIn.Close()
	if r := <-got; r.err != nil || bytes.Count(r.text, []byte("kernel_halt <-")) != 3000 {
		t.Errorf("%d of 3000 calls, %v", bytes.Count(r.text, []byte("kernel_halt <-")), r.err)
	}
}

// TestProfile: calls of each thread are counted while the profile is on.
func TestProfile(t *testing.T) {
	m := mount(t)
	m.is("function_profile_enabled", "0\n")
	m.write("function_profile_enabled", "2")
	m.is("function_profile_enabled", "1\n")
	m.write("function_profile_enabled", "0")
	m.write("set_ftrace_filter", "kernel_clone schedule")
	m.write("function_profile_enabled", "1")
	m.is("enabled_functions", "schedule\nkernel_clone\n")
	const head = "  Function                               Hit    Time            Avg             s^2\n" +
		"  --------                               ---    ----            ---             ---\n"
	hits := func(name string) map[string]int {
		b, err := os.ReadFile(filepath.Join(m.dir, "trace_stat", name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // the thread has called nothing yet
		}
		text, ok := strings.CutPrefix(string(b), head)
		if err != nil || !ok {
			t.Fatalf("trace_stat/%s: %v\n%s", name, err, text)
		}
		out := make(map[string]int)
		for line := range strings.Lines(text) {
			var fn string
			var n int
			var time, avg, square float64
			if _, err := fmt.Sscanf(line, "%s %d %f us %f us %f us", &fn, &n, &time, &avg, &square); err != nil || avg > time {
				t.Fatalf("%q: %v", line, err)
			}
			out[fn] = n
		}
		return out
	}
	var main, other map[string]int
	m.until("both threads are counted", func() bool {
		main, other = hits("function0"), hits("function1")
		if len(other) > len(main) {
			main, other = other, main
		}
		return main["kernel_clone"] >= 100 && len(other) > 0
	})
	if len(main) != 2 || main["kernel_clone"] < main["schedule"]-2 || main["kernel_clone"] > main["schedule"]+2 {
		t.Errorf("one thread calls both in turn: %v", main)
	}
	if len(other) != 1 || other["schedule"] == 0 {
		t.Errorf("the other one calls schedule: %v", other)
	}
	m.write("function_profile_enabled", "0")
	m.is("enabled_functions", "")
	last := m.read("trace_stat/function0")
	time.Sleep(50 * time.Millisecond)
	m.is("trace_stat/function0", last)
	if _, err := os.Stat(filepath.Join(m.dir, "trace_stat/function7")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("the profile is no trace: %q", lines)
	}
}

// TestModule: a library's functions are there while it is loaded, and can be chosen before.
func TestModule(t *testing.T) {
	m := mount(t)
	const list, line = "available_filter_functions", "trace_printk_irq_work [trace_printk]\n"
	has := func(name string, want bool) {
		t.Helper()
		if text := m.read(name); strings.Contains(text, line) != want {
			t.Errorf("%s: not %v\n%s", name, want, text)
		}
	}
	has(list, false)
	m.write("set_ftrace_filter", "*:mod:trace_printk")
	m.is("set_ftrace_filter", "*:mod:trace_printk\n")
	m.write("current_tracer", "function")
	for range 2 {
		m.load(true)
		has(list, true)
		has("set_ftrace_filter", true)
		has("enabled_functions", true)
		m.load(false)
		has(list, false)
		m.is("enabled_functions", "")
		m.is("set_ftrace_filter", "")
	}
	m.all(m.wait("trace", ": trace_printk_irq_work <-"), ": trace_printk_irq_work <-", ": init <-0\n")
}

// TestMask: threads stand where processors do.
func TestMask(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "schedule")
	m.write("current_tracer", "function")
	m.wait("trace", " [000] ")
	m.wait("trace", " [001] ")
	m.is("tracing_cpumask", "3\n")
	m.write("tracing_cpumask", "2")
	m.is("tracing_cpumask", "2\n")
	m.write("trace", "")
	m.all(m.wait("trace", ": schedule <-"), " [001] ")
	m.write("tracing_cpumask", "00000003")
	m.write("trace", "")
	m.wait("trace", " [000] ")
	for _, wrong := range []string{"", "x", "-1", "+1", "0x1"} {
		m.refuse("tracing_cpumask", wrong, syscall.EINVAL)
	}
}

// TestUser: a user who is not root mounts it with fusermount3, and nobody else can use it, root neither.
func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as a user who is not root")
	}
	if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&0o006 != 0o006 {
		t.Skip("/dev/fuse is not for all users")
	}
	// fusermount3 wants to know a name: nobody's.
	user := &syscall.Credential{Uid: 65534, Gid: 65534}
	m := mountAs(t, user)
	run := func(user *syscall.Credential, script string) (string, error) {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "MNT="+m.dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(user, `cd "$MNT" && cat current_tracer && echo schedule >set_ftrace_filter &&
		echo function >current_tracer && head -3 trace_pipe >/dev/null && grep -c ': schedule <-' trace && ls -ld trace`)
	if lines := strings.Split(out, "\n"); err != nil || lines[0] != "nop" || !strings.Contains(out, "nobody") {
		t.Errorf("the user gets %q, %v", out, err)
	}
	for _, other := range []*syscall.Credential{{Uid: 0, Gid: 0}, {Uid: 1, Gid: 1}} {
		if out, err := run(other, `cat "$MNT/current_tracer"`); err == nil || !strings.Contains(out, "Permission denied") {
			t.Errorf("user %d gets %q, %v", other.Uid, out, err)
		}
	}
	// Names and writes that mean harm.
	out, err = run(user, `cd "$MNT" || exit
		rm -rf trace set_ftrace_filter per_cpu 2>/dev/null; mv trace x 2>/dev/null; ln -s /etc/passwd x 2>/dev/null
		(true >x) 2>/dev/null; mkdir x 2>/dev/null; mkdir "instances/$(printf '%0300d' 0)" 2>/dev/null; rmdir instances 2>/dev/null
		mkdir 'instances/a b;$(x)' && rmdir 'instances/a b;$(x)'
		head -c 2000000 /dev/zero | tr '\0' '*' >set_ftrace_filter 2>/dev/null
		head -c 100000 /dev/urandom >set_ftrace_notrace 2>/dev/null; head -c 100000 /dev/urandom >tracing_cpumask 2>/dev/null
		head -c 100000 /dev/urandom >trace_options 2>/dev/null; head -c 100000 /dev/urandom >buffer_size_kb 2>/dev/null
		ls | head -1; ls instances; cat ../mnt/../mnt/current_tracer`)
	if err != nil || out != "README\nfunction\n" {
		t.Errorf("then there is %q, %v", out, err)
	}
}
