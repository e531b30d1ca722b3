//go:build linux

package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Events are inherited: there is one for each processor, because the memory that records are written to
// (perf_event_open(2), "MMAP layout") cannot be shared by processors otherwise. No privilege is needed up to
// kernel.perf_event_paranoid 2: what is asked for is about this user's own programs, and not about the kernel.

// mostCPUs bounds what threads cost: the kernel makes an event for each of them and each processor.
const mostCPUs = 64

// Sizes of the memory for the records of one processor, in bytes. An unprivileged user has 512 KiB and a page for each
// (kernel.perf_event_mlock_kb).
const (
	largestRing = 512 << 10
	leastRing   = 16 << 10
	allRings    = 16 << 20
)

// Open returns a ring for each processor that is online, which tells of pid and all that it starts from now on. Records
// become readable when a quarter of a ring is full.
func Open(pid int, attr unix.PerfEventAttr) ([]*Ring, error) {
	cpus, err := onlineCPUs("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	if len(cpus) > mostCPUs {
		return nil, fmt.Errorf("there are %d processors: every thread would take the kernel an event for each", len(cpus))
	}
	size := largestRing
	for size > leastRing && size*len(cpus) > allRings {
		size /= 2
	}
	for ; ; size /= 2 {
		rings, err := openRings(pid, cpus, size, attr)
		if err == nil || size <= leastRing || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			return rings, err
		}
	}
}

// OpenRunning is Open for a process that runs already, with all of its threads: but for those, if any, that begin while
// this looks at which there are. It returns their ids, too.
func OpenRunning(pid int, attr unix.PerfEventAttr) (rings []*Ring, tids []int, err error) {
	if tids, err = procfs.Threads(pid); err != nil {
		return nil, nil, err
	}
	// The first thread can have ended while others go on.
	for i, tid := range tids {
		rings, err = Open(tid, attr)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err == nil {
			err = addAll(rings, tids[i+1:], attr)
		}
		if err != nil {
			Close(rings)
			return nil, nil, err
		}
		return rings, tids, nil
	}
	return nil, nil, fmt.Errorf("perf events of process %d: %w", pid, unix.ESRCH)
}

// mostEvents bounds the events of threads that are there already: each is a file, and takes the kernel some 10 us to make.
const mostEvents = 1 << 14

// addAll has rings tell of more threads. Half of the files that can be open are for others.
func addAll(rings []*Ring, tids []int, attr unix.PerfEventAttr) error {
	events, most := uint64(len(tids)*len(rings)), unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return err
	}
	if room := min(most.Cur/2, mostEvents); events > room {
		return fmt.Errorf("its threads would take %d perf events, one each for each processor, and %d is the most", events, room)
	}
	for _, tid := range tids {
		for _, r := range rings {
			if err := r.add(tid, attr); err != nil && !errors.Is(err, unix.ESRCH) { // else it has ended
				return err
			}
		}
	}
	return nil
}

// add has a ring tell of one more thread, and of what that starts.
func (r *Ring) add(tid int, attr unix.PerfEventAttr) error {
	attr.Bits |= inherited
	attr.Clockid = unix.CLOCK_MONOTONIC
	fd, err := open(tid, r.cpu, attr)
	if err != nil {
		return err
	}
	r.more = append(r.more, fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.fd); err != nil {
		return fmt.Errorf("perf events of thread %d: %w", tid, err)
	}
	return nil
}

// inherited are the bits of all events: those of what a thread starts belong to it, with the time of a clock.
const inherited = unix.PerfBitInherit | unix.PerfBitUseClockID

func openRings(pid int, cpus []int, size int, attr unix.PerfEventAttr) (rings []*Ring, err error) {
	defer func() {
		if err != nil {
			Close(rings)
			rings = nil
		}
	}()
	for _, cpu := range cpus {
		r, err := openRing(pid, cpu, size, attr)
		if errors.Is(err, unix.ENODEV) {
			continue // has gone offline
		}
		if err != nil {
			return rings, err
		}
		rings = append(rings, r)
	}
	return rings, nil
}

// Close gives all rings back.
func Close(rings []*Ring) {
	for _, r := range rings {
		_ = unix.Munmap(r.mem)
		unix.Close(r.fd)
		for _, fd := range r.more {
			unix.Close(fd)
		}
	}
}

