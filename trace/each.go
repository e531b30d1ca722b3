package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/fentry-dev/fentry/internal/format"
)

// A taskSink is a sink that takes the calls of several tasks, one after another.
type taskSink interface {
	sink
	begin(fl *follower)
}

// eachTask runs the given tasks through sinks, several at a time: newSink makes
// one for each worker, done is called after each task, merge at a worker's end.
// done and merge run in the worker.
//
// A forked task needs to know what its parent had open. Parents come first in
// order, so whoever waits for a parent waits for a task that is running or done. With
// the index x, nobody waits: it has what they need.
func (t *Trace) eachTask(c *choice, x *blockIndex, tasks []*Task, n int, newSink func() taskSink,
	done func(taskSink, *Task), merge func(taskSink)) error {
	f := newForks(t, c.tasks(tasks, x), x)
	var next atomic.Int64
	var g errgroup.Group
	for range workers(n, len(f.order)) {
		g.Go(func() error {
			var s, hidden taskSink
			window := make([]byte, windowSize)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(f.order) {
					break
				}
				k := f.order[i]
				use := &s
				if !f.chosen[k.Index] {
					use = &hidden // only its children are wanted
				}
				if *use == nil {
					*use = newSink()
				}
				if err := t.runTask(k, *use, f, window); err != nil {
					f.fail()
					return err
				}
				if use == &s {
					done(s, k)
				}
			}
			if s != nil {
				merge(s)
			}
			return nil
		})
	}
	return g.Wait()
}

// runTask feeds a task's words to a sink.
func (t *Trace) runTask(k *Task, s taskSink, f *forks, window []byte) error {
	chosen, _ := s.(*chosenSink)
	if chosen != nil && chosen.blocks != nil {
		if len(k.chunks) > 0 || !chosen.whole {
			d := t.newDecoder(k.chunks, window)
			if err := cmp.Or(chosen.runBlocks(k, d), d.err); err != nil || !chosen.whole {
				return err
			}
		} else {
			t.follow(k, s, 0).finish()
		}
		return t.eachTable(k, chosen.countingSink, window)
	}
	b, building := s.(*blockBuilder)
	if building && b.done != nil && len(b.done.tasks[k.Index]) > 0 && f.chosen[k.Index] {
		return b.resume(k, t.newDecoder(k.chunks, window))
	}
	var inherited []openCall
	if k.Parent != nil {
		var ok bool
		var err error
		if inherited, ok, err = f.inherited(k); !ok {
			return err // nil: another worker has it
		}
	}
	d := t.newDecoder(k.chunks, window)
	var w word
	more := d.next(&w)
	fl := t.follow(k, s, w.t)
	if k.ParentPID != 0 {
		fl.inherit(inherited, k.begin)
	}
	var fk *forker
	if len(k.children) > 0 && f.index == nil {
		fk = newForker(t, k)
	}
	if building {
		if !f.chosen[k.Index] {
			b.out = nil // only its children are wanted
		}
		return cmp.Or(b.run(k, d, &w, more, fk, f), d.err)
	}
	if chosen != nil {
		chosen.run(d, &w, more, fk, f)
		return d.err
	}
	if fk == nil {
		for ; more; more = d.next(&w) {
			fl.step(&w)
		}
	} else {
		for ; more; more = d.next(&w) {
			fk.give(fl, w.t, f)
			fk.step(fl, &w)
		}
		fk.give(fl, ^uint64(0), f)
	}
	fl.finish()
	if d.err != nil {
		return d.err
	}
	return t.eachTable(k, s, window)
}

// eachTable feeds a task's profiles and counts to a sink that wants them.
func (t *Trace) eachTable(k *Task, s sink, window []byte) error {
	if p, ok := s.(interface {
		profile(b []byte, image uint32, first uint32)
		count(b []byte, image uint32, first uint32)
	}); ok {
		if err := t.eachEntry(k.profiles, format.ProfileEntry, window, p.profile); err != nil {
			return err
		}
		return t.eachEntry(k.counts, format.CountEntry, window, p.count)
	}
	return nil
}

// follow returns a follower for a task, whose first word is at counter start, and a sink that has begun.
func (t *Trace) follow(k *Task, s taskSink, start uint64) *follower {
	fl := newFollower(s, start, k.Stack)
	if w, ok := counting(s).(interface{ asksForWaits() bool }); ok && w.asksForWaits() {
		fl.waits = newWaits(t.file, k.sched)
		fl.followParks(t, k)
	}
	s.begin(fl)
	return fl
}

