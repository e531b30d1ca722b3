//go:build linux

package tracefs_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEvents: system calls of the program are events, which can be switched, filtered and chosen by thread.
func TestEvents(t *testing.T) {
	m := mount(t)
	m.is("events/enable", "0\n")
	m.is("events/syscalls/sys_enter_poll/enable", "0\n")
	if names := m.read("available_events"); !strings.Contains(names, "raw_syscalls:sys_enter\n") ||
		!strings.Contains(names, "\nsyscalls:sys_enter_poll\nsyscalls:sys_exit_poll\n") || !strings.Contains(names, ":sys_enter_newfstat\n") {
		t.Errorf("available_events: %s", names)
	}
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("nothing is to be recorded at first: %q", lines)
	}
	// The program waits a millisecond at a time, a thread of it two.
	m.write("events/syscalls/sys_enter_poll/enable", "1")
	m.is("events/syscalls/sys_enter_poll/enable", "1\n")
	m.is("events/syscalls/enable", "X\n")
	m.is("set_event", "syscalls:sys_enter_poll\n")
	m.all(m.wait("trace", ": sys_poll("), ", nfds: 1, timeout_msecs: 1)\n")
	m.add("set_event", "sys_exit_poll")
	m.add("set_event", "!syscalls:sys_enter_poll")
	m.write("trace", "")
	m.all(m.wait("trace", ": sys_poll -> "), ": sys_poll -> 0x0\n")
	m.write("set_event", "raw_syscalls")
	m.is("set_event", "raw_syscalls:sys_enter\nraw_syscalls:sys_exit\n")
	m.is("events/raw_syscalls/enable", "1\n")
	m.write("trace", "")
	m.wait("trace", ": sys_exit: NR 7 = 0\n")
	m.all(m.wait("trace", ": sys_enter: NR 7 ("), ": sys_enter: NR ", ": sys_exit: NR ")
	m.write("set_event", "syscalls:sys_enter_poll sys_enter_clock_nanosleep")
	m.refuse("set_event", "nosuch", syscall.EINVAL)
	m.refuse("set_event", "syscalls:nosuch", syscall.EINVAL)
	m.refuse("events/enable", "2", syscall.EINVAL)

	// Calls of functions around them.
	m.write("set_ftrace_filter", "everything")
	m.write("current_tracer", "function_graph")
	m.wait("trace", "|  everything();\n")
	m.all(m.wait("trace", "/* sys_poll("), "|  everything();\n", "|  /* sys_poll(", "|  /* sys_clock_nanosleep(")
	m.write("current_tracer", "nop")

	// Threads, and filters of all kinds.
	var tid string
	for _, l := range m.wait("trace", ": sys_poll(") {
		if strings.Contains(l, ": sys_poll(") {
			tid = strings.TrimPrefix(strings.Fields(l)[0], "kernel-")
		}
	}
	m.write("set_event_pid", tid)
	m.is("set_event_pid", tid+"\n")
	m.write("trace", "")
	m.all(m.wait("trace", ": sys_poll("), ": sys_poll(")
	m.write("set_event_pid", "")
	m.write("set_event_notrace_pid", tid)
	m.write("trace", "")
	m.all(m.wait("trace", ": sys_clock_nanosleep("), ": sys_clock_nanosleep(")
	m.write("set_event_notrace_pid", "")
	const filter = "events/syscalls/sys_enter_poll/filter"
	m.is(filter, "none\n")
	for _, text := range []string{
		"timeout_msecs != 1", "common_pid != " + tid, "!(nfds >= 1)", "comm ~ 'x*' || timeout_msecs > 0x1 && nfds & 1", "__syscall_nr < 7",
	} {
		m.write(filter, text)
		m.is(filter, text+"\n")
		m.write("trace", "")
		m.all(m.wait("trace", ": sys_clock_nanosleep("), ": sys_clock_nanosleep(")
	}
	m.write(filter, "comm == \"kernel\" && (timeout_msecs == 1)")
	m.write("trace", "")
	m.wait("trace", ": sys_poll(")
	m.refuse(filter, "nosuch == 1", syscall.EINVAL)
	m.is(filter, "nosuch == 1\n^\nparse_error: Field not found\n")
	m.write(filter, "0")
	m.is(filter, "none\n")
	const all = "events/syscalls/filter"
	m.write(all, "timeout_msecs == 2")
	m.is(filter, "timeout_msecs == 2\n")
	m.is("events/syscalls/sys_exit_poll/filter", "none\n")
	m.is(all, "timeout_msecs == 2\n")
	m.refuse(all, "nosuch == 2", syscall.EINVAL)
	m.write(all, "0")
	m.is(filter, "none\n")

	// What events look like.
	m.is("events/raw_syscalls/sys_exit/format", `name: sys_exit
ID: 101
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:long id;	offset:8;	size:8;	signed:1;
	field:long ret;	offset:16;	size:8;	signed:1;

print fmt: "NR %ld = %ld", REC->id, REC->ret
`)
	if text := m.read("events/syscalls/sys_enter_poll/format"); !strings.HasSuffix(text, `
	field:int __syscall_nr;	offset:8;	size:4;	signed:1;
	field:struct pollfd * ufds;	offset:16;	size:8;	signed:0;
	field:unsigned int nfds;	offset:24;	size:8;	signed:0;
	field:int timeout_msecs;	offset:32;	size:8;	signed:0;

print fmt: "ufds: 0x%08lx, nfds: 0x%08lx, timeout_msecs: 0x%08lx", ((unsigned long)(REC->ufds)), ((unsigned long)(REC->nfds)), ((unsigned long)(REC->timeout_msecs))
`) {
		t.Errorf("the format of a system call:\n%s", text)
	}
	m.is("events/raw_syscalls/sys_enter/id", "100\n")

	m.write("events/enable", "1")
	m.is("events/enable", "1\n")
	m.write("tracing_on", "0")
	m.write("set_event", "")
	m.is("events/enable", "0\n")
	m.write("trace", "")
	m.write("tracing_on", "1")
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("no events are wanted any more: %q", lines[0])
	}

	// An instance has its own.
	if err := os.Mkdir(filepath.Join(m.dir, "instances/a"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.write("instances/a/events/syscalls/sys_exit_poll/enable", "1")
	m.all(m.wait("instances/a/trace", ": sys_poll -> "), ": sys_poll -> 0x0\n")
	m.is("set_event", "")
	if lines := m.lines("trace"); len(lines) != 0 {
		t.Errorf("the top has what an instance asks for: %q", lines[0])
	}
}

// TestEventTriggers: events switch tracing and each other, also if they are not recorded themselves.
func TestEventTriggers(t *testing.T) {
	m := mount(t)
	const poll, sleep = "events/syscalls/sys_enter_poll/", "events/syscalls/sys_enter_clock_nanosleep/"
	const none = "# Available triggers:\n# traceon traceoff snapshot stacktrace enable_event disable_event\n"
	m.is(poll+"trigger", none)
	m.write(poll+"trigger", "traceoff:1 if nfds == 2")
	m.is(poll+"trigger", "traceoff:count=1 if nfds == 2\n")
	m.is(poll+"enable", "0*\n")
	m.refuse(poll+"trigger", "traceoff", syscall.EEXIST)
	m.refuse(poll+"trigger", "traceon", syscall.EEXIST)
	for _, wrong := range []string{"", "nosuch", "traceon:x", "traceon if", "traceon nfds == 1", "traceon if nosuch == 1",
		"enable_event", "enable_event:syscalls:nosuch", "enable_event:syscalls"} {
		m.refuse(poll+"trigger", wrong, syscall.EINVAL)
	}
	m.write("events/syscalls/sys_exit_poll/enable", "1")
	m.wait("trace", ": sys_poll -> 0x0")
	m.is("tracing_on", "1\n")
	m.add(poll+"trigger", "!traceoff")
	m.is(poll+"trigger", none)
	m.add(poll+"trigger", "traceoff:1 if nfds == 1")
	m.becomes("tracing_on", "0\n")
	m.is(poll+"trigger", "traceoff:count=0 if nfds == 1\n")
	m.write("tracing_on", "1")
	m.write("trace", "")
	m.wait("trace", ": sys_poll -> 0x0")
	m.is("tracing_on", "1\n")
	m.write(poll+"trigger", "!traceoff:1 if nfds == 1")

	// One event switches another.
	m.add(poll+"trigger", "enable_event:syscalls:sys_enter_clock_nanosleep:1")
	m.becomes(sleep+"enable", "1*\n")
	m.is(poll+"trigger", "enable_event:syscalls:sys_enter_clock_nanosleep:count=0\n")
	m.wait("trace", ": sys_clock_nanosleep(")
	m.add(poll+"trigger", "!enable_event:syscalls:sys_enter_clock_nanosleep")
	m.add(sleep+"trigger", "disable_event:syscalls:sys_enter_clock_nanosleep if common_pid > 0")
	m.becomes(sleep+"enable", "0*\n")
	m.add(sleep+"trigger", "!disable_event:syscalls:sys_enter_clock_nanosleep")
	m.is(sleep+"enable", "0\n")

	// Stacks, of functions that are recorded, and a snapshot.
	m.write("set_event", "")
	m.add(sleep+"trigger", "stacktrace")
	if stack := strings.Join(m.wait("trace", "<stack trace>\n"), ""); !strings.Contains(stack, "<stack trace>\n => sys_clock_nanosleep\n") {
		t.Errorf("the stack of a system call:\n%s", stack)
	}
	m.add(sleep+"trigger", "!stacktrace")
	m.write("trace_marker", "what is kept")
	m.add(poll+"trigger", "snapshot:1 if comm == 'kernel'")
	m.becomes(poll+"trigger", "snapshot:count=0 if comm == 'kernel'\n")
	m.wait("snapshot", ": tracing_mark_write: what is kept\n")
	m.add(poll+"trigger", "!snapshot")
	m.is(poll+"enable", "0\n")
}

// TestEventCommands: calls of functions switch events, and have the buffer dumped.
func TestEventCommands(t *testing.T) {
	m := mount(t)
	const enable = "events/syscalls/sys_enter_poll/enable"
	state := func(want string) { t.Helper(); m.becomes(enable, want) }
	m.write("set_ftrace_filter", "schedule:enable_event:syscalls:sys_enter_poll:2")
	state("1*\n")
	m.is("set_ftrace_filter", "#### all functions enabled ####\nschedule:enable_event:syscalls:sys_enter_poll:count=1\n")
	m.wait("trace", ": sys_poll(")
	m.write(enable, "0")
	state("1*\n")
	m.is("set_ftrace_filter", "#### all functions enabled ####\nschedule:enable_event:syscalls:sys_enter_poll:count=0\n")
	m.write(enable, "0")
	m.is(enable, "0*\n")
	m.add("set_ftrace_filter", "!schedule:enable_event:syscalls:sys_enter_poll:0")
	m.is(enable, "0\n")
	m.write(enable, "1")
	m.add("set_ftrace_filter", "schedule:disable_event:syscalls:sys_enter_poll")
	state("0*\n")
	m.add("set_ftrace_filter", "!schedule:disable_event:syscalls:sys_enter_poll")
	m.is(enable, "0\n")
	m.refuse("set_ftrace_filter", "schedule:enable_event:syscalls:nosuch", syscall.EINVAL)
	m.refuse("set_ftrace_filter", "schedule:enable_event:syscalls", syscall.EINVAL)
	m.refuse("set_ftrace_filter", "schedule:enable_event", syscall.EINVAL)

	m.write("trace_marker", "what is dumped")
	m.add("set_ftrace_filter", "schedule:dump")
	m.becomes("set_ftrace_filter", "#### all functions enabled ####\nschedule:dump:count=0\n")
	for range 6000 {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(m.dir), "console"))
		if strings.Contains(string(b), ": tracing_mark_write: what is dumped\n") {
			return
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("nothing was dumped")
}
