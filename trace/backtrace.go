package trace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/names"
)

// Backtraces.
//
// A stack is one number in the trace, which stands for its innermost frame and all around it. What numbers mean is said in
// the same chunk, before they are used: so a decoder knows those of its chunk, and forgets them with it. Addresses become
// names when they are shown, from the file that was mapped there, if it is still the same by its build-id.

// A Backtrace is a stack as it was walked.
type Backtrace struct {
	Frames []StackFrame // the callers, innermost first
	// End says why there are no more: outermost, no-table, bad-cfa, depth, filtered, gone or undefined:REGISTER, as package
	// stacks has it; "lost" if the trace does not say what all of them are.
	End string
	// Mode says what the walk began with: partial, full, deferred or entry.
	Mode string
	// Timer: it was taken because time had passed. Event.Func is zero then, and Frames begin with what the thread was doing.
	Timer bool
	// Delay is how long the thread went on until it was taken, in ns.
	Delay int64

	ticks uint64 // the same
}

// A StackFrame is one call of a Backtrace.
type StackFrame struct {
	PC    uint64      // return address; 0: the frame is in moved instructions of Func
	Exact bool        // PC is no return address but that of the next instruction
	Func  FuncID      // zero: PC says where the frame is
	File  *MappedFile // that PC is in, nil if it is in none that is known
}

// At is an address in the instruction that the frame is at.
func (f StackFrame) At() uint64 {
	if f.Exact {
		return f.PC
	}
	return f.PC - 1
}

// A MappedFile is a program or library that was mapped in a process.
type MappedFile struct {
	Address, Size, Bias uint64
	BuildID, Path       string
}

// maxStackNodes bounds what a decoder knows of a chunk.
const maxStackNodes = 1 << 16

// stackNodes are the frames that a chunk has said so far.
type stackNodes struct {
	node  map[uint32]stackNode
	files []*MappedFile
}

type stackNode struct {
	pc     uint64
	parent uint32
}

// frames decodes the payload of a record FRAMES.
func (d *decoder) frames(left *int, take func() uint64) {
	head := take()
	id, parent := uint32(head), uint32(head>>32)
	if d.stacks.node == nil {
		d.stacks.node = map[uint32]stackNode{}
	}
	for ; *left > 0 && len(d.stacks.node) < maxStackNodes; id++ {
		d.stacks.node[id] = stackNode{take(), parent}
		parent = id
	}
}

// mapped decodes the payload of a record MAPS.
func (d *decoder) mapped(left *int, take func() uint64) {
	m := &MappedFile{Address: take(), Size: take(), Bias: take()}
	var text []byte
	for *left > 0 {
		text = binary.LittleEndian.AppendUint64(text, take())
	}
	id, file, _ := bytes.Cut(bytes.TrimRight(text, "\x00"), []byte{' '})
	m.BuildID, m.Path = string(id), string(file)
	if len(d.stacks.files) < maxStackNodes {
		d.stacks.files = append(d.stacks.files, m)
	}
}

// A saidAt is where a record FRAMES or MAPS is, and where its chunk ends. A chunk of several goroutines says what stacks are
// in the part of whichever comes first.
type saidAt struct{ at, end int64 }

// tell tells of the record whose payload is next.
func (d *decoder) tell() {
	if d.says != nil {
		d.says(d.off-int64(len(d.win)-d.at)-8, d.end)
	}
}

// hear reads what the chunk has said before a part of it, which begins at off.
func (d *decoder) hear(off int64) {
	before, _ := slices.BinarySearchFunc(d.said, off, func(s saidAt, off int64) int { return cmp.Compare(s.at, off) })
	from := before
	for from > 0 && d.said[from-1].end > off {
		from--
	}
	end := int64(0)
	if from < before {
		end = d.said[from].end
	}
	if d.heard.end != end || d.heard.at > off {
		d.stacks, d.heard = stackNodes{}, saidAt{end: end}
	}
	const longest = 8 * (1 + format.RecordWords)
	var buf [longest]byte
	for _, s := range d.said[from:before] {
		if s.at < d.heard.at {
			continue
		}
		part := chunkRef{off: s.at, size: uint32(min(longest, s.end-s.at)), first: partOfChunk}
		one := decoder{r: d.r, chunks: []chunkRef{part}, buf: buf[:], stacks: d.stacks}
		one.next(new(word)) // which is behind it
		d.stacks = one.stacks
	}
	d.heard.at = off
}

