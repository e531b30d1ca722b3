//go:build linux

package samples

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/session/internal/perf"
	"github.com/fentry-dev/fentry/stacks"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// A book has what is known of processes and threads, and their samples as chunks of a trace. A stack is a number, as in
// chunks that a program writes (stub/src/backtrace.c): frames that the chunk has already are not said again.
//
// A thread's samples are a task of their own, beside the one that the runtime in the program makes.
type book struct {
	o     Options
	procs map[uint32]*process
	tasks map[uint32]*task
	keep  func(perf.Chunk)
	lost  uint64
}

// mostProcesses bounds the processes that are held open.
const mostProcesses = 1 << 10

// process is one that was met; p nil: it cannot be read.
type process struct {
	p     *stacks.Process
	stale bool
	image trace.ImageID // of its program; 0: it was not said
}

// A task is a thread.
type task struct {
	pid  uint32
	w    *trace.TaskWriter
	out  *sink
	n    uint64 // samples in the chunk
	last uint32 // number of the chunk's newest frame
	node map[node]uint32
	said map[stacks.Image]bool
	from time.Time // when the chunk was begun
}

// A node is a frame and the number of all around it.
type node struct {
	pc     uint64
	parent uint32
}

// longest is how long a chunk stays unfinished: a reader of a trace that is still written sees what is older.
const longest = time.Second

func newBook(o Options, keep func(perf.Chunk)) book {
	return book{o: o, procs: map[uint32]*process{}, tasks: map[uint32]*task{}, keep: keep}
}

// meet looks at a process as soon as there is a sign of it, because it can end.
func (k *book) meet(pid uint32) {
	if q := k.procs[pid]; q != nil && !q.stale || len(k.procs) >= mostProcesses {
		return
	}
	var said trace.ImageID
	p, err := stacks.Open(int(pid), symbol.Options{})
	switch q := k.procs[pid]; {
	case err != nil && q != nil && q.p != nil: // it has ended, and is known from before
		q.stale = false
		return
	case err != nil:
		p = nil
	case q != nil && q.p != nil && q.p.Exe == p.Exe:
		said = q.image
	}
	k.leave(pid)
	k.procs[pid] = &process{p: p, image: said}
}

// leave forgets a process.
func (k *book) leave(pid uint32) {
	if q := k.procs[pid]; q != nil && q.p != nil {
		_ = q.p.Close()
	}
	delete(k.procs, pid)
}

// take takes the next record of all in the order of time, with its time in ticks.
func (k *book) take(r *record) {
	switch r.kind {
	case lost:
		k.lost += r.count
	case mapping:
		if q := k.procs[r.pid]; q != nil {
			q.stale = true
		}
	case ended:
		k.finish(r.tid)
		if r.pid == r.tid {
			k.leave(r.pid)
		}
	case sample:
		k.sample(r)
	}
}

// sample writes a sample.
func (k *book) sample(r *record) {
	t := k.tasks[r.tid]
	if t != nil && t.pid != r.pid {
		k.finish(r.tid) // another thread has the id
		t = nil
	}
	if t == nil {
		t = k.begin(r)
	}
	frames, end := k.walk(r)
	if t.w.Left() < k.needs(t, r, frames) || time.Since(t.from) > longest {
		k.flush(t)
	}
	id := uint32(0)
	var fresh []uint64
	var parent uint32
	for i := len(frames) - 1; i >= 0; i-- {
		at := frames[i].PC
		if frames[i].Exact {
			at |= format.ExactPc
		}
		n := node{at, id}
		if fresh == nil {
			if known, ok := t.node[n]; ok {
				id = known
				continue
			}
			parent = id
		}
		k.mapped(t, r, frames[i])
		t.last++
		t.node[n], id = t.last, t.last
		fresh = append(fresh, at)
	}
	first := t.last + 1 - uint32(len(fresh))
	for len(fresh) > 0 {
		n := min(len(fresh), format.RecordWords-1)
		t.w.Frames(r.time, first, parent, fresh[:n]...)
		first += uint32(n)
		parent, fresh = first-1, fresh[n:]
	}
	mode := uint8(format.StackFull)
	if k.o.Partial {
		mode = format.StackPartial
	}
	t.w.Sample(r.time, id, endOf(end), mode)
	t.n++
}

// needs is how many bytes a sample takes at most.
func (k *book) needs(t *task, r *record, frames []stacks.Frame) int {
	words := 16 + 2*len(frames) // with headers and the time
	var last stacks.Image
	for _, f := range frames {
		if im, ok := k.image(r.pid, f); ok && im != last && !t.said[im] {
			words += 6 + (len(im.BuildID)+len(im.Path))/8
			last = im
		}
	}
	return 8 * words
}

