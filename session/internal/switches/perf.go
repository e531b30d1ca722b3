//go:build linux

package switches

import (
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/perf"
)

// The kernel tells of the task switches of a process, its threads and all its descendants through perf events (package
// perf). The events count nothing; they only carry the records of switches, and of tasks that begin and end. A thread
// pays for them when it leaves a processor, and nothing in between.
//
// Sampling /proc/TID/schedstat was not an option: it has sums, which say nothing about a single call unless it is read
// at the call's start and end, and it is gone with the thread.
var event = unix.PerfEventAttr{
	Type:        unix.PERF_TYPE_SOFTWARE,
	Config:      unix.PERF_COUNT_SW_DUMMY,
	Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
	Bits: unix.PerfBitContextSwitch | unix.PerfBitTask | unix.PerfBitSampleIDAll | unix.PerfBitExcludeKernel |
		unix.PerfBitExcludeHv,
}

// A ring is what one processor's tells.
type ring struct {
	*perf.Ring
	last uint64 // time of the newest record that was read, ns
	full bool   // when it was read last, the kernel may have had no room for more
}

// mostRecord is more than any record that is asked for takes, with the kernel's note of those it had no room for.
const mostRecord = 128

// read hands all records to add. Where the kernel may have had no room for more, an unknown one says so; now tells the
// time.
func (r *ring) read(add func(record), now func() uint64) {
	var b [mostRecord]byte
	was := r.full
	r.full = r.Read(b[:], func(b []byte) {
		rec, ok := parse(b)
		if !ok {
			return
		}
		if rec.kind == lost && !was {
			add(record{kind: unknown, time: r.last, until: rec.time})
		}
		r.last = max(r.last, rec.time)
		add(rec)
	})
	if r.full {
		add(record{kind: unknown, time: r.last, until: now()})
	}
}
