package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fentry-dev/fentry/internal/format"
)

// A recorder makes the index while it records: an IndexMaker follows the files events and
// chunks as they grow, and appends segments. It knows nothing of the recorder, and has
// nothing of its memory: so whoever writes events is never delayed by it, and one that is
// killed leaves what it has written. It is not bound to come to the end. What it leaves
// out, a reader makes, which also has what is not known before the end: what forked tasks
// have inherited follows from what their parents have written later.
//
// So a task is followed if it has inherited nothing, its chunks are there without a gap,
// and the images and ranges of all its ids are known: what the index says of it is then
// what every reader will say. Few tasks are followed at a time, so that memory is bounded;
// those that have written last.

const (
	// liveTasks are followed at a time, fewer if they have so many functions that tables of them would take more than
	// liveTable entries.
	liveTasks = 128
	liveTable = 4 << 20
	// liveRoom is runRoom of the first task; the n-th has the n-th part of it.
	liveRoom = 2 << 20
	// liveIdle is after how many chunks of others a task makes room for another.
	liveIdle = 4096
	// liveFrames is how many calls a task may have open.
	liveFrames = 1 << 18
	// liveLate is how many chunks may be written before one with a lower number.
	liveLate = 1 << 10
)

// An IndexMaker makes the index of a trace that is being recorded. Its methods must not be used at the same time.
type IndexMaker struct {
	t      *Trace
	ix     *index
	sizes  blockSizes
	events *os.File
	list   io.ReaderAt
	listed int64 // bytes of list that were read
	off    int64 // of events behind the chunks in it
	w      *indexWriter

	tasks   map[taskKey]*liveTask
	ready   []*liveTask // those with chunks to follow
	chunks  int         // events chunks seen
	images  int         // written
	ranges  map[idRange]bool
	newest  ClockPair
	window  []byte
	entries []byte
	err     error
}

// A liveTask is a task that is followed.
type liveTask struct {
	key     taskKey
	b       *blockBuilder
	d       *decoder
	begun   bool
	queued  bool                // in IndexMaker.ready
	next    uint32              // number of the chunk to come
	late    map[uint32]chunkRef // chunks behind one that has not come
	seen    int                 // IndexMaker.chunks at its newest chunk
	refused bool
}

// NewIndexMaker returns a maker that follows events and chunks, and writes to file, which is empty. The header of
// events is there already.
func NewIndexMaker(events, chunks *os.File, file io.WriterAt) (*IndexMaker, error) {
	page := make([]byte, format.HeaderSize)
	if _, err := events.ReadAt(page, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", events.Name(), noEOF(err))
	}
	t := &Trace{file: &plainFile{file: events}, identity: format.IdentityOf(page)}
	var err error
	if t.Header, err = ParseHeader(page); err != nil {
		return nil, err
	}
	if t.Header.Layout != LayoutPacked {
		return nil, errors.New("a file that programs write themselves is not followed")
	}
	m := &IndexMaker{
		t: t, ix: &index{t: t, tasks: map[taskKey]*Task{}, images: map[ImageID]uint32{}},
		events: events, list: chunks, off: t.Header.Size, sizes: usualBlocks,
		tasks: map[taskKey]*liveTask{}, ranges: map[idRange]bool{}, window: make([]byte, windowSize),
	}
	if m.w, err = newIndexWriter(file, t.identity); err != nil {
		return nil, err
	}
	return m, nil
}

// Step follows a chunk or two, less than a millisecond's work, and returns false if there are none at the moment. An
// error is the end: the index stays as it is.
func (m *IndexMaker) Step() (more bool, err error) {
	if len(m.ready) == 0 && m.err == nil {
		m.err = m.read()
	}
	if m.err != nil || len(m.ready) == 0 {
		return false, m.err
	}
	k := m.ready[0]
	m.ready, k.queued = m.ready[1:], false
	m.follow(k, false)
	if !k.refused && len(k.d.chunks) > 0 {
		m.ready, k.queued = append(m.ready, k), true
	}
	return true, m.err
}

