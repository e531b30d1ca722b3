//go:build linux

package procfs

import (
	"errors"
	"fmt"
	"os"
)

// ErrEnded: the process is gone, or runs another program.
var ErrEnded = errors.New("it has ended")

// mostThreads bounds how many threads of a process are asked for something, one after the other, that end meanwhile.
const mostThreads = 1000

// LiveThread returns the directory in /proc of a thread that has memory: the first one, as long as there is that. What belongs
// to all threads is not to be read by one that has given its memory up, even before it is seen to have ended.
func LiveThread(pid int) (string, error) {
	first := fmt.Sprintf("/proc/%d/task/%d", pid, pid)
	if hasMemory(first) {
		return first, nil
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return "", ErrEnded
	}
	for _, task := range tasks {
		if dir := fmt.Sprintf("/proc/%d/task/%s", pid, task.Name()); hasMemory(dir) {
			return dir, nil
		}
	}
	return "", ErrEnded
}

// hasMemory tells whether a thread has memory, of which this process may know.
func hasMemory(dir string) bool {
	b, err := os.ReadFile(dir + "/auxv")
	return err == nil && len(b) > 0
}

// Dir is the directory of a process in /proc, or if its first thread has ended and others go on that of one of these.
func Dir(pid int) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	if live, err := LiveThread(pid); err == nil && live != fmt.Sprintf("%s/task/%d", dir, pid) {
		return live
	}
	return dir
}

// InLive does something with the directory in /proc of a thread that has memory, and once more with another thread's if that
// one ends meanwhile. The error is that of do, or [ErrEnded].
func InLive(pid int, do func(dir string) error) error {
	for left := mostThreads; ; left-- {
		dir, err := LiveThread(pid)
		if err != nil {
			return err
		}
		if err = do(dir); err == nil || left == 0 {
			return err
		}
		if now, ended := LiveThread(pid); ended != nil {
			return ended
		} else if now == dir {
			return err
		}
	}
}
