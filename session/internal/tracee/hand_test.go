//go:build linux

package tracee

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that changes the number of the socket that it is sent a file through gets an error, and does not keep whoever
// sends.
func TestSendElsewhere(t *testing.T) {
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
		sent := make(chan error, 1)
		go func() { sent <- send(os.Getpid(), unix.Gettid(), fd, 0) }()
		select {
		case err := <-sent:
			if err == nil {
				t.Errorf("%s: sent", name)
			}
			t.Log(name, err)
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits", name)
		}
	}
}
