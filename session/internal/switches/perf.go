//go:build linux

package switches

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel tells of the task switches of a process, its threads and all its descendants through perf events that are
// inherited: one for each processor, because the memory that records are written to (perf_event_open(2), "MMAP layout")
// cannot be shared by processors otherwise. The events count nothing; they only carry the records of switches, and of
// tasks that begin and end. A thread pays for them when it leaves a processor, and nothing in between. No privilege is
// needed up to kernel.perf_event_paranoid 2: what is asked for is about this user's own programs, and not about the
// kernel.
//
// Sampling /proc/TID/schedstat was not an option: it has sums, which say nothing about a single call unless it is read
// at the call's start and end, and it is gone with the thread.

// mostCPUs bounds what threads cost: the kernel makes an event for each of them and each processor.
const mostCPUs = 64

// Sizes of the memory for the records of one processor, in bytes. An unprivileged user has 512 KiB and a page for each
// (kernel.perf_event_mlock_kb).
const (
	largestRing = 512 << 10
	leastRing   = 16 << 10
	allRings    = 16 << 20
)

// open returns a ring for each processor that is online, which tells of pid and all that it starts from now on.
func open(pid int) ([]*ring, error) {
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
		rings, err := openRings(pid, cpus, size)
		if err == nil || size <= leastRing || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			return rings, err
		}
	}
}

func openRings(pid int, cpus []int, size int) (rings []*ring, err error) {
	defer func() {
		if err != nil {
			for _, r := range rings {
				r.close()
			}
			rings = nil
		}
	}()
	for _, cpu := range cpus {
		r, err := openRing(pid, cpu, size)
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

// A ring is the kernel's records from one processor, oldest first.
type ring struct {
	fd   int
	mem  []byte // a page that says where records begin and end, then data
	data []byte
	last uint64 // time of the newest record that was read, ns
	full bool   // when it was read last, the kernel may have had no room for more
}

// Fields of struct perf_event_mmap_page.
const (
	dataHead = 1024 // u64, counts bytes that the kernel has written
	dataTail = 1032 // u64, counts bytes that were read
)

// paranoid tells how much the kernel lets unprivileged users see.
const paranoid = "/proc/sys/kernel/perf_event_paranoid"

func openRing(pid, cpu, size int) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitInherit | unix.PerfBitContextSwitch | unix.PerfBitTask | unix.PerfBitSampleIDAll |
			unix.PerfBitUseClockID | unix.PerfBitWatermark | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
		Wakeup:  uint32(size / 4),
		Clockid: unix.CLOCK_MONOTONIC,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		err = fmt.Errorf("perf_event_open: %w", err)
		if b, _ := os.ReadFile(paranoid); len(b) > 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
			err = fmt.Errorf("%w (kernel.perf_event_paranoid is %s)", err, strings.TrimSpace(string(b)))
		}
		return nil, err
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, page+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("memory for perf events: %w", err)
	}
	return &ring{fd: fd, mem: mem, data: mem[page:]}, nil
}

func (r *ring) close() {
	_ = unix.Munmap(r.mem)
	unix.Close(r.fd)
}

func (r *ring) word(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.mem[off])) }

// mostRecord is more than any record that is asked for takes, with the kernel's note of those it had no room for.
const mostRecord = 128

// read hands all records to add, and gives their memory back. Where the kernel may have had no room for more, an unknown
// one says so; now tells the time.
func (r *ring) read(add func(record), now func() uint64) {
	head, tail := r.word(dataHead).Load(), r.word(dataTail).Load()
	size := uint64(len(r.data))
	full := size-min(head-tail, size) < mostRecord
	var b [mostRecord]byte
	for head-tail >= recordHeader {
		length := uint64(recordLength(b[:r.copy(b[:recordHeader], tail)]))
		if length < recordHeader || length > head-tail {
			full = true // never seen; what follows cannot be told apart
			break
		}
		if rec, ok := parse(b[:r.copy(b[:min(length, mostRecord)], tail)]); ok {
			if rec.kind == lost && !r.full {
				add(record{kind: unknown, time: r.last, until: rec.time})
			}
			r.last = max(r.last, rec.time)
			add(rec)
		}
		tail += length
	}
	r.word(dataTail).Store(head)
	if r.full = full; full {
		add(record{kind: unknown, time: r.last, until: now()})
	}
}

// copy copies the bytes at a position, which can reach over the end, and returns how many.
func (r *ring) copy(b []byte, at uint64) int {
	n := copy(b, r.data[at%uint64(len(r.data)):])
	return n + copy(b[n:], r.data)
}
