package ftrace

import (
	"cmp"
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// FunctionOptions are the function tracer's options; the zero value is the kernel's default. The kernel's name for
// each is in parentheses.
type FunctionOptions struct {
	NoHeader  bool // leave out the lines that start with #
	NoIRQInfo bool // leave out the column of flags (noirq-info)
	TGID      bool // add a column with the process id (record-tgid)
	NoParent  bool // leave out " <-caller" (noprint-parent)
	SymOffset bool // add the offset in the function (sym-offset)
	SymAddr   bool // add the address after the name (sym-addr)
	// Annotate writes a line before the first call of each task but the first
	// (annotate; on by default in the kernel, but only for buffers that overflowed).
	Annotate bool
	// Entries is the number of lines that will be written, for the header; 0 if unknown: the header omits it.
	Entries    uint64
	OneCPU     bool // all tasks on processor 0
	SinceStart bool // times count from the trace's start
	// Comment, if not nil, returns what to write after a call as "/* ... */"; "" for nothing.
	Comment func(trace.FuncID) string
	// CPU, if not nil, returns the number in a task's CPU column, which is not below 0.
	CPU    func(*trace.Task) int
	Tracer string // what the header says; "": function
}

// Function writes function text, a line per call. It is not safe for concurrent use.
type Function struct {
	output
	opt    FunctionOptions
	header bool
	seen   []bool // tasks that had a call, by number
	any    bool
}

// NewFunction returns a Function that writes to w.
func NewFunction(w io.Writer, t *trace.Trace, o FunctionOptions) *Function {
	f := &Function{output: newOutput(w, t, o.SinceStart, o.OneCPU), opt: o}
	f.number = o.CPU
	f.seen = make([]bool, f.cpus())
	return f
}

// Continue has further events be those of another trace, as [Graph.Continue].
func (f *Function) Continue(t *trace.Trace) {
	f.t = t
	f.seen = append(f.seen, make([]bool, max(0, f.cpus()-len(f.seen)))...)
}

// Event writes an event.
func (f *Function) Event(ev *trace.Event) error {
	if !f.header {
		f.writeHeader()
	}
	if !f.known(ev) {
		return nil
	}
	switch ev.Kind {
	case trace.Entry, trace.Lost, trace.Mark, trace.Trigger:
		if !f.opt.NoHeader {
			f.introduce(ev)
		}
	}
	switch ev.Kind {
	case trace.Entry:
		switch {
		case ev.Flags&trace.FlagOpen != 0: // no call of this window
		case ev.Func.Image == trace.SyscallImage:
			f.syscall(ev)
		default:
			f.entry(ev)
		}
	case trace.Exit:
		if ev.Sys != nil && !ev.Sys.Open {
			f.syscall(ev)
		}
	case trace.Lost:
		f.buf = appendLost(f.buf, f.cpu(ev.Task), ev)
	case trace.Mark:
		f.mark(ev)
	case trace.Stacktrace:
		f.backtrace(ev)
	case trace.Trigger:
		b := append(f.row(f.buf, ev), "/* "...)
		f.buf = append(f.appendTrigger(b, ev), " */\n"...)
	}
	return f.flush(false)
}

// Text writes, in place of an event, a line with a text, as the kernel shows events that are no calls.
func (f *Function) Text(ev *trace.Event, text string) error {
	if !f.header {
		f.writeHeader()
	}
	if !f.known(ev) {
		return nil
	}
	if !f.opt.NoHeader {
		f.introduce(ev)
	}
	f.buf = append(append(f.row(f.buf, ev), safetext.Line(text)...), '\n')
	return f.flush(false)
}

// Close flushes the buffer, and writes the header if there was no event.
func (f *Function) Close() error {
	if !f.header {
		f.writeHeader()
	}
	return f.flush(true)
}

func (f *Function) writeHeader() {
	f.header = true
	if f.opt.NoHeader {
		return
	}
	b := append(f.buf, "# tracer: "+cmp.Or(f.opt.Tracer, "function")+"\n#\n"...)
	if n := f.opt.Entries; n > 0 {
		written := n + f.t.Lost
		b = append(b, "# entries-in-buffer/entries-written: "...)
		b = strconv.AppendUint(b, n, 10)
		b = append(b, '/')
		b = strconv.AppendUint(b, written, 10)
		b = append(b, "   #P:"...)
		b = strconv.AppendInt(b, int64(f.cpus()), 10)
		b = append(b, "\n#\n"...)
	}
	if f.opt.NoIRQInfo {
		tgid, bar := "", ""
		if f.opt.TGID {
			tgid, bar = "   TGID   ", "     |    "
		}
		b = append(b, "#           TASK-PID    "+tgid+" CPU#     TIMESTAMP  FUNCTION\n"...)
		b = append(b, "#              | |      "+bar+"   |         |         |\n"...)
		f.buf = b
		return
	}
	fill, tgid, bar := "  ", "  ", "  "
	if f.opt.TGID {
		fill, tgid, bar = "            ", "     TGID   ", "       |    "
	}
	for _, l := range [...]string{
		"  _-----=> irqs-off/BH-disabled", " / _----=> need-resched", "| / _---=> hardirq/softirq",
		"|| / _--=> preempt-depth", "||| / _-=> migrate-disable", "|||| /     delay",
	} {
		b = append(b, "#                            "+fill+l+"\n"...)
	}
	b = append(b, "#           TASK-PID  "+tgid+" CPU#  |||||  TIMESTAMP  FUNCTION\n"...)
	b = append(b, "#              | |    "+bar+"   |   |||||     |         |\n"...)
	f.buf = b
}

// commWidth is the width of a thread's name.
const commWidth = 16

// row appends the columns before the text.
func (f *Function) row(b []byte, ev *trace.Event) []byte {
	comm := safetext.Line(ev.Comm)
	b = appendBlanks(b, commWidth-len(comm))
	b = append(b, comm...)
	b = append(b, '-')
	start := len(b)
	b = strconv.AppendInt(b, int64(ev.Task.TID), 10)
	b = appendBlanks(b, 7-(len(b)-start))
	b = append(b, ' ')
	if f.opt.TGID {
		b = append(b, '(')
		b = appendPadded(b, uint64(ev.Task.PID), 7, ' ')
		b = append(b, ") "...)
	}
	b = append(b, '[')
	b = appendPadded(b, uint64(f.cpu(ev.Task)), 3, '0')
	b = append(b, "] "...)
	if !f.opt.NoIRQInfo {
		b = append(appendState(b, ev), ' ')
	}
	b = appendTime(b, f.base+ev.Time)
	return append(b, ": "...)
}

func (f *Function) entry(ev *trace.Event) {
	b := f.buf
	if n := f.cpu(ev.Task); f.opt.Annotate && !f.seen[n] {
		f.seen[n] = true
		if f.any {
			b = append(b, "##### CPU "...)
			b = strconv.AppendInt(b, int64(n), 10)
			b = append(b, " buffer started ####\n"...)
		}
		f.any = true
	}
	b = f.row(b, ev)
	b = f.symbol(b, ev.Func, true)
	if ev.Args != nil {
		b = f.arguments(b, ev)
	}
	if !f.opt.NoParent && ev.Flags&trace.FlagEntryOnly == 0 {
		b = append(b, " <-"...)
		if ev.Caller.ID == 0 {
			b = append(b, '0')
		} else {
			b = f.symbol(b, ev.Caller, false)
		}
	}
	b = appendComment(b, f.opt.Comment, ev.Func)
	f.buf = append(b, '\n')
}

// symbol appends a function's name and what the options add. The address of a
// function that was entered is its site's; where in its caller the call was made
// is not recorded, so a caller is shown without an offset of its own.
func (f *Function) symbol(b []byte, id trace.FuncID, site bool) []byte {
	b = append(b, f.t.Label(id)...)
	if !f.opt.SymOffset && !f.opt.SymAddr {
		return b
	}
	fn := f.t.Func(id)
	addr := fn.Addr
	if site && fn.Site >= fn.Addr && fn.Site != 0 {
		addr = fn.Site
	}
	if f.opt.SymOffset && fn.Name != "" {
		b = append(b, "+0x"...)
		b = strconv.AppendUint(b, addr-fn.Addr, 16)
		b = append(b, "/0x"...)
		b = strconv.AppendUint(b, fn.Size, 16)
	}
	if f.opt.SymAddr {
		b = append(b, " <"...)
		const hex = "0123456789abcdef"
		for i := 60; i >= 0; i -= 4 {
			b = append(b, hex[addr>>i&15])
		}
		b = append(b, '>')
	}
	return b
}

// backtrace writes a stack as the kernel does, from the function that asked for it outwards.
func (f *Function) backtrace(ev *trace.Event) {
	b := append(f.row(f.buf, ev), "<stack trace>\n"...)
	for _, label := range f.t.StackLabels(ev) {
		b = append(append(append(b, " => "...), label...), '\n')
	}
	if ev.Backtrace.End != "outermost" {
		b = append(append(append(b, " => ("...), ev.Backtrace.End...), ")\n"...)
	}
	f.buf = b
}

// mark writes a mark as the kernel prints what is written to trace_marker.
func (f *Function) mark(ev *trace.Event) {
	b := f.row(f.buf, ev)
	b = append(b, "tracing_mark_write: "...)
	f.buf = append(appendMark(b, ev), '\n')
}