// backtrace decodes a record BACKTRACE.
func (d *decoder) backtrace(head uint64) *Backtrace {
	const movedCode = 1 << 63
	b := &Backtrace{End: stackEnd(uint8(head >> 32)), Mode: stackMode(uint8(head >> 40))}
	for id := uint32(head); id != 0; {
		n, ok := d.stacks.node[id]
		if !ok || len(b.Frames) == maxChain {
			b.End = "lost"
			break
		}
		f := StackFrame{PC: n.pc &^ format.ExactPc, Exact: n.pc&format.ExactPc != 0}
		if fn := uint32(n.pc); n.pc&movedCode != 0 && (fn-d.span.lo < d.span.n || d.resolve(fn)) {
			f = StackFrame{Func: FuncID{d.span.image, fn - d.span.base}}
		} else {
			for _, m := range d.stacks.files {
				if f.At()-m.Address < m.Size {
					f.File = m
				}
			}
		}
		b.Frames = append(b.Frames, f)
		id = n.parent
	}
	return b
}

// stackEnd is the name of a BACKTRACE's END.
func stackEnd(end uint8) string {
	switch end & 0xf {
	case format.EndOutermost:
		return "outermost"
	case format.EndNoTable:
		return "no-table"
	case format.EndBadCfa:
		return "bad-cfa"
	case format.EndDepth:
		return "depth"
	case format.EndFiltered:
		return "filtered"
	case format.EndGone:
		return "gone"
	case format.EndUndefined:
		return fmt.Sprintf("undefined:r%d", end>>4)
	}
	return "unknown"
}

// stackMode is the name of a BACKTRACE's MODE.
func stackMode(mode uint8) string {
	switch mode {
	case format.StackPartial:
		return "partial"
	case format.StackFull:
		return "full"
	case format.StackDeferred:
		return "deferred"
	case format.StackEntry:
		return "entry"
	}
	return "unknown"
}

// asked notes who has asked for a stack.
func (d *decoder) asked(by uint64, w *word, b *Backtrace) {
	id := uint32(by)
	switch {
	case by&format.StackAtSyscall != 0:
		w.fn = SyscallFunc(by &^ format.StackAtSyscall)
	case by&format.StackOnTimer != 0:
		b.Timer, b.ticks = true, by&^format.StackOnTimer
	case id-d.span.lo < d.span.n || d.resolve(id):
		w.fn = FuncID{d.span.image, id - d.span.base}
	}
}

// backtrace emits the event of a word.
func (c *cursor) backtrace(w *word) {
	if c.emit == nil || c.err != nil {
		return
	}
	ev := &c.ev
	ev.Time = c.t.Clock.Time(c.fl.t)
	ev.Kind, ev.Flags, ev.Count = Stacktrace, 0, 0
	ev.Func, ev.Caller, ev.Dur, ev.Self = w.fn, FuncID{}, 0, 0
	ev.Depth, ev.Stack = len(c.fl.cur.frames), c.fl.cur.num
	ev.Backtrace = c.dec.note(w.arg).stack
	ev.Backtrace.Delay = ev.Time - c.t.Clock.Time(c.fl.t-min(c.fl.t, ev.Backtrace.ticks))
	c.err = c.emit(ev)
	ev.Backtrace = nil
}

// A frameNames knows the names of addresses in files that were mapped.
type frameNames struct {
	mu    sync.Mutex
	files map[[2]string]*names.Frames // by path and build-id, nil: there are none
	known map[frameKey][]SourceFrame
}

// frameKey is a place in a file.
type frameKey struct {
	path, buildID string
	at            uint64
}

// A SourceFrame is a function at a place of a stack. Both names are safe to print.
type SourceFrame struct {
	Name string
	File string // of the source, "" if unknown
	Line int    // of what it was doing; of a traced function, where it begins
	// Inlined says that it has no code of its own: it is part of the next frame.
	Inlined bool
}

// FrameLabels returns what a frame's functions are called, as SourceFrames has them.
func (t *Trace) FrameLabels(f StackFrame) []string {
	var labels []string
	for _, s := range t.SourceFrames(f) {
		labels = append(labels, s.Name)
	}
	return labels
}

// SourceFrames returns the functions of a frame: those that are inlined, innermost first, and the one that has the code.
// There is one at least.
func (t *Trace) SourceFrames(f StackFrame) []SourceFrame {
	switch {
	case f.Func != (FuncID{}):
		return []SourceFrame{t.SourceFrame(f.Func)}
	case f.File == nil:
		return []SourceFrame{{Name: fmt.Sprintf("%#x", f.PC)}}
	}
	n := &t.frameNames
	n.mu.Lock()
	defer n.mu.Unlock()
	key := frameKey{f.File.Path, f.File.BuildID, f.At() - f.File.Bias}
	if l, ok := n.known[key]; ok {
		return l
	}
	if n.known == nil {
		n.known = map[frameKey][]SourceFrame{}
	}
	l := t.sourceFrames(f, key.at)
	if len(n.known) < maxStackNodes {
		n.known[key] = l
	}
	return l
}

// StackLabels returns what the functions of a Stacktrace are called, the innermost first: the one whose call asked for it,
// if one did, and those of the frames.
func (t *Trace) StackLabels(ev *Event) []string {
	var labels []string
	for _, s := range t.StackSource(ev) {
		labels = append(labels, s.Name)
	}
	return labels
}

