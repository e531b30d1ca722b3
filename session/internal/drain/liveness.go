//go:build linux

package drain

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Liveness knows which traced processes live.
//
// Processes name themselves by the ids they see. In a PID namespace of their own
// these belong to other processes here, or to none. Those that asked for the pool are
// known by both ids (Join). Others are children of these, or of a program that has made
// the namespace itself. Such a namespace begins with process 1, and ids count upwards: as
// long as nobody has asked from one, and no id below the program's own has been seen, ids
// are taken for what they say. From then on only a process that was seen to map the pool
// under its id is asked for by its id; for others every process that maps the pool, or may
// do so, is looked at.
type Liveness struct {
	shared    procfs.SharedFile
	namespace uint64 // this process's PID namespace

	mu     sync.Mutex
	leader procfs.Process
	seen   map[int]seen             // by id, processes that recorded something
	joined map[int][]procfs.Process // by the id that they see, processes of PID namespaces
	claims map[int]int              // by the id that they see, processes of PID namespaces about which is was asked

	// OnProcess, if not nil, gets each process that recorded something, by the id it sees and the one it has here, when
	// that is noticed first. It must not wait.
	OnProcess func(pid, host int)

	strange  bool      // ids can be other processes'
	scanned  time.Time // when all processes were looked at
	scanTook time.Duration
}

// seen is what is known about a process that recorded something.
type seen struct {
	start uint64 // when it began; 0: it was not seen to map the pool under its id
	gone  bool   // it has ended
}

func NewLiveness(shared procfs.SharedFile) *Liveness {
	return &Liveness{shared: shared, namespace: procfs.PIDNamespace(os.Getpid()), seen: make(map[int]seen), joined: make(map[int][]procfs.Process),
		claims: make(map[int]int)}
}

// Start tells which process is the first. It returns when that began.
func (l *Liveness) Start(pid int) uint64 {
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = procfs.Process{Pid: pid, Inner: pid, Start: s.Start}
	return s.Start
}

// saw notes that a process recorded something.
func (l *Liveness) saw(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strange = l.strange || pid < l.leader.Pid
	if p, ok := l.seen[pid]; !ok || p.gone {
		l.look(pid)
		if host, ok := l.host(pid); ok && l.OnProcess != nil {
			l.OnProcess(pid, host)
		}
	}
}

// Join notes that the process host has asked for the pool, and that its own id is inner.
func (l *Liveness) Join(inner, host int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if inner == host {
		return
	}
	l.strange = true
	if s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", host)); err == nil {
		p := procfs.Process{Pid: host, Inner: inner, Start: s.Start}
		others := slices.DeleteFunc(l.livingJoined(inner), func(old procfs.Process) bool { return old == p })
		l.joined[inner] = append(others, p)
	}
}

// livingJoined are those of the processes which asked for the pool and see themselves as inner that live.
func (l *Liveness) livingJoined(inner int) []procfs.Process {
	ps := slices.DeleteFunc(l.joined[inner], func(p procfs.Process) bool { return !procfs.ProcessAlive(p.Pid, p.Start) })
	if len(ps) == 0 {
		delete(l.joined, inner)
	} else {
		l.joined[inner] = ps
	}
	return ps
}

// Asks returns the id here of a process that names itself by pid, in a PID namespace with a number, or one that is not
// known, 0. ok is false if it is not known.
func (l *Liveness) Asks(pid int, namespace uint64) (host int, ok bool) {
	if namespace != 0 && namespace == l.namespace {
		return pid, true
	}
	host, ok = l.Host(pid)
	if namespace == 0 && ok {
		return host, ok
	}
	if ok && host != pid && l.shared.Is(host, namespace, pid) {
		return host, true
	}
	l.mu.Lock()
	start := l.leader.Start
	l.mu.Unlock()
	if host, ok = l.shared.Inside(namespace, pid, start); ok {
		l.Join(pid, host)
	}
	return host, ok
}

// Host is the id that a traced process has here which names itself by pid. ok is false if that is not known.
func (l *Liveness) Host(pid int) (host int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.host(pid)
}

func (l *Liveness) host(pid int) (int, bool) {
	if ps := l.joined[pid]; len(ps) > 0 {
		return ps[len(ps)-1].Pid, true
	}
	return pid, !l.strange || l.known(pid)
}