// Close ends the index. If it has come to the end, and the trace has ended, it says so; what there is still to follow
// is left to readers.
func (m *IndexMaker) Close(ended bool) error {
	more := true
	for more && m.err == nil && len(m.ready) == 0 && ended {
		more, m.err = m.fill()
	}
	whole := ended && len(m.ready) == 0
	for _, k := range m.tasks {
		switch {
		case k.refused || m.err != nil:
		case whole && k.begun && len(k.late) == 0:
			m.follow(k, true)
		case k.begun:
			k.b.closeLong(true)
			k.b.flush(false)
		}
	}
	return m.err
}

// read reads what has come to the list.
func (m *IndexMaker) read() error {
	_, err := m.fill()
	return err
}

// fill reads some entries of the list. It returns false at its end.
func (m *IndexMaker) fill() (more bool, err error) {
	const most = 256 * format.ChunkHeader
	if m.entries == nil {
		m.entries = make([]byte, most)
	}
	n, err := m.list.ReadAt(m.entries, m.listed)
	if err != nil && err != io.EOF {
		return false, err
	}
	b := m.entries[:n/format.ChunkHeader*format.ChunkHeader]
	fi, err := m.events.Stat()
	if err != nil {
		return false, err
	}
	m.t.size = fi.Size()
	off, read, err := m.ix.list(bytes.NewReader(b), m.t.identity, m.off, m.add)
	if err == nil && len(m.t.Problems) > 0 {
		err = m.t.Problems[0]
	}
	if err != nil {
		return false, err
	}
	m.off = off
	m.listed += int64(read) * format.ChunkHeader
	err = m.learn()
	// Of programs and processes, of which there may be any number, nothing is needed.
	m.ix.programs, m.ix.ranges.maps, m.t.Mappings = programLog{}, nil, nil
	return read > 0, err
}

// hz is about the counter's frequency, as far as the chunks tell: the better the longer the trace.
func (m *IndexMaker) hz() float64 {
	h := &m.t.Header
	if m.newest.Monotonic <= h.Monotonic || m.newest.Counter <= h.Counter {
		return float64(h.CounterHz)
	}
	return float64(m.newest.Counter-h.Counter) * 1e9 / float64(m.newest.Monotonic-h.Monotonic)
}

// add takes a chunk.
func (m *IndexMaker) add(off int64, ch *chunkHead) error {
	if ch.kind == ChunkCompressed {
		plain, at, err := ch.events(&m.t.Header, off)
		if err != nil {
			return err
		}
		off, ch = at, plain
	}
	if ch.kind != ChunkEvents {
		if ch.kind == ChunkImage || ch.kind == ChunkMap {
			return m.ix.add(off, ch)
		}
		return nil
	}
	m.chunks++
	if ch.monotonic > m.newest.Monotonic {
		m.newest = ClockPair{Counter: ch.counter, Monotonic: ch.monotonic}
	}
	key := taskKey{ch.pid, ch.tid, ch.key}
	k := m.tasks[key]
	if k == nil {
		if k = m.begin(key, ch); k == nil {
			return nil
		}
	}
	k.seen = m.chunks
	if k.refused {
		return nil
	}
	c := chunkRef{off: off, counter: ch.counter, size: ch.size, number: ch.number, image: m.ix.image(ch.image)}
	switch {
	case c.number < k.next || len(k.late) >= liveLate:
		m.refuse(k)
		return nil
	case c.number > k.next:
		k.late[c.number] = c
		return nil
	}
	for ok := true; ok; c, ok = k.late[k.next] {
		delete(k.late, c.number)
		left := len(k.d.chunks) + 1
		k.b.chunks = append(k.b.chunks, c)
		k.b.left++
		k.d.chunks = k.b.chunks[len(k.b.chunks)-left:]
		k.next++
	}
	if !k.queued {
		k.queued = true
		m.ready = append(m.ready, k)
	}
	return nil
}

