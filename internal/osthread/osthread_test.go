//go:build linux

package osthread

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onMain runs a function on the main thread, unless that does other things all the time.
func onMain(do func()) (ran bool) {
	const most = 1000
	end, all := make(chan struct{}), make(chan struct{})
	n := 0
	for ; n < most && !ran; n++ {
		is := make(chan bool)
		go func() {
			runtime.LockOSThread()
			if main := unix.Gettid() == os.Getpid(); main {
				do()
				is <- true
			} else {
				is <- false
				<-end // that nobody else gets this thread
			}
			runtime.UnlockOSThread()
			all <- struct{}{}
		}()
		ran = <-is
	}
	close(end)
	for range n {
		<-all
	}
	return ran
}

// A function has a thread of its own, which ends with it, also if it is the main thread that has to start it.
func TestGo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is started on a thread runs there
	for range 10 {
		tids := make(chan int)
		start := func() {
			runtime.UnlockOSThread() // which onMain has locked
			Go(func() { tids <- unix.Gettid() })
			tid := <-tids
			if tid == os.Getpid() {
				t.Error("it runs on the main thread, which never ends")
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
					break
				}
				if time.Now().After(deadline) {
					t.Error("the thread goes on")
					break
				}
			}
		}
		if !onMain(start) {
			t.Log("the main thread is busy")
			start()
		}
		if t.Failed() {
			return
		}
	}
}
