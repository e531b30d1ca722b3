// Package ftrace writes traces as the kernel's function tracers print theirs:
// the function_graph text with its column of durations, and the function text
// with a line a call. What reads ftrace's text reads this.
//
//	g := ftrace.NewGraph(w, t, ftrace.GraphOptions{})
//	err := t.Walk(trace.WalkOptions{}, g.Event)
//	if err == nil {
//		err = g.Close()
//	}
//
// The columns are those of Linux 6.1. Where the kernel prints something a
// program does not have, this is printed instead:
//
//   - CPU: the number of the task, its position in Trace.Tasks. Like a
//     processor it does one thing at a time and its calls nest, which is what
//     readers of the format rely on. The header says which task has which number.
//     With OneCPU every task is on processor 0, and a change of task is shown by
//     the kernel's lines "prev => next".
//   - PID: the thread id, as in the kernel; TGID: the process id.
//   - irqs-off, need-resched, preempt-depth and migrate-disable: always ".".
//     hardirq/softirq is "h" while the task runs on another stack than its first:
//     a signal handler on a stack of its own, a coroutine.
//   - time: CLOCK_MONOTONIC, as with the kernel's clock "mono", where the trace
//     knows it; else, or with SinceStart, the time since the trace's start.
//
// Calls deeper than 200 levels are indented as those at 200.
//
// A call that ended without returning, or whose end was not recorded, has a
// closing line all the same, "} /* name, unwound */" or "} /* name, unfinished */":
// depths always add up.
package ftrace
