package trace

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
)

// AppendHeader appends the header page of a file that grows. Zero sizes get their defaults. Header.Chunks must be 0:
// pools are laid out by the processes that share them.
func AppendHeader(b []byte, h Header) []byte {
	page := make([]byte, format.HeaderSize)
	le := binary.LittleEndian
	if h.ChunkSize == 0 {
		h.ChunkSize = DefaultChunkSize
	}
	copy(page, format.FileMagic)
	le.PutUint32(page[format.HVersion:], format.Version)
	le.PutUint32(page[format.HHeaderSize:], format.HeaderSize)
	le.PutUint32(page[format.HChunkSize:], uint32(h.ChunkSize))
	le.PutUint32(page[format.HPolicy:], uint32(h.Policy))
	le.PutUint32(page[format.HRecorder:], uint32(h.Recorder))
	le.PutUint32(page[format.HLeader:], uint32(h.Leader))
	le.PutUint64(page[format.HCounter:], h.Counter)
	le.PutUint64(page[format.HMonotonic:], h.Monotonic)
	le.PutUint64(page[format.HRealtime:], h.Realtime)
	le.PutUint64(page[format.HCounterHZ:], h.CounterHz)
	le.PutUint64(page[format.HLost:], h.LostUnborn)
	le.PutUint32(page[format.HLayout:], uint32(h.Layout))
	le.PutUint32(page[format.HUncounted:], h.Uncounted)
	le.PutUint64(page[format.HUncountedFrom:], h.UncountedFrom)
	le.PutUint64(page[format.HUncountedTo:], h.UncountedTo)
	le.PutUint64(page[format.HOverwritten:], h.Overwritten)
	if h.Closed {
		le.PutUint32(page[format.HClosed:], 1)
	}
	return append(b, page...)
}

// Sealed returns the part of a chunk that is worth storing, with its size written into its header: a chunk that is
// not sealed is cut after its last non-zero word or record. It returns nil if the chunk does not start with a chunk
// header.
func Sealed(chunk []byte) []byte {
	var h chunkHead
	if len(chunk) < ChunkHeaderSize || !parseChunkHead(chunk, &h) {
		return nil
	}
	n := len(chunk) &^ 7
	if h.size != 0 {
		n = min(n, int(h.size))
	} else {
		n = ChunkHeaderSize + len(format.Contents(chunk[ChunkHeaderSize:]))
	}
	binary.LittleEndian.PutUint32(chunk[format.CSize:], uint32(n))
	return chunk[:n]
}

// A TaskID is what a chunk header says about its task.
type TaskID struct {
	PID, TID             int
	ParentPID, ParentTID int // 0 unless forked
	Key                  uint64
	Image                ImageID
	Comm                 string
	Stack                uint64 // stack that the task begins on, 0 if unknown
}

// A Writer writes an events file of sealed, packed chunks. It is not safe for concurrent use.
type Writer struct {
	// List, if set, is the file named chunks: an entry is written to it for each chunk.
	List io.Writer
	// Compress has the events chunks that are written from now on compressed, if they become smaller.
	Compress bool

	w         io.Writer
	id        format.Identity
	off       int64
	chunkSize int
	err       error
	encoder   *columns.Encoder // nil: nothing was compressed yet
	stored    []byte           // its chunk
}

// NewWriter writes the header to w and returns a Writer for the chunks. The layout is LayoutPacked whatever h says.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Layout = LayoutPacked
	if h.ChunkSize == 0 {
		h.ChunkSize = DefaultChunkSize
	}
	page := AppendHeader(nil, h)
	if _, err := ParseHeader(page); err != nil {
		return nil, err
	}
	if _, err := w.Write(page); err != nil {
		return nil, err
	}
	return &Writer{w: w, id: format.IdentityOf(page), off: int64(len(page)), chunkSize: int(h.ChunkSize)}, nil
}

// WriteChunk writes a chunk as a task left it: sealed or not. It returns the
// number of bytes written.
func (w *Writer) WriteChunk(chunk []byte) (int, error) {
	b := Sealed(chunk)
	if b == nil {
		return 0, fmt.Errorf("no chunk header")
	}
	return w.write(b)
}

