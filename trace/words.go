package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/syscalls"
)

// A word is one decoded event of a task: what the file says, without meaning.
type word struct {
	t    uint64 // counter
	arg  uint64 // of a record, see its code
	fn   FuncID // Func.ID 0: not an entry or exit
	code uint8  // see below
}

// Codes of a word.
const (
	wEntry = iota
	wExit
	wCall      // an entry of the function tracer, which records no exits
	wGap       // chunks are missing before this point; arg is the stack, 0: not known
	wLost      // arg events are lost
	wResync    // arg frames are closed
	wStack     // arg is the stack
	wFork      // arg is the parent
	wStart     //
	wThreadEnd //
	wDepth     // arg is where the call begins, in its stack
	wComm      // decoder.note(arg) has the name
	wMark      // decoder.note(arg) has the mark
	wSysEnter  // decoder.note(arg) has what is known of the system call
	wSysExit   // the same; fn.ID is its error, 0: none
	wSignal    // decoder.note(arg) has the signal
	wTrigger   // decoder.note(arg) has what was done; fn is whose call did it
	wBacktrace // decoder.note(arg) has the stack; fn is whose call asked for it
	wCut       // a record of type arg is not whole
	wUnknown   // a record of type arg, which nobody knows; noRecord: a word that is none
)

// noRecord is above all types of record.
const noRecord = format.RecordTypeMask + 1

// Codes of the records whose payload is one word at most. The others are in
// decoder.record.
var recordCodes = [format.RecordTypeMask + 1]uint8{
	format.RecLost: wLost, format.RecResync: wResync, format.RecStack: wStack, format.RecFork: wFork,
	format.RecStart: wStart, format.RecThreadEnd: wThreadEnd, format.RecDepth: wDepth,
}

// A note is what a record has that does not fit into a word.
type note struct {
	value  uint64
	text   string
	sys    *Syscall
	signal *Signal
	stack  *Backtrace
}

// windowSize is how much of a chunk is in memory at a time.
const windowSize = 64 << 10

// A decoder streams the words of one task. It reads through a window: memory
// does not grow with the trace.
type decoder struct {
	r      io.ReaderAt
	chunks []chunkRef
	buf    []byte // the window's memory

	win       []byte // the window
	at        int    // of the next word in the window; cutting win at each word instead costs 6 % of a report
	off, end  int64  // rest of the chunk behind the window
	number    uint32 // of the next chunk, when there is no gap
	home      uint32 // image of the chunk
	thread    uint32 // of a part of a chunk: the thread whose chunk it is
	ranges    idRanges
	span      span   // of the newest id
	before    span   // of ids before
	flat      []bool // images whose tracer records entries only
	entry     uint8  // code of an entry of the span: wEntry or wCall
	stack     uint64 // as the chunk's header says
	high      uint64 // high half of the counter
	last      uint64 // counter of the newest event
	comm      [16]byte
	commIsNew bool // comm changed with the chunk
	stacks    stackNodes
	notes     [2]note // of the newest words that have one
	nnotes    uint64
	made      func(number uint64, m made) // is told of goroutines that are made; nil: nobody asks
	says      func(at, end int64)         // is told of records that say what stacks are, and where their chunks end; nil: nobody asks
	said      []saidAt                    // where these are, for parts of chunks
	heard     saidAt                      // up to where stacks has them, in which chunk
	err       error
}

// newDecoder returns a decoder of a task's chunks whose window is buf.
func (t *Trace) newDecoder(chunks []chunkRef, buf []byte) *decoder {
	return &decoder{r: t.file, chunks: chunks, ranges: t.ranges, flat: t.flat, said: t.said, buf: buf}
}

// next decodes the next word into w. It returns false at the end.
func (d *decoder) next(w *word) bool {
	for {
		if d.at+8 > len(d.win) {
			gap, ok := d.fill()
			if !ok {
				return false
			}
			if gap {
				*w = word{t: d.last, arg: d.stack, code: wGap}
				return true
			}
			continue
		}
		v := binary.LittleEndian.Uint64(d.win[d.at:])
		d.at += 8
		if v == 0 {
			continue // a hole: reserved, never written
		}
		t := d.high | v&0xffffffff
		if t-d.last >= 1<<31 && t > d.last {
			t = d.jump(t)
		}
		d.last = t
		id := uint32(v >> 32)
		if fn := id &^ (1 << 31); fn-d.span.lo < d.span.n || d.resolve(fn) {
			w.t = t
			w.fn = FuncID{d.span.image, fn - d.span.base}
			w.code = d.entry
			if id>>31 != 0 {
				w.code = wExit
			}
			return true
		}
		if d.record(w, id) {
			return true
		}
	}
}

