package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// A blockIndex is the file index, or what would be in it.
type blockIndex struct {
	r     io.ReaderAt
	tasks []byte // the directory
	close func() error
}

// section returns a part of the index. It is checked, but is no more trusted for that.
func (x *blockIndex) section(off, size uint64, crc uint32) ([]byte, error) {
	b := make([]byte, size)
	if _, err := x.r.ReadAt(b, int64(off)); err != nil && (err != io.EOF || size > 0) {
		return nil, fmt.Errorf("%s: offset %#x: %w", IndexFile, off, err)
	}
	if format.CRC(0, b) != crc {
		return nil, fmt.Errorf("%s: offset %#x: %d bytes are damaged", IndexFile, off, size)
	}
	return b, nil
}

func (x *blockIndex) entry(k *Task) []byte {
	return x.tasks[k.Index*format.IndexTask : (k.Index+1)*format.IndexTask]
}

// span returns the least and the greatest counter of a task's events.
func (x *blockIndex) span(k *Task) (first, last uint64) {
	e := x.entry(k)
	return binary.LittleEndian.Uint64(e[format.TFirst:]), binary.LittleEndian.Uint64(e[format.TLast:])
}

// states returns the blocks of a task.
func (x *blockIndex) states(k *Task) (*taskBlocks, error) {
	e, le := x.entry(k), binary.LittleEndian
	b, err := x.section(le.Uint64(e[format.TOffset:]), le.Uint64(e[format.TStates:]), le.Uint32(e[format.TStatesCrc:]))
	if err != nil {
		return nil, err
	}
	tb, err := parseStates(b, len(k.chunks))
	if err != nil {
		return nil, fmt.Errorf("%s: task %d: %w", IndexFile, k.TID, err)
	}
	return tb, nil
}

// functions returns the functions of a task's blocks, for eachBounds.
func (x *blockIndex) functions(k *Task) ([]byte, error) {
	e, le := x.entry(k), binary.LittleEndian
	off := le.Uint64(e[format.TOffset:]) + le.Uint64(e[format.TStates:])
	return x.section(off, le.Uint64(e[format.TFunctions:]), le.Uint32(e[format.TFunctionsCrc:]))
}

// chunksCRC is a checksum of everything that blocks are made of but the events.
func (t *Trace) chunksCRC() uint32 {
	le := binary.LittleEndian
	crc := uint32(0)
	var b []byte
	flush := func() {
		crc = format.CRC(crc, b)
		b = b[:0]
	}
	for i := range t.Images {
		b = le.AppendUint64(b, uint64(t.Images[i].ID))
		entries := uint64(0)
		if t.flat[i] {
			entries = 1
		}
		b = le.AppendUint64(b, entries)
	}
	for _, k := range t.Tasks {
		for i := range k.chunks {
			c := &k.chunks[i]
			b = le.AppendUint64(b, uint64(c.off))
			b = le.AppendUint64(b, c.counter)
			b = le.AppendUint32(b, c.size)
			if b = le.AppendUint32(b, c.number); len(b) > 1<<16 {
				flush()
			}
		}
		b = le.AppendUint64(b, uint64(len(k.chunks)))
	}
	flush()
	return crc
}

// indexHead returns the header of the index of the trace.
func (t *Trace) indexHead(tasks []byte) []byte {
	le := binary.LittleEndian
	h := make([]byte, format.IndexHeader)
	copy(h[format.IMagic:], format.IndexMagic)
	le.PutUint32(h[format.IVersion:], format.IndexVersion)
	le.PutUint32(h[format.ITasks:], uint32(len(t.Tasks)))
	copy(h[format.IIdentity:], t.identity[:])
	le.PutUint32(h[format.IChunksCrc:], t.chunksCRC())
	le.PutUint32(h[format.ITasksCrc:], format.CRC(0, tasks))
	le.PutUint32(h[format.ICrc:], format.CRC(0, h[:format.ICrc]))
	return h
}

