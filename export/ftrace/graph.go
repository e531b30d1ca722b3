package ftrace

import (
	"bytes"
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// GraphOptions are function_graph's options; the zero value is the kernel's default. The kernel's name for each is in
// parentheses.
type GraphOptions struct {
	NoHeader   bool // leave out the lines that start with #
	NoCPU      bool // (nofuncgraph-cpu)
	NoOverhead bool // no marks before long durations (nofuncgraph-overhead)
	NoDuration bool // (nofuncgraph-duration)
	Proc       bool // add a column with name and thread id, of a goroutine also the thread that runs it (funcgraph-proc)
	Command    bool // add a column with the process's arguments, or the title it has given itself
	State      bool // add a column with the thread's signals (latency-format)
	AbsTime    bool // add a column with the time (funcgraph-abstime)
	Tail       bool // add the function's name after every closing brace (funcgraph-tail)
	OneCPU     bool // all tasks in one column, changes of task shown by lines
	SinceStart bool // times count from the trace's start
	// NoNotes leaves out comments: forks, thread names, stacks, marks.
	NoNotes bool
	// Color, if not nil, returns the escape sequence before the name of a function with the given duration, "" for
	// none; "\x1b[0m" ends it.
	Color func(ns int64) string
	// FuncColor, if not nil, returns the escape sequence before the name of a function whatever its duration, "" for
	// that of Color.
	FuncColor func(trace.FuncID) string
	// ColorEnd is the escape sequence before what says that a call was unwound or did not end; "": none.
	ColorEnd string
	// Comment, if not nil, returns what to write after a call as "/* ... */", such as its source line; "" for
	// nothing.
	Comment func(trace.FuncID) string
	// CPU, if not nil, returns the number in a task's CPU column, which is not below 0.
	CPU func(*trace.Task) int
}

// maxIndent is how many levels the text is indented: with a million, a recursion
// of that depth would be printed in terabytes of blanks.
const maxIndent = 200

func appendIndent(b []byte, depth int) []byte { return appendBlanks(b, 2*min(depth, maxIndent)) }

// retfuncDepth is how many levels of names the kernel remembers a processor.
const retfuncDepth = 50

// Graph writes function_graph text. It is not safe for concurrent use.
type Graph struct {
	output
	opt    GraphOptions
	digits int // of the CPU column
	header bool
	rows   []graphRow // by CPU number
	proc   int        // width of a task in its column
	cmds   commands
	shown  proc
	last   *trace.Task // in the column, with OneCPU
	lastC  string
	lastT  int
	bar    []byte // "              |  "
}

// graphRow is what is remembered of a processor.
type graphRow struct {
	depth int
	names []trace.FuncID // as many as it had levels, at most retfuncDepth: there can be a million of these
}

// at returns the name remembered of a level.
func (r *graphRow) at(depth int) trace.FuncID {
	if depth < len(r.names) {
		return r.names[depth]
	}
	return trace.FuncID{}
}

// set remembers the name of a level.
func (r *graphRow) set(depth int, fn trace.FuncID) {
	if depth >= len(r.names) {
		if fn == (trace.FuncID{}) {
			return
		}
		r.names = append(r.names, make([]trace.FuncID, depth+1-len(r.names))...)
	}
	r.names[depth] = fn
}

// NewGraph returns a Graph that writes to w.
func NewGraph(w io.Writer, t *trace.Trace, o GraphOptions) *Graph {
	g := &Graph{output: newOutput(w, t, o.SinceStart, o.OneCPU), opt: o}
	g.number = o.CPU
	g.proc = procWidth
	g.Continue(t)
	if !o.NoDuration {
		g.bar = []byte("              |  ")
	}
	return g
}

// Continue has further events be those of another trace: a later look at the same recording (trace.Stream). Options.CPU
// must tell its tasks apart.
func (g *Graph) Continue(t *trace.Trace) {
	g.t = t
	g.digits = max(g.digits, len(strconv.Itoa(g.cpus()-1)))
	if g.opt.Proc || g.opt.OneCPU {
		thread := 0 // width of the thread behind a goroutine
		if last := t.LastThread(); last != 0 {
			thread = 1 + len(strconv.Itoa(last))
		}
		for _, k := range t.Tasks {
			n := len(k.Comm) + 1 + len(k.Number())
			if k.Goroutine != 0 {
				n += thread
			}
			g.proc = max(g.proc, n)
		}
	}
}

// Event writes an event.
func (g *Graph) Event(ev *trace.Event) error {
	if !g.header {
		g.writeHeader()
	}
	if !g.known(ev) {
		return nil
	}
	if !g.opt.NoHeader && g.shows(ev) {
		g.introduce(ev)
	}
	switch ev.Kind {
	case trace.Entry:
		g.change(ev)
		g.entry(ev)
	case trace.Exit, trace.Unwound, trace.Unfinished:
		if ev.Flags&trace.FlagLeaf != 0 {
			return nil // its entry said everything
		}
		if ev.Kind == trace.Unfinished && ev.Func.Image == trace.SyscallImage && g.noReturn(ev) {
			return nil
		}
		g.change(ev)
		if ev.Flags&trace.FlagNoEntry != 0 && ev.Func.Image == trace.SyscallImage {
			g.syscallOrphan(ev)
		} else if ev.Flags&trace.FlagResumed != 0 {
			g.resumed(ev)
		} else {
			g.exit(ev)
		}
	case trace.Lost:
		g.buf = appendLost(g.buf, g.cpu(ev.Task), ev)
	default:
		if g.opt.NoNotes {
			return nil
		}
		g.change(ev)
		g.note(ev)
	}
	return g.flush(false)
}

// Close flushes the buffer, and writes the header if there was no event.
func (g *Graph) Close() error {
	if !g.header {
		g.writeHeader()
	}
	return g.flush(true)
}

func (g *Graph) writeHeader() {
	g.header = true
	if g.opt.NoHeader {
		return
	}
	b := append(g.buf, "# tracer: function_graph\n#\n"...)
	o := &g.opt
	line := func(abs, cpu, proc, command, state, dur, end string) {
		b = append(b, '#')
		if o.AbsTime {
			b = append(b, abs...)
		}
		if !o.NoCPU {
			b = append(b, cpu...)
		}
		if o.Proc {
			b = append(b, proc...)
			b = appendBlanks(b, g.proc-procWidth)
		}
		if o.Command {
			b = append(b, command...)
			b = appendBlanks(b, commandWidth+3-len(command))
		}
		if o.State {
			b = append(b, state...)
		}
		if !o.NoDuration {
			b = append(b, dur...)
		}
		b = append(b, end...)
	}
	line("     TIME       ", " CPU", "  TASK/PID       ", "  COMMAND", "  STATE  ", "  DURATION   ", "               FUNCTION CALLS\n")
	line("      |         ", " |  ", "   |    |        ", "     |", "    |    ", "   |   |      ", "               |   |   |   |\n")
	g.buf = b
}

// shows tells whether an event makes a line in its task's column.
func (g *Graph) shows(ev *trace.Event) bool {
	switch ev.Kind {
	case trace.Entry:
		return true
	case trace.Exit, trace.Unwound, trace.Unfinished:
		return ev.Flags&trace.FlagLeaf == 0
	case trace.Lost:
		return true
	}
	return !g.opt.NoNotes
}

// row returns what is remembered of the event's processor.
func (g *Graph) row(k *trace.Task) *graphRow {
	i := g.cpu(k)
	if i >= len(g.rows) {
		g.rows = append(g.rows, make([]graphRow, max(i+1, min(2*i, g.cpus()))-len(g.rows))...)
	}
	return &g.rows[i]
}

// change writes the lines that show that another task is on the processor.
func (g *Graph) change(ev *trace.Event) {
	if !g.oneCPU {
		return
	}
	if g.last != nil && g.last != ev.Task {
		b := append(g.buf, " ------------------------------------------\n"...)
		b = g.appendCPU(b, 0)
		b = g.appendProc(b, g.last, g.lastC, g.lastT)
		b = append(b, " => "...)
		b = g.appendProc(b, ev.Task, ev.Comm, ev.Thread)
		g.buf = append(b, "\n ------------------------------------------\n\n"...)
	}
	g.last, g.lastC, g.lastT = ev.Task, ev.Comm, ev.Thread
}

func (g *Graph) appendCPU(b []byte, cpu int) []byte {
	if g.digits == 1 {
		return append(b, ' ', byte('0'+cpu), ')', ' ')
	}
	b = append(b, ' ')
	b = appendPadded(b, uint64(cpu), g.digits, ' ')
	return append(b, ") "...)
}

// prologue appends the columns before the duration.
func (g *Graph) prologue(b []byte, ev *trace.Event) []byte {
	if g.opt.AbsTime {
		b = appendTime(b, g.base+ev.Time)
		b = append(b, " |  "...)
	}
	if !g.opt.NoCPU {
		b = g.appendCPU(b, g.cpu(ev.Task))
	}
	if g.opt.Proc {
		b = g.appendProc(b, ev.Task, ev.Comm, ev.Thread)
		b = append(b, " | "...)
	}
	if g.opt.Command {
		b = g.appendCommand(b, ev)
		b = append(b, " | "...)
	}
	if g.opt.State {
		b = append(appendState(append(b, ' '), ev), " | "...)
	}
	return b
}

func (g *Graph) duration(b []byte, ns int64) []byte {
	if g.opt.NoDuration {
		return b
	}
	if g.opt.NoOverhead {
		b = append(b, "  "...)
	} else {
		b = append(b, mark(ns), ' ')
	}
	b = AppendDuration(b, ns)
	return append(b, "|  "...)
}

func (g *Graph) entry(ev *trace.Event) {
	row := g.row(ev.Task)
	b := g.prologue(g.buf, ev)
	leaf := ev.Flags&(trace.FlagLeaf|trace.FlagEntryOnly) != 0
	if ev.Flags&trace.FlagLeaf != 0 {
		b = g.duration(b, ev.Dur)
		row.depth = ev.Depth - 1
	} else {
		b = append(b, g.bar...)
		row.depth = ev.Depth
	}
	if ev.Depth < retfuncDepth {
		if leaf {
			row.set(ev.Depth, trace.FuncID{})
		} else {
			row.set(ev.Depth, ev.Func)
		}
	}
	b = appendIndent(b, ev.Depth)
	if ev.Func.Image == trace.SyscallImage {
		b = g.syscallText(b, ev, leaf)
	} else if leaf {
		b = g.name(b, ev.Func, ev.Dur)
		b = append(g.result(g.arguments(b, ev), ev), ';')
	} else {
		b = g.name(b, ev.Func, 0)
		b = append(g.arguments(b, ev), " {"...)
	}
	if ev.Flags&trace.FlagOpen != 0 {
		b = append(b, " /* open since "...)
		b = append(b, bytes.TrimLeft(appendTime(nil, ev.Time), " ")...)
		b = append(b, " */"...)
	}
	b = appendComment(b, g.opt.Comment, ev.Func)
	g.buf = append(b, '\n')
}

// name appends the name of a function whose call took ns.
func (g *Graph) name(b []byte, id trace.FuncID, ns int64) []byte {
	color := ""
	if g.opt.FuncColor != nil {
		color = g.opt.FuncColor(id)
	}
	if color == "" && g.opt.Color != nil {
		color = g.opt.Color(ns)
	}
	if color == "" {
		return append(b, g.t.Label(id)...)
	}
	b = append(append(b, color...), g.t.Label(id)...)
	return append(b, "\x1b[0m"...)
}

func (g *Graph) exit(ev *trace.Event) {
	row := g.row(ev.Task)
	row.depth = ev.Depth - 1
	match := true
	if ev.Depth < retfuncDepth {
		match = row.at(ev.Depth) == ev.Func
		row.set(ev.Depth, trace.FuncID{})
	}
	b := g.prologue(g.buf, ev)
	if ev.Flags&trace.FlagNoEntry != 0 {
		match = false
		b = append(b, g.bar...)
	} else {
		b = g.duration(b, ev.Dur)
	}
	b = appendIndent(b, ev.Depth)
	b = append(b, '}')
	if ev.Sys != nil {
		b = g.t.Made(ev).AppendResult(append(b, " = "...))
	}
	b = g.result(b, ev)
	if !match || g.opt.Tail || ev.Kind != trace.Exit {
		b = append(b, " /* "...)
		b = g.name(b, ev.Func, ev.Dur)
		switch ev.Kind {
		case trace.Unwound:
			b = g.ending(b, "unwound")
		case trace.Unfinished:
			b = g.ending(b, "unfinished")
		}
		b = append(b, " */"...)
	}
	g.buf = append(b, '\n')
}

// ending appends how a call ended, if it did not return.
func (g *Graph) ending(b []byte, how string) []byte {
	b = append(b, ", "...)
	if g.opt.ColorEnd == "" {
		return append(b, how...)
	}
	b = append(b, g.opt.ColorEnd...)
	b = append(b, how...)
	return append(b, "\x1b[0m"...)
}

// resumed writes the exit of a call that was taken for unwound. Its closing brace was written then, and a second one
// would close a call further out.
func (g *Graph) resumed(ev *trace.Event) {
	b := g.duration(g.prologue(g.buf, ev), ev.Dur)
	b = appendIndent(b, ev.Depth)
	b = append(b, "/* "...)
	b = g.name(b, ev.Func, ev.Dur)
	g.buf = append(b, " returns after all */\n"...)
}

func (g *Graph) note(ev *trace.Event) {
	g.buf = append(g.appendNote(g.comment(ev), ev), " */\n"...)
}

// comment begins a comment at an event.
func (g *Graph) comment(ev *trace.Event) []byte {
	b := g.prologue(g.buf, ev)
	b = append(b, g.bar...)
	if d := g.row(ev.Task).depth; d > 0 {
		b = appendIndent(b, d+1)
	}
	return append(b, "/* "...)
}

// Text writes, in place of an event, a text as the kernel shows events that are no calls: a comment.
func (g *Graph) Text(ev *trace.Event, text string) error {
	if !g.header {
		g.writeHeader()
	}
	if !g.known(ev) {
		return nil
	}
	if !g.opt.NoHeader {
		g.introduce(ev)
	}
	g.change(ev)
	g.buf = append(append(g.comment(ev), safetext.Line(text)...), " */\n"...)
	return g.flush(false)
}
