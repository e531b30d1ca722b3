package trace

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// Goroutines.
//
// A Go program's calls are those of goroutines, which go on on whichever thread has time for them: a call can begin in
// one thread's chunks and end in another's. So each goroutine is a task of its own here, whose chunks are parts of those of
// threads: from the record that says that the thread goes on with it, to the next such record. One thread at a time runs
// a goroutine, so its parts have an order, that of their times. A thread that gets a goroutine back, and has recorded
// nothing else meanwhile, has no record of it: such a part is divided where another thread's begins. All that reads tasks
// reads goroutines, then, and knows nothing of them. What runs on a thread's own stack stays the thread's.
//
// Where the parts are says only the data, so a trace of a Go program is read once when it is opened. It takes 48 bytes
// for each time that a thread has gone on with another goroutine, and 16 for each record that says what stacks are, and has
// no file index.

// partOfChunk is set in the field first of a chunkRef that is a part of a chunk, without a header. The rest of the field
// is the thread whose chunk that is, of a goroutine's.
const partOfChunk = uint32(1) << 31

// StacksGoroutines is the Stacks of an image whose calls are goroutines'.
const StacksGoroutines = "goroutines"

// GoroutineOf returns which goroutine's a stack is; false: it is a thread's, or a coroutine's.
func GoroutineOf(stack uint64) (number uint64, ok bool) {
	return stack &^ format.GoroutineStack, stack&format.GoroutineStack != 0
}

// hasGoroutines reports whether the trace has tasks of goroutines.
func (t *Trace) hasGoroutines() bool {
	return !t.threads && slices.ContainsFunc(t.Images, func(im Image) bool { return im.Stacks == StacksGoroutines })
}

// A goroutineKey names a goroutine: their numbers are a process's own.
type goroutineKey struct {
	pid    int
	number uint64
}

// splitGoroutines gives goroutines tasks of their own.
func (ix *index) splitGoroutines() error {
	t := ix.t
	if !t.hasGoroutines() {
		return nil
	}
	tasks := map[goroutineKey]*goroutine{}
	births := map[goroutineKey]*made{}
	threads := t.Tasks
	t.Tasks, t.said = nil, nil
	window := make([]byte, windowSize)
	for _, k := range threads {
		if t.Images[k.Image].Stacks == StacksGoroutines && len(k.chunks) > 0 {
			if err := ix.splitThread(k, tasks, births, window); err != nil {
				return err
			}
		}
		if len(k.chunks)+len(k.profiles)+len(k.counts) > 0 {
			t.Tasks = append(t.Tasks, k)
		} else {
			t.Lost += k.Lost
		}
	}
	slices.SortFunc(t.said, func(a, b saidAt) int { return cmp.Compare(a.at, b.at) })
	for _, g := range tasks {
		if g.parksOnly {
			continue // it is the runtime's, or calls nothing that is traced
		}
		if err := g.order(t, window); err != nil {
			return err
		}
		g.task.made = births[goroutineKey{g.task.PID, g.task.Goroutine}]
		t.Tasks = append(t.Tasks, g.task)
	}
	// Those that begin at the same time have an order, too.
	slices.SortFunc(t.Tasks, func(a, b *Task) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Goroutine, b.Goroutine), cmp.Compare(a.TID, b.TID),
			cmp.Compare(a.Key, b.Key))
	})
	return nil
}

// A goroutine is one whose parts are being found.
type goroutine struct {
	task  *Task
	parts []threadPart

	parksOnly bool // no function but those that goroutines wait in, and are made ready by
}

// order brings the parts of a goroutine into their order, and makes them the chunks of its task.
func (g *goroutine) order(t *Trace, window []byte) error {
	byStart := func(a, b threadPart) int { return cmp.Compare(a.counter, b.counter) }
	slices.SortStableFunc(g.parts, byStart)
	for i := 0; i+1 < len(g.parts); i++ {
		next := g.parts[i+1].counter
		if g.parts[i].last < next {
			continue
		}
		rest, err := g.parts[i].divide(t, next, window)
		if err != nil {
			return err
		}
		if rest.size > 0 {
			at, _ := slices.BinarySearchFunc(g.parts[i+1:], rest, byStart)
			for at < len(g.parts)-i-1 && g.parts[i+1+at].counter == rest.counter {
				at++
			}
			g.parts = slices.Insert(g.parts, i+1+at, rest)
		}
	}
	for i, p := range g.parts {
		p.number = uint32(i)
		g.task.chunks = append(g.task.chunks, p.chunkRef)
	}
	return nil
}

// A threadPart is a part of a chunk, with the counter of its last word.
type threadPart struct {
	chunkRef
	last uint64
}

