// Package chrome writes a trace in the Trace Event Format, JSON that chrome://tracing, ui.perfetto.dev, speedscope and
// many others open.
//
// Each call is a pair of B and E events, or one X event if nothing was called in it; threads have metadata events with
// their names. Times are microseconds with three decimals. A stack that is not the one a thread began on (a coroutine,
// a signal handler on a stack of its own) has a row of its own, with a thread number from 2,000,000,000 on, which no
// thread has. What the format has no event for is an instant event: marks, lost events, signals, triggers, stacks that
// were walked, whose functions are its args. Arguments and results of calls are args, too.
//
// Viewers read all of it into memory: see [Large].
package chrome

import (
	"bufio"
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Large is the size in bytes from which on viewers in browsers are known to fail.
const Large = 500 << 20

// firstStack is the thread number of the first row that is no thread. Linux' thread ids end at 2^22.
const firstStack = 2_000_000_000

// Write writes the trace.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	c := &writer{w: bufio.NewWriterSize(w, 64<<10), t: s.Trace, sum: &sum, rows: map[row]bool{},
		numbers: export.NewNumbers(s.Trace, true)}
	c.names.Make = func(id trace.FuncID) []byte { return safetext.AppendJSON(nil, s.Trace.Name(id)) }
	c.w.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	spans := &export.Spans{W: c, Sum: &sum, Values: true}
	if err := s.Walk(s.Tasks, spans.Event); err != nil {
		return sum, err
	}
	if err := spans.Close(); err != nil {
		return sum, err
	}
	for i := range c.held {
		if err := c.release(&c.held[i]); err != nil {
			return sum, err
		}
	}
	c.w.WriteString("\n]}\n")
	return sum, c.w.Flush()
}

// A row is what a viewer shows as a thread.
type row struct{ pid, tid int }

// A held event is the newest Begin of a track: an End that follows makes it one event.
type held struct {
	k      *export.Track
	at     int64
	fn     trace.FuncID
	values []byte // its arguments, as values has them
}

type writer struct {
	w       *bufio.Writer
	t       *trace.Trace
	sum     *export.Summary
	names   export.Cache[[]byte]
	held    []held // by Track.Index
	rows    map[row]bool
	numbers export.Numbers
	buf     []byte
	some    bool
}

// Begin is that of export.SpanWriter.
func (c *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	h := c.of(k)
	if err := c.release(h); err != nil {
		return err
	}
	h.k, h.at, h.fn, h.values = k, at, fn, c.values(h.values[:0], k.Event)
	return nil
}

// values appends what was captured at an end of a call: members of a JSON object.
func (c *writer) values(b []byte, ev *trace.Event) []byte {
	if ev == nil || !export.HasValues(ev) {
		return b
	}
	export.EachValue(c.t, ev, true, func(name string, value []byte) {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(append(safetext.AppendJSON(b, name), ':'), value...)
	})
	return b
}

// withValues appends the args of an event, if there are any.
func withValues(b, values []byte) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, `,"args":{`...)
	return append(append(b, values...), '}')
}

// End is that of export.SpanWriter.
func (c *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	h := c.of(k)
	if h.k == nil {
		return c.close(withValues(c.event('E', k, at), c.values(nil, k.Event)))
	}
	values := c.values(h.values, k.Event)
	b := append(c.event('X', k, h.at), `,"dur":`...)
	b = append(micros(b, at-h.at), `,"name":`...)
	h.k = nil
	return c.close(withValues(append(b, c.names.Get(fn)...), values))
}

// Note is that of export.SpanWriter.
func (c *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	if ev.Kind == trace.Comm {
		if k.Task.Goroutine != 0 { // the name is that of its threads
			return nil
		}
		return c.name(k, ev.Comm)
	}
	name, ok := c.sum.Note(c.t, ev)
	if !ok {
		return nil
	}
	if err := c.release(c.of(k)); err != nil {
		return err
	}
	b := safetext.AppendJSON(append(c.event('i', k, at), `,"s":"t","name":`...), name)
	return c.close(withValues(b, c.backtrace(ev)))
}

// backtrace returns the stack of an event, if it has one: members of a JSON object.
func (c *writer) backtrace(ev *trace.Event) []byte {
	frames, end := export.Backtrace(c.t, ev)
	if frames == nil {
		return nil
	}
	b := []byte(`"backtrace":[`)
	for i, f := range frames {
		if i > 0 {
			b = append(b, ',')
		}
		b = safetext.AppendJSON(b, f.Name)
	}
	return safetext.AppendJSON(append(b, `],"end":`...), end)
}

func (c *writer) of(k *export.Track) *held {
	for k.Index >= len(c.held) {
		c.held = append(c.held, held{})
	}
	return &c.held[k.Index]
}

// release writes the Begin that is held, in which something happens.
func (c *writer) release(h *held) error {
	if h.k == nil {
		return nil
	}
	b := append(c.event('B', h.k, h.at), `,"name":`...)
	h.k = nil
	return c.close(withValues(append(b, c.names.Get(h.fn)...), h.values))
}

func (c *writer) rowOf(k *export.Track) row {
	if k.Main() {
		return row{k.Task.PID, c.numbers.Of(k.Task)}
	}
	return row{k.Task.PID, firstStack + k.Index}
}

// event begins an event of a phase, behind the names of its row if it is the first of that.
func (c *writer) event(phase byte, k *export.Track, at int64) []byte {
	r := c.rowOf(k)
	b := c.buf[:0]
	if !c.rows[r] {
		c.rows[r] = true
		if p := (row{r.pid, -1}); !c.rows[p] {
			c.rows[p] = true
			b = append(c.named(b, "process_name", r.pid, r.pid, processName(k.Task)), '}')
		}
		b = append(c.named(b, "thread_name", r.pid, r.tid, c.numbers.TrackName(k)), '}')
	}
	b = append(c.next(b), `{"ph":"`...)
	b = append(b, phase, '"')
	b = append(ids(b, r.pid, r.tid), `,"ts":`...)
	return micros(b, at)
}

// name gives a row another name.
func (c *writer) name(k *export.Track, comm string) error {
	r := c.rowOf(k)
	if !c.rows[r] || !k.Main() {
		return nil
	}
	return c.close(c.named(c.buf[:0], "thread_name", r.pid, r.tid, comm))
}

// named begins a metadata event.
func (c *writer) named(b []byte, what string, pid, tid int, name string) []byte {
	b = append(c.next(b), `{"ph":"M","name":"`...)
	b = append(b, what...)
	b = ids(append(b, '"'), pid, tid)
	b = safetext.AppendJSON(append(b, `,"args":{"name":`...), name)
	return append(b, '}')
}

// next puts a comma behind the event before, if there is one.
func (c *writer) next(b []byte) []byte {
	if c.some {
		b = append(b, ',')
	}
	c.some = true
	return append(b, '\n')
}

func (c *writer) close(b []byte) error {
	c.buf = append(b, '}')
	_, err := c.w.Write(c.buf)
	return err
}

func ids(b []byte, pid, tid int) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(pid), 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(tid), 10)
}

// processName is the command of a process, or the name of its first thread.
func processName(k *trace.Task) string {
	if k.Process != nil {
		if cmd := k.Process.CommandLine(k.Start); cmd != "" {
			return cmd
		}
	}
	return k.Comm
}

// micros appends nanoseconds as microseconds.
func micros(b []byte, ns int64) []byte {
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	frac := ns % 1000
	return append(b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
}