// resolve makes the span that of id; false: it is no function's.
func (d *decoder) resolve(id uint32) bool {
	next := d.before
	if id-next.lo >= next.n {
		next = d.ranges.span(id, d.home)
		if next.n == 0 {
			return false
		}
	}
	d.before, d.span = d.span, next
	d.entry = wEntry
	if int(next.image) < len(d.flat) && d.flat[next.image] {
		d.entry = wCall
	}
	return true
}

// jump looks at an event that seems to lie more than half a wrap behind the one
// before it. The runtime announces every change of the counter's high half, so
// that is what it mostly is: the task did nothing for so long. But an event that
// was stamped just before such a change, interrupted by a signal handler whose
// events announced it, and only then written, belongs to the half before. The
// event behind it tells.
func (d *decoder) jump(t uint64) uint64 {
	if next, ok := d.peek(); ok && next < uint32(t) && t >= 1<<32 {
		return t - 1<<32
	}
	return t
}

// peek returns the counter's low half in the next word, if that is at hand and
// an entry or exit.
func (d *decoder) peek() (low uint32, ok bool) {
	for b := d.win[d.at:]; len(b) >= 8; b = b[8:] {
		if v := binary.LittleEndian.Uint64(b); v != 0 {
			id := uint32(v>>32) &^ (1 << 31)
			return uint32(v), id-1 < format.IDMax
		}
	}
	return 0, false
}

// record decodes the record whose header has the given id. It returns false when
// there is nothing to report.
func (d *decoder) record(w *word, id uint32) bool {
	r, ok := format.ParseRecord(id)
	if !ok {
		*w = word{t: d.last, arg: noRecord, code: wUnknown}
		return true
	}
	*w = word{t: d.last, arg: uint64(r.Type)}
	left := r.Words
	take := func() uint64 {
		if left == 0 {
			return 0
		}
		left--
		return d.payload()
	}
	code := recordCodes[r.Type]
	switch {
	case r.Type == format.RecSys:
		n := note{sys: &Syscall{Open: true}}
		if !r.Open {
			n.sys = d.syscall(&left, take)
		}
		if w.code, w.fn = wSysEnter, syscallFunc(n.sys); r.Exit {
			w.code, w.fn = wSysExit, FuncID{ID: uint32(syscalls.Errno(n.sys.Value))}
		}
		w.arg = d.keep(n)
	case r.Open:
		w.code = wCut
	case code != 0:
		w.code, w.arg = code, take()
	case r.Type == format.RecSync:
		if t := take(); t != 0 {
			d.high, d.last = t&^0xffffffff, t
		}
	case r.Type == format.RecComm:
		binary.LittleEndian.PutUint64(d.comm[:], take())
		binary.LittleEndian.PutUint64(d.comm[8:], take())
		w.code, w.arg = wComm, d.keep(note{text: commString(d.comm[:])})
	case r.Type == format.RecMark:
		n := note{value: take()}
		text := make([]byte, 0, 8*format.RecordWords)
		for left > 0 {
			text = binary.LittleEndian.AppendUint64(text, take())
		}
		n.text = string(bytes.TrimRight(text, "\x00"))
		w.code, w.arg = wMark, d.keep(n)
	case r.Type == format.RecArgs:
		d.skip(&left)
		d.data(nil) // of a call that nobody has asked for
	case r.Type == format.RecGoroutine:
		if number := take(); d.made != nil {
			d.made(number, made{d.last, take(), take(), take()})
		}
	case r.Type == format.RecTrigger:
		n := note{value: take()}
		if id := uint32(take()); id-d.span.lo < d.span.n || d.resolve(id) {
			w.fn = FuncID{d.span.image, id - d.span.base}
		}
		w.code, w.arg = wTrigger, d.keep(n)
	case r.Type == format.RecFrames:
		w.arg = 0
		d.tell()
		d.frames(&left, take)
	case r.Type == format.RecMaps:
		w.arg = 0
		d.tell()
		d.mapped(&left, take)
	case r.Type == format.RecBacktrace:
		n := note{stack: d.backtrace(take())}
		d.asked(take(), w, n.stack)
		w.code, w.arg = wBacktrace, d.keep(n)
	case r.Type == format.RecSignal:
		w.code, w.arg = wSignal, d.keep(note{signal: d.signal(take)})
	default:
		w.code = wUnknown
	}
	for left > 0 && d.skip(&left) {
	}
	return w.code != 0
}

