//go:build linux

package session

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// Tasks that record nothing occur in the arguments and results of system calls all the same: a thread in which no traced
// function runs, a child that has executed a program that is not traced. What they are called only /proc knows, and
// only while they live. So all threads of traced processes, and their children, are looked at now and then. One that
// comes and goes between two looks has no name; it is named as its creator was when it began (trace.Made).
//
// A look costs some microseconds a task. It is followed by a pause of 50 times that.

const (
	mostTasks = 20_000 // in info.json
	taskTick  = 50 * time.Millisecond
)

// taskKey tells tasks with the same id apart.
type taskKey struct {
	tid   int
	start uint64
}

// seenTasks are the tasks that were seen, by when they got the names that they had last.
type seenTasks struct {
	list []trace.InfoTask
	at   map[taskKey]int // position in list
}

// see notes that a task has a name.
func (s *seenTasks) see(k taskKey, pid int, name string) {
	i, known := s.at[k]
	if known && s.list[i].Name == name || name == "" {
		return
	}
	if !known {
		if i = len(s.list); i >= mostTasks {
			return
		}
		if s.at == nil {
			s.at = make(map[taskKey]int)
		}
		s.at[k] = i
		s.list = append(s.list, trace.InfoTask{TID: k.tid, Start: k.start})
	}
	s.list[i].PID, s.list[i].Name, s.list[i].Seen = pid, name, monotonic()
}

// watchTasks looks at tasks until end is called.
func (ps *processes) watchTasks() {
	for next := time.Now(); ps.names.wait(next, ps.stop); {
		began := time.Now()
		ps.mu.Lock()
		var hosts []int
		for pid, p := range ps.live {
			if pid == p.host { // else others' ids mean nothing here
				hosts = append(hosts, pid)
			}
		}
		ps.mu.Unlock()
		for _, pid := range hosts {
			ps.lookAt(pid, true)
		}
		now := time.Now()
		next = now.Add(max(taskTick, 50*now.Sub(began)))
	}
}

// lookAt looks at the threads of a process, and at its children.
func (ps *processes) lookAt(pid int, children bool) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(mostTasks)
	d.Close()
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		task := dir + "/" + name
		if st, err := procfs.ReadStat(task + "/stat"); err == nil {
			ps.mu.Lock()
			ps.tasks.see(taskKey{tid, st.Start}, pid, st.Name)
			ps.mu.Unlock()
		}
		if !children {
			continue
		}
		for _, child := range readIDs(task + "/children") {
			ps.mu.Lock()
			traced := ps.live[child] != nil
			ps.mu.Unlock()
			if !traced {
				ps.lookAt(child, false)
			}
		}
	}
}

// readIDs reads a file of ids, as far as they fit into a page; nil: the kernel has none.
func readIDs(path string) (ids []int) {
	b, err := procfs.ReadOnce(path, make([]byte, 4096))
	if err != nil {
		return nil
	}
	for f := range strings.FieldsSeq(string(b)) {
		if id, err := strconv.Atoi(f); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// named are the tasks that were seen, by the time their names were.
func (ps *processes) named() []trace.InfoTask {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	slices.SortStableFunc(ps.tasks.list, func(a, b trace.InfoTask) int { return int(int64(a.Seen - b.Seen)) })
	list := ps.tasks.list
	ps.tasks = seenTasks{}
	return list
}
