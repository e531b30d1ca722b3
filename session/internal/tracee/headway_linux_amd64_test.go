package tracee

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a thread has on its stack is forgotten when it has run for long enough, or does nothing, however often it was looked at.
func TestHeadway(t *testing.T) {
	work, worked, tid := make(chan time.Duration), make(chan bool), make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- syscall.Gettid()
		for long := range work {
			var began, now unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &began)
			for now = began; time.Duration(now.Nano()-began.Nano()) < long; {
				_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
			}
			worked <- true
		}
	}()
	defer close(work)
	runs := &thread{regs: &registers{}}
	runs.pid = <-tid
	runs.regs.noRestart()
	d := &detaching{ts: &threads{pid: os.Getpid()}, headways: map[int]*headway{}}
	look := func() *headway {
		d.tries++
		d.owed = false
		return d.headwayOf(runs)
	}
	const at, v, looks = 0x1000, 0x2000, 2
	if !look().held(at, v, looks) {
		t.Error("a word is forgotten at once")
	}
	if d.ts.ranFor(runs.pid) == 0 {
		t.Skip("the kernel does not tell how long threads have run for (schedstat)")
	}
	for range 2 * unwindTries {
		if h := look(); h.looks > 0 || !d.owed || !h.held(at, v, looks) {
			t.Fatalf("a thread that got no processor: %+v, owed %v", h, d.owed)
		}
	}
	work <- 2 * looks * headwayTime // the kernel adds it up at its ticks
	<-worked
	for deadline := time.Now().Add(time.Minute); look().looks < looks && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	h := d.headwayOf(runs)
	if h.looks < looks || h.held(at, v, looks) {
		t.Fatalf("it ran: %+v", h)
	}
	if !h.held(at, v+1, looks) || !h.held(at+8, v, looks) {
		t.Errorf("other words are forgotten: %+v", h)
	}
	runs.halted = true
	for range looks {
		if was := h.looks; look().looks != was+1 {
			t.Fatalf("a stopped thread: %+v", h)
		}
	}
	if h.held(at, v+1, looks) {
		t.Error("a stopped thread has what it had")
	}
}
