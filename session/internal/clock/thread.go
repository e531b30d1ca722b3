//go:build linux

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// A Stretch is some work of the calling thread, which tells whether the processor was there for it. Work that takes much
// more time than it needs of the processor is shared with somebody: that is how it is seen that others want one. The
// goroutine must be locked to its thread.
type Stretch struct {
	began time.Time
	used  time.Duration
}

// Begin begins one.
func Begin() Stretch { return Stretch{time.Now(), threadTime()} }

// Took is how long the work has taken until now.
func (s Stretch) Took() time.Duration { return time.Since(s.began) }

// Shared tells whether the thread has had to wait for its processor. Of a very short stretch nobody knows.
func (s Stretch) Shared() bool {
	took := s.Took()
	return took > time.Millisecond/2 && threadTime()-s.used < took*3/4
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
