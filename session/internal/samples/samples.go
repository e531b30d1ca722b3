//go:build linux

package samples

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/perf"
)

const (
	// idle bounds the time between rounds. A process that has ended cannot be asked for its unwind tables any more.
	idle = 5 * time.Millisecond

	// copied is how much of a stack is copied. The kernel takes a microsecond for it, or a few. What a sample costs is the
	// interrupt of its timer: in a virtual machine 20 to 30 us with nothing copied at all, and no more with 32 KiB.
	copied = 16 << 10

	// mostBytes bounds chunks that nobody takes.
	mostBytes = 64 << 20
)

// event samples the time that threads run, in user mode and, if that is allowed, in the kernel.
func event(every time.Duration) unix.PerfEventAttr {
	return unix.PerfEventAttr{
		Type:              unix.PERF_TYPE_SOFTWARE,
		Config:            unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample:            uint64(every.Nanoseconds()),
		Sample_type:       unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  host.mask,
		Sample_stack_user: copied,
		Bits:              unix.PerfBitTask | unix.PerfBitMmap | unix.PerfBitSampleIDAll | unix.PerfBitExcludeHv,
	}
}

// errMachine is the error of machines whose registers are not known.
var errMachine = errors.New("stacks of this machine cannot be walked")

// Try says why threads cannot be sampled; nil: they can, in the kernel, too, if kernel says so.
func Try(every time.Duration) (kernel bool, err error) {
	if host == nil {
		return false, errMachine
	}
	attr := event(every)
	if perf.Try(attr) == nil {
		return true, nil
	}
	attr.Bits |= unix.PerfBitExcludeKernel
	return false, perf.Try(attr)
}

// A Recorder samples a process and all that it starts.
type Recorder struct {
	follower *perf.Follower
	event    unix.PerfEventAttr
	clock    clock.Line
	buf      []byte   // for a record
	round    []record // not yet in order
	book     book
	chunks   perf.Chunks
}

// Stats say what was sampled.
type Stats struct {
	Samples uint64
	Lost    uint64 // samples that there was no room for
}

// Options say how threads are sampled.
type Options struct {
	Every   time.Duration // that a thread runs between two samples
	Partial bool          // walks begin with the stack pointer and the program counter alone
	Alone   bool          // nothing else says in the trace which programs there are
	Running bool          // the process has run before, and can have threads
}

// Follow begins to sample the process pid, and all threads and processes that it starts from now on, each time that one
// has run for so long.
func Follow(pid int, o Options) (*Recorder, error) {
	kernel, err := Try(o.Every)
	if err != nil {
		return nil, err
	}
	attr := event(o.Every)
	if !kernel {
		attr.Bits |= unix.PerfBitExcludeKernel
	}
	var rings []*perf.Ring
	if o.Running {
		rings, _, err = perf.OpenRunning(pid, attr)
	} else {
		rings, err = perf.Open(pid, attr)
	}
	if err != nil {
		return nil, err
	}
	r := &Recorder{event: attr, clock: clock.NewLine(), buf: make([]byte, copied+1<<10)}
	r.book = newBook(o, func(c perf.Chunk) { r.chunks.Keep(c, mostBytes) })
	if r.follower, err = perf.Follow(rings, idle, r.read); err != nil {
		return nil, err
	}
	return r, nil
}

// Add samples one more process that runs already. It is not to be called while Stop is.
func (r *Recorder) Add(pid int) error {
	_, err := r.follower.Add(pid, r.event)
	return err
}

// read reads all rings, and takes the records up to the round before, or the last ones: what is newer may come after
// something that is older.
func (r *Recorder) read(rings []*perf.Ring, last bool) {
	until := uint64(r.clock.Now.Monotonic)
	if last {
		until = ^uint64(0)
	}
	r.clock.Read()
	for _, g := range rings {
		g.Read(r.buf, func(b []byte) {
			rec, ok := parse(b, host)
			if ok {
				if rec.kind != ended && rec.kind != lost {
					r.book.meet(rec.pid)
				}
				r.round = append(r.round, rec)
			}
		})
	}
	slices.SortStableFunc(r.round, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for n < len(r.round) && r.round[n].time <= until {
		rec := &r.round[n]
		rec.time = r.clock.Counter(rec.time)
		r.book.take(rec)
		n++
	}
	r.round = slices.Delete(r.round, 0, n)
	if last {
		r.book.end()
	}
}

// Take returns chunks for the trace, of processes that want says yes to. The others stay for later.
func (r *Recorder) Take(want func(pid, host uint32) bool) [][]byte { return r.chunks.Take(want) }

// Stop ends it. What is left can be taken then.
func (r *Recorder) Stop() Stats {
	r.follower.Stop()
	kept, gave := r.chunks.Events()
	return Stats{kept - gave, r.book.lost + gave}
}