// write writes a sealed chunk, and lists it.
func (w *Writer) write(b []byte) (int, error) {
	b, err := w.compress(b)
	if err != nil {
		return 0, err
	}
	n, err := w.w.Write(b)
	if err == nil && w.List != nil {
		_, err = w.List.Write(format.AppendIndex(nil, w.id, b[:ChunkHeaderSize], w.off))
	}
	w.off += int64(n)
	return n, err
}

// compress returns the chunk as it is written.
func (w *Writer) compress(b []byte) ([]byte, error) {
	if !w.Compress || ChunkKind(binary.LittleEndian.Uint16(b[format.CKind:])) != ChunkEvents {
		return b, nil
	}
	if w.encoder == nil {
		var err error
		if w.encoder, err = columns.NewEncoder(); err != nil {
			return nil, err
		}
	}
	stored, ok := w.encoder.Chunk(w.stored[:0], b[:ChunkHeaderSize], b[ChunkHeaderSize:])
	if w.stored = stored; ok {
		b = stored
	}
	return b, nil
}

// WriteImage writes an image chunk of no process.
func (w *Writer) WriteImage(im Image) error { return w.WriteProgram(TaskID{}, 0, im) }

// WriteProgram writes an image chunk: at a counter value, the process of the task id began to run the program im or, if
// im.Home is set, loaded it.
func (w *Writer) WriteProgram(id TaskID, counter uint64, im Image) error {
	id.Image = im.ID
	b := appendChunkHeader(nil, ChunkImage, id, 0, counter, 0)
	add := func(key, val string) {
		if val != "" {
			b = append(b, key...)
			b = append(b, '=')
			b = append(b, strings.ReplaceAll(val, "\x00", "")...)
			b = append(b, 0)
		}
	}
	add("path", im.Path)
	add("build-id", im.BuildID)
	add("bias", "0x"+strconv.FormatUint(im.Bias, 16))
	add("exe", im.Exe)
	add("file", im.File)
	if im.Home != 0 {
		add("home", im.Home.String())
	}
	if im.Parent != 0 {
		add("ppid", strconv.Itoa(im.Parent))
	}
	args := strings.Join(im.Command, "\x1f")
	if len(im.Command) > 0 {
		args += "\x1f"
	}
	add("cmdline", args)
	add("nsites", strconv.Itoa(im.Sites))
	add("mode", im.Mode)
	add("stacks", im.Stacks)
	add("ids", im.IDs)
	for b = append(b, 0); len(b)%8 != 0; {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := w.write(b)
	return err
}

// WriteMap writes a map chunk: the images that process pid has loaded at the given counter value.
func (w *Writer) WriteMap(pid int, counter uint64, images []MapEntry) error {
	b := appendChunkHeader(nil, ChunkMap, TaskID{PID: pid, TID: pid}, 0, counter, 0)
	le := binary.LittleEndian
	for _, m := range images {
		var e [format.MapEntry]byte
		le.PutUint32(e[format.MFirst:], m.First)
		le.PutUint32(e[format.MCount:], m.Count)
		le.PutUint64(e[format.MImage:], uint64(m.Image))
		le.PutUint64(e[format.MBias:], m.Bias)
		le.PutUint64(e[format.MLoaded:], m.Loaded)
		le.PutUint64(e[format.MUnloaded:], m.Unloaded)
		b = append(b, e[:]...)
	}
	le.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := w.write(b)
	return err
}

// WriteSwitchedOff writes a chunk of functions that the recorder has switched off at the given counter value, by their
// ids in events.
func (w *Writer) WriteSwitchedOff(counter uint64, rate uint32, ids ...uint32) error {
	b := appendChunkHeader(nil, ChunkSwitchedOff, TaskID{}, 0, counter, 0)
	le := binary.LittleEndian
	for _, id := range ids {
		var e [format.SwitchedOffEntry]byte
		le.PutUint32(e[format.OID:], id)
		le.PutUint32(e[format.ORate:], rate)
		le.PutUint64(e[format.OCounter:], counter)
		b = append(b, e[:]...)
	}
	le.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := w.write(b)
	return err
}

// An Off is a time in which a thread was off a processor, or, if Unknown, in which nothing is known of it.
type Off struct {
	From, To uint64 // counters
	Unknown  bool
}

// WriteSched writes when the thread of a task was off a processor, from one counter to another.
func (w *Writer) WriteSched(id TaskID, from, to uint64, off []Off) error {
	b := appendChunkHeader(nil, ChunkSched, TaskID{PID: id.PID, TID: id.TID}, 0, from, 0)
	le := binary.LittleEndian
	le.PutUint64(b[format.CUntil:], to)
	for _, o := range off {
		var e [format.SchedEntry]byte
		le.PutUint64(e[format.SFrom:], o.From)
		le.PutUint64(e[format.STo:], o.To)
		if o.Unknown {
			le.PutUint32(e[format.SState:], format.SchedUnknown)
		}
		b = append(b, e[:]...)
	}
	le.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := w.write(b)
	return err
}

func appendChunkHeader(b []byte, kind ChunkKind, id TaskID, number uint32, counter, monotonic uint64) []byte {
	var h [ChunkHeaderSize]byte
	le := binary.LittleEndian
	le.PutUint32(h[format.CMagic:], format.ChunkMagic)
	le.PutUint16(h[format.CKind:], uint16(kind))
	le.PutUint32(h[format.CPID:], uint32(id.PID))
	le.PutUint32(h[format.CTID:], uint32(id.TID))
	le.PutUint32(h[format.CNumber:], number)
	le.PutUint64(h[format.CCounter:], counter)
	le.PutUint64(h[format.CMonotonic:], monotonic)
	le.PutUint64(h[format.CImage:], uint64(id.Image))
	le.PutUint64(h[format.CKey:], id.Key)
	copy(h[format.CComm:format.CComm+16], id.Comm)
	le.PutUint32(h[format.CParentPID:], uint32(id.ParentPID))
	le.PutUint32(h[format.CParentTID:], uint32(id.ParentTID))
	le.PutUint64(h[format.CStack:], id.Stack)
	return append(b, h[:]...)
}

// A TaskWriter encodes the events of one task as a runtime would and writes its
// chunks to a Writer as they fill.
type TaskWriter struct {
	// Monotonic returns CLOCK_MONOTONIC in ns for a counter value; nil: chunks have none.
	Monotonic func(counter uint64) uint64

	w      *Writer
	id     TaskID
	buf    []byte
	number uint32
	last   uint64
	lost   uint64
}

// Task returns a writer for the events of a new task.
func (w *Writer) Task(id TaskID) *TaskWriter { return &TaskWriter{w: w, id: id} }

// room makes room for n words of an event at counter t, which a record announces when
// the high half changes.
func (k *TaskWriter) room(t uint64, n int) {
	if len(k.buf) > 0 && len(k.buf)+8*(n+2) > k.w.chunkSize {
		k.Flush()
	}
	if len(k.buf) == 0 {
		var mono uint64
		if k.Monotonic != nil {
			mono = k.Monotonic(t)
		}
		k.buf = appendChunkHeader(k.buf, ChunkEvents, k.id, k.number, t, mono)
		binary.LittleEndian.PutUint64(k.buf[format.CLost:], k.lost)
		k.number++
		k.last = t
	}
	if t>>32 != k.last>>32 {
		k.word(uint32(t), format.Record{Type: format.RecSync, Words: 1}.ID())
		k.buf = binary.LittleEndian.AppendUint64(k.buf, t)
	}
	k.last = t
}

// Left is how many bytes the chunk that was begun has room for; 0: there is none.
func (k *TaskWriter) Left() int {
	if len(k.buf) == 0 {
		return 0
	}
	return max(0, k.w.chunkSize-len(k.buf))
}

func (k *TaskWriter) word(low, id uint32) {
	k.buf = binary.LittleEndian.AppendUint64(k.buf, uint64(id)<<32|uint64(low))
}

// Enter writes the entry of function id at counter t.
func (k *TaskWriter) Enter(t uint64, id uint32) { k.room(t, 1); k.word(uint32(t), id) }

// Exit writes the exit of function id at counter t.
func (k *TaskWriter) Exit(t uint64, id uint32) { k.room(t, 1); k.word(uint32(t), id|1<<31) }

// record writes a record.
func (k *TaskWriter) record(t uint64, typ uint8, payload ...uint64) {
	k.room(t, 1+len(payload))
	k.word(uint32(t), format.Record{Type: typ, Words: len(payload)}.ID())
	for _, p := range payload {
		k.buf = binary.LittleEndian.AppendUint64(k.buf, p)
	}
}

// Lost writes that n events are missing.
func (k *TaskWriter) Lost(t, n uint64) {
	k.lost += n
	k.record(t, format.RecLost, n)
	binary.LittleEndian.PutUint64(k.buf[format.CLost:], k.lost)
}

// Resync writes that the n innermost calls ended without an exit.
func (k *TaskWriter) Resync(t, n uint64) { k.record(t, format.RecResync, n) }

// Stack writes that the task runs on the given stack from now on.
func (k *TaskWriter) Stack(t, stack uint64) {
	k.id.Stack = stack
	k.record(t, format.RecStack, stack)
}

// Fork writes that the task was forked from its parent.
func (k *TaskWriter) Fork(t uint64) {
	k.record(t, format.RecFork, uint64(k.id.ParentPID)<<32|uint64(uint32(k.id.ParentTID)))
}

// Start writes that the task's image starts.
func (k *TaskWriter) Start(t uint64) { k.record(t, format.RecStart) }

// Comm writes that the thread has a new name.
func (k *TaskWriter) Comm(t uint64, name string) {
	var c [16]byte
	copy(c[:15], name)
	k.id.Comm = commString(c[:])
	k.record(t, format.RecComm, binary.LittleEndian.Uint64(c[:]), binary.LittleEndian.Uint64(c[8:]))
}

// End writes that the thread ends.
func (k *TaskWriter) End(t uint64) { k.record(t, format.RecThreadEnd) }

// maxMark is how many bytes of text a mark has at most.
const maxMark = 8 * (format.RecordWords - 1)

// Mark writes a user's mark. Text after its first 2032 bytes is dropped.
func (k *TaskWriter) Mark(t, value uint64, text string) {
	payload := []uint64{value}
	for text = text[:min(len(text), maxMark)]; text != ""; {
		var w [8]byte
		text = text[copy(w[:], text):]
		payload = append(payload, binary.LittleEndian.Uint64(w[:]))
	}
	k.record(t, format.RecMark, payload...)
}

// A ProfileCount is an entry of a profile chunk: a function's calls and times. Times are in ticks.
type ProfileCount struct{ Calls, Total, Self, Max uint64 }

// Profile writes a profile chunk: counts[i] is that of the function with id first + i.
func (k *TaskWriter) Profile(t uint64, first uint32, counts []ProfileCount) error {
	b := appendChunkHeader(nil, ChunkProfile, k.id, 0, t, 0)
	le := binary.LittleEndian
	le.PutUint32(b[format.CFirst:], first)
	for _, c := range counts {
		b = le.AppendUint64(b, c.Calls)
		b = le.AppendUint64(b, c.Total)
		b = le.AppendUint64(b, c.Self)
		b = le.AppendUint64(b, c.Max)
	}
	le.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := k.w.write(b)
	return err
}

// Count writes a count chunk: calls[i] are those of the function with id first + i.
func (k *TaskWriter) Count(t uint64, first uint32, calls []uint64) error {
	b := appendChunkHeader(nil, ChunkCount, k.id, 0, t, 0)
	binary.LittleEndian.PutUint32(b[format.CFirst:], first)
	for _, n := range calls {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	binary.LittleEndian.PutUint32(b[format.CSize:], uint32(len(b)))
	_, err := k.w.write(b)
	return err
}

// Flush writes the chunk begun so far and returns the first error of any write of the Writer.
func (k *TaskWriter) Flush() error {
	if len(k.buf) > 0 && k.w.err == nil {
		_, k.w.err = k.w.WriteChunk(k.buf)
	}
	k.buf = k.buf[:0]
	return k.w.err
}
