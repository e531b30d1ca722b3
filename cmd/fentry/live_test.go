package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// watchedProgram runs until its standard input ends, and says so. It is called "ready" then.
const watchedProgram = `#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
__attribute__((noipa)) int inner(int n) { return n + 1; }
__attribute__((noipa)) int outer(int n) { __asm__("nop; nop; nop; nop; nop"); return inner(n) + 1; }
int main(void) {
	struct pollfd in = { .fd = 0, .events = POLLIN };
	prctl(PR_SET_NAME, "ready");
	while (poll(&in, 1, 1) == 0)
		outer(1);
	puts("as ever");
	return 5;
}
`

// TestWatchAttached: live and top of a process that runs end with ^C, and when nobody reads them any more; the process
// goes on as it was. A script's background jobs begin with SIGINT ignored, and end so, too.
func TestWatchAttached(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	program := testtool.Compile(t, "watched", watchedProgram, "-O2")
	for _, test := range []struct {
		name, want string
		args       []string
		end        watchEnd
	}{
		{"live", "outer() {", []string{"live", "--all-threads"}, interrupted},
		{"live, in the background", "outer() {", []string{"live"}, interruptedInBackground},
		{"live, closed", "outer() {", []string{"live"}, closed},
		{"live of a function", "inner();", []string{"live", "-F", "inner"}, interrupted},
		{"top", "  inner", []string{"top", "-i", "50ms"}, interrupted},
		{"top, closed", "  inner", []string{"top", "-i", "50ms"}, closed},
	} {
		t.Run(test.name, func(t *testing.T) {
			var words bytes.Buffer
			watched := exec.Command(program)
			watched.Stdout = &words
			in, err := watched.StdinPipe()
			if err == nil {
				err = watched.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { watched.Process.Kill() })
			testtool.AwaitReady(t, watched.Process.Pid)
			watch(t, watched.Process.Pid, test.args, test.want, test.end)
			in.Close()
			if watched.Wait(); watched.ProcessState.ExitCode() != 5 || words.String() != "as ever\n" {
				t.Errorf("the program ended with %v, %q", watched.ProcessState, words.String())
			}
		})
	}
}

// watchEnd is how a command that watches a process ends.
type watchEnd int

const (
	interrupted watchEnd = iota
	interruptedInBackground
	closed // nobody reads it any more
)

// watch has a command watch a process until it has said something, and then ends it.
func watch(t *testing.T, pid int, args []string, want string, end watchEnd) {
	t.Helper()
	tmp := t.TempDir()
	argv := append([]string{os.Args[0]}, append(args, "-p", strconv.Itoa(pid))...)
	if end == interruptedInBackground {
		argv = append([]string{"sh", "-c", `trap "" INT; exec "$0" "$@"`}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "FENTRY_TEST_MAIN=1", "TMPDIR="+tmp)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() }).Stop()
	lines, found := bufio.NewScanner(out), false
	for !found && lines.Scan() {
		found = strings.Contains(lines.Text(), want)
	}
	if !found && strings.Contains(said.String(), "not permitted") {
		cmd.Wait()
		t.Skip(said.String())
	}
	if end == closed {
		out.Close()
	} else {
		cmd.Process.Signal(syscall.SIGINT)
		_, _ = io.Copy(io.Discard, out)
	}
	if err := cmd.Wait(); err != nil || !found || said.Len() > 0 {
		t.Errorf("%q ended with %v, found %q: %t\n%s", args, err, want, found, said.String())
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("it has left %q", left)
	}
}
