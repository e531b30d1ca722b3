package ftrace

import (
	"strconv"

	"github.com/fentry-dev/fentry/trace"
)

// System calls are calls of functions that have no code in the trace. In function_graph's text they read as strace shows
// them, where the name of a function would be; in the function tracer's as the kernel's own events sys_enter and sys_exit.

// syscallText appends a system call that begins, with its result if it ends without anything inside.
func (g *Graph) syscallText(b []byte, ev *trace.Event, leaf bool) []byte {
	m := g.t.Made(ev)
	if leaf = leaf || g.noReturn(ev); !leaf {
		b = append(b, m.Text()...)
		return append(b, " {"...)
	}
	b = append(b, m.Text()...)
	b = append(b, " = "...)
	return append(m.AppendResult(b), ';')
}

// noReturn tells whether an event is of a system call that never ends, which its beginning says already.
func (g *Graph) noReturn(ev *trace.Event) bool {
	number, ok := ev.Func.Syscall()
	if !ok {
		return false
	}
	call := g.t.Machine().Call(number)
	return call != nil && call.NoReturn()
}

// syscallOrphan writes the end of a call whose beginning is not in the trace: a thread begins with that of the call that
// made it.
func (g *Graph) syscallOrphan(ev *trace.Event) {
	b := g.prologue(g.buf, ev)
	b = append(b, g.bar...)
	b = appendIndent(b, ev.Depth)
	b = append(b, "/* system call returns "...)
	g.buf = append(g.t.Made(ev).AppendResult(b), " */\n"...)
}

// syscall writes the beginning of a system call as the kernel's event sys_enter, sys_openat(dfd: ffffff9c, ...), and its
// end, if that follows, as sys_exit: sys_openat -> 0x3.
func (f *Function) syscall(ev *trace.Event) {
	b := f.row(f.buf, ev)
	b = append(b, f.t.Label(ev.Func)...)
	number, known := ev.Func.Syscall()
	if ev.Kind != trace.Entry {
		b = append(b, " -> 0x"...)
		b = strconv.AppendUint(b, ev.Sys.Value, 16)
		f.buf = append(b, '\n')
		return
	}
	b = append(b, '(')
	if ev.Sys != nil && known {
		call := f.t.Machine().Call(number)
		for i, v := range ev.Sys.Args {
			if i > 0 {
				b = append(b, ", "...)
			}
			if call != nil && i < len(call.Args) {
				b = append(b, call.Args[i].Name...)
				b = append(b, ": "...)
				if call.Args[i].Type == "int" || call.Args[i].Type == "unsigned int" {
					v = uint64(uint32(v))
				}
			}
			b = strconv.AppendUint(b, v, 16)
		}
	}
	f.buf = append(b, ")\n"...)
}
