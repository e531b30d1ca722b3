// Package ftrace writes traces as the kernel's function tracers print theirs: function_graph text with its column of
// durations, and function text with a line per call. Programs that read ftrace's text can read it.
//
//	g := ftrace.NewGraph(w, t, ftrace.GraphOptions{})
//	err := t.Walk(trace.WalkOptions{}, g.Event)
//	if err == nil {
//		err = g.Close()
//	}
//
// The columns are those of Linux 6.1. In place of what exists only in the kernel, this is printed:
//
//   - CPU: the number of the task, its position in Trace.Tasks. Like a processor, a task does one thing at a time and
//     its calls nest, which readers of the format rely on. The header says which task has which number. With OneCPU
//     all tasks are on processor 0, and a change of task is shown by a line "prev => next", as in the kernel.
//   - PID: the thread id, as in the kernel; TGID: the process id.
//   - irqs-off: "d" while signals are blocked. need-resched: "f" in a forked child. hardirq/softirq: "h" in a signal's
//     handler, "H" in one on another stack than what it has interrupted, "s" on another stack without a handler, as in a
//     coroutine. preempt-depth: how many handlers lie one in the other. migrate-disable: always ".". Handlers and what is
//     blocked are known behind Trace.WithSignalState.
//   - time: CLOCK_MONOTONIC, as with the kernel's clock "mono"; if the trace lacks it, or with SinceStart, the time
//     since the trace's start.
//
// Calls deeper than 200 levels are indented as those at 200.
//
// A call that ended without returning, or whose end was not recorded, has a closing line, too, "} /* name, unwound
// */" or "} /* name, unfinished */", so braces always balance.
package ftrace
