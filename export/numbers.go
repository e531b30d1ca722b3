package export

import (
	"fmt"

	"github.com/fentry-dev/fentry/trace"
)

// Formats know threads, and so tracks, by their ids. A goroutine's number can be a thread's id, too, and each process has
// a goroutine 1: what has the same number is one track for those who read the file, in which nothing nests.

// firstGoroutine is where the numbers begin that goroutines have when theirs is another task's. Linux' thread ids end at
// 2^22.
const firstGoroutine = 1_000_000_000

// Numbers are the numbers of tasks in a file.
type Numbers struct {
	other map[*trace.Task]int // of goroutines whose own is another task's
}

// NewNumbers gives the goroutines of a trace numbers that nobody else has, with perProcess nobody in the same process.
// Threads have their ids.
func NewNumbers(t *trace.Trace, perProcess bool) Numbers {
	type key struct{ pid, number int }
	of := func(k *trace.Task) key {
		if perProcess {
			return key{k.PID, k.TID}
		}
		return key{0, k.TID}
	}
	taken := map[key]bool{}
	for _, k := range t.Tasks {
		if k.Goroutine == 0 {
			taken[of(k)] = true
		}
	}
	n := Numbers{map[*trace.Task]int{}}
	for i, k := range t.Tasks {
		if k.Goroutine == 0 {
			continue
		}
		if at := of(k); taken[at] || k.Goroutine >= firstGoroutine {
			n.other[k] = firstGoroutine + i
		} else {
			taken[at] = true
		}
	}
	return n
}

// Of returns a task's number.
func (n Numbers) Of(k *trace.Task) int {
	if number, ok := n.other[k]; ok {
		return number
	}
	return k.TID
}

// Name is TaskName, with the goroutine's number where another one is beside it.
func (n Numbers) Name(k *trace.Task) string {
	if _, ok := n.other[k]; ok {
		return fmt.Sprintf("goroutine %d", k.Goroutine)
	}
	return TaskName(k)
}

// TrackName is Track.Name, in the same way.
func (n Numbers) TrackName(k *Track) string {
	if k.Main() {
		return n.Name(k.Task)
	}
	return k.Name()
}
