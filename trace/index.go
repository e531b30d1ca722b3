package trace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// A chunkRef is what is kept of a chunk: its place and what orders it.
type chunkRef struct {
	off     int64 // of the chunk header in the file; of a compressed one its second, see plainFile
	counter uint64
	size    uint32 // with the header, inside the file; not compressed
	number  uint32
	image   uint32 // position in Trace.Images
	first   uint32 // of a profile or count chunk: id of the first entry; of events: 0, or see partOfChunk
}

// A chunkHead is a decoded chunk header.
type chunkHead struct {
	kind       ChunkKind
	size       uint32
	pid, tid   uint32
	number     uint32
	counter    uint64
	monotonic  uint64
	image      ImageID
	key        uint64
	lost       uint64
	comm       [16]byte
	ppid, ptid uint32
	first      uint32
	stack      uint64
	until      uint64
	plain      uint32 // of a compressed chunk: the size of the one that it stands for
	unsealed   bool   // its size is that of its slot
}

// parseChunkHead decodes the header at the start of b. ok is false when b does
// not start with a plausible one.
func parseChunkHead(b []byte, h *chunkHead) (ok bool) {
	_ = b[ChunkHeaderSize-1]
	le := binary.LittleEndian
	h.kind = ChunkKind(le.Uint16(b[format.CKind:]))
	h.size = le.Uint32(b[format.CSize:])
	h.pid, h.tid = le.Uint32(b[format.CPID:]), le.Uint32(b[format.CTID:])
	h.number = le.Uint32(b[format.CNumber:])
	h.counter = le.Uint64(b[format.CCounter:])
	h.monotonic = le.Uint64(b[format.CMonotonic:])
	h.image = ImageID(le.Uint64(b[format.CImage:]))
	h.key = le.Uint64(b[format.CKey:])
	h.lost = le.Uint64(b[format.CLost:])
	h.comm = [16]byte(b[format.CComm:])
	h.ppid, h.ptid = le.Uint32(b[format.CParentPID:]), le.Uint32(b[format.CParentTID:])
	h.first, h.stack = le.Uint32(b[format.CFirst:]), le.Uint64(b[format.CStack:])
	h.until = le.Uint64(b[format.CUntil:])
	h.plain = le.Uint32(b[format.CPlain:])
	return le.Uint32(b[format.CMagic:]) == format.ChunkMagic &&
		h.kind >= 1 && h.kind <= format.MaxKind &&
		(h.size == 0 || h.size >= ChunkHeaderSize) && h.size%8 == 0
}

func commString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}

// index is what is only needed while the index is built.
type index struct {
	t      *Trace
	pairs  pairLog
	first  uint64 // counter of the first event
	tasks  map[taskKey]*Task
	images map[ImageID]uint32
	states *slotStates // nil: a file without
	sched  map[threadID][]schedRef
	ranges rangeLog
	off    []switchedOff // functions that the recorder has switched off

	programs programLog
}

type taskKey struct {
	pid, tid uint32
	key      uint64
}

