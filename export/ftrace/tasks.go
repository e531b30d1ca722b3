package ftrace

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Which task a line is of. The kernel's columns have a processor's number, and a name cut to 7 characters, which tells
// neither 346 gzips nor 22 servers of one database apart. Here the number is the task's; a line that says which task
// that is comes before the first line of each task that is shown, and a column can show what its process was then.

// introduce writes a task's line before its first one: which task has the number, and
// what its process was then. So only tasks that are shown have one, however they are
// chosen, and nobody has to read the trace twice.
func (o *output) introduce(ev *trace.Event) {
	if o.oneCPU || len(o.t.Tasks) < 2 {
		return
	}
	i := o.cpu(ev.Task)
	for i >= len(o.named) {
		o.named = append(o.named, false)
	}
	if o.named[i] {
		return
	}
	o.named[i] = true
	k := ev.Task
	b := append(o.buf, "# "...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, ") "...)
	b = appendTask(b, k, ev.Comm)
	if k.PID != k.TID {
		b = append(b, " of process "...)
		b = strconv.AppendInt(b, int64(k.PID), 10)
	}
	if m, ok := o.t.Birth(k); ok {
		b = append(b, " ("...)
		b = append(b, safetext.Line(m.Function)...)
		b = append(b, ", made by "...)
		if m.Parent != 0 {
			b = append(b, 'g')
			b = strconv.AppendUint(b, m.Parent, 10)
			b = append(b, " in "...)
		}
		b = append(b, safetext.Line(m.By)...)
		b = append(b, ')')
	}
	if s := commandLine(k, ev.Time); s != "" {
		b = append(b, ": "...)
		b = append(b, s...)
	}
	o.buf = append(b, '\n')
}

func appendTask(b []byte, k *trace.Task, comm string) []byte {
	b = append(b, safetext.Line(comm)...)
	b = append(b, '-')
	return append(b, k.Number()...)
}

// procWidth is the width of a task in its column in the kernel, which cuts names to 7
// characters. Here the column is as wide as the longest name needs.
const procWidth = 14

func (g *Graph) appendProc(b []byte, k *trace.Task, comm string, thread int) []byte {
	p := &g.shown
	if p.of != k || p.comm != comm || p.thread != thread || p.width != g.proc {
		*p = proc{of: k, comm: comm, thread: thread, width: g.proc, cell: p.cell[:0]}
		comm = safetext.Line(comm)
		tid := k.Number()
		if thread != 0 {
			tid += "/" + strconv.Itoa(thread)
		}
		pad := max(0, g.proc-len(comm)-1-len(tid))
		p.cell = append(append(appendBlanks(p.cell, pad/2), comm...), '-')
		p.cell = appendBlanks(append(p.cell, tid...), pad-pad/2)
	}
	return append(b, p.cell...)
}

// proc is the column of a task that was shown last: most events are of the task before.
type proc struct {
	of     *trace.Task
	comm   string
	thread int // that runs it, a goroutine
	width  int
	cell   []byte
}

// commandWidth is the width of the column with command lines, which are cut.
const commandWidth = 30

// commands remembers the command line of each process that was shown last: a title can
// change, but most events are of the process and title of the one before.
type commands struct {
	of    *trace.Process
	until int64 // the title is the same before this time
	cell  []byte
}

// appendCommand appends the column with the process's command line.
func (g *Graph) appendCommand(b []byte, ev *trace.Event) []byte {
	p := ev.Task.Process
	if c := &g.cmds; c.of != p || c.cell == nil || ev.Time >= c.until {
		c.of, c.until = p, nextChange(p, ev.Time)
		s := safetext.Line(commandLine(ev.Task, ev.Time))
		if utf8.RuneCountInString(s) > commandWidth {
			s = clip(s, commandWidth-3)
		}
		c.cell = appendBlanks(append(c.cell[:0], s...), commandWidth-utf8.RuneCountInString(s))
	}
	return append(b, g.cmds.cell...)
}

// nextChange is when the command line of a process changes next.
func nextChange(p *trace.Process, after int64) int64 {
	next := int64(math.MaxInt64)
	if p == nil {
		return next
	}
	for i := range p.Programs {
		if t := p.Programs[i].Time; t > after {
			next = min(next, t)
		}
	}
	for i := range p.Titles {
		if t := p.Titles[i].Time; t > after {
			next = min(next, t)
		}
	}
	return next
}
