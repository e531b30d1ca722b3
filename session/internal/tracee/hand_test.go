//go:build linux

package tracee

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that changes the number of the socket that is taken of it gets an error, and does not keep whoever hands it a
// file.
func TestTakeElsewhere(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for err == nil {
		_, err = unix.SendmsgN(pair[0], make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, fd := range map[string]int{"full": pair[0], "pipe": int(w.Fd())} {
		taken := make(chan error, 1)
		go func() {
			line, err := take(os.Getpid(), unix.Gettid(), fd)
			if err == nil {
				err = sendFile(line, 0)
				unix.Close(line)
			}
			taken <- err
		}()
		select {
		case err := <-taken:
			if err == nil {
				t.Errorf("%s: handed", name)
			}
			t.Log(name, err)
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits", name)
		}
	}
}