// onlineCPUs reads a list of processors, such as 0-3,8.
func onlineCPUs(path string) (cpus []int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") {
		first, last, several := strings.Cut(part, "-")
		if !several {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from || to-from >= 1<<16 {
			return nil, fmt.Errorf("%s: %q is no list of processors", path, b)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// A Ring is the kernel's records from one processor, oldest first.
type Ring struct {
	fd   int
	cpu  int
	more []int  // events of other threads, that write to it
	mem  []byte // a page that says where records begin and end, then data
	data []byte
}

// Fields of struct perf_event_mmap_page.
const (
	dataHead = 1024 // u64, counts bytes that the kernel has written
	dataTail = 1032 // u64, counts bytes that were read
)

// NewRing returns a ring in memory that begins with a page of so many bytes.
func NewRing(mem []byte, page int) *Ring { return &Ring{fd: -1, mem: mem, data: mem[page:]} }

// paranoid tells how much the kernel lets unprivileged users see.
const paranoid = "/proc/sys/kernel/perf_event_paranoid"

// open opens an event.
func open(pid, cpu int, attr unix.PerfEventAttr) (int, error) {
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		err = fmt.Errorf("perf_event_open: %w", err)
		if b, _ := os.ReadFile(paranoid); len(b) > 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
			err = fmt.Errorf("%w (kernel.perf_event_paranoid is %s)", err, strings.TrimSpace(string(b)))
		}
	}
	return fd, err
}

// Try says why such an event cannot be opened; nil: it can.
func Try(attr unix.PerfEventAttr) error {
	fd, err := open(0, -1, attr)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func openRing(pid, cpu, size int, attr unix.PerfEventAttr) (*Ring, error) {
	attr.Bits |= inherited | unix.PerfBitWatermark
	attr.Wakeup, attr.Clockid = uint32(size/4), unix.CLOCK_MONOTONIC
	fd, err := open(pid, cpu, attr)
	if err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, page+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("memory for perf events: %w", err)
	}
	return &Ring{fd: fd, cpu: cpu, mem: mem, data: mem[page:]}, nil
}

func (r *Ring) word(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.mem[off])) }

// Header is the length of the header of a record: type u32, flags u16, size u16.
const Header = 8

// Read hands all records to add, of each at most so many bytes as buf has, and gives their memory back. full: the kernel
// may have had no room for another one as large as buf.
func (r *Ring) Read(buf []byte, add func([]byte)) (full bool) {
	head, tail := r.word(dataHead).Load(), r.word(dataTail).Load()
	size := uint64(len(r.data))
	full = size-min(head-tail, size) < uint64(len(buf))
	for head-tail >= Header {
		r.copy(buf[:Header], tail)
		length := uint64(binary.LittleEndian.Uint16(buf[6:]))
		if length < Header || length > head-tail {
			full = true // never seen; what follows cannot be told apart
			break
		}
		add(buf[:r.copy(buf[:min(length, uint64(len(buf)))], tail)])
		tail += length
	}
	r.word(dataTail).Store(head)
	return full
}

// copy copies the bytes at a position, which can reach over the end, and returns how many.
func (r *Ring) copy(b []byte, at uint64) int {
	n := copy(b, r.data[at%uint64(len(r.data)):])
	return n + copy(b[n:], r.data)
}

// A Follower reads rings in rounds, until it is stopped.
type Follower struct {
	rings []*Ring
	stop  int // eventfd
	ended chan struct{}
}

// Follow has round called, with the rings, whenever there is something to read, and after idle at the latest. The last
// round is told so.
func Follow(rings []*Ring, idle time.Duration, round func(rings []*Ring, last bool)) (*Follower, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		Close(rings)
		return nil, err
	}
	f := &Follower{rings: rings, stop: stop, ended: make(chan struct{})}
	go f.run(idle, round)
	return f, nil
}

func (f *Follower) run(idle time.Duration, round func(rings []*Ring, last bool)) {
	defer close(f.ended)
	fds := []unix.PollFd{{Fd: int32(f.stop), Events: unix.POLLIN}}
	for _, r := range f.rings {
		fds = append(fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	for fds[0].Revents == 0 {
		_, _ = unix.Poll(fds, int(idle/time.Millisecond))
		for i := range fds[1:] {
			if fds[1+i].Revents&unix.POLLHUP != 0 { // all that it followed has ended; it would be reported for ever
				fds[1+i].Fd = -1
			}
		}
		round(f.rings, false)
	}
	round(f.rings, true)
}

// Add has the rings tell of one more process that runs, as OpenRunning does. After an error they tell of what they told before,
// and perhaps of some threads of it. It is not to be called while Stop is.
func (f *Follower) Add(pid int, attr unix.PerfEventAttr) (tids []int, err error) {
	if tids, err = procfs.Threads(pid); err != nil {
		return nil, err
	}
	return tids, addAll(f.rings, tids, attr)
}

// Stop ends it, and gives the rings back.
func (f *Follower) Stop() {
	one := [8]byte{1}
	_, _ = unix.Write(f.stop, one[:])
	<-f.ended
	unix.Close(f.stop)
	Close(f.rings)
}
