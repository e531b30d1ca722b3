//go:build linux

package switches

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/perf"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// A Recorder follows a process and all that it starts. It reads what the kernel tells of each processor in rounds, and
// brings it into the order of time. A record can become visible some time after the moment it tells of, and rings are
// read one after another, so what is newer than the beginning of the round before waits for the next one.
//
// The kernel's times are of CLOCK_MONOTONIC, those of a trace are the processor's counter. Each round reads both, and
// what is in between is interpolated: the two drift apart over a recording, but not by much in a tenth of a second.
type Recorder struct {
	follower *perf.Follower
	rings    []*ring
	round    []record // not yet in order
	clock    clock.Line
	ts       threads
	chunks   perf.Chunks

	mu     sync.Mutex // guards what ts does not know of yet
	met    []met
	inside []*inside
}

// A met thread was there before it was followed, and was on a processor, or ready for one, at a time.
type met struct {
	pid, tid uint32
	counter  uint64
}

// idle bounds the time between rounds: the frequency of the two clocks is taken to be constant for as long.
const idle = 100 * time.Millisecond

// mostBytes bounds finished chunks that nobody takes: of processes that record nothing, or when the disk is slow. Of
// what was given up nothing is known.
const mostBytes = 16 << 20

// Follow begins to record the switches of the process pid, and of all threads and processes that it starts from now on.
func Follow(pid int) (*Recorder, error) {
	rings, err := perf.Open(pid, event)
	if err != nil {
		return nil, err
	}
	return follow(rings, nil)
}

// FollowRunning is Follow for a process that runs already, with the threads that it has.
func FollowRunning(pid int) (*Recorder, error) {
	rings, tids, err := perf.OpenRunning(pid, event)
	if err != nil {
		return nil, err
	}
	return follow(rings, meet(pid, tids))
}

func follow(rings []*perf.Ring, first []met) (r *Recorder, err error) {
	r = &Recorder{clock: clock.NewLine(), met: first}
	for _, g := range rings {
		r.rings = append(r.rings, &ring{Ring: g})
	}
	r.ts = threads{live: map[uint32]*thread{}, inside: map[uint32]*inside{}, done: func(c perf.Chunk) { r.chunks.Keep(c, mostBytes) }}
	if r.follower, err = perf.Follow(rings, idle, r.read); err != nil {
		return nil, err
	}
	return r, nil
}

// Add follows one more process that runs already. It is not to be called while Stop is.
func (r *Recorder) Add(pid int) error {
	tids, err := r.follower.Add(pid, event)
	if err == nil {
		r.mu.Lock()
		r.met = append(r.met, meet(pid, tids)...)
		r.mu.Unlock()
	}
	return err
}

// Inside tells that the process host is in another PID namespace, where its id is inner: that is the one in its chunks. It can
// be called at any time.
func (r *Recorder) Inside(host, inner int) {
	p := &inside{uint32(host), uint32(inner), procfs.PIDNamespace(host), map[uint32]uint32{}, clock.Read().Counter}
	tids, _ := procfs.Threads(host) // none: it has ended
	for _, tid := range tids[:min(len(tids), asked)] {
		if id, ok := procfs.InnerThread(host, tid); ok {
			p.tids[uint32(tid)] = uint32(id)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside = append(r.inside, p)
}

// asked is of how many threads a process is asked for their ids at once: it can have ended when the next round comes. Who tells of it
// does not wait for more.
const asked = 16

// meet returns those of a process's threads, which are followed by now, that do not wait. Of those that wait the first
// record will tell that they do no more; one that does not could have left its processor only with a record.
func meet(pid int, tids []int) (all []met) {
	for _, tid := range tids {
		m := met{uint32(pid), uint32(tid), clock.Read().Counter}
		if st, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid)); err == nil && st.State == 'R' {
			all = append(all, m)
		}
	}
	return all
}

// read reads all rings, and takes the records up to the round before, or the last ones.
func (r *Recorder) read(_ []*perf.Ring, last bool) {
	until := uint64(r.clock.Now.Monotonic)
	if last {
		until = ^uint64(0)
	}
	r.clock.Read()
	r.mu.Lock()
	first, inside := r.met, r.inside
	r.met, r.inside = nil, nil
	r.mu.Unlock()
	for _, p := range inside {
		r.ts.isInside(p)
	}
	for _, m := range first {
		r.ts.meet(m)
	}
	for _, g := range r.rings {
		g.read(func(rec record) { r.round = append(r.round, rec) }, func() uint64 {
			return uint64(clock.Read().Monotonic)
		})
	}
	slices.SortStableFunc(r.round, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for n < len(r.round) && r.round[n].time <= until {
		rec := r.round[n]
		rec.time, rec.until = r.clock.Counter(rec.time), r.clock.Counter(rec.until)
		r.ts.take(&rec)
		n++
	}
	r.round = slices.Delete(r.round, 0, n)
	if last {
		r.ts.end(r.clock.Now.Counter)
	}
}

// Take returns chunks for the trace, of processes that want says yes to. The others stay for later.
func (r *Recorder) Take(want func(pid, host uint32) bool) [][]byte { return r.chunks.Take(want) }

// Stop ends the recording, and returns how many records the kernel had no room for. What is left can be taken then.
func (r *Recorder) Stop() (lost uint64) {
	r.follower.Stop()
	return r.ts.lost
}
