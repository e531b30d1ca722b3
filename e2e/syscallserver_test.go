package e2e

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSyscallServer compares the system calls of a server with those that strace sees, for the same requests of a client.
// What it does by the clock depends on how long it runs, which with strace is longer: of that nothing is said.
func TestSyscallServer(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "strace", "gcc")
	needFentry(t)
	b := buildProgram(t, corpus.Redis, kindNamed(t, "patchable"))
	const requests = 500
	serve := func(argv ...string) {
		s := startServer(t, b, append(argv, filepath.Join(b.Dir, "src", "redis-server")))
		c, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for range requests {
			fmt.Fprint(c, "PING\r\n")
			if line, err := r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		fmt.Fprint(c, "SHUTDOWN NOSAVE\r\n")
		if err := s.wait(t); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, clip(s.out.String()))
		}
	}
	dir := t.TempDir()
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "log")
	serve(fentry, "record", "-q", "--syscalls", "-F", "none", "-o", data)
	serve("strace", "-f", "-qq", "-o", log)
	have, want := recordedSyscalls(t, data, syscallNumbers(t)), stracedLog(t, log)
	timed := []string{"epoll_wait", "futex", "openat", "read", "close", "madvise", "getpid", "mmap", "mprotect", "brk"}
	for name, n := range want {
		d := have[name] - n
		switch {
		case name == "execve": // the program's own
		case slices.Contains(timed, name):
		case have[name] == 0, d < -4, d > 4:
			t.Errorf("%s: %d, strace has %d", name, have[name], n)
		}
	}
	for name, n := range have {
		if want[name] == 0 && !slices.Contains(timed, name) {
			t.Errorf("%s: %d, strace has none", name, n)
		}
	}
	if have["write"] < requests || have["read"] < requests {
		t.Errorf("%d writes and %d reads for %d requests", have["write"], have["read"], requests)
	}
}
