//go:build linux

package osthread

import (
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program of hundreds of threads that all want to run lets another process wait for all of them, each time that this has had its
// share of some milliseconds. That is fair, and bad if threads of the program are stopped, or wait for an answer, until the other
// process has done what takes a tenth of a second of a processor.

// Urgent gives the calling thread a processor whenever it wants one, until the function that it returns is called, if that is
// permitted (CAP_SYS_NICE, RLIMIT_RTPRIO): before all threads that have no real-time priority. It is for one that stops others.
//
// A thread to which somebody has given a policy of scheduling keeps it. Threads that an urgent one starts are usual ones.
func Urgent() (usual func()) {
	const normal, first, resetOnFork = 0, 1, 0x40000000 // SCHED_NORMAL, SCHED_FIFO, SCHED_RESET_ON_FORK
	set := func(policy uintptr, priority int32) bool {
		_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
		return errno == 0
	}
	policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	if errno != 0 || policy != normal || !set(first|resetOnFork, 1) { // 1: the lowest of those
		return func() {}
	}
	return func() { set(normal, 0) }
}

// hurried counts those who want this process to hurry; restore is what is to be done when nobody does any more.
var hurried struct {
	mu      sync.Mutex
	n       int
	restore func()
}

// Hurry has all threads of this process be the least nice, until the function that it returns is called; if that is permitted
// (CAP_SYS_NICE, RLIMIT_NICE). A priority that somebody has chosen for the process stays. Calls may be nested.
func Hurry() (usual func()) {
	const normal, first = 0, -20
	hurried.mu.Lock()
	defer hurried.mu.Unlock()
	if hurried.n++; hurried.n == 1 {
		hurried.restore = func() {}
		if nice(os.Getpid()) == normal && renice(normal, first) {
			hurried.restore = func() { renice(first, normal) }
		}
	}
	return sync.OnceFunc(func() {
		hurried.mu.Lock()
		defer hurried.mu.Unlock()
		if hurried.n--; hurried.n == 0 {
			hurried.restore()
		}
	})
}

// HurryIn has this process hurry after some time, and closes the channel that it returns then: others could let whoever waits for a
// timer wait for much longer. end ends the wait, and the hurry.
func HurryIn(after time.Duration) (came <-chan struct{}, end func()) {
	c, ended, usual := make(chan struct{}), make(chan struct{}), func() {}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil { // too many files are open
		t := time.AfterFunc(after, func() { close(c) })
		return c, func() { t.Stop() }
	}
	Go(func() {
		defer close(ended)
		defer Urgent()()
		fd, over := []unix.PollFd{{Fd: int32(stop), Events: unix.POLLIN}}, time.Now().Add(after)
		for left := after; left > 0; left = time.Until(over) {
			const most, more = time.Hour, time.Millisecond - 1 // poll counts whole ones
			if n, _ := unix.Poll(fd, int((min(left, most)+more)/time.Millisecond)); n > 0 {
				return
			}
		}
		usual = Hurry()
		close(c)
	})
	return c, sync.OnceFunc(func() {
		_, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-ended
		_ = unix.Close(stop)
		usual()
	})
}

// nice is the niceness of a thread.
func nice(tid int) int {
	const none = 20 // what the kernel adds, turned round, so that none is an error
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return none
	}
	return none - n
}

// renice has all threads that have one niceness have another. Threads begin with that of the one that starts them, so it looks
// again until it has found no one. It reports whether it may.
func renice(from, to int) bool {
	const mostLooks = 100
	for range mostLooks {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return false
		}
		found := false
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || nice(tid) != from {
				continue
			}
			switch err := unix.Setpriority(unix.PRIO_PROCESS, tid, to); err {
			case nil:
				found = true
			case unix.ESRCH: // it has ended
			default:
				return false
			}
		}
		if !found {
			break
		}
	}
	return true
}
