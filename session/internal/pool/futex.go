//go:build linux

package pool

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FutexWake wakes up to n of those who wait on a word of shared memory.
func FutexWake(w *atomic.Uint32, n int) {
	const futexWake = 1
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, uintptr(n), 0, 0, 0)
}

// FutexWait sleeps until the word is woken, unless it is no longer val, but not
// longer than ns.
func FutexWait(w *atomic.Uint32, val uint32, ns int64) {
	const futexWait = 0
	ts := unix.NsecToTimespec(ns)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
}