// known tells whether a process has been seen to map the pool under its id.
func (l *Liveness) known(pid int) bool {
	return l.seen[pid].start != 0 || l.look(pid)
}

// trusted tells whether the process here under an id is the one that recorded something under it, as far as can be
// known. A process that has gone before anybody looked is not, once ids can be other processes'.
func (l *Liveness) trusted(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.strange || l.known(pid)
}

// is tells whether the traced process host, which sees itself as pid, is the one that recorded something under that id, as
// far as can be known: no other one that is asked for sees itself so.
func (l *Liveness) is(pid, host int) bool {
	if pid == host {
		return l.trusted(pid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.claims[pid]; ok && was != host {
		l.claims[pid] = several
	} else if len(l.claims) < mostClaims {
		l.claims[pid] = host
	}
	return l.claims[pid] == host
}

// several is the host of an id that processes of several namespaces have. Of more than mostClaims ids nothing is known.
const (
	several    = -1
	mostClaims = 1 << 16
)

// look looks whether a process maps the pool under its id. An id that a program says can meanwhile, or in this PID
// namespace, be a thread's of any process, or the recorder's, which maps it, too.
func (l *Liveness) look(pid int) bool {
	old := l.seen[pid]
	l.seen[pid] = old
	s, err := procfs.ReadProcess(pid)
	if err != nil || pid == os.Getpid() || s.Start < l.leader.Start || s.Start == old.start {
		return false
	}
	if mapped, _ := l.shared.MappedBy(pid); !mapped {
		return false
	}
	l.seen[pid] = seen{start: s.Start}
	return true
}

// owner is a chunk that a task has to itself.
type owner struct {
	chunk    int
	pid, tid int
}

// dead returns those of the owners whose task is certainly gone. All of them
// must have owned their chunks before the call.
func (l *Liveness) dead(owners []owner) []owner {
	var gone, strange []owner
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range owners {
		l.strange = l.strange || o.pid < l.leader.Pid
	}
	for _, o := range owners {
		switch {
		case l.strange && (len(l.joined[o.pid]) > 0 || !l.known(o.pid)):
			strange = append(strange, o)
		case procfs.TaskDead(o.pid, o.tid):
			gone = append(gone, o)
		}
	}
	// Looking at all processes takes milliseconds; at most a tenth of the time
	// shall go into it.
	if len(strange) == 0 || time.Since(l.scanned) < max(50*time.Millisecond, 10*l.scanTook) {
		return gone
	}
	begin := time.Now()
	mapped := make(map[int]bool)
	for _, p := range l.shared.MayMap(l.leader.Start) {
		mapped[p.Inner] = true
	}
	for _, o := range strange {
		if !mapped[o.pid] && len(l.livingJoined(o.pid)) == 0 {
			gone = append(gone, o)
		}
	}
	l.scanned = time.Now()
	l.scanTook = l.scanned.Sub(begin)
	return gone
}

// lives tells whether a thread that recorded something is known to live.
func (l *Liveness) lives(o owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	host, ok := l.host(o.pid)
	switch {
	case !ok:
		return false
	case host != o.pid:
		return len(l.livingJoined(o.pid)) > 0
	}
	return !procfs.TaskDead(o.pid, o.tid)
}

// Left tells whether traced processes other than the first, which has ended, are
// known to live. Those that have exec'ed a program that is not traced do not count.
func (l *Liveness) Left() bool {
	l.mu.Lock()
	known := make(map[int]uint64)
	for pid, p := range l.seen {
		if p.start != 0 && !p.gone && pid != l.leader.Pid {
			known[pid] = p.start
		}
	}
	l.mu.Unlock()
	for pid, start := range known {
		if !procfs.ProcessAlive(pid, start) {
			l.mu.Lock()
			l.seen[pid] = seen{start, true}
			l.mu.Unlock()
			continue
		}
		if mapped, known := l.shared.MappedBy(pid); mapped || !known {
			return true
		}
	}
	return false
}

// MappedNow tells whether any process that began with the session or later maps
// what traced processes map.
func (l *Liveness) MappedNow() bool {
	l.mu.Lock()
	start := l.leader.Start
	l.mu.Unlock()
	return len(l.shared.Mappers(start)) > 0
}
