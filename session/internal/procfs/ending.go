//go:build linux

package procfs

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Processes that are about to end.
//
// Who has killed a process can go on long before it is gone: the kernel wakes its threads, and each of them gives up what it has, on
// its own. Until then it is seen as one that lives, and what it traces is traced.

// endPause is the time between two looks at a process that is about to end.
const endPause = time.Millisecond

// Ending tells whether a thread certainly executes nothing of its program any more: it is gone, or on its way out, or has been killed.
func Ending(pid, tid int) bool {
	ending, _ := lookAt(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	return ending
}

// lookAt tells of a thread, which has a directory in /proc, whether it ends, and whether it has been killed, and so all threads
// of its process: SIGKILL is pending for each of them until it takes it, and is marked then.
func lookAt(dir string) (ending, killed bool) {
	s, err := ReadStat(dir + "/stat")
	if err != nil {
		return true, false
	}
	if killed = s.Killed; !killed {
		b, err := os.ReadFile(dir + "/status")
		if err != nil {
			return true, false
		}
		killed = pending(b, "SigPnd", unix.SIGKILL) || pending(b, "ShdPnd", unix.SIGKILL)
	}
	return killed || s.Dead() || s.Exiting, killed
}

// pending tells whether a signal is in a set of a status file.
func pending(status []byte, key string, signal unix.Signal) bool {
	set, err := signalSet(status, key)
	return err == nil && set>>(signal-1)&1 != 0
}

// AwaitEnd waits for the end of a process that began at start, as long as that is certain, until a deadline. It returns whether it
// has ended.
func AwaitEnd(pid int, start uint64, deadline time.Time) bool {
	return await(deadline, func() bool { return !ProcessAlive(pid, start) }, func() bool {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		tasks, _ := os.ReadDir(dir) // an error: it is gone
		// One that takes its SIGKILL just now is not seen to be killed; others are.
		all := true
		for _, t := range tasks {
			ending, killed := lookAt(filepath.Join(dir, t.Name()))
			if killed {
				return true
			}
			all = all && ending
		}
		return all
	})
}

// AwaitTask is AwaitEnd for a thread, of whatever process.
func AwaitTask(tid int, deadline time.Time) bool {
	return await(deadline, func() bool {
		s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", tid))
		return err != nil || s.Dead()
	}, func() bool { return Ending(tid, tid) })
}

func await(deadline time.Time, over, certain func() bool) bool {
	for !over() {
		if !certain() || time.Now().After(deadline) {
			return false
		}
		time.Sleep(endPause)
	}
	return true
}
