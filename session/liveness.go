//go:build linux

package session

import (
	"fmt"
	"sync"
	"time"
)

// liveness knows which traced processes live.
//
// Processes name themselves by the ids they see. In a PID namespace of their own
// these are other processes here, or none. Ids count upwards, so one below the
// program's own is taken for such a stranger, and only a look at every process
// that maps the pool decides about it.
type liveness struct {
	shared sharedFile

	mu     sync.Mutex
	leader process
	seen   map[int]uint64 // traced processes by id: when they began

	mapped     map[int]bool // innermost ids of the processes that map the pool
	mappedTime time.Time
}

func newLiveness(shared sharedFile) *liveness {
	return &liveness{shared: shared, seen: make(map[int]uint64)}
}

// start tells which process is the first.
func (l *liveness) start(pid int) uint64 {
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = process{pid: pid, inner: pid, start: s.start}
	return s.start
}

// saw notes that a process recorded something.
func (l *liveness) saw(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[pid]; ok {
		return
	}
	l.seen[pid] = 0
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && s.start >= l.leader.start {
		l.seen[pid] = s.start
	}
}

// dead tells whether a task that owns a chunk is certainly gone.
func (l *liveness) dead(pid, tid int) bool {
	if !taskDead(pid, tid) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid >= l.leader.pid {
		return true
	}
	if time.Since(l.mappedTime) > time.Second {
		l.mapped = make(map[int]bool)
		for _, p := range l.shared.mappers(l.leader.start) {
			l.mapped[p.inner] = true
		}
		l.mappedTime = time.Now()
	}
	return !l.mapped[pid]
}

// left returns the traced processes that still live, other than the first.
// Those that have exec'ed a program that is not traced are not counted.
func (l *liveness) left() []process {
	l.mu.Lock()
	leader := l.leader
	known := make([]process, 0, len(l.seen))
	for pid, start := range l.seen {
		if start != 0 && pid != leader.pid {
			known = append(known, process{pid: pid, inner: pid, start: start})
		}
	}
	l.mu.Unlock()
	var live []process
	for _, p := range known {
		if !processAlive(p.pid, p.start) {
			continue
		}
		if mapped, known := l.shared.mappedBy(p.pid); mapped || !known {
			live = append(live, p)
		}
	}
	if len(live) > 0 {
		return live
	}
	// A child that was forked a moment ago has recorded nothing yet.
	for _, p := range l.shared.mappers(leader.start) {
		live = append(live, p)
		l.mu.Lock()
		if l.seen[p.pid] == 0 {
			l.seen[p.pid] = p.start
		}
		l.mu.Unlock()
	}
	return live
}
