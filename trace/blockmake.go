package trace

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// WorthIndex is from how many bytes of events on an index is worth making: less is read in a fraction of a second.
const WorthIndex = 64 << 20

// IndexOptions say where [Trace.MakeIndex] keeps an index.
type IndexOptions struct {
	// File: in the trace's directory, if that is this user's alone and can be written.
	File bool
	// Memory: in memory, if not in a file.
	Memory bool
	// Begun: only if the recorder has begun one, and it can be made whole.
	Begun bool
	// Keep: what is read of it stays in memory, up to its size, for who asks for many parts of the trace.
	Keep bool
	// Block is the least number of events of a block, 0: 7168. Less makes a larger index that finds more exactly.
	Block int
}

// MakeIndex makes the index of a trace that has none and whose recording has ended, or goes on with the one that its
// recorder has begun. It reads all events that are not in that. Walks and reports of parts of the trace are faster with
// an index, and give the same. It must not run beside other methods. It returns whether the trace has an index now; an
// error is that of reading the events.
func (t *Trace) MakeIndex(o IndexOptions) (ok bool, err error) {
	defer func() {
		if o.Keep && t.blocks != nil && t.blocks.kept == nil {
			t.blocks.kept = make([]atomic.Pointer[taskBlocks], len(t.blocks.tasks))
		}
	}()
	if t.blocks != nil {
		return true, nil
	}
	if t.Ending == EndPending || t.Header.Chunks != 0 {
		return false, nil // chunks may still be added
	}
	if t.hasGoroutines() {
		o.File = false // chunks are parts of those in the file, where only the data says
	}
	if o.Begun && t.part == nil {
		return false, nil
	}
	sizes := usualBlocks
	if o.Block > 0 {
		sizes.least = o.Block
	}
	var f *os.File
	var commit func(ok bool)
	if o.File {
		f, commit = t.createIndex()
	}
	var m memoryFile
	var x *blockIndex
	switch {
	case f != nil:
		if x, err = t.writeIndex(f, sizes); err == nil {
			x.close = f.Close
		}
		commit(err == nil)
	case o.Memory || t.part != nil: // little may be missing
		x, err = t.writeIndex(&m, sizes)
	}
	if x != nil {
		t.closePart()
		t.blocks = x
	}
	if errors.Is(err, errWrite) || errors.Is(err, errGrown) {
		err = nil // a full disk is no reason not to show the trace
	}
	return x != nil, err
}

// closePart forgets an index that is not whole.
func (t *Trace) closePart() {
	if t.part != nil && t.part.close != nil {
		t.part.close()
	}
	t.part = nil
}

// errWrite is an error of writing the index, errGrown says that the trace has grown meanwhile.
var (
	errWrite = errors.New("the index cannot be written")
	errGrown = errors.New("the trace is being written")
)

// createIndex makes the file that is to become the index; nil: it cannot be made.
// commit gives it its name, or removes it.
func (t *Trace) createIndex() (f *os.File, commit func(ok bool)) {
	d, err := safefile.OpenDir(t.Dir)
	if err != nil {
		return nil, nil
	}
	if d.Ours() != nil || !t.sameEvents(d) {
		d.Close()
		return nil, nil
	}
	f, err = d.Create(format.FileNewIndex, os.O_RDWR)
	if errors.Is(err, os.ErrExist) {
		f, err = d.OpenFile(format.FileNewIndex, os.O_RDWR) // somebody makes it, or was killed then
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		d.Close()
		return nil, nil
	}
	return f, func(ok bool) {
		if !ok || d.Rename(format.FileNewIndex, IndexFile) != nil {
			_ = d.Remove(format.FileNewIndex)
		}
		if !ok {
			f.Close()
		}
		d.Close()
	}
}

// sameEvents says that the events in a directory are those of the trace.
func (t *Trace) sameEvents(d *safefile.Dir) bool {
	p, ok := t.file.(*plainFile)
	if !ok {
		return false
	}
	f, ok := p.file.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := d.Lstat(EventsFile)
	have, ok := st.Sys().(*unix.Stat_t)
	if !ok {
		var mine unix.Stat_t
		if unix.Fstat(int(f.Fd()), &mine) != nil {
			return false
		}
		have = &mine
	}
	return err == nil && there.Dev == have.Dev && there.Ino == have.Ino
}

