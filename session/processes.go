//go:build linux

package session

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// Processes, as seen from outside: what they call themselves, and how they end. The runtime cannot tell: a title is
// written over the arguments, without a call of anything, and a kill asks nobody.
//
// A descriptor of the process (pidfd) is opened as soon as it is seen, when it announces its program or when a chunk of
// it is collected. It becomes readable when the process ends, and from Linux 6.15 on it tells the exit status even
// after the parent has waited for the process. On older kernels /proc has the status until then, so it is a race that
// the parent often wins. Becoming the parent of what the program leaves behind was not an option: programs see that.
//
// Titles are read now and then, a bounded number at a time: a title between two readings is missed. Reading one reads
// the process's memory, and a process can make that take for ever (userfaultfd). So it is done apart from everything
// else, and nobody waits for it.
type processes struct {
	mu   sync.Mutex
	list []*process       // by the time they were first seen
	last map[int]*process // by id, the last one seen, which may have ended
	live map[int]*process // by id, those of list that have not ended
	fds  int
	room int // for descriptors
	turn int // whose title is to be read next, a position in list

	tasks seenTasks

	owners, titles, names pulse // when it is looked for each

	stop chan struct{}
	wake int           // an eventfd that tells who waits for ends of stop; -1: none
	done chan struct{} // nobody waits for ends any more
}

type process struct {
	trace.InfoProcess        // PID as the process sees it
	host              int    // its id here: another one if it is in a PID namespace
	start             uint64 // /proc/PID/stat
	fd                int    // -1: none
	title             string
}

const (
	mostProcesses = 20_000 // in info.json
	mostPidfds    = 512
	mostTitles    = 64 // of a process: the first and the last ones
	mostTitle     = 4096
	titlesATick   = 64
	titleTick     = 100 * time.Millisecond
	findTick      = 20 * time.Millisecond
)

func newProcesses() *processes {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		wake = -1 // it takes findTick at most
	}
	return &processes{
		last: make(map[int]*process), live: make(map[int]*process), stop: make(chan struct{}), done: make(chan struct{}),
		owners: make(pulse, 1), titles: make(pulse, 1), names: make(pulse, 1),
		wake: wake,
		room: int(min(limit.Cur/4, mostPidfds)), // others need some, too
	}
}

// A pulse has who looks at processes look when the drainer does: each timer of its own would wake Go's runtime some more
// times a second, which costs more than the looks do while nothing happens.
type pulse chan struct{}

// noPulse is how long who looks waits for a pulse: while something else is done with the pool there is none.
const noPulse = time.Second

// look tells that the drainer has looked.
func (ps *processes) look() {
	for _, p := range []pulse{ps.owners, ps.titles, ps.names} {
		select {
		case p <- struct{}{}:
		default:
		}
	}
}

// wait waits for a pulse, and until a time. It returns false if stop was closed.
func (p pulse) wait(next time.Time, stop <-chan struct{}) bool {
	select {
	case <-p:
	case <-time.After(noPulse):
	case <-stop:
		return false
	}
	if rest := time.Until(next); rest > 0 {
		select {
		case <-time.After(rest):
		case <-stop:
			return false
		}
	}
	return true
}

// monotonic is CLOCK_MONOTONIC in ns.
func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// saw notes a process that says it is traced, or recorded something: by the id it sees, and the one it has here. It does
// not wait for the process.
func (ps *processes) saw(pid, host int) {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	st, err := procfs.ReadProcess(host)
	if err != nil {
		return
	}
	// One that has ended, and for which nobody has waited, is still there: it is not another one.
	if old := ps.last[pid]; old != nil && old.host == host && old.start == st.Start {
		return
	}
	defer ps.again()
	if old := ps.live[pid]; old != nil {
		ps.ended(old)
		if old.host != host {
			old.Ended = 0 // it is in another PID namespace, and is not looked after any longer
		}
	}
	if len(ps.list) >= mostProcesses {
		return
	}
	p := &process{start: st.Start, host: host, fd: -1}
	p.PID, p.Parent, p.Seen = pid, ps.name(st.Parent), monotonic()
	if ps.fds < ps.room {
		if fd, err := unix.PidfdOpen(host, 0); err == nil {
			p.fd = fd
			ps.fds++
		}
	}
	ps.list = append(ps.list, p)
	ps.last[pid], ps.live[pid] = p, p
}