// divide leaves what is before a counter, and returns the rest, which has size 0 if there is none.
func (p *threadPart) divide(t *Trace, counter uint64, window []byte) (rest threadPart, err error) {
	d := decoder{r: t.file, chunks: []chunkRef{p.chunkRef}, buf: window}
	end := p.off + int64(p.size)
	from := p.off // of the next word
	var w word
	for d.next(&w) {
		if d.last >= counter && from > p.off {
			rest = *p
			rest.off, rest.size, rest.counter = from, uint32(end-from), d.last
			p.size, p.last = uint32(from-p.off), counter-1
			return rest, nil
		}
		from = d.off - int64(len(d.win)-d.at)
	}
	return threadPart{}, d.err
}

// A splitter divides the chunks of one thread.
type splitter struct {
	thread *Task
	tasks  map[goroutineKey]*goroutine
	own    []chunkRef // what is the thread's
	stack  uint64     // of the part at hand
	part   threadPart
	park   FuncID // the function that goroutines wait in
	ready  FuncID // the one that makes them ready to run
	calls  bool   // others are in the part
}

// splitThread divides a thread's chunks among it and the goroutines that it has run.
func (ix *index) splitThread(
	k *Task, tasks map[goroutineKey]*goroutine, births map[goroutineKey]*made, window []byte,
) error {
	sortChunks(k.chunks)
	d := decoder{r: ix.t.file, chunks: k.chunks, number: k.chunks[0].number, buf: window}
	d.made = func(number uint64, m made) { births[goroutineKey{k.PID, number}] = &m }
	d.says = func(at, end int64) { ix.t.said = append(ix.t.said, saidAt{at, end}) }
	s := splitter{thread: k, tasks: tasks, park: FuncID{Image: uint32(k.Image), ID: ix.t.parkID(uint32(k.Image))}}
	s.ready = FuncID{Image: s.park.Image, ID: ix.t.readyID(uint32(k.Image))}
	left := len(d.chunks)
	end := int64(0) // of the chunk
	var w word
	for d.next(&w) {
		if len(d.chunks) != left {
			s.cut(end)
			left = len(d.chunks)
			c := k.chunks[len(k.chunks)-left-1]
			end = c.off + int64(c.size)
			s.begin(d.stack, c.off+ChunkHeaderSize, c.counter, c.image)
		}
		switch at := d.off - int64(len(d.win)-d.at); w.code { // of the next word
		case wStack:
			s.cut(at - 16)
			s.begin(w.arg, at, d.last, s.part.image)
		case wThreadEnd: // whatever goroutine the thread has run last goes on elsewhere
			stack := s.stack
			s.cut(at - 8)
			s.begin(0, at-8, d.last, s.part.image)
			s.cut(at)
			s.begin(stack, at, d.last, s.part.image)
		case wDepth:
			s.part.last = d.last
		default:
			s.part.last = d.last
			s.calls = s.calls || w.fn != s.park && w.fn != s.ready
		}
	}
	s.cut(end)
	k.chunks = s.own
	for i := range s.own {
		s.own[i].number = uint32(i)
	}
	k.number = 0
	return d.err
}

func (s *splitter) begin(stack uint64, off int64, counter uint64, image uint32) {
	s.stack, s.calls = stack, false
	s.part = threadPart{chunkRef{off: off, counter: counter, image: image, first: partOfChunk | uint32(s.thread.TID)}, counter}
}

// cut ends the part at hand.
func (s *splitter) cut(end int64) {
	if end <= s.part.off || s.part.first&partOfChunk == 0 {
		return
	}
	s.part.size = uint32(end - s.part.off)
	if s.stack&format.GoroutineStack == 0 {
		s.part.first = partOfChunk // the task is the thread
		s.own = append(s.own, s.part.chunkRef)
		return
	}
	key := goroutineKey{s.thread.PID, s.stack &^ format.GoroutineStack}
	g := s.tasks[key]
	if g == nil {
		k := s.thread
		g = &goroutine{parksOnly: true, task: &Task{
			PID: k.PID, TID: int(key.number), Goroutine: key.number, Comm: k.Comm, Key: k.Key, Image: k.Image, Stack: s.stack,
		}}
		s.tasks[key] = g
	}
	g.parts, g.parksOnly = append(g.parts, s.part), g.parksOnly && !s.calls
}

// LastThread returns the largest number of a thread that has run a goroutine; 0: there is none.
func (t *Trace) LastThread() int {
	last := uint32(0)
	for _, k := range t.Tasks {
		if k.Goroutine != 0 {
			for i := range k.chunks {
				last = max(last, k.chunks[i].first&^partOfChunk)
			}
		}
	}
	return int(last)
}

// Goroutines returns the tasks of goroutines with the given number, in order. If there is none, the result is empty but
// not nil: as WalkOptions.Tasks it means no task.
func (t *Trace) Goroutines(number uint64) []*Task {
	ks := []*Task{}
	for _, k := range t.Tasks {
		if k.Goroutine == number && number != 0 {
			ks = append(ks, k)
		}
	}
	return slices.Clip(ks)
}