// begin begins to follow a task, if there is room for it; nil: it is left to readers.
func (m *IndexMaker) begin(key taskKey, ch *chunkHead) *liveTask {
	if ch.ppid != 0 || ch.number != 0 {
		return nil
	}
	sites := 1
	for _, r := range m.t.ranges {
		sites += int(r.last-r.first) + 1
	}
	if len(m.tasks) >= max(1, min(liveTasks, liveTable/sites)) {
		var oldest *liveTask
		for _, k := range m.tasks {
			if oldest == nil || k.seen < oldest.seen {
				oldest = k
			}
		}
		if oldest.queued || m.chunks-oldest.seen < liveIdle {
			return nil
		}
		if !oldest.refused && oldest.begun {
			oldest.b.closeLong(true)
			oldest.b.flush(false)
			m.err = errors.Join(m.err, oldest.b.err)
		}
		delete(m.tasks, oldest.key)
	}
	k := &liveTask{key: key, late: map[uint32]chunkRef{}}
	task := &Task{PID: int(ch.pid), TID: int(ch.tid), Key: ch.key, Stack: ch.stack}
	sizes := m.sizes
	sizes.room = min(sizes.room, liveRoom/(1+len(m.tasks)))
	k.b = newBlockBuilder(sizes, m.hz(), 0, func(_ *Task, s *newSegment) error { return m.w.segment(key, s) })
	k.d = m.t.newDecoder(nil, m.window)
	k.b.task = task
	m.tasks[key] = k
	return k
}

// refuse gives a task up: what is not in the index yet is left to readers.
func (m *IndexMaker) refuse(k *liveTask) {
	k.refused, k.b, k.d, k.late = true, nil, nil, nil
}

// learn writes images and ranges of ids that are new, and has decoders know them.
func (m *IndexMaker) learn() error {
	t := m.t
	if len(t.Images) == m.images && len(m.ix.ranges.all) == len(m.ranges) {
		return nil
	}
	t.ranges, t.flat = nil, make([]bool, len(t.Images))
	m.ix.finishRanges()
	for i := range t.Images {
		t.flat[i] = t.Images[i].Mode == "function"
	}
	var fresh idRanges
	for _, r := range t.ranges {
		if !m.ranges[r] {
			m.ranges[r] = true
			fresh = append(fresh, r)
		}
	}
	if err := m.w.images(t, m.images, 0, fresh); err != nil {
		return err
	}
	m.images = len(t.Images)
	for _, k := range m.tasks {
		if !k.refused {
			k.d.ranges, k.d.flat, k.d.span, k.d.before = t.ranges, t.flat, span{}, span{}
		}
	}
	return nil
}

// follow follows a chunk of a task, or, if that is known to be there, to the end of the task.
func (m *IndexMaker) follow(k *liveTask, end bool) {
	if k.refused {
		return
	}
	if len(m.t.ranges) == 0 {
		m.refuse(k) // ids may turn out to be others
		return
	}
	b, d := k.b, k.d
	b.hz = m.hz()
	var w word
	for d.next(&w) {
		if !k.begun {
			k.begun = true
			chunks := b.chunks
			b.begin(newFollower(b, w.t, b.task.Stack))
			b.setTask(b.task, chunks)
			b.start(d, &w)
		}
		b.take(d, &w, nil, nil)
		if d.at+8 > len(d.win) && d.off >= d.end && !end {
			break
		}
	}
	if k.begun && (b.foreign || b.fl.open+len(b.fl.cur.frames)+len(b.fl.aside) > liveFrames) {
		m.refuse(k)
		return
	}
	// The window is the next task's.
	d.win, d.at, d.off = nil, 0, d.end
	if end {
		b.finish()
	}
	// Of chunks that are in the index nothing more is needed.
	if n := b.crcTo - b.chunk0; n > 0 {
		b.chunks, b.chunk0 = append([]chunkRef(nil), b.chunks[n:]...), b.crcTo
		d.chunks = b.chunks[len(b.chunks)-len(d.chunks):]
	}
	if m.err = b.err; m.err == nil {
		m.err = d.err
	}
}