// keep remembers what a word has besides, until the next but one that has something.
func (d *decoder) keep(n note) (arg uint64) {
	d.nnotes++
	d.notes[d.nnotes%2] = n
	return d.nnotes
}

// note returns what keep was given.
func (d *decoder) note(arg uint64) note { return d.notes[arg%2] }

// skip skips words of the chunk, at most n, which becomes less. It returns false at
// the chunk's end.
func (d *decoder) skip(n *int) bool {
	if d.at+8 > len(d.win) && !d.more() {
		return false
	}
	k := min(*n, (len(d.win)-d.at)/8)
	d.at += 8 * k
	*n -= k
	return true
}

// payload returns the next word of the chunk, whatever it is; 0 behind its end.
func (d *decoder) payload() uint64 {
	if d.at+8 > len(d.win) && !d.more() {
		return 0
	}
	v := binary.LittleEndian.Uint64(d.win[d.at:])
	d.at += 8
	return v
}

// more moves the window forward in the same chunk.
func (d *decoder) more() bool {
	n := min(int64(len(d.buf)), d.end-d.off)
	if n < 8 {
		return false
	}
	got, err := d.r.ReadAt(d.buf[:n], d.off)
	if err != nil && !errors.Is(err, io.EOF) {
		d.err = fmt.Errorf("offset %#x: %w", d.off, err)
	}
	d.win, d.at = d.buf[:got&^7], 0
	d.off += n
	if got < int(n) {
		d.off = d.end // the file has become shorter
	}
	return len(d.win) >= 8
}

// fill moves the window forward, to the next chunk if need be. gap reports that
// chunks are missing before the new one.
func (d *decoder) fill() (gap, ok bool) {
	for {
		if n := len(d.win); n >= 8 && n == len(d.buf) && binary.LittleEndian.Uint64(d.win[n-8:]) == 0 {
			d.off += (nextData(d.r, d.off, d.end) - d.off) &^ 7
		}
		if d.more() {
			return false, true
		}
		if d.err != nil || len(d.chunks) == 0 {
			return false, false
		}
		c := d.chunks[0]
		d.chunks = d.chunks[1:]
		d.off, d.end = c.off, c.off+int64(c.size)
		if c.first&partOfChunk != 0 {
			d.begin(&c)
			d.thread = c.first &^ partOfChunk
			d.hear(c.off)
			gap = c.number > d.number
			d.number = c.number + 1
			return gap, true
		}
		if c.size < ChunkHeaderSize || !d.more() || len(d.win) < ChunkHeaderSize {
			d.win, d.at, d.off = nil, 0, d.end
			continue
		}
		if le := binary.LittleEndian; le.Uint32(d.win[format.CMagic:]) != format.ChunkMagic ||
			ChunkKind(le.Uint16(d.win[format.CKind:])) != ChunkEvents || le.Uint32(d.win[format.CNumber:]) != c.number {
			d.win, d.at, d.off = nil, 0, d.end // no longer what it was, or what the file chunks says: missing
			continue
		}
		if comm := [16]byte(d.win[format.CComm:]); comm != d.comm && comm != [16]byte{} {
			d.comm, d.commIsNew = comm, true
		}
		d.stack = binary.LittleEndian.Uint64(d.win[format.CStack:])
		d.stacks = stackNodes{}
		d.at = ChunkHeaderSize
		d.begin(&c)
		gap = c.number > d.number
		d.number = c.number + 1
		return gap, true
	}
}

// begin makes a chunk's counter and image those that count.
func (d *decoder) begin(c *chunkRef) {
	if c.image != d.home {
		d.home, d.span, d.before = c.image, span{}, span{}
	}
	d.high, d.last = c.counter&^0xffffffff, c.counter
}
