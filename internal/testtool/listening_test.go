package testtool

import (
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A socket that nobody listens at, though its file is there, is waited for; a command that ends fails the test.
func TestListening(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if listens(t, socket) {
		t.Error("nobody listens yet")
	}
	listening := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { listening <- syscall.Listen(fd, 1) })
	cmd := exec.Command("sleep", "1003")
	Listening(t, cmd, socket)
	if err := <-listening; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("unix", socket); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	f := &fake{}
	func() {
		defer func() { _ = recover() }()
		Listening(ending{f, t}, exec.Command("true"), socket+"2")
	}()
	if !f.failed {
		t.Error("a command that ends does not fail the test")
	}
}

// ending is a fake whose cleanups are the test's.
type ending struct {
	*fake
	t *testing.T
}

func (e ending) Cleanup(fn func()) { e.t.Cleanup(fn) }
