// Package tracedat writes a trace as trace-cmd does, a file trace.dat of version 6, which trace-cmd report and
// KernelShark open, as if the kernel's function_graph tracer had made it.
//
// Each thread, and each other stack that a thread ran on, is a processor of the file: it does one thing at a time and
// its calls nest, which readers rely on. Calls are funcgraph_entry and funcgraph_exit, calls of the function tracer are
// function, and print is the rest: marks, notes of lost events, signals and triggers, stacks that were walked, arguments
// behind the entry of their call and results before its exit, as f(n=3) and f = 4. These are the kernel's own events, so
// filters and scripts for those work.
// Functions are the symbols in the file's kallsyms; spaces in their names, of which the reader knows none, are
// no-break spaces. Times are CLOCK_MONOTONIC, if the trace has it; else they count from its start.
package tracedat

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Write writes the trace. spool is an empty file for as much as is written; it is the caller's to remove.
func Write(w io.Writer, s *export.Source, spool Spool) (sum export.Summary, err error) {
	err = newWriter(s, &sum, spool).writeAll(w, s)
	return sum, err
}

func newWriter(s *export.Source, sum *export.Summary, spool Spool) *writer {
	return &writer{
		t: s.Trace, sum: sum, base: s.Trace.Clock.Monotonic, pages: newPages(spool), symbols: newSymbols(s.Trace),
	}
}

func (p *writer) writeAll(w io.Writer, s *export.Source) error {
	spans := &export.Spans{W: p, Sum: p.sum, Values: true}
	if err := s.Walk(s.Tasks, spans.Event); err != nil {
		return err
	}
	if err := spans.Close(); err != nil {
		return err
	}
	if err := p.pages.end(); err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 64<<10)
	if err := p.write(b); err != nil {
		return err
	}
	return b.Flush()
}

type writer struct {
	t       *trace.Trace
	sum     *export.Summary
	base    int64
	pages   *pages
	byTrack []*buffer // by Track.Index; nil: it has no events
	symbols *symbols
	calls   [][]int64 // by Track.Index: when the open calls began
	event   []byte
}

// Begin is that of export.SpanWriter.
func (p *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	b := p.buffer(k)
	open := &p.calls[k.Index]
	ev := p.head(idEntry, b)
	ev = binary.LittleEndian.AppendUint64(ev, p.symbols.addr(fn))
	ev = binary.LittleEndian.AppendUint32(ev, uint32(len(*open)))
	*open = append(*open, at)
	if err := p.add(b, at, ev); err != nil {
		return err
	}
	return p.values(b, k, at, fn, "(", ")")
}

// values adds what is known of a call's arguments or result, in a text behind the name of its function.
func (p *writer) values(b *buffer, k *export.Track, at int64, fn trace.FuncID, before, after string) error {
	if k.Event == nil || !export.HasValues(k.Event) {
		return nil
	}
	text := export.AppendValues([]byte(p.t.Name(fn)+before), p.t, k.Event)
	if len(text) == len(p.t.Name(fn)+before) {
		return nil
	}
	return p.print(b, at, string(text)+after)
}

// End is that of export.SpanWriter.
func (p *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	b := p.buffer(k)
	if err := p.values(b, k, at, fn, " = ", ""); err != nil {
		return err
	}
	open := &p.calls[k.Index]
	depth := len(*open) - 1
	ev := p.head(idExit, b)
	ev = binary.LittleEndian.AppendUint64(ev, p.symbols.addr(fn))
	ev = binary.LittleEndian.AppendUint32(ev, uint32(depth))
	ev = binary.LittleEndian.AppendUint32(ev, 0) // overrun
	ev = binary.LittleEndian.AppendUint64(ev, uint64(p.base+(*open)[depth]))
	ev = binary.LittleEndian.AppendUint64(ev, uint64(p.base+at))
	*open = (*open)[:depth]
	return p.add(b, at, ev)
}

// Note is that of export.SpanWriter.
func (p *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	b := p.buffer(k)
	if ev.Kind == trace.Entry {
		e := binary.LittleEndian.AppendUint64(p.head(idFunction, b), p.symbols.addr(ev.Func))
		var caller uint64
		if ev.Caller.ID != 0 {
			caller = p.symbols.addr(ev.Caller)
		}
		return p.add(b, at, binary.LittleEndian.AppendUint64(e, caller))
	}
	text, ok := export.NoteText(p.t, ev)
	if !ok {
		p.sum.LeaveEvent(ev)
		return nil
	}
	if frames, end := export.Backtrace(p.t, ev); frames != nil {
		text = "backtrace: " + export.BacktraceLine(frames, end)
	}
	return p.print(b, at, text)
}

// print adds a text.
func (p *writer) print(b *buffer, at int64, text string) error {
	text = safetext.Line(text)
	if limit := maxEvent - printText - 4; len(text) > limit {
		text = text[:limit]
		p.sum.Leave("ends of long texts", 1)
	}
	e := binary.LittleEndian.AppendUint64(p.head(idPrint, b), 0)
	e = append(append(e, text...), 0)
	for len(e)%4 != 0 {
		e = append(e, 0)
	}
	return p.add(b, at, e)
}

// head begins an event with the fields that all have: the type, flags, the depth of preemption, and the thread.
func (p *writer) head(id uint16, b *buffer) []byte {
	ev := binary.LittleEndian.AppendUint16(p.event[:0], id)
	ev = append(ev, 0, 0)
	return binary.LittleEndian.AppendUint32(ev, uint32(b.tid))
}

func (p *writer) buffer(k *export.Track) *buffer {
	for k.Index >= len(p.byTrack) {
		p.byTrack = append(p.byTrack, nil)
		p.calls = append(p.calls, nil)
	}
	if p.byTrack[k.Index] == nil {
		p.byTrack[k.Index] = p.pages.buffer(p.symbols.numbers.Of(k.Task))
		p.symbols.task(k.Task)
	}
	return p.byTrack[k.Index]
}

func (p *writer) add(b *buffer, at int64, ev []byte) error {
	p.event = ev
	return p.pages.add(b, p.base+at, ev)
}