// useIndex takes the index that r has, size bytes, if it is one of this trace.
func (t *Trace) useIndex(r io.ReaderAt, size int64) error {
	head := make([]byte, format.IndexHeader)
	if _, err := r.ReadAt(head, 0); err != nil {
		return fmt.Errorf("%s: %w", IndexFile, noEOF(err))
	}
	n := int64(len(t.Tasks)) * format.IndexTask
	if size < format.IndexHeader+n {
		return fmt.Errorf("%s: %d bytes are too few for %d tasks", IndexFile, size, len(t.Tasks))
	}
	tasks := make([]byte, n)
	if _, err := r.ReadAt(tasks, format.IndexHeader); n > 0 && err != nil {
		return fmt.Errorf("%s: %w", IndexFile, noEOF(err))
	}
	if string(head) != string(t.indexHead(tasks)) {
		return fmt.Errorf("%s: it is another trace's or another version's, or damaged", IndexFile)
	}
	x := &blockIndex{r: r, tasks: tasks}
	room := uint64(size) // of all sections: none is read for two tasks
	for _, k := range t.Tasks {
		e, le := x.entry(k), binary.LittleEndian
		off, states, functions := le.Uint64(e[format.TOffset:]), le.Uint64(e[format.TStates:]), le.Uint64(e[format.TFunctions:])
		if off > uint64(size) || states > room || functions > room-states || states+functions > uint64(size)-off {
			return fmt.Errorf("%s: task %d: %d bytes at offset %#x are not in the file of %d",
				IndexFile, k.TID, states+functions, off, size)
		}
		room -= states + functions
	}
	t.blocks = x
	return nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// openIndex uses the file index of the directory, if it is there.
func (t *Trace) openIndex(d *safefile.Dir) {
	f, err := d.Open(IndexFile)
	if missing(err) {
		return
	}
	if err == nil {
		var st os.FileInfo
		if st, err = f.Stat(); err == nil {
			err = t.useIndex(f, st.Size())
		}
		if err == nil {
			t.blocks.close = f.Close
			return
		}
		f.Close()
	}
	t.problem(fmt.Errorf("not used: %w", err))
}

// IndexOptions say where [Trace.MakeIndex] keeps an index.
type IndexOptions struct {
	// File: in the trace's directory, if that is this user's alone and can be written.
	File bool
	// Memory: in memory, if not in a file.
	Memory bool
}

// MakeIndex makes the index of a trace that has none and whose recording has ended. It reads all events. Walks and
// reports of parts of the trace are faster with an index, and give the same. It must not run beside other methods. It
// returns whether the trace has an index now; an error is that of reading the events.
func (t *Trace) MakeIndex(o IndexOptions) (ok bool, err error) {
	if t.blocks != nil {
		return true, nil
	}
	if t.Ending == EndPending || t.Header.Layout != LayoutPacked {
		return false, nil // chunks may still be added
	}
	var f *os.File
	var commit func(ok bool)
	if o.File {
		f, commit = t.createIndex()
	}
	if f == nil {
		if !o.Memory {
			return false, nil
		}
		var m memoryFile
		size, err := t.writeIndex(&m, usualBlocks)
		if err == nil {
			err = t.useIndex(&m, size)
		}
		return err == nil, err
	}
	size, err := t.writeIndex(f, usualBlocks)
	if err == nil {
		if err = t.useIndex(f, size); err == nil {
			t.blocks.close = f.Close
		}
	}
	commit(err == nil)
	if errors.Is(err, errWrite) {
		return false, nil // a full disk is no reason not to show the trace
	}
	return err == nil, err
}

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
	f, ok := t.file.(*os.File)
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

// errWrite is an error of writing the index.
var errWrite = errors.New("the index cannot be written")

// writeIndex makes the index and returns its size.
func (t *Trace) writeIndex(w io.WriterAt, sizes blockSizes) (int64, error) {
	le := binary.LittleEndian
	tasks := make([]byte, len(t.Tasks)*format.IndexTask)
	off := int64(format.IndexHeader + len(tasks))
	var mu sync.Mutex
	err := t.eachBlocks(sizes, func(k *Task, first, last uint64, states, functions []byte) error {
		mu.Lock()
		defer mu.Unlock()
		e := tasks[k.Index*format.IndexTask:]
		le.PutUint64(e[format.TFirst:], first)
		le.PutUint64(e[format.TLast:], last)
		le.PutUint64(e[format.TOffset:], uint64(off))
		le.PutUint64(e[format.TStates:], uint64(len(states)))
		le.PutUint64(e[format.TFunctions:], uint64(len(functions)))
		le.PutUint32(e[format.TStatesCrc:], format.CRC(0, states))
		le.PutUint32(e[format.TFunctionsCrc:], format.CRC(0, functions))
		for _, b := range [][]byte{states, functions} {
			if _, err := w.WriteAt(b, off); err != nil {
				return errors.Join(errWrite, err)
			}
			off += int64(len(b))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, b := range [][]byte{t.indexHead(tasks), tasks} {
		if _, err := w.WriteAt(b, int64(i)*format.IndexHeader); err != nil {
			return 0, errors.Join(errWrite, err)
		}
	}
	return off, nil
}

// A memoryFile is an index in memory.
type memoryFile struct{ b []byte }

func (m *memoryFile) WriteAt(b []byte, off int64) (int, error) {
	if end := off + int64(len(b)); end > int64(len(m.b)) {
		m.b = append(m.b, make([]byte, end-int64(len(m.b)))...)
	}
	return copy(m.b[off:], b), nil
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
