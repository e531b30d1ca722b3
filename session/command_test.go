//go:build linux

package session

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/cost"
)

// FuzzCommands: whatever somebody sends, it is understood as a whole or refused with a column in the line; words stand
// where the line has them.
func FuzzCommands(f *testing.F) {
	for _, line := range []string{
		"", ";", "; ;", "tracing_on", "tracing_on = 0", "tracing_on = 0; max_graph_depth = 3", "set_ftrace_filter += a,b c; syscalls = 1",
		"set_graph_function =;tracing_on = 1", "tracing_thresh = 10", "tracing_thresh = 99999999999999999h", "dump 200ms", "dump -1s",
		"detach now", "status; ping", "max_graph_depth = 4294967296", "current_tracer = nop", "current_tracer = x", "set_ftrace_filter",
		"set_ftrace_filter -=", "\t a\x00 = \xff",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var cs []command
		var err *ControlError
		cost.Check(t, len(line), 1000, func() { cs, err = parseCommands(line) })
		if err != nil {
			if err.Column < 1 || err.Column > len(line)+1 || err.Why == "" {
				t.Errorf("%q: %+v", line, err)
			}
			return
		}
		if len(cs) == 0 {
			t.Errorf("%q: nothing", line)
		}
		for i := range cs {
			c := &cs[i]
			if _, ok := commandForms[c.name.text]; !ok {
				t.Errorf("%q: %q", line, c.name.text)
			}
			for _, w := range append([]word{c.name, c.op}, c.values...) {
				if w.text != "" && !strings.HasPrefix(line[w.at-1:], w.text) {
					t.Errorf("%q: %+v is not there", line, w)
				}
			}
		}
	})
}

// An answer is what was answered, or an error: it never is taken for something else.
func FuzzAnswer(f *testing.F) {
	for _, line := range []string{"ok", "ok 1", "error 3: why", "error", "error x: y", "error 3", ""} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		answer, err := parseAnswer(line)
		if err == nil && !strings.HasSuffix(line, answer) || err != nil && answer != "" {
			t.Errorf("%q: %q, %v", line, answer, err)
		}
	})
}

// listening is a session that answers about this process, as if it was recorded.
func listening(t *testing.T) *session {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	s := &session{log: logger{print: t.Logf}}
	s.openControl([]int{os.Getpid()})
	if len(s.control.listeners) != 1 {
		t.Fatal("nobody listens")
	}
	return s
}

// Half lines, lines that are too long, those who ask and do not read, and crowds hold up nobody, and end when the session
// does.
func TestControlPeers(t *testing.T) {
	s := listening(t)
	name := s.control.listeners[0].Addr().String()
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	fmt.Fprint(dial(), "tracing_on")               // half a line
	fmt.Fprintln(dial(), "status")                 // is not read
	fmt.Fprint(dial(), strings.Repeat("x", 1<<16)) // has no end
	long := dial()
	fmt.Fprint(long, strings.Repeat("x", mostCommand))
	if answer, err := bufio.NewReader(long).ReadString('\n'); err != nil || answer != fmt.Sprintf("error %d: a line has at most %d bytes\n", mostCommand, mostCommand) {
		t.Errorf("%q, %v", answer, err)
	}
	for range mostAsking / 2 {
		dial()
	}
	if answer, err := Control(os.Getpid(), "ping"); answer != "" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	var wrong *ControlError
	if _, err := Control(os.Getpid(), "ping pong"); !errors.As(err, &wrong) || wrong.Column != 6 {
		t.Errorf("%v", err)
	}
	if _, err := Control(os.Getpid(), "detach"); err != nil {
		t.Error(err)
	}
	<-s.control.detach
	began := time.Now()
	s.closeControl()
	if took := time.Since(began); took >= controlPatience {
		t.Errorf("it took %v to end", took)
	}
	if _, err := Control(os.Getpid(), "ping"); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("%v", err)
	}
}

// A user who is neither root nor the recorder's is refused, by the directory and by the socket's mode.
func TestControlOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	s := listening(t)
	defer s.closeControl()
	name := s.control.listeners[0].Addr().String()
	cmd := exec.Command("/proc/self/exe", "-test.run", "TestControlAsOther")
	cmd.Env = append(os.Environ(), "FENTRY_TEST_SOCKET="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "refused") {
		t.Errorf("%v\n%s", err, out)
	}
	// Nor does it help that somebody opens the way to it: the kernel says who asks.
	for dir := name; len(dir) > len(os.TempDir()); dir = dir[:strings.LastIndexByte(dir, '/')] {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command("/proc/self/exe", cmd.Args[1:]...)
	cmd.Env = append(os.Environ(), "FENTRY_TEST_SOCKET="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "no answer") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestControlAsOther asks as another user.
func TestControlAsOther(t *testing.T) {
	name := os.Getenv("FENTRY_TEST_SOCKET")
	if name == "" {
		return // TestControlOthers runs it
	}
	c, err := net.Dial("unix", name)
	if err != nil {
		fmt.Println("refused")
		return
	}
	fmt.Fprintln(c, "ping")
	if answer, _ := bufio.NewReader(c).ReadString('\n'); answer == "" {
		fmt.Println("no answer")
	} else {
		fmt.Println("answered:", answer)
	}
}