// StackSource returns the functions of a Stacktrace, as StackLabels does.
func (t *Trace) StackSource(ev *Event) []SourceFrame {
	var frames []SourceFrame
	if !ev.Backtrace.Timer {
		frames = append(frames, t.SourceFrame(ev.Func))
	}
	for _, f := range ev.Backtrace.Frames {
		frames = append(frames, t.SourceFrames(f)...)
	}
	if frames == nil {
		frames = []SourceFrame{{Name: "?"}}
	}
	return frames
}

// SourceFrame returns a traced function as a frame.
func (t *Trace) SourceFrame(id FuncID) SourceFrame {
	f := SourceFrame{Name: t.Label(id)}
	if file, line, err := t.Source(id); err == nil && file != "" {
		f.File, f.Line = safetext.Line(file), line
	}
	return f
}

func (t *Trace) sourceFrames(f StackFrame, at uint64) []SourceFrame {
	nowhere := []SourceFrame{{Name: safetext.Line(fmt.Sprintf("%s+%#x", path.Base(f.File.Path), f.PC-f.File.Bias))}}
	file := t.framesOf(f.File)
	if file == nil {
		return nowhere
	}
	var out []SourceFrame
	for _, fr := range file.At(at) {
		name := fr.Func
		if name != "" && t.name != nil {
			name = t.name(name)
		}
		if name != "" {
			out = append(out, SourceFrame{safetext.Line(name), safetext.Line(fr.Line.File), fr.Line.Line, fr.Inlined})
		}
	}
	if out == nil {
		return nowhere
	}
	return out
}

// MayHaveStacks reports whether stacks were walked, as far as is known without reading all events: true if the trace does
// not say what it was recorded with. A program that was patched to do so, and was recorded then, does it nevertheless.
func (t *Trace) MayHaveStacks() bool {
	return t.Info == nil || slices.ContainsFunc(t.Info.Options, func(o string) bool { return strings.HasPrefix(o, "--stack") })
}

// framesOf opens a file for its names; nil: it is not there any more, or another one is.
func (t *Trace) framesOf(m *MappedFile) *names.Frames {
	n := &t.frameNames
	key := [2]string{m.Path, m.BuildID}
	if f, ok := n.files[key]; ok || len(n.files) >= maxMapped {
		return f
	}
	if n.files == nil {
		n.files = map[[2]string]*names.Frames{}
	}
	var f *names.Frames
	if path := t.pathOf(m); m.BuildID != "" && path != "" {
		f, _ = names.FindFrames(names.Image{BuildID: m.BuildID, Paths: []string{path}})
	}
	n.files[key] = f
	return f
}

// pathOf is where the file is that was mapped; "": nobody knows. Of a program that an emulator has run as a copy, the trace
// has the path by which it was started.
func (t *Trace) pathOf(m *MappedFile) string {
	if path.IsAbs(m.Path) {
		return m.Path
	}
	for _, im := range t.Images {
		if im.Path == m.Path && im.BuildID == m.BuildID && path.IsAbs(im.Exe) {
			return im.Exe
		}
	}
	return ""
}

// maxMapped bounds the files that names are read from.
const maxMapped = 1 << 12

// closeFrames releases the files that names are read from.
func (t *Trace) closeFrames() (err error) {
	for _, f := range t.frameNames.files {
		if f == nil {
			continue
		}
		if e := f.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Mapped writes that a file is mapped.
func (k *TaskWriter) Mapped(t uint64, m MappedFile) {
	text := []byte(m.BuildID + " " + m.Path)
	text = append(text, make([]byte, -len(text)&7)...)
	payload := []uint64{m.Address, m.Size, m.Bias}
	for ; len(text) > 0; text = text[8:] {
		payload = append(payload, binary.LittleEndian.Uint64(text))
	}
	k.record(t, format.RecMaps, payload[:min(len(payload), format.RecordWords)]...)
}

// Frames writes what numbers from id on mean: frames inside that of number parent, inwards.
func (k *TaskWriter) Frames(t uint64, id, parent uint32, pcs ...uint64) {
	k.record(t, format.RecFrames, append([]uint64{uint64(id) | uint64(parent)<<32}, pcs...)...)
}

// Backtrace writes the stack with the innermost frame id, asked for by a call of function fn.
func (k *TaskWriter) Backtrace(t uint64, id uint32, end uint8, fn uint32) {
	k.record(t, format.RecBacktrace, uint64(id)|uint64(end)<<32|format.StackFull<<40, uint64(fn))
}

// Sample writes the stack with the innermost frame id, which a timer asked for at counter t.
func (k *TaskWriter) Sample(t uint64, id uint32, end, mode uint8) {
	k.record(t, format.RecBacktrace, uint64(id)|uint64(end)<<32|uint64(mode)<<40, format.StackOnTimer)
}
