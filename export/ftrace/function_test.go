package ftrace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

func functionText(t testing.TB, tr *trace.Trace, o FunctionOptions) string {
	t.Helper()
	var b bytes.Buffer
	f := NewFunction(&b, tr, o)
	if err := tr.Walk(trace.WalkOptions{}, f.Event); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFunction has the kernel's header and rows.
func TestFunction(t *testing.T) {
	tr := build(t, "main_loop read_block", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(346000, 2)
		k.Exit(347000, 2)
		k.Exit(348000, 1)
		k.Flush()
	})
	check(t, functionText(t, tr, FunctionOptions{Entries: 2}), `
# tracer: function
#
# entries-in-buffer/entries-written: 2/2   #P:1
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
          worker-4711    [000] .....    12.000000: main_loop <-0
          worker-4711    [000] .....    12.000345: read_block <-main_loop
`)
	check(t, functionText(t, tr, FunctionOptions{TGID: true, NoHeader: true, NoParent: true, SymAddr: true, SymOffset: true}), `
          worker-4711    (   4711) [000] .....    12.000000: main_loop+0x4/0x20 <0000000000401004>
          worker-4711    (   4711) [000] .....    12.000345: read_block+0x4/0x20 <0000000000401044>
`)
	check(t, functionText(t, tr, FunctionOptions{NoIRQInfo: true, SinceStart: true}), `
# tracer: function
#
#           TASK-PID     CPU#     TIMESTAMP  FUNCTION
#              | |         |         |         |
          worker-4711    [000]     0.000000: main_loop <-0
          worker-4711    [000]     0.000345: read_block <-main_loop
`)
}

// TestFunctionHeaders checks that the headers' columns stand over the rows'.
func TestFunctionHeaders(t *testing.T) {
	tr := twoTasks(t)
	for _, o := range []FunctionOptions{{}, {TGID: true}, {NoIRQInfo: true}, {NoIRQInfo: true, TGID: true}} {
		var legend, row string
		for l := range strings.SplitSeq(functionText(t, tr, o), "\n") {
			if strings.HasPrefix(l, "#  ") {
				legend = l
			} else if !strings.HasPrefix(l, "#") && row == "" {
				row = l
			}
		}
		// The legend's bars point at the CPU number and the time's point.
		bars := 3
		if o.TGID {
			bars++
		}
		cpu := nth(legend, '|', bars)
		if row[cpu] < '0' || row[cpu] > '9' || strings.LastIndexByte(row[:cpu], '[') < cpu-3 {
			t.Errorf("%+v: the legend's column %d is not the CPU\n%s\n%s", o, cpu, legend, row)
		}
	}
}

func nth(s string, c byte, n int) int {
	for i := range len(s) {
		if s[i] == c {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

// TestFunctionTwoTasks has lost events, other stacks, marks, and the lines that
// announce a task.
func TestFunctionTwoTasks(t *testing.T) {
	check(t, functionText(t, twoTasks(t), FunctionOptions{NoHeader: true, Annotate: true}), `
          worker-4711    [000] .....    12.000000: main_loop <-0
          worker-4711    [000] .....    12.000001: read_block <-main_loop
##### CPU 1 buffer started ####
 long-name-of-it-4712    [001] .....    12.000001: parse <-0
CPU:1 [LOST 7 EVENTS]
 long-name-of-it-4712    [001] .....    12.000001: read_block <-parse
          worker-4711    [000] .....    12.000002: tracing_mark_write: mark 42
          worker-4711    [000] .....    12.000002: tracing_mark_write: half?done
          worker-4711    [000] .....    12.000002: tracing_mark_write: x (7)
         renamed-4712    [001] ..s..    12.000002: main_loop <-0
          worker-4711    [000] .....    12.000012: parse <-main_loop
          worker-4711    [000] .....    12.000014: read_block <-main_loop
          worker-4711    [000] .....    12.000015: parse <-read_block
`)
}
