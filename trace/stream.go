package trace

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// Reading a buffer again and again while programs go on writing to it.
//
// Each look at the buffer is a trace of its own ([Options].HeaderClock, and Threads if there are Go programs). A task's
// chunks are numbered, and what is in one does not move, so where a look ended is a number and an offset: the next one
// decodes that chunk from its beginning, as what its words mean depends on those before, and goes on there with the open
// calls of the look before. If the chunk is gone, events are missing, and a Lost event says so.

// A Stream visits the events of several looks at one buffer, each event once. The zero value has seen none.
type Stream struct {
	// Seen is the number of entries and exits so far, those of system calls among them, as recorders count events.
	Seen uint64

	tasks  map[taskKey]*streamed
	looks  uint64
	images []ImageID // in their order
}

// streamed is a task between two looks.
type streamed struct {
	at   position
	fl   *follower
	comm string
	leaf bool   // as the cursor's
	look uint64 // when it was seen last
	// What has been decoded: events, and bytes of chunks.
	events, bytes int64
}

// position is where a word begins.
type position struct {
	number uint32 // of its chunk
	off    int64  // from the chunk's beginning
}

// StreamOptions say how much of a look is visited.
type StreamOptions struct {
	// Until is a time up to which all events of all tasks are in the trace, if there are several tasks: what is later comes
	// with the next look, so that events come in the order of time. 0: everything.
	Until int64
	// Hold keeps the newest event of a task back, for the next look, unless it is so old: whether a call has calls inside
	// can only be said when the next event is known. In ns.
	Hold int64
	// End says that this is the last look: calls that are open end as Unfinished.
	End bool
}

// longAbsent is how many looks a task that has no chunks is remembered for.
const longAbsent = 8

// Walk calls fn with every event of a look that was not in those before. All must be looks at the same buffer, whose
// images keep their order. Events of the calls that a forked task inherits are without their entry.
func (s *Stream) Walk(t *Trace, o StreamOptions, fn func(*Event) error) error {
	if s.tasks == nil {
		s.tasks = make(map[taskKey]*streamed)
	}
	s.looks++
	s.order(t)
	w := t.emptyWalker(len(t.Tasks))
	var cursors []*cursor
	var idle []*Task
	for _, k := range t.Tasks {
		c, err := s.cursor(t, k, w.window, fn)
		if err != nil {
			return err
		}
		if c == nil {
			if o.End {
				idle = append(idle, k)
			}
			continue
		}
		c.stream.hold = t.Clock.Counter(max(0, o.Until-o.Hold))
		if o.Until == 0 || o.End {
			c.stream.hold = ^uint64(0)
		}
		c.stream.end = o.End
		cursors = append(cursors, c)
		if c.ready() {
			w.add(c, c.cur.t)
		}
	}
	stop := uint64(0)
	if len(cursors) > 1 && o.Until > 0 && !o.End {
		stop = t.Clock.Counter(o.Until)
	}
	err := w.run(stop)
	for _, c := range cursors {
		st := c.stream.task
		st.at, st.fl, st.comm, st.leaf = c.stream.at, c.fl, c.ev.Comm, c.leaf
		s.Seen += c.stream.seen
		st.events += int64(c.stream.seen)
	}
	for _, k := range idle {
		if err == nil {
			err = s.finish(t, k, fn)
		}
	}
	for key, st := range s.tasks {
		if s.looks-st.look > longAbsent {
			delete(s.tasks, key)
		}
	}
	return err
}

// cursor returns a cursor before the first event of a task that was not visited; nil: there is none.
func (s *Stream) cursor(t *Trace, k *Task, window int, fn func(*Event) error) (*cursor, error) {
	key := taskKey{uint32(k.PID), uint32(k.TID), k.Key}
	st := s.tasks[key]
	if st == nil {
		st = &streamed{}
		s.tasks[key] = st
	}
	st.look = s.looks
	chunks := k.chunks
	if i := slices.IndexFunc(chunks, func(c chunkRef) bool { return c.number >= st.at.number }); i >= 0 {
		chunks = chunks[i:]
	} else {
		chunks = nil
	}
	if len(chunks) == 0 || len(chunks) == 1 && chunks[0].number == st.at.number && int64(chunks[0].size) <= st.at.off {
		return nil, nil
	}
	c := &cursor{t: t, task: k, dec: t.newDecoder(chunks, make([]byte, k.window(window))), emit: fn}
	c.stream = &streaming{task: st, at: st.at, room: int64(t.Header.ChunkSize) - format.ChunkHeader}
	c.dec.number = st.at.number
	if chunks[0].number == st.at.number {
		c.dec.fill()
		for w := (word{}); c.position().before(st.at); {
			if !c.dec.next(&w) {
				return nil, c.dec.err
			}
			if t.captures {
				c.dec.captured(&w)
			}
		}
	}
	if !c.begin() {
		c.stream.at = c.stream.next
		st.at = c.stream.at
		return nil, c.dec.err
	}
	if c.fl = st.fl; c.fl == nil {
		c.fl = newFollower(c, c.cur.t, k.Stack)
		if k.ParentPID != 0 {
			c.fl.inherit(nil, k.begin)
		}
	}
	if st.comm == "" {
		st.comm = c.stream.name
	}
	c.fl.sink = c
	c.ev.Task, c.ev.Comm, c.leaf = k, st.comm, st.leaf
	return c, nil
}

