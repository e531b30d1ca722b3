package testtool

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for what comes soon on a machine with nothing else to do. It ends before testLimit.
const Patience = 10 * time.Minute

// Listening starts a command and returns when it listens at a Unix socket. At the end of the test it is killed.
//
// That the socket's file is there does not say that somebody listens, and whoever connects to find out may be the only
// one who is accepted: the kernel's list says it.
func Listening(t testing.TB, cmd *exec.Cmd, socket string) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var err error
	go func() { err = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for end := time.After(Patience); !listens(t, socket); {
		select {
		case <-ended:
			t.Fatalf("%s ended, and has not listened at %s: %v", strings.Join(cmd.Args, " "), socket, err)
		case <-end:
			t.Fatalf("%s does not listen at %s", strings.Join(cmd.Args, " "), socket)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// listens says whether somebody does at a Unix socket.
func listens(t testing.TB, socket string) bool {
	t.Helper()
	const accepts = "00010000" // __SO_ACCEPTCON
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && f[3] == accepts && f[7] == socket {
			return true
		}
	}
	return false
}