// eachEntry calls fn with parts of a task's profile or count chunks: whole entries of
// so many bytes, the first of which belongs to id first. Image is the chunks'.
func (t *Trace) eachEntry(chunks []chunkRef, entry int, buf []byte, fn func(b []byte, image, first uint32)) error {
	for _, c := range chunks {
		id := c.first
		end := c.off + int64(c.size)
		for off := c.off + ChunkHeaderSize; off+int64(entry) <= end; {
			if hole := (t.nextData(off, end) - off) / int64(entry); hole > 0 {
				id += uint32(hole)
				off += hole * int64(entry)
				continue
			}
			n, err := t.file.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			n -= n % entry
			if n == 0 {
				break
			}
			fn(buf[:n], c.image, id)
			id += uint32(n / entry)
			off += int64(n)
		}
	}
	return nil
}

// entries calls fn with the counter and the entry of each function that was called.
func (r *report) entries(b []byte, entry int, image, first uint32, fn func(c *counter, calls uint64, b []byte)) {
	var ids span
	for ; len(b) >= entry; b = b[entry:] {
		id := first
		first++
		calls := binary.LittleEndian.Uint64(b)
		if calls == 0 {
			continue
		}
		if id-ids.lo >= ids.n {
			if ids = r.t.ranges.span(id, image); ids.n == 0 {
				continue
			}
		}
		c, _ := r.counter(FuncID{ids.image, id - ids.base})
		fn(c, calls, b)
	}
}

// count adds the entries of a count chunk.
func (r *report) count(b []byte, image, first uint32) {
	r.entries(b, format.CountEntry, image, first, func(c *counter, calls uint64, _ []byte) {
		c.flat = true
		c.calls += calls
	})
}

// profile adds the entries of a profile chunk.
func (r *report) profile(b []byte, image, first uint32) {
	le := binary.LittleEndian
	r.entries(b, format.ProfileEntry, image, first, func(c *counter, calls uint64, b []byte) {
		total := le.Uint64(b[format.PTotal:])
		c.profiled = true
		c.calls += calls
		c.total = addTicks(c.total, total)
		c.sum = addTicks(c.sum, total)
		c.self = addTicks(c.self, le.Uint64(b[format.PSelf:]))
		c.max = max(c.max, le.Uint64(b[format.PMax:]))
	})
}

// forks hands what a task had open to the tasks forked from it.
type forks struct {
	index  *blockIndex // that knows what tasks inherit; nil: their parents tell
	order  []*Task
	chosen []bool
	mu     sync.Mutex
	cond   sync.Cond
	paths  map[*Task][]openCall
	failed bool
}

func newForks(t *Trace, tasks []*Task, x *blockIndex) *forks {
	f := &forks{index: x, chosen: make([]bool, len(t.Tasks)), paths: map[*Task][]openCall{}}
	f.cond.L = &f.mu
	need := make([]bool, len(t.Tasks))
	for _, k := range tasks {
		f.chosen[k.Index] = true
		need[k.Index] = need[k.Index] || x != nil
		for p := k; p != nil && !need[p.Index]; p = p.Parent {
			need[p.Index] = true
		}
	}
	for _, k := range t.Tasks {
		if need[k.Index] {
			f.order = append(f.order, k)
		}
	}
	return f
}

// give tells a child what it inherits.
func (f *forks) give(child *Task, path []openCall) {
	f.mu.Lock()
	f.paths[child] = path
	f.mu.Unlock()
	f.cond.Broadcast()
}

// inherited returns what the task's parent had open; ok is false when a worker failed.
func (f *forks) inherited(k *Task) (path []openCall, ok bool, err error) {
	if f.index != nil && len(k.chunks) > 0 {
		tb, err := f.index.states(k)
		if err != nil {
			return nil, false, errBlocks
		}
		return tb.inherited, true, nil
	}
	if f.index != nil {
		return nil, true, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if path, ok := f.paths[k]; ok {
			delete(f.paths, k)
			return path, true, nil
		}
		if f.failed {
			return nil, false, nil
		}
		f.cond.Wait()
	}
}

func (f *forks) fail() {
	f.mu.Lock()
	f.failed = true
	f.mu.Unlock()
	f.cond.Broadcast()
}