// readIndex reads the header and walks over the chunk headers.
func (t *Trace) readIndex() (*index, error) {
	page := make([]byte, min(t.size, format.HeaderSize))
	_, err := t.file.ReadAt(page, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if t.Header, err = ParseHeader(page); err != nil {
		return nil, err
	}
	t.identity = format.IdentityOf(page)
	h := &t.Header
	ix := &index{t: t, tasks: map[taskKey]*Task{}, images: map[ImageID]uint32{}}
	if t.Info != nil {
		for _, im := range t.Info.Images {
			if _, dup := ix.images[im.ID]; !dup {
				ix.images[im.ID] = uint32(len(t.Images))
				t.Images = append(t.Images, im)
			}
		}
	}
	ix.pairs.add(ClockPair{h.Counter, h.Monotonic})
	if h.Chunks != 0 {
		ix.states = newSlotStates(t)
	}
	if err := ix.readRanges(); err != nil {
		return nil, err
	}
	if h.Layout == LayoutPacked {
		off := h.Size
		if t.list != nil {
			if off, err = ix.listed(t.list, t.identity); err != nil {
				return nil, err
			}
		}
		err = ix.packed(off)
	} else {
		err = ix.slots()
	}
	if err != nil {
		return nil, err
	}
	return ix, ix.finish()
}

// slots walks over a file whose chunks lie in slots.
func (ix *index) slots() error {
	h := &ix.t.Header
	n := h.Chunks
	if n == 0 {
		n = math.MaxInt64 / h.ChunkSize
		if h.Next != 0 {
			n = int64(min(uint64(n), h.Next))
		}
	}
	if err := ix.slotsOf(h.ChunkSize, h.Size, n, 0); err != nil {
		return err
	}
	return ix.slotsOf(h.SmallSize, h.Size+h.Chunks*h.ChunkSize, h.Small, h.Chunks)
}

// slotsOf walks over n slots of a size from an offset on; in a pool, the state of the
// first is that of chunk number first.
func (ix *index) slotsOf(size, from, n, first int64) error {
	t := ix.t
	var head [ChunkHeaderSize]byte
	var ch chunkHead
	for i := int64(0); i < n; i++ {
		if ix.states != nil {
			used, err := ix.states.used(first + i)
			if err != nil {
				return err
			}
			if i = used - first; i >= n || used >= ix.states.n {
				return nil
			}
		}
		off := from + i*size
		if off >= t.size {
			return nil
		}
		n, err := t.file.ReadAt(head[:], off)
		if err != nil && err != io.EOF {
			return err
		}
		clear(head[n:])
		if binary.LittleEndian.Uint32(head[format.CMagic:]) == 0 {
			// Never used, or its task was killed before it wrote the header.
			if next := t.nextData(off, t.size); next-off >= size {
				i += (next-off)/size - 1
			}
			continue
		}
		if n < len(head) {
			t.problem(fmt.Errorf("offset %#x: chunk header cut off at the end of the file", off))
			return nil
		}
		if !parseChunkHead(head[:], &ch) {
			t.problem(fmt.Errorf("offset %#x: no chunk header (magic %#x, kind %d, size %d)",
				off, binary.LittleEndian.Uint32(head[format.CMagic:]), ch.kind, ch.size))
			continue
		}
		slots := int64(1)
		if ch.unsealed = ch.size == 0; ch.unsealed {
			ch.size = uint32(size)
		} else if ch.kind != ChunkEvents && ch.kind != ChunkImage {
			slots = (int64(ch.size) + size - 1) / size
		} else if int64(ch.size) > size {
			t.problem(fmt.Errorf("offset %#x: chunk of %d bytes in a slot of %d", off, ch.size, size))
			ch.size = uint32(size)
		}
		if err := ix.add(off, &ch); err != nil {
			return err
		}
		i += slots - 1
	}
	return nil
}

// packed walks over a file whose chunks follow each other, each sealed, from off on.
func (ix *index) packed(off int64) error {
	t := ix.t
	var head [ChunkHeaderSize]byte
	var ch chunkHead
	for off < t.size {
		n, err := t.file.ReadAt(head[:], off)
		if err != nil && err != io.EOF {
			return err
		}
		if n == len(head) && parseChunkHead(head[:], &ch) && ch.size != 0 {
			if err := ix.add(off, &ch); err != nil {
				return err
			}
			off += int64(ch.size)
			continue
		}
		next, err := ix.resync(off)
		if err != nil {
			return err
		}
		off = next
	}
	return nil
}

// resync finds the next chunk header behind damage at off. Zeros to the end of
// the file are no damage: space that was reserved and not used.
func (ix *index) resync(off int64) (int64, error) {
	t := ix.t
	buf := make([]byte, 64<<10)
	zero := true
	var ch chunkHead
	for at := off; at < t.size; at += int64(len(buf)) - ChunkHeaderSize {
		at += (t.nextData(at, t.size) - at) &^ 7
		n, err := t.file.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		b := buf[:n]
		for i := 0; i+8 <= len(b); i += 8 {
			if binary.LittleEndian.Uint64(b[i:]) == 0 {
				continue
			}
			if at+int64(i) > off && i+ChunkHeaderSize <= len(b) && parseChunkHead(b[i:], &ch) && ch.size != 0 {
				t.problem(fmt.Errorf("offset %#x: damaged, %d bytes skipped", off, at+int64(i)-off))
				return at + int64(i), nil
			}
			zero = false
		}
	}
	if !zero {
		t.problem(fmt.Errorf("offset %#x: no chunk header; the last %d bytes are not readable", off, t.size-off))
	}
	return t.size, nil
}

// add enters a chunk.
func (ix *index) add(off int64, ch *chunkHead) error {
	t := ix.t
	if off+int64(ch.size) > t.size {
		if (ch.kind == ChunkEvents && off+int64(t.Header.ChunkSize) > t.size || ch.kind == ChunkCompressed) &&
			t.Header.Layout == LayoutPacked {
			t.problem(fmt.Errorf("offset %#x: chunk of %d bytes cut off at the end of the file", off, ch.size))
		}
		if ch.kind == ChunkCompressed {
			return nil // nothing of it can be read
		}
		ch.size = uint32(t.size-off) &^ 7
	}
	t.Chunks++
	t.Stored += int64(ch.size)
	if ch.kind == ChunkCompressed {
		plain, at, err := ch.events(&t.Header, off)
		if err != nil {
			t.problem(fmt.Errorf("offset %#x: %w", off, err))
			return nil
		}
		t.Compressed++
		off, ch = at, plain
	}
	t.Bytes += int64(ch.size)
	if ch.kind > ChunkCompressed {
		if t.Unknown++; t.Unknown == 1 {
			t.problem(fmt.Errorf("offset %#x: chunk of kind %d, which is not known and skipped: a newer fentry wrote it",
				off, ch.kind))
		}
		return nil
	}
	ref := chunkRef{off: off, counter: ch.counter, size: ch.size, number: ch.number, first: ch.first}
	switch ch.kind {
	case ChunkMap:
		return ix.addMap(off, ch)
	case ChunkSched:
		ix.addSched(off, ch)
		return nil
	case ChunkSwitchedOff:
		return ix.addSwitchedOff(off, ch)
	}
	ref.image = ix.image(ch.image)
	switch ch.kind {
	case ChunkImage:
		// The strings are short; what is longer than a chunk may be is no image.
		b := make([]byte, min(int64(ch.size)-ChunkHeaderSize, maxChunkSize))
		n, err := t.file.ReadAt(b, off+ChunkHeaderSize)
		if err != nil && err != io.EOF {
			return err
		}
		im, err := ParseImage(0, b[:n])
		if err != nil {
			t.problem(fmt.Errorf("offset %#x: %w", off, err))
		}
		t.Images[ref.image].merge(&im)
		if im.Home == 0 {
			ix.programs.add(ch, ref.image, &im)
		}
		return nil
	case ChunkProfile:
		k := ix.task(ch, &ref)
		k.profiles = append(k.profiles, ref)
		k.comm(ch)
		return nil
	case ChunkCount:
		k := ix.task(ch, &ref)
		k.counts = append(k.counts, ref)
		k.comm(ch)
		return nil
	}
	ref.first = 0 // only lists begin with an entry
	ix.pairs.add(ClockPair{ch.counter, ch.monotonic})
	k := ix.task(ch, &ref)
	k.chunks = append(k.chunks, ref)
	if ch.unsealed {
		k.unsealed = append(k.unsealed, ref)
	}
	if ch.number < k.number {
		k.number, k.Stack = ch.number, ch.stack
	}
	k.comm(ch)
	if ch.lost > k.Lost {
		k.Lost = ch.lost
	}
	return nil
}

func (k *Task) comm(ch *chunkHead) {
	name := ch.comm[:]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	if len(name) > 0 && string(name) != k.Comm {
		k.Comm = commString(name)
	}
}

// setBegin finds the counter of the task's first event. A threshold can hold
// events back until long after: what the first chunk's header says is not it.
func (ix *index) setBegin(k *Task, buf []byte) {
	if len(k.chunks) == 0 {
		tables := slices.Concat(k.profiles, k.counts)
		k.begin = tables[0].counter
		return
	}
	k.begin = k.chunks[0].counter
	d := decoder{r: ix.t.file, chunks: k.chunks[:1], number: k.chunks[0].number, buf: buf}
	var w word
	if d.next(&w) {
		k.begin = w.t
	}
}

func (ix *index) image(id ImageID) uint32 {
	i, ok := ix.images[id]
	if !ok {
		i = uint32(len(ix.t.Images))
		ix.images[id] = i
		ix.t.Images = append(ix.t.Images, Image{ID: id})
	}
	return i
}

func (ix *index) task(ch *chunkHead, ref *chunkRef) *Task {
	key := taskKey{ch.pid, ch.tid, ch.key}
	k := ix.tasks[key]
	if k == nil {
		k = &Task{
			PID: int(ch.pid), TID: int(ch.tid), Key: ch.key, Image: int(ref.image),
			ParentPID: int(ch.ppid), ParentTID: int(ch.ptid),
		}
		k.number = ^uint32(0)
		ix.tasks[key] = k
		ix.t.Tasks = append(ix.t.Tasks, k)
	}
	return k
}

// sortChunks puts a task's chunks in their order.
func sortChunks(chunks []chunkRef) {
	slices.SortStableFunc(chunks, func(a, b chunkRef) int { return cmp.Compare(a.number, b.number) })
}

// finish orders the chunks of each task, then the tasks, and finds parents.
func (ix *index) finish() error {
	t := ix.t
	ix.finishRanges()
	t.Lost = t.Header.LostUnborn
	if err := ix.splitGoroutines(); err != nil {
		return err
	}
	buf := make([]byte, ChunkHeaderSize+256)
	for _, k := range t.Tasks {
		sortChunks(k.chunks)
		next := uint32(0)
		for _, c := range k.chunks {
			if c.number > next {
				k.Gaps++
			}
			next = c.number + 1
		}
		t.Lost += k.Lost
		ix.setBegin(k, buf)
		if ix.first == 0 || k.begin < ix.first {
			ix.first = k.begin
		}
	}
	slices.SortStableFunc(t.Tasks, func(a, b *Task) int {
		ca, cb := a.begin, b.begin
		switch {
		case ca < cb:
			return -1
		case ca > cb:
			return 1
		}
		return 0
	})
	ix.finishSched()
	newest := map[[2]int]*Task{} // by id, of those that began before
	for i, k := range t.Tasks {
		k.Index = i
		if k.ParentPID != 0 {
			if k.Parent = newest[[2]int{k.ParentPID, k.ParentTID}]; k.Parent != nil {
				k.Parent.children = append(k.Parent.children, k)
				t.forked++
			}
		}
		if k.Goroutine == 0 {
			newest[[2]int{k.PID, k.TID}] = k
		}
	}
	return nil
}