// begin begins with a thread.
func (k *book) begin(r *record) *task {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", r.pid, r.tid))
	t := &task{pid: r.pid, out: &sink{}}
	w, err := trace.NewWriter(t.out, trace.Header{})
	if err != nil {
		panic(err) // a sink takes everything
	}
	t.out.chunks = nil
	id := trace.TaskID{PID: int(r.pid), TID: int(r.tid), Key: r.time<<1 | 1, Comm: string(bytes.TrimSpace(comm))}
	id.Image = k.program(w, id, r)
	t.w = w.Task(id)
	k.forget(t)
	k.tasks[r.tid] = t
	return t
}

// forget begins a chunk.
func (k *book) forget(t *task) {
	t.n, t.last, t.node, t.said, t.from = 0, 0, map[node]uint32{}, map[stacks.Image]bool{}, time.Now()
}

// flush finishes a task's chunk.
func (k *book) flush(t *task) {
	n := t.n
	_ = t.w.Flush()
	for _, b := range t.out.chunks {
		k.keep(perf.Chunk{PID: t.pid, Host: t.pid, Events: n, Bytes: b})
		n = 0
	}
	t.out.chunks = nil
	k.forget(t)
}

// finish ends a thread.
func (k *book) finish(tid uint32) {
	if t := k.tasks[tid]; t != nil {
		k.flush(t)
		delete(k.tasks, tid)
	}
}

// end ends all of them.
func (k *book) end() {
	for tid := range k.tasks {
		k.finish(tid)
	}
	for pid := range k.procs {
		k.leave(pid)
	}
}

// walk walks the stack of a sample.
func (k *book) walk(r *record) (frames []stacks.Frame, end string) {
	frames, end = []stacks.Frame{{PC: r.regs.PC, Exact: true}}, stacks.EndGone
	q := k.procs[r.pid]
	if r.foreign || q == nil || q.p == nil {
		return frames, end
	}
	if k.o.Partial {
		r.regs.Known &= 1 << host.sp
	}
	err := mapped.Guard(func() error {
		frames, end = q.p.Copied(r.regs, r.stack)
		return nil
	})
	if err != nil {
		end = stacks.EndNoTable
	}
	return frames[:min(len(frames), mostFrames)], end
}

// mostFrames bounds a stack, so that it fits into a chunk.
const mostFrames = 500

// image is that of a process that has the code of a frame.
func (k *book) image(pid uint32, f stacks.Frame) (im stacks.Image, ok bool) {
	if q := k.procs[pid]; q != nil && q.p != nil {
		im, ok = q.p.ImageAt(f.At())
		im.Path = im.Path[:min(len(im.Path), longestPath)]
	}
	return im, ok
}

// longestPath is so short that a record has room for it.
const longestPath = 1800

// program says which program a process runs, if nobody else does and it was not said yet, and returns its id.
func (k *book) program(w *trace.Writer, id trace.TaskID, r *record) trace.ImageID {
	q := k.procs[r.pid]
	if !k.o.Alone || q == nil || q.p == nil {
		return 0
	}
	if q.image != 0 {
		return q.image
	}
	h := fnv.New64a()
	im := trace.Image{Path: q.p.Exe, Mode: trace.ModeSampled}
	if main, ok := q.p.Program(); ok {
		im.BuildID, im.Bias = main.BuildID, main.Bias
	}
	h.Write([]byte(im.BuildID + " " + im.Path))
	im.ID = trace.ImageID(h.Sum64() | 1)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.pid)); err == nil {
		im.Command = strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	if w.WriteProgram(id, r.time, im) == nil {
		q.image = im.ID
	}
	return im.ID
}

// mapped says which file is mapped where a frame's code is, if the chunk does not have it yet.
func (k *book) mapped(t *task, r *record, f stacks.Frame) {
	im, ok := k.image(r.pid, f)
	if !ok || t.said[im] {
		return
	}
	t.said[im] = true
	t.w.Mapped(r.time, trace.MappedFile{Address: im.Address, Size: im.Size, Bias: im.Bias, BuildID: im.BuildID, Path: im.Path})
}

// endOf is the number of a walk's end.
func endOf(end string) uint8 {
	switch end {
	case stacks.EndOutermost:
		return format.EndOutermost
	case stacks.EndNoTable:
		return format.EndNoTable
	case stacks.EndBadCFA:
		return format.EndBadCfa
	case stacks.EndDepth:
		return format.EndDepth
	case stacks.EndGone:
		return format.EndGone
	}
	return format.EndUndefined | uint8(stacks.Register(end)<<4)
}

// A sink keeps chunks.
type sink struct{ chunks [][]byte }

func (s *sink) Write(b []byte) (int, error) {
	s.chunks = append(s.chunks, bytes.Clone(b))
	return len(b), nil
}
