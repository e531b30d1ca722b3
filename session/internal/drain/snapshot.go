//go:build linux

package drain

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// A snapshot is what a flight recorder has at a moment, while it goes on: programs are not stopped and do not notice.
// So what is copied changes meanwhile.
//
//   - A task uses its oldest chunk again: four megabytes are gone in as many milliseconds. So most of the full chunks are
//     claimed first, as if to be written, and given back as they are copied; the oldest are left to tasks meanwhile.
//     These are copied before the claimed ones, the newest of them first, so what is missing in the end is older than
//     the rest, and chunks that were begun after the first look are left out. A copy counts if the chunk is still the
//     same afterwards.
//   - A task that comes past its claimed chunks meanwhile keeps them in its list (stub/src/pool.c) and takes a newer
//     one: then it has a gap, until it has used the older ones again. So the oldest come back first.
//   - The newest chunk of a task is copied as far as it is written (pool.Written).
//
// A task's part of the snapshot is then all that it has recorded, from some moment on, up to another one.

// A Snapshot is a copy of the chunks in the pool. Those with events are only there.
type Snapshot struct {
	Counts
	// Complete is the counter from which on nothing is missing that was recorded: before, some task's chunks have been
	// used again. 0: nothing is.
	Complete uint64
	PIDs     map[int]bool // of processes that recorded something
	// Newest is the counter at which it was made; 0: the machine's is not known here.
	Newest uint64

	file   *File // what is written at once, up to size
	size   int64
	copies []copied
}

// copied is the copy of a chunk.
type copied struct {
	head     pool.Header
	contents []byte
	events   uint64
}

func (c *copied) number() uint32 { return le.Uint32(c.head[format.CNumber:]) }

// Do calls f in the goroutine that drains, which does nothing else meanwhile; false: it does not run any more.
func (d *Drainer) Do(f func()) bool {
	done := make(chan struct{})
	select {
	case d.asks <- func() { defer close(done); f() }:
	case <-d.over:
		return false
	}
	d.wake()
	select {
	case <-done:
		return true
	case <-d.over:
		return false
	}
}

// wake wakes the goroutine that drains. While it does not run the pool may be mapped anew.
func (d *Drainer) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running {
		return
	}
	filled := d.p.Word(format.HFilled)
	filled.Add(1) // it may be about to wait
	pool.FutexWake(filled, 1)
	select {
	case d.roused <- struct{}{}:
	default:
	}
}

// run notes whether Run runs.
func (d *Drainer) run(runs bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = runs
}

// Snapshot copies what was recorded since a counter; 0: all that there is. It is to be called by Do.
func (d *Drainer) Snapshot(from uint64) *Snapshot {
	d.round(false)
	d.own(true)
	s := &Snapshot{Counts: d.Counts(), PIDs: d.PIDs(), file: d.w, size: d.w.size}
	if d.p.Word64(format.HCounter).Load() != 0 {
		s.Newest = clock.Read().Counter
	}
	tasks := make(map[pool.Task][]copied)
	all := d.look()
	claimed := make([]bool, len(all))
	for i := range all[:len(all)-len(all)/4] {
		claimed[i] = d.p.State(all[i].chunk).CompareAndSwap(format.StateFull, format.StateWriting)
	}
	keep := func(f filled) {
		if c, ok := d.copyOf(f); ok {
			tasks[f.task] = append(tasks[f.task], c)
		}
	}
	for i, f := range all {
		if !claimed[i] {
			keep(f)
		}
	}
	for i, f := range slices.Backward(all) {
		if claimed[i] {
			keep(f)
			d.p.State(f.chunk).CompareAndSwap(format.StateWriting, format.StateFull)
		}
	}
	pids := make(map[uint32]bool)
	for id, copies := range tasks {
		copies, complete := window(copies, from)
		s.Complete = max(s.Complete, complete)
		s.copies = append(s.copies, copies...)
		pids[id.PID] = true
	}
	slices.SortFunc(s.copies, func(a, b copied) int { return cmp.Compare(a.head.Counter(), b.head.Counter()) })
	for i := range s.copies {
		s.Events += s.copies[i].events
	}
	s.Chunks += uint64(len(s.copies))
	s.Tasks, s.Processes = len(tasks), len(pids)
	return s
}

// filled is a chunk with events that a task has filled, or is filling.
type filled struct {
	chunk   int
	task    pool.Task
	number  uint32
	counter uint64
}

// see looks at a chunk. ok is false if it has no events.
func (d *Drainer) see(i int) (s filled, ok bool) {
	b := d.p.Chunk(i)
	if d.p.State(i).Load() == format.StateFree || pool.AtomicMagic(b) != format.ChunkMagic || d.p.Kind(i) != trace.ChunkEvents {
		return filled{}, false
	}
	return filled{i, pool.TaskOf(b), le.Uint32(b[format.CNumber:]), d.p.Counter(i)}, true
}

// look returns all chunks with events, the newest first.
func (d *Drainer) look() (all []filled) {
	for i := range d.p.All {
		if s, ok := d.see(i); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b filled) int { return cmp.Compare(b.counter, a.counter) })
	return all
}

// copyOf copies a chunk. ok is false if it is another one by now, or holds nothing.
func (d *Drainer) copyOf(s filled) (c copied, ok bool) {
	chunk := d.p.Chunk(s.chunk)
	// A task keeps the chunks before its current one for a while. Only that has no size.
	var b []byte
	if open := le.Uint32(chunk[format.CSize:]) == 0; open {
		b = pool.Written(chunk)
	} else {
		b = slices.Clone(chunk)
	}
	if now, ok := d.see(s.chunk); !ok || now != s {
		return copied{}, false
	}
	used := pool.Seal(b)
	c.head = pool.HeaderOf(b, used)
	if used <= format.ChunkHeader || c.head.Kind() != trace.ChunkEvents || c.head.Task() != s.task || c.number() != s.number {
		return copied{}, false
	}
	c.contents = b[format.ChunkHeader:used]
	c.events, _ = pool.CountEvents(c.contents)
	return c, true
}

// window returns those of a task's chunks, the newest of which is the first, that belong to a snapshot, and the counter
// from which on they have all events of the task; 0: they have all there are.
func window(chunks []copied, from uint64) (kept []copied, complete uint64) {
	slices.SortFunc(chunks, func(a, b copied) int { return cmp.Compare(b.number(), a.number()) })
	n := 1
	for n < len(chunks) && chunks[n].number()+1 == chunks[n-1].number() {
		n++
	}
	chunks = chunks[:n] // what is older is of no use: see leaveOld
	if oldest := &chunks[n-1]; oldest.number() != 0 {
		complete = oldest.head.Counter()
	}
	// A chunk ends where the next one begins.
	for n > 1 && chunks[n-2].head.Counter() <= from {
		n--
	}
	return chunks[:n], complete
}

// WriteTo writes an events file: what had been written, and the copies. What has been written does not change, so this
// needs not be done by Do. Size is what was written.
func (s *Snapshot) WriteTo(w io.Writer) (size int64, err error) {
	size, err = io.Copy(w, io.NewSectionReader(s.file.f, 0, s.size))
	if err == nil && size != s.size {
		err = fmt.Errorf("%s: %w", s.file.f.Name(), io.ErrUnexpectedEOF)
	}
	for i := 0; err == nil && i < len(s.copies); i++ {
		c := &s.copies[i]
		for _, b := range [][]byte{c.head[:], c.contents} {
			if err == nil {
				_, err = w.Write(b)
				size += int64(len(b))
			}
		}
	}
	return size, err
}