// finish ends the calls of a task that are open, at the time of its last event.
func (s *Stream) finish(t *Trace, k *Task, fn func(*Event) error) error {
	st := s.tasks[taskKey{uint32(k.PID), uint32(k.TID), k.Key}]
	if st.fl == nil {
		return nil
	}
	c := &cursor{t: t, task: k, fl: st.fl, emit: fn}
	c.fl.sink = c
	c.ev.Task, c.ev.Comm = k, st.comm
	c.fl.finish()
	return c.err
}

// order takes note of the images. Open calls have them by their places: if these have changed after all, it is not known
// any more which they are.
func (s *Stream) order(t *Trace) {
	for i := range t.Images {
		if i < len(s.images) && s.images[i] != t.Images[i].ID {
			s.images = s.images[:0]
			for _, st := range s.tasks {
				st.fl = nil
			}
			break
		}
	}
	for i := len(s.images); i < len(t.Images); i++ {
		s.images = append(s.images, t.Images[i].ID)
	}
}

// before tells whether a position is in the same chunk as another one, and in front of it.
func (p position) before(q position) bool { return p.number == q.number && p.off < q.off }

// position is where the next word begins, or behind the last word of its chunk.
func (c *cursor) position() position {
	d, s := c.dec, c.stream
	if d.end == 0 {
		return position{} // it has not begun
	}
	if number := d.number - 1; s.base == 0 || number != s.chunk {
		s.chunk = number
		i, _ := slices.BinarySearchFunc(c.task.chunks, number, func(c chunkRef, n uint32) int { return cmp.Compare(c.number, n) })
		s.base = c.task.chunks[min(i, len(c.task.chunks)-1)].off
	}
	return position{s.chunk, d.off - int64(len(d.win)-d.at) - s.base}
}

// streaming is what a cursor has for a Stream.
type streaming struct {
	task     *streamed
	at, next position // of the word that is due, and of the one behind it
	hold     uint64   // counter: a word that is not older waits for the one behind it
	end      bool
	seen     uint64
	name     string // the task's at the word that is due, until that has been handled; "": nothing is said of it

	chunk uint32 // number of the chunk at hand
	base  int64  // where it begins in the file; 0: none is at hand
	room  int64  // bytes for events in a chunk
	gaps  int64  // bytes of chunks that are missing, of gaps that were not told of yet
}

// missed is about how many events were in the chunks that are missing: as many in a byte as in those that were seen. 0: it
// is not known.
func (s *streaming) missed() uint64 {
	if s == nil || s.gaps <= 0 {
		return 0
	}
	const word = 8 // bytes of an entry or exit
	n := s.gaps / word
	if seen := s.task.events + int64(s.seen); seen > 0 && s.task.bytes > 0 {
		n = int64(float64(s.gaps) * float64(seen) / float64(s.task.bytes))
	}
	s.gaps = 0
	return uint64(max(n, 1))
}

// rename tells of the name that the task has got in a chunk that the look before has not seen.
func (c *cursor) rename() {
	name := c.stream.name
	c.stream.name = ""
	if name == "" || name == c.ev.Comm || c.cur.code == wComm {
		return
	}
	c.ev.Comm = name
	c.fl.t = c.cur.t
	c.note(Comm, 0)
}

// ready tells whether the word that is due can be handled.
func (c *cursor) ready() bool {
	return c.more || c.cur.t <= c.stream.hold
}

// read reads a word, and notes where it was.
func (c *cursor) read(w *word) bool {
	if c.stream == nil {
		return c.dec.next(w)
	}
	c.stream.at = c.stream.next
	from := c.position()
	if c.dec.end == 0 {
		from = c.stream.task.at
	}
	ok := c.dec.next(w)
	// A gap has no place: it is found again in front of the next chunk.
	to := c.position()
	switch {
	case ok && w.code == wGap:
		c.stream.gaps += int64(to.number-from.number)*c.stream.room - max(0, from.off-format.ChunkHeader)
	case to.number != from.number:
		from = position{to.number, format.ChunkHeader}
		fallthrough
	default:
		c.stream.task.bytes += max(0, to.off-from.off)
	}
	c.stream.next = from
	return ok
}

// stepped notes that the word that was due has been handled; leaf: it was the exit of a call whose entry said so. That
// exit was counted with the entry, which has told of it.
func (c *cursor) stepped(w *word, leaf bool) {
	switch w.code {
	case wEntry, wCall, wSysEnter:
		c.stream.seen++
		if c.leaf && w.code != wCall {
			c.stream.seen++
		}
	case wExit, wSysExit:
		if !leaf {
			c.stream.seen++
		}
	case wGap:
		c.leaf = false
	}
}
