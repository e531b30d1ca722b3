package switches

import (
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/perf"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// Records are followed thread by thread. Each must alternate between being on a processor and off it, so a record that
// does not fit the one before shows that one between them is missing: what the thread did in that time is not known, and
// is said to be so. Nothing is guessed. Where the kernel had no room for records, nobody can say whose are missing; then
// nothing is known of any thread, until its next record.

// chunkEntries is how many entries a chunk has at most: as much as other chunks.
const chunkEntries = (format.ChunkSize - format.ChunkHeader) / format.SchedEntry

// mostEntries bounds those of unfinished chunks of all threads.
const mostEntries = 1 << 19

// running is the state of a thread on a processor; others are format's.
const running = ^uint32(0)

// A thread is one that is followed. Times are counters.
type thread struct {
	pid, tid uint32
	inner    ids    // as it sees itself
	state    uint32 // since since
	first    bool   // no record has told of it yet: if it is not running, it waits to be
	since    uint64
	from     uint64 // where its unfinished chunk begins
	entries  []byte
	number   uint32 // of that chunk
}

// ids are a thread's own. Those of a thread of which they are not known are 0.
type ids struct{ pid, tid uint32 }

// inside is a process in another PID namespace.
type inside struct {
	host, pid uint32            // here, and there; 0: it is not known
	space     uint64            // the namespace
	tids      map[uint32]uint32 // of threads that it had then, by their ids here
	counter   uint64            // when this was so
}

// threads are the threads of a session.
type threads struct {
	live    map[uint32]*thread // by thread id
	inside  map[uint32]*inside // by process id
	space   uint64             // the first namespace of these, and whether there are others
	several bool
	trust   uint64           // before that time records can be missing
	entries int              // in unfinished chunks
	lost    uint64           // records
	done    func(perf.Chunk) // gets finished chunks
}

// take takes the next record of all in the order of time, with times in ticks.
func (ts *threads) take(r *record) {
	k := ts.live[r.tid]
	switch r.kind {
	case lost:
		ts.lost += r.count
	case unknown:
		ts.doubt(r.time, r.until)
	case begins:
		if k != nil {
			ts.finish(k, k.since) // its end is missing
		}
		if r.pid == r.tid {
			ts.born(r)
		}
		ts.add(r, format.SchedReady)
	case ends:
		if p := ts.inside[r.pid]; p != nil {
			delete(p.tids, r.tid)
		}
		if k != nil {
			if k.state != running {
				k.state = format.SchedUnknown
			}
			ts.finish(k, r.time)
		}
	default:
		state := map[kind]uint32{out: format.SchedWaiting, yielded: format.SchedReady, in: running}[r.kind]
		if k != nil && k.pid != r.pid { // another thread has the id
			ts.finish(k, k.since)
			k = nil
		}
		if k == nil {
			ts.add(r, state)
		} else {
			ts.change(k, r.time, state)
		}
	}
}

// add begins to follow a thread.
func (ts *threads) add(r *record, state uint32) {
	if r.time < ts.trust {
		state = format.SchedUnknown
	}
	ts.follow(&thread{pid: r.pid, tid: r.tid, state: state, since: r.time, from: r.time})
}

func (ts *threads) follow(k *thread) {
	ts.live[k.tid] = k
	ts.name(k)
}

// name asks for a thread's own ids.
func (ts *threads) name(k *thread) {
	p := ts.inside[k.pid]
	if p == nil {
		k.inner = ids{k.pid, k.tid}
	} else if tid, ok := p.tids[k.tid]; ok {
		k.inner = ids{p.pid, tid}
	} else if tid, ok := procfs.InnerThread(int(k.pid), int(k.tid)); ok && p.pid != 0 {
		k.inner = ids{p.pid, uint32(tid)}
	} else {
		k.inner = ids{}
	}
}

// born looks where a new process is: a child is where its parent is, or below that. Whether it is traced is not known, so
// where there are several namespaces it could be taken for a process of another one.
func (ts *threads) born(r *record) {
	if p := ts.inside[r.pid]; p != nil && p.counter >= r.time {
		return // it is known already
	}
	delete(ts.inside, r.pid) // another process had the id
	if ts.inside[r.parent] != nil {
		p := &inside{host: r.pid, space: procfs.PIDNamespace(int(r.pid)), counter: r.time}
		if ts.seen(p.space); !ts.several {
			inner, _ := procfs.InnerThread(int(r.pid), int(r.pid)) // 0: it has ended
			p.pid = uint32(inner)
		}
		ts.inside[r.pid] = p
	}
}

// seen notes a namespace.
func (ts *threads) seen(space uint64) {
	switch {
	case space == 0: // of a process that has ended
	case ts.space == 0:
		ts.space = space
	case ts.space != space:
		ts.several = true
	}
}

// isInside notes that a process is in another PID namespace.
func (ts *threads) isInside(p *inside) {
	ts.seen(p.space)
	ts.inside[p.host] = p
	for _, k := range ts.live {
		if k.pid == p.host && (k.inner == ids{} || k.inner.pid != p.pid) {
			ts.name(k)
		}
	}
}

// meet begins to follow a thread that was there before, if no record has told of it yet.
func (ts *threads) meet(m met) {
	if ts.live[m.tid] == nil && m.counter >= ts.trust {
		ts.follow(&thread{pid: m.pid, tid: m.tid, state: running, first: true, since: m.counter, from: m.counter})
	}
}

// change takes a thread to another state.
func (ts *threads) change(k *thread, now uint64, state uint32) {
	if now < ts.trust && k.state == format.SchedUnknown {
		return
	}
	was := k.state
	if (was == running) == (state == running) {
		was = format.SchedUnknown // a record between them is missing, or it was waiting to be on a processor
	}
	ts.went(k, was, now)
	k.state, k.first = state, false
}

// went notes what a thread did until now.
func (ts *threads) went(k *thread, state uint32, now uint64) {
	if now <= k.since {
		return
	}
	if state != running {
		k.entries = le.AppendUint64(k.entries, k.since)
		k.entries = le.AppendUint64(k.entries, now)
		k.entries = le.AppendUint64(k.entries, uint64(state))
		ts.entries++
	}
	k.since = now
	if len(k.entries) >= chunkEntries*format.SchedEntry {
		ts.flush(k)
	}
	if ts.entries >= mostEntries {
		for _, k := range ts.live {
			ts.flush(k)
		}
	}
}

// doubt notes that records can be missing from from to until.
func (ts *threads) doubt(from, until uint64) {
	ts.trust = max(ts.trust, until)
	for _, k := range ts.live {
		if k.state != format.SchedUnknown {
			if k.first {
				k.state = format.SchedUnknown
			}
			ts.went(k, k.state, from)
			k.state, k.first = format.SchedUnknown, false
		}
	}
}

// flush finishes a thread's chunk; the next one begins where it ends.
func (ts *threads) flush(k *thread) {
	if k.since > k.from && k.inner != (ids{}) {
		ts.done(k.chunk())
		k.number++
	}
	ts.entries -= len(k.entries) / format.SchedEntry
	k.from, k.entries = k.since, nil
}

// finish ends a thread, of which something is known until until.
func (ts *threads) finish(k *thread, until uint64) {
	ts.went(k, k.state, until)
	ts.flush(k)
	delete(ts.live, k.tid)
}

// end ends all of them.
func (ts *threads) end(now uint64) {
	for _, k := range ts.live {
		ts.finish(k, now)
	}
}

// chunk is the thread's chunk as it is stored.
func (k *thread) chunk() perf.Chunk {
	b := make([]byte, format.ChunkHeader, format.ChunkHeader+len(k.entries))
	le.PutUint32(b[format.CMagic:], format.ChunkMagic)
	le.PutUint16(b[format.CKind:], uint16(trace.ChunkSched))
	le.PutUint32(b[format.CSize:], uint32(cap(b)))
	le.PutUint32(b[format.CPID:], k.inner.pid)
	le.PutUint32(b[format.CTID:], k.inner.tid)
	le.PutUint32(b[format.CNumber:], k.number)
	le.PutUint64(b[format.CCounter:], k.from)
	le.PutUint64(b[format.CUntil:], k.since)
	return perf.Chunk{PID: k.inner.pid, Host: k.pid, Bytes: append(b, k.entries...)}
}
