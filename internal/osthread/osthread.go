//go:build linux

// Package osthread runs functions on system threads of their own, which end with them.
package osthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Go runs a function on a system thread of its own, in a goroutine, as a go statement does. The thread ends when the
// function returns, and with it all that belongs to threads: whatever it still traces (ptrace(2)) is let go.
//
// So it is never the main thread. That ends with the process only: Go has it wait instead. A process that it traces would
// stay stopped, and a child of one that was killed meanwhile could not be waited for.
func Go(do func()) { go lock(do) }

func lock(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		do()
		return // locked: the thread ends
	}
	locked := make(chan struct{})
	go func() {
		runtime.LockOSThread() // another one, as the main thread is taken
		close(locked)
		do()
	}()
	<-locked
	runtime.UnlockOSThread()
}