// name is what the process that has an id here calls itself. The caller has the lock.
func (ps *processes) name(host int) int {
	for pid, p := range ps.live {
		if p.host == host {
			return pid
		}
	}
	return host
}

// findProcesses looks who owns chunks: a forked child announces nothing but that it is there, and may have ended when its
// first chunk is full.
func (s *session) findProcesses(stop <-chan struct{}) {
	for next := time.Now(); s.processes.owners.wait(next, stop); {
		began, last := time.Now(), 0
		for i := range s.pool.InUse {
			if s.pool.State(i).Load() != format.StateOwned {
				continue
			}
			if pid := s.pool.PID(i); pid != 0 && pid != last {
				last = pid
				if s.processes.knows(pid) {
					continue
				}
				if host, ok := s.live.Host(pid); ok {
					s.saw(pid, host)
				}
			}
		}
		now := time.Now() // with tens of thousands of threads it has taken a while
		next = now.Add(max(findTick, 50*now.Sub(began)))
	}
}

// knows tells whether a process is being watched under that id.
func (ps *processes) knows(pid int) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.live[pid] != nil
}

// watch waits for processes to end, until end is called.
func (ps *processes) watch() {
	defer close(ps.done)
	var fds []unix.PollFd
	var of []*process
	for ps.goOn() {
		ps.mu.Lock()
		fds, of = append(fds[:0], unix.PollFd{Fd: int32(ps.wake), Events: unix.POLLIN}), append(of[:0], nil)
		for _, p := range ps.live {
			if p.fd >= 0 {
				fds = append(fds, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
				of = append(of, p)
			}
		}
		ps.mu.Unlock()
		wait := -1
		if ps.wake < 0 {
			wait = int(findTick / time.Millisecond)
		}
		if n, _ := unix.Poll(fds, wait); n <= 0 {
			continue
		}
		if fds[0].Revents != 0 {
			_, _ = unix.Read(ps.wake, make([]byte, 8))
		}
		ps.mu.Lock()
		for i := range fds {
			if fds[i].Revents != 0 && of[i] != nil {
				ps.ended(of[i])
			}
		}
		ps.mu.Unlock()
	}
}

// again has watch look anew which processes there are. A wait that ends by itself, many times a second, would cost more
// than the whole recorder does while nothing happens: Go's runtime looks after each thread that is in a system call.
func (ps *processes) again() { _, _ = unix.Write(ps.wake, le.AppendUint64(nil, 1)) }

func (ps *processes) goOn() bool {
	select {
	case <-ps.stop:
		return false
	default:
		return true
	}
}

// watchTitles reads titles until end is called, or for ever if a process holds it up.
func (ps *processes) watchTitles() {
	for ps.titles.wait(time.Now().Add(titleTick), ps.stop) {
		for range titlesATick {
			p := ps.next()
			if p == nil {
				break
			}
			text := readCommandLine(p.host)
			ps.mu.Lock()
			if ps.live[p.PID] == p { // else it can be another process's
				p.called(text)
			}
			ps.mu.Unlock()
		}
	}
}

// next returns the process whose title is to be read; nil: all have been read in this round.
func (ps *processes) next() *process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for ; ps.turn < len(ps.list); ps.turn++ {
		if p := ps.list[ps.turn]; ps.live[p.PID] == p {
			ps.turn++
			return p
		}
	}
	ps.turn = 0
	return nil
}

// called notes what the process calls itself now.
func (p *process) called(text string) {
	if text == "" || text == p.title {
		return // a process that ends has none any more
	}
	p.title = text
	if len(p.Titles) >= mostTitles {
		p.Titles = slices.Delete(p.Titles, mostTitles/2, mostTitles/2+1)
	}
	p.Titles = append(p.Titles, trace.InfoTitle{Monotonic: monotonic(), Text: text})
}

