//go:build linux

package osthread

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mayHurry tells whether this process may be less nice than it is.
func mayHurry() (may bool) {
	done := make(chan struct{})
	Go(func() {
		defer close(done)
		may = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) == nil
	})
	<-done
	return may
}

// niceness checks that of the first thread, which is always there.
func niceness(t *testing.T, want int) {
	t.Helper()
	if n := nice(os.Getpid()); n != want {
		t.Errorf("a niceness of %d, want %d", n, want)
	}
}

// All threads hurry until nobody wants that any more, if they may, and are as nice as before then.
func TestHurry(t *testing.T) {
	before := nice(os.Getpid())
	hurrying := before
	if before == 0 && mayHurry() {
		hurrying = -20
	}
	outer := Hurry()
	inner := Hurry()
	niceness(t, hurrying)
	inner()
	inner() // counts once
	niceness(t, hurrying)
	outer()
	niceness(t, before)

	came, end := HurryIn(time.Millisecond)
	<-came
	niceness(t, hurrying)
	end()
	niceness(t, before)
	came, end = HurryIn(24 * time.Hour)
	end()
	select {
	case <-came:
		t.Error("the time has come at once")
	default:
	}
	niceness(t, before)
}

// A thread gets a real-time priority, if it may have one.
func TestUrgent(t *testing.T) {
	const first = 1 // SCHED_FIFO
	policy := func() int {
		p, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
		return int(p) &^ 0x40000000
	}
	mayBe := make(chan bool)
	Go(func() { // kernels can have none for a group of processes
		priority := int32(1)
		_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, first, uintptr(unsafe.Pointer(&priority)))
		mayBe <- errno == 0
	})
	done := make(chan [3]int)
	Go(func() {
		was := policy()
		usual := Urgent()
		is := policy()
		usual()
		done <- [3]int{was, is, policy()}
	})
	p := <-done
	want := p[0]
	if may := <-mayBe; want == 0 && may {
		want = first
	}
	if p[1] != want {
		t.Errorf("policy %d became %d, want %d", p[0], p[1], want)
	}
	if p[2] != p[0] {
		t.Errorf("policy %d is %d in the end", p[0], p[2])
	}
}