// An indexWriter writes an index. It can be used by several goroutines.
type indexWriter struct {
	mu  sync.Mutex
	w   io.WriterAt
	id  format.Identity
	off int64
}

func newIndexWriter(w io.WriterAt, id format.Identity) (*indexWriter, error) {
	iw := &indexWriter{w: w, id: id}
	return iw, iw.write(indexHead(id))
}

// write appends parts as one.
func (w *indexWriter) write(parts ...[]byte) error {
	b := slices.Concat(parts...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.WriteAt(b, w.off); err != nil {
		return errors.Join(errWrite, err)
	}
	w.off += int64(len(b))
	return nil
}

// segment appends blocks of a task.
func (w *indexWriter) segment(task taskKey, s *newSegment) error {
	sections := [][]byte{s.statesOf, s.functionsOf, s.listsOf, s.sumsOf, s.gistsOf}
	for _, b := range sections {
		if int64(len(b)) > math.MaxUint32 {
			return errWrite
		}
	}
	s.states, s.functions = uint32(len(s.statesOf)), uint32(len(s.functionsOf))
	s.lists, s.sums, s.gists = uint32(len(s.listsOf)), uint32(len(s.sumsOf)), uint32(len(s.gistsOf))
	s.statesCRC, s.functionsCRC = format.CRC(0, s.statesOf), format.CRC(0, s.functionsOf)
	s.listsCRC, s.sumsCRC, s.gistsCRC = format.CRC(0, s.listsOf), format.CRC(0, s.sumsOf), format.CRC(0, s.gistsOf)
	parts := append([][]byte{s.head(format.SegmentBlocks, task, w.id)}, sections...)
	for _, b := range s.longOf {
		if int64(len(b)) > math.MaxUint32 {
			return errWrite
		}
		long := listSegment(b)
		parts = append(parts, long.head(format.SegmentPaths, task, w.id), b)
	}
	return w.write(parts...)
}

// images appends images, of which those before first are in the file already, and ranges of ids.
func (w *indexWriter) images(t *Trace, first int, n numbering, ranges idRanges) error {
	b := binary.AppendUvarint(nil, uint64(len(t.Images)-first))
	for i := first; i < len(t.Images); i++ {
		entries := byte(0)
		if t.flat[i] {
			entries = 1
		}
		b = append(binary.LittleEndian.AppendUint64(b, uint64(t.Images[i].ID)), entries)
	}
	b = binary.AppendUvarint(b, uint64(len(ranges)))
	for _, r := range ranges {
		b = binary.AppendUvarint(b, uint64(r.first))
		b = binary.AppendUvarint(b, uint64(r.last-r.first)+1)
		b = binary.AppendUvarint(b, uint64(r.image)+uint64(n))
	}
	s := listSegment(b)
	return w.write(s.head(format.SegmentImages, taskKey{}, w.id), b)
}

// An indexStorage keeps an index.
type indexStorage interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// writeIndex makes an index. What there is of one is copied.
func (t *Trace) writeIndex(s indexStorage, sizes blockSizes) (*blockIndex, error) {
	size, err := t.writeBlocks(s, sizes)
	if errors.Is(err, errBlocks) && t.part != nil {
		t.closePart()
		if err = s.Truncate(0); err == nil {
			size, err = t.writeBlocks(s, sizes)
		}
	}
	if err != nil {
		return nil, err
	}
	x, whole, err := t.readBlocks(s, size)
	switch {
	case err != nil:
		return nil, errors.Join(errWrite, err)
	case !whole:
		return nil, errGrown
	}
	return x, nil
}

// writeBlocks writes an index and returns its size.
func (t *Trace) writeBlocks(w io.WriterAt, sizes blockSizes) (int64, error) {
	iw, err := newIndexWriter(w, t.identity)
	if err != nil {
		return 0, err
	}
	todo, done, err := t.copyIndex(iw)
	if err != nil {
		return 0, err
	}
	n := numbering(0)
	if done != nil {
		n = numbering(len(done.images))
	}
	if err := iw.images(t, 0, n, t.ranges); err != nil {
		return 0, err
	}
	before := map[*Task]uint32{} // of chunks that may grow
	for _, k := range todo {
		if len(k.unsealed) > 0 {
			if before[k], err = t.unsealedCRC(k, 0); err != nil {
				return 0, err
			}
		}
	}
	out := func(k *Task, s *newSegment) error {
		if s.end && len(k.unsealed) > 0 {
			now, err := t.unsealedCRC(k, 0)
			if err == nil && now != before[k] {
				err = errGrown
			}
			if err == nil {
				s.chunksCRC, err = t.unsealedCRC(k, s.chunksCRC)
			}
			if err != nil {
				return err
			}
		}
		return iw.segment(k.taskKey(), s)
	}
	err = t.eachTask(nil, nil, todo, 0, func() taskSink {
		b := newBlockBuilder(sizes, t.Clock.Hz, n, out)
		b.done, b.t = done, t
		return b
	}, func(taskSink, *Task) {}, func(taskSink) {})
	return iw.off, err
}

// copyIndex copies what there is of an index, and returns the tasks whose blocks are to be made, and what there is of
// them. Those are made from the beginning that inherit calls, or others do from them: these depend on all of it.
func (t *Trace) copyIndex(w *indexWriter) (todo []*Task, done *blockIndex, err error) {
	if t.part == nil {
		return t.Tasks, nil, nil
	}
	x := t.part
	todo, done = []*Task{}, &blockIndex{r: x.r, images: x.images, tasks: make([][]segment, len(t.Tasks))}
	ended := func(k *Task) bool {
		ss := x.tasks[k.Index]
		return len(k.chunks) == 0 || len(ss) > 0 && ss[len(ss)-1].end
	}
	// The images' lists come first, whatever they were.
	if err := w.copyImages(x); err != nil {
		return nil, nil, err
	}
	parents := make([]bool, len(t.Tasks)) // of tasks that are to be made, and theirs
	for _, k := range t.Tasks {
		for p := k.Parent; p != nil && !ended(k) && !parents[p.Index]; p = p.Parent {
			parents[p.Index] = true
		}
	}
	for _, k := range t.Tasks {
		ss := x.tasks[k.Index]
		whole := ended(k)
		if !whole {
			todo = append(todo, k)
			if k.ParentPID != 0 || parents[k.Index] {
				continue
			}
		}
		for i := range ss {
			if err := w.copySegment(x, k, &ss[i]); err != nil {
				return nil, nil, err
			}
			for _, s := range x.longOf(k) {
				if s.behind == i+1 {
					if err := w.copyLong(x, k, &s.segment); err != nil {
						return nil, nil, err
					}
				}
			}
		}
		if !whole {
			done.tasks[k.Index] = ss
		}
	}
	return todo, done, nil
}

// copyImages writes the images that an index has, whose ranges are written with those of the trace.
func (w *indexWriter) copyImages(x *blockIndex) error {
	b := append(binary.AppendUvarint(nil, uint64(len(x.images))), x.listed...)
	b = binary.AppendUvarint(b, 0)
	s := listSegment(b)
	return w.write(s.head(format.SegmentImages, taskKey{}, w.id), b)
}

// copySegment writes a segment that an index has. Its sections are not read again: what is damaged in them is noticed
// when they are used.
func (w *indexWriter) copySegment(x *blockIndex, k *Task, s *segment) error {
	return w.copyAs(format.SegmentBlocks, x, k, s)
}

func (w *indexWriter) copyLong(x *blockIndex, k *Task, s *segment) error {
	return w.copyAs(format.SegmentPaths, x, k, s)
}

func (w *indexWriter) copyAs(kind uint32, x *blockIndex, k *Task, s *segment) error {
	b := make([]byte, s.sections())
	if err := x.r.read(b, s.off); err != nil {
		return errBlocks
	}
	return w.write(s.head(kind, k.taskKey(), w.id), b)
}

// listSegment returns the header of a segment that has nothing but b.
func listSegment(b []byte) segment {
	return segment{states: uint32(len(b)), statesCRC: format.CRC(0, b), functionsCRC: format.CRC(0, nil)}
}

// A memoryFile is an index in memory.
type memoryFile struct{ b []byte }

func (m *memoryFile) WriteAt(b []byte, off int64) (int, error) {
	if end := off + int64(len(b)); end > int64(len(m.b)) {
		m.b = append(m.b, make([]byte, end-int64(len(m.b)))...)
	}
	return copy(m.b[off:], b), nil
}

func (m *memoryFile) Truncate(size int64) error {
	m.b = m.b[:size]
	return nil
}

func (m *memoryFile) ReadAt(b []byte, off int64) (int, error) {
	if off > int64(len(m.b)) || off > math.MaxInt64-int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(b, m.b[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
