//go:build linux

package switches

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/clock"
)

// A Recorder follows a process and all that it starts. It reads what the kernel tells of each processor in rounds, and
// brings it into the order of time. A record can become visible some time after the moment it tells of, and rings are
// read one after another, so what is newer than the beginning of the round before waits for the next one.
//
// The kernel's times are of CLOCK_MONOTONIC, those of a trace are the processor's counter. Each round reads both, and
// what is in between is interpolated: the two drift apart over a recording, but not by much in a tenth of a second.
type Recorder struct {
	rings  []*ring
	stop   int // eventfd
	ended  chan struct{}
	round  []record // not yet in order
	before clock.Reading
	older  line // the way to before
	ts     threads

	mu     sync.Mutex
	chunks []chunk // finished, oldest first
	bytes  int     // in them
}

// idle bounds the time between rounds: the frequency of the two clocks is taken to be constant for as long.
const idle = 100 * time.Millisecond

// mostBytes bounds finished chunks that nobody takes: of processes that record nothing, or when the disk is slow. Of
// what was given up nothing is known.
const mostBytes = 16 << 20

// Follow begins to record the switches of the process pid, and of all threads and processes that it starts from now on.
func Follow(pid int) (*Recorder, error) {
	rings, err := open(pid)
	if err != nil {
		return nil, err
	}
	r := &Recorder{rings: rings, ended: make(chan struct{}), before: clock.Read()}
	r.ts = threads{live: map[uint32]*thread{}, done: r.keep}
	if r.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		r.close()
		return nil, err
	}
	go r.run()
	return r, nil
}

func (r *Recorder) close() {
	for _, g := range r.rings {
		g.close()
	}
}

// run reads until Stop.
func (r *Recorder) run() {
	defer close(r.ended)
	fds := []unix.PollFd{{Fd: int32(r.stop), Events: unix.POLLIN}}
	for _, g := range r.rings {
		fds = append(fds, unix.PollFd{Fd: int32(g.fd), Events: unix.POLLIN})
	}
	for fds[0].Revents == 0 {
		_, _ = unix.Poll(fds, int(idle/time.Millisecond))
		for i := range fds[1:] {
			if fds[1+i].Revents&unix.POLLHUP != 0 { // all that it followed has ended; it would be reported for ever
				fds[1+i].Fd = -1
			}
		}
		r.read(uint64(r.before.Monotonic))
	}
	r.read(^uint64(0))
	r.ts.end(r.before.Counter)
}

// read reads all rings, and takes the records up to a time.
func (r *Recorder) read(until uint64) {
	now := clock.Read()
	for _, g := range r.rings {
		g.read(func(rec record) { r.round = append(r.round, rec) }, func() uint64 {
			return uint64(clock.Read().Monotonic)
		})
	}
	slices.SortStableFunc(r.round, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	newer := newLine(r.before, now)
	ticks := func(ns uint64) uint64 {
		if ns < uint64(r.before.Monotonic) && r.older.slope != 0 {
			return r.older.at(ns)
		}
		return newer.at(ns)
	}
	n := 0
	for n < len(r.round) && r.round[n].time <= until {
		rec := r.round[n]
		rec.time, rec.until = ticks(rec.time), ticks(rec.until)
		r.ts.take(&rec)
		n++
	}
	r.round = slices.Delete(r.round, 0, n)
	r.before, r.older = now, newer
}

// A line turns times between two readings, or close to them, into counters.
type line struct {
	from  clock.Reading
	slope float64 // ticks a nanosecond
}

func newLine(a, b clock.Reading) line {
	l := line{from: a}
	if b.Monotonic > a.Monotonic && b.Counter > a.Counter {
		l.slope = float64(b.Counter-a.Counter) / float64(b.Monotonic-a.Monotonic)
	}
	return l
}

func (l line) at(ns uint64) uint64 {
	return uint64(max(0, int64(l.from.Counter)+int64(float64(int64(ns)-l.from.Monotonic)*l.slope)))
}

// keep keeps a finished chunk until it is taken.
func (r *Recorder) keep(c chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chunks = append(r.chunks, c)
	for r.bytes += len(c.bytes); r.bytes > mostBytes; {
		r.bytes -= len(r.chunks[0].bytes)
		r.chunks = r.chunks[1:]
	}
}

// Take returns chunks for the trace, of processes that want says yes to. The others stay for later.
func (r *Recorder) Take(want func(pid uint32) bool) (chunks [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chunks = slices.DeleteFunc(r.chunks, func(c chunk) bool {
		if !want(c.pid) {
			return false
		}
		chunks = append(chunks, c.bytes)
		r.bytes -= len(c.bytes)
		return true
	})
	return chunks
}

// Stop ends the recording, and returns how many records the kernel had no room for. What is left can be taken then.
func (r *Recorder) Stop() (lost uint64) {
	one := [8]byte{1}
	_, _ = unix.Write(r.stop, one[:])
	<-r.ended
	unix.Close(r.stop)
	r.close()
	return r.ts.lost
}
