//go:build linux

package tracefs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What package unix does not have: POLLRDNORM and POLLWRNORM.
const (
	readNormal  = 0x40
	writeNormal = 0x100
	edge        = 1 << 31 // EPOLLET, as it is in an event
)

// forever is how long something is waited for that comes, in ms.
const forever = 120_000

// polled is a file that is open and polled.
type polled struct {
	*mounted
	fd int
}

func (m *mounted) openPolled(name string, flags int) *polled {
	m.t.Helper()
	fd, err := unix.Open(filepath.Join(m.dir, name), unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { unix.Close(fd) })
	return &polled{m, fd}
}

// poll returns what poll(2) says; 0: nothing, in so many ms.
func (p *polled) poll(timeout int) (events int16, err error) {
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN | unix.POLLOUT | readNormal | writeNormal}}
		if _, err := unix.Poll(fds, timeout); err != unix.EINTR {
			return fds[0].Revents, err
		}
	}
}

// says checks what it says now.
func (p *polled) says(want int16) {
	p.t.Helper()
	if events, err := p.poll(0); events != want || err != nil {
		p.t.Errorf("poll says %#x, %v, want %#x", events, err, want)
	}
}

// wakes checks what whoever polls gets when something is done, before which there is nothing.
func (p *polled) wakes(want int16, do func()) {
	p.t.Helper()
	p.says(0)
	got := make(chan string)
	go func() {
		events, err := p.poll(forever)
		got <- fmt.Sprintf("%#x, %v", events, err)
	}()
	do()
	if s, want := <-got, fmt.Sprintf("%#x, %v", want, error(nil)); s != want {
		p.t.Errorf("poll says %s, want %s", s, want)
	}
}

// reads returns what a read has, "" if that would wait.
func (p *polled) reads() string {
	p.t.Helper()
	b := make([]byte, 64<<10)
	n, err := unix.Read(p.fd, b)
	for err == unix.EINTR {
		n, err = unix.Read(p.fd, b)
	}
	switch {
	case err == unix.EAGAIN:
		return ""
	case err != nil || n == 0:
		p.t.Fatalf("read: %d, %v", n, err)
	}
	return string(b[:n])
}

const readable = unix.POLLIN | readNormal

// TestPoll: poll, select and epoll say that trace_pipe can be read when there is something in it, and not before.
func TestPoll(t *testing.T) {
	m := mount(t)
	p := m.openPolled("trace_pipe", unix.O_NONBLOCK)
	mark := func() { t.Helper(); m.write("trace_marker", "hello") }
	p.says(0)
	if s := p.reads(); s != "" {
		t.Errorf("there is %q", s)
	}
	p.wakes(readable, mark)
	if lines := m.lines("trace"); len(lines) != 1 || !strings.Contains(lines[0], "hello") {
		t.Errorf("trace has %q", lines)
	}
	p.says(readable) // poll takes nothing
	if s := p.reads(); !strings.Contains(s, "hello") {
		t.Errorf("trace_pipe has %q", s)
	}
	p.says(0)
	mark()
	p.says(readable)
	m.openPolled("trace_pipe", unix.O_NONBLOCK).reads() // another one takes it
	p.says(0)

	// A descriptor is what fcntl says of it now.
	again := m.openPolled("trace_pipe", 0)
	if err := unix.SetNonblock(again.fd, true); err != nil {
		t.Fatal(err)
	}
	if s := again.reads(); s != "" {
		t.Errorf("there is %q", s)
	}

	// Who waits for an edge is told of what comes after all was read.
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	wait := func(timeout int) int {
		t.Helper()
		for {
			n, err := unix.EpollWait(epoll, make([]unix.EpollEvent, 4), timeout)
			if err != unix.EINTR && err != nil {
				t.Fatal(err)
			} else if err == nil {
				return n
			}
		}
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: int32(p.fd)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, p.fd, &event); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n := wait(0); n != 0 {
			t.Errorf("epoll says it of %d files", n)
		}
		mark()
		if n := wait(forever); n != 1 {
			t.Fatalf("epoll says it of %d files", n)
		}
		for p.reads() != "" {
		}
	}

	selects := func(timeout, want int) {
		t.Helper()
		for {
			var set unix.FdSet
			set.Set(p.fd)
			n, err := unix.Select(p.fd+1, &set, nil, nil, &unix.Timeval{Sec: int64(timeout / 1000)})
			if err == unix.EINTR {
				continue
			} else if n != want || err != nil {
				t.Errorf("select: %d, %v, want %d", n, err, want)
			}
			return
		}
	}
	selects(0, 0)
	mark()
	selects(forever, 1)
	for p.reads() != "" {
	}

	m.write("set_ftrace_filter", "schedule")
	p.wakes(readable, func() { m.write("current_tracer", "function") })
	if s := p.reads(); !strings.Contains(s, ": schedule <-") {
		t.Errorf("trace_pipe has %q", s)
	}
	m.openPolled("tracing_on", 0).says(unix.POLLIN | unix.POLLOUT | readNormal | writeNormal)
}

// TestPollEnds: who polls trace_pipe is told when nothing will come any more.
func TestPollEnds(t *testing.T) {
	m := mount(t)
	m.write("set_ftrace_filter", "schedule_idle")
	instance := filepath.Join(m.dir, "instances/a")
	if err := os.Mkdir(instance, 0o700); err != nil {
		t.Fatal(err)
	}
	a, p := m.openPolled("instances/a/trace_pipe", 0), m.openPolled("trace_pipe", 0)
	a.wakes(readable|unix.POLLHUP, func() {
		if err := os.Remove(instance); err != nil {
			t.Error(err)
		}
	})
	p.wakes(readable|unix.POLLHUP, func() { m.programIn.Close() })
}
