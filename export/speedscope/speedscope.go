// Package speedscope writes a trace in speedscope's own format, which www.speedscope.app opens, and its static files on
// any machine: a profile with a timeline for each thread.
//
// A profile of the format has one stack. Where a traced thread goes to another one (a coroutine, a signal handler on a
// stack of its own), the calls of the stack that it leaves are closed, and those of the one that it comes to are opened:
// times are those that the thread spent there.
package speedscope

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Write writes the trace.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	p := &writer{w: bufio.NewWriterSize(w, 64<<10), sum: &sum, unit: "nanoseconds"}
	p.frames.Make = func(id trace.FuncID) int {
		p.list = append(p.list, id)
		return len(p.list) - 1
	}
	if s.Trace.Clockless() {
		p.unit = "none"
	}
	p.w.WriteString(`{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"fentry","profiles":[`)
	for _, k := range s.Tasks {
		p.task, p.on, p.inProfile = k, nil, false
		spans := &export.Spans{W: p, Sum: &sum}
		if err := s.Walk([]*trace.Task{k}, spans.Event); err != nil {
			return sum, err
		}
		if err := spans.Close(); err != nil {
			return sum, err
		}
		if p.inProfile {
			fmt.Fprintf(p.w, `],"startValue":%d,"endValue":%d}`, p.first, p.last)
		}
	}
	p.w.WriteString(`],"shared":{"frames":[`)
	for i, f := range p.list {
		if i > 0 {
			p.w.WriteByte(',')
		}
		p.w.WriteString("\n" + `{"name":`)
		p.w.Write(safetext.AppendJSON(nil, s.Trace.Name(f)))
		p.w.WriteByte('}')
	}
	p.w.WriteString("]}}\n")
	return sum, p.w.Flush()
}

type writer struct {
	w      *bufio.Writer
	sum    *export.Summary
	unit   string
	frames export.Cache[int] // position in list
	list   []trace.FuncID

	// Of the task that is being written:
	task        *trace.Task
	on          *export.Track // the stack that it is on
	inProfile   bool          // the beginning of its profile is written
	first, last int64
	profiles    int
	buf         []byte
}

// Begin is that of export.SpanWriter.
func (p *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	if p.on == k {
		return p.event('O', at, fn)
	}
	// The calls open on k include this one.
	return p.turn(k, at)
}

// End is that of export.SpanWriter.
func (p *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	if p.on != k {
		// The calls open on k include this one no more.
		if err := p.turn(k, at); err != nil {
			return err
		}
		if err := p.event('O', at, fn); err != nil {
			return err
		}
	}
	return p.event('C', at, fn)
}

// Note is that of export.SpanWriter.
func (p *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	switch ev.Kind {
	case trace.Stack:
		return p.turn(k, at)
	case trace.Entry:
		p.sum.Calls--
		p.sum.Leave("calls of the function tracer, which have no end", 1)
	default:
		p.sum.LeaveEvent(ev)
	}
	return nil
}

// turn goes to another stack.
func (p *writer) turn(k *export.Track, at int64) (err error) {
	if p.on == k {
		return nil
	}
	if p.on != nil {
		var open []trace.FuncID
		p.on.Open(func(fn trace.FuncID) { open = append(open, fn) })
		for i := len(open) - 1; i >= 0 && err == nil; i-- {
			err = p.event('C', at, open[i])
		}
	}
	p.on = k
	k.Open(func(fn trace.FuncID) {
		if err == nil {
			err = p.event('O', at, fn)
		}
	})
	return err
}

func (p *writer) event(typ byte, at int64, fn trace.FuncID) error {
	b := p.buf[:0]
	if p.inProfile {
		b = append(b, ',')
		at = max(at, p.last) // stacks have their own newest times
	} else {
		if p.profiles > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n"+`{"type":"evented","unit":"`...)
		b = append(append(b, p.unit...), `","name":`...)
		b = safetext.AppendJSON(b, fmt.Sprintf("%s (%d)", export.TaskName(p.task), p.task.TID))
		b = append(b, `,"events":[`...)
		p.profiles++
		p.inProfile, p.first = true, at
	}
	p.last = at
	b = append(b, "\n"+`{"type":"`...)
	b = append(append(b, typ), `","frame":`...)
	b = append(strconv.AppendInt(b, int64(p.frames.Get(fn)), 10), `,"at":`...)
	p.buf = append(strconv.AppendInt(b, at, 10), '}')
	_, err := p.w.Write(p.buf)
	return err
}
