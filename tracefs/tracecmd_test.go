//go:build linux

package tracefs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// traceCmdScript runs trace-cmd, which looks for a mount of type tracefs, and would mount the kernel's own: $1 is a list of
// mounts for it, $2 stands for a setting of the kernel that it writes to.
const traceCmdScript = `set -e
mount --make-rprivate /
mount --bind "$2" /proc/sys/kernel/ftrace_enabled
mount --bind "$1" /proc/$$/mounts
shift 2
exec trace-cmd "$@"`

// TestTraceCmd: trace-cmd controls and shows a process.
func TestTraceCmd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mount namespaces are made by root")
	}
	testtool.Need(t, "trace-cmd", "unshare")
	m := mount(t)
	dir := t.TempDir()
	mounts, enabled := filepath.Join(dir, "mounts"), filepath.Join(dir, "ftrace_enabled")
	for path, text := range map[string]string{mounts: "tracefs " + m.dir + " tracefs rw 0 0\n", enabled: "1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", traceCmdScript, "sh", mounts, enabled}, args...)...)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "mount: ") {
			t.Skipf("the kernel lets nothing be mounted in /proc: %s", out)
		}
		if err != nil {
			t.Errorf("trace-cmd %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	has := func(text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	has(run("list", "-f"), "\nschedule\n")
	has(run("list", "-t"), "function_graph function nop")
	has(run("list", "-o"), "\nnofunction-fork\n")
	has(run("list", "-e"), "\nsyscalls:sys_enter_poll\n")
	has(run("list", "-e", "syscalls:sys_enter_poll", "-F"), "field:int timeout_msecs;")
	run("start", "-e", "syscalls:sys_enter_poll", "-f", "timeout_msecs == 1", "-e", "raw_syscalls:sys_exit", "-R", "traceon")
	m.is("set_event", "raw_syscalls:sys_exit\nsyscalls:sys_enter_poll\n")
	m.is("events/syscalls/sys_enter_poll/filter", "(timeout_msecs == 1)\n")
	m.wait("trace", ": sys_poll(")
	has(run("show"), ": sys_poll(")
	has(run("stat"), "sys_enter_poll")
	run("reset")
	m.is("set_event", "")
	run("start", "-p", "function_graph", "-g", "do_execveat", "--max-graph-depth", "2")
	m.is("current_tracer", "function_graph\n")
	m.is("set_graph_function", "do_execveat\n")
	m.wait("trace", "|    kernel_clone() {\n")
	has(run("show"), "|    kernel_clone() {\n")
	run("stop")
	m.is("tracing_on", "0\n")
	run("restart")
	m.is("tracing_on", "1\n")
	run("reset")
	m.is("current_tracer", "nop\n")
	m.is("set_graph_function", "#### all functions enabled ####\n")
	run("start", "-p", "function", "-l", "sched*", "-n", "scheduler_tick", "-M", "3")
	m.is("set_ftrace_filter", "scheduler_tick\nschedule\nschedule_idle\n")
	m.is("set_ftrace_notrace", "scheduler_tick\n")
	m.wait("trace", ": schedule_idle <-")
	stat := run("stat")
	has(stat, "Tracer: function\n")
	has(stat, "   scheduler_tick\n")
	run("snapshot", "-s")
	has(run("snapshot"), ": schedule <-")
	run("snapshot", "-f")
	run("clear")
	run("reset")
	m.is("set_ftrace_filter", "#### all functions enabled ####\n")
}