// readCommandLine reads /proc/PID/cmdline, with blanks for NULs.
func readCommandLine(pid int) string {
	b, err := procfs.ReadOnce(procfs.Dir(pid)+"/cmdline", make([]byte, mostTitle))
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})), " ")
}

// ended notes that a process has ended, and how, if that can be known. The caller has the lock.
func (ps *processes) ended(p *process) {
	p.Ended = monotonic()
	if ps.live[p.PID] == p {
		delete(ps.live, p.PID)
	}
	if p.fd >= 0 {
		// What /proc knows goes when the parent has waited, and what the descriptor knows comes then.
		status, ok := zombieStatus(p.host, p.start)
		if ok {
			p.tell(status, trace.ExitProc)
		} else if status, ok = pidfdStatus(p.fd); ok {
			p.tell(status, trace.ExitPidfd)
		}
		unix.Close(p.fd)
		p.fd = -1
		ps.fds--
	}
}

func (p *process) tell(status syscall.WaitStatus, source trace.ExitSource) {
	p.Source, p.ExitStatus, p.Signal = source, status.ExitStatus(), 0
	if status.Signaled() {
		p.ExitStatus, p.Signal = -1, int(status.Signal())
	}
}

// pidfdInfo is struct pidfd_info of linux/pidfd.h as of Linux 6.15.
type pidfdInfo struct {
	mask, cgroup    uint64
	pid, tgid, ppid uint32
	ids             [8]uint32
	exitCode        int32
}

const (
	pidfdInfoExit = 1 << 3
	// _IOWR(0xff, 11, struct pidfd_info)
	pidfdGetInfo = 3<<30 | unsafe.Sizeof(pidfdInfo{})<<16 | 0xff<<8 | 11
)

// pidfdStatus asks the kernel how the process of a descriptor ended. ok is false if it does not tell: before Linux
// 6.15, or because the parent has not waited yet.
func pidfdStatus(fd int) (status syscall.WaitStatus, ok bool) {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if err != 0 || info.mask&pidfdInfoExit == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.exitCode), true
}

// zombieStatus reads the exit status of a process for which its parent has not waited yet. The kernel shows 0 to whom
// it does not want to tell: so 0 is believed only where it tells everything.
func zombieStatus(pid int, start uint64) (status syscall.WaitStatus, ok bool) {
	st, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || st.Start != start || !st.Dead() {
		return 0, false
	}
	return syscall.WaitStatus(st.ExitCode), st.ExitCode != 0 || procfs.SameUser(pid)
}

// end stops looking, and returns what was seen of the processes that recorded something. The process leader has ended
// with status, if over.
func (ps *processes) end(recorded map[int]bool, leader int, status syscall.WaitStatus, over bool) []trace.InfoProcess {
	close(ps.stop)
	ps.again()
	<-ps.done
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.list {
		if ps.live[p.PID] == p && p.fd >= 0 && readable(p.fd) {
			ps.ended(p)
		}
		if p.PID == leader && over {
			if p.Ended == 0 {
				p.Ended = monotonic()
			}
			p.tell(status, trace.ExitWaited)
			over = false // a later one has the id again
		}
	}
	return ps.those(recorded)
}

// now returns what is known of the processes that have recorded something.
func (ps *processes) now(recorded map[int]bool) []trace.InfoProcess {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.those(recorded)
}

func (ps *processes) those(recorded map[int]bool) (out []trace.InfoProcess) {
	for _, p := range ps.list {
		if recorded[p.PID] {
			out = append(out, p.InfoProcess)
			last := &out[len(out)-1]
			last.Titles = slices.Clone(last.Titles)
		}
	}
	return out
}

// close gives up what is still open.
func (ps *processes) close() {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.live {
		if p.fd >= 0 {
			unix.Close(p.fd)
		}
	}
	clear(ps.live)
	if ps.wake >= 0 {
		unix.Close(ps.wake)
		ps.wake = -1
	}
}

// readable tells whether the process of a descriptor has ended.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
