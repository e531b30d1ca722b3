package parallel

import (
	"os"
	"runtime"
	"sync/atomic"
)

// A goroutine that waits in a system call, other than those of which Go's scheduler knows when they are over, keeps one
// of the GOMAXPROCS processors that goroutines share, until a thread looks that sleeps for up to 10 ms. With as many of
// them as processors, what another one is to do comes so much later.

const (
	waiters = 2 // at once, beside what runs
	few     = 8 // processors; where there are more, some are free
)

var added atomic.Int32

// Waiters provides for goroutines that wait in system calls, as those of a recorder do. It is for commands that have
// the process to themselves, before they begin. GOMAXPROCS in the environment is obeyed.
func Waiters() {
	if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && n < few && added.CompareAndSwap(0, waiters) {
		runtime.GOMAXPROCS(n + waiters)
	}
}

// Processors is how many processors there are for work.
func Processors() int { return runtime.GOMAXPROCS(0) - int(added.Load()) }
