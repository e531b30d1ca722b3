//go:build linux

package clock

import (
	"encoding/binary"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

// Reading is the counter and two clocks at one moment.
type Reading struct {
	Counter   uint64
	Monotonic int64 // ns
	Realtime  int64 // ns
}

// Read reads all three. The monotonic clock is read between two reads of
// the counter; the closest of several tries is taken, so that losing the
// processor in between does no harm.
func Read() Reading {
	var r Reading
	best := ^uint64(0)
	for range 5 {
		a := readCounter()
		m := clock(unix.CLOCK_MONOTONIC)
		b := readCounter()
		if d := b - a; d < best {
			best = d
			r.Counter, r.Monotonic = a+d/2, m
		}
	}
	r.Realtime = clock(unix.CLOCK_REALTIME) - (clock(unix.CLOCK_MONOTONIC) - r.Monotonic)
	return r
}

func clock(id int32) int64 {
	var ts unix.Timespec
	// Cannot fail for these clocks.
	_ = unix.ClockGettime(id, &ts)
	return ts.Nano()
}

// ReadCost is the time that reading the counter takes, in nanoseconds: the least of several tries, a microsecond each.
func ReadCost() float64 {
	const reads, tries = 64, 16
	best := int64(1 << 62)
	for range tries {
		from := clock(unix.CLOCK_MONOTONIC)
		for range reads {
			readCounter()
		}
		best = min(best, clock(unix.CLOCK_MONOTONIC)-from)
	}
	return float64(max(best, 1)) / reads
}

// Hz is the frequency of the counter as the machine says or as the kernel
// knows it, 0 if neither tells. It is asked for once: the first perf event of a machine takes the kernel 10 to 25 ms.
func Hz() uint64 {
	asked.Do(func() { hz = frequency() })
	return hz
}

var (
	asked sync.Once
	hz    uint64
)

// frequency asks for it. The kernel publishes the factors of its own clock in the page of a
// perf event (struct perf_event_mmap_page): ns = ticks * time_mult >> time_shift.
func frequency() uint64 {
	if hz := counterFrequency(); hz != 0 {
		return hz
	}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_DUMMY,
		Bits:   unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0
	}
	defer unix.Munmap(mem)
	const (
		capabilities = 40 // bit 3: cap_user_time
		timeShift    = 50 // u16
		timeMult     = 52 // u32
	)
	if le.Uint64(mem[capabilities:])&(1<<3) == 0 {
		return 0
	}
	shift, mult := le.Uint16(mem[timeShift:]), le.Uint32(mem[timeMult:])
	if mult == 0 || shift > 63 {
		return 0
	}
	// 1e9 << shift may need 94 bits.
	hi, lo := bits.Mul64(1e9, 1<<shift)
	if hi >= uint64(mult) {
		return 0
	}
	hz, _ := bits.Div64(hi, lo, uint64(mult))
	return hz
}
