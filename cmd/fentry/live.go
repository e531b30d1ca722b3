package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/export/ftrace"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type liveCmd struct {
	watchFlags
	out    string
	fields []string
}

func newLiveCmd(a *app) *cobra.Command {
	var c liveCmd
	cmd := &cobra.Command{
		Use:   "live [options] {[--] PROGRAM [args...] | -p PROCESS}",
		Short: "show calls as they happen",
		Long: `live runs a program, or attaches to processes that run already, and prints their
calls as they happen, as strace does with system calls: in the columns of
function_graph, with the names of threads, or with -T function a line for each call.
Options that say what is recorded are those of record.

The program never waits for live. What comes faster than it can be printed is left
out: a line says where, and about how many events these were (CPU:0 [LOST ABOUT 1855952
EVENTS]); at the end live says how many were left out exactly. Fewer are if less is
recorded (-F, -D, -t), or if the buffer is larger.

Of a Go program, threads are shown, and which goroutine runs on each from then on.

A program that live has started has its own standard output, which -o FILE keeps apart.
live ends with the program, and as it does; or with ^C, --for, or when nobody reads its
output any more: the program then goes on without it. Processes that were attached to
are put back to what they were, as record -p does.`,
		Example: `  fentry live ./prog                        every call
  fentry live -F 'parse_*' ./prog           some functions only
  fentry live -p 1234 -D 2 -t 1ms           long calls of a process that runs
  fentry live -p nginx --for 10s -o calls.txt
  fentry live -A 'open_*' -R 'open_*' ./prog   with arguments and results
  fentry live --syscalls -F none ls         system calls only, as strace shows
  fentry live -p 1234 | head -100`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.watchFlags.add(cmd, "b")
	f := cmd.Flags()
	f.StringVarP(&c.out, "output", "o", "", "write to `FILE`")
	f.StringSliceVarP(&c.fields, "fields", "f", nil,
		"show `FIELD`[,FIELD...], or hide it with \"no\" in front: "+strings.Join(liveFields(), ", "))
	registerFieldCompletion(cmd, "fields", liveFields())
	return cmd
}

// liveFields are the names of fields that live can show.
func liveFields() (names []string) {
	for _, name := range fieldNames() {
		if name != "irq-info" && name != "one-cpu" && name != "annotate" {
			names = append(names, name)
		}
	}
	return names
}

func (c *liveCmd) run(a *app, cmd *cobra.Command, args []string) (err error) {
	d := display{}
	d.graph.Proc, d.graph.NoCPU, d.function.NoIRQInfo = true, true, true
	if err := d.switchFields(c.fields); err != nil {
		return &usageError{cmd, err}
	}
	w := &liveWriter{d: d, function: c.tracer == patch.Function.String(), to: a.stdout, color: a.colors(a.stdout)}
	if c.out != "" {
		f, err := os.Create(c.out)
		if err != nil {
			return pathError(err)
		}
		defer func() {
			if cerr := f.Close(); err == nil {
				err = cerr
			}
		}()
		w.to, w.color = f, a.color == "always"
	}
	w.buf = bufio.NewWriterSize(w.to, 64<<10)
	return c.watchFlags.run(a, cmd, args, w)
}

// liveWriter prints events.
type liveWriter struct {
	d        display
	function bool
	to       io.Writer
	color    bool
	buf      *bufio.Writer

	text    liveText // nil before the first look
	numbers map[liveTask]int
	last    *trace.Task // whose number was asked for last
	lastNum int
	any     bool // there were events in the last look
}

// liveText is a text format that goes on from one look to the next.
type liveText interface {
	eventWriter
	Continue(*trace.Trace)
	Flush() error
}

// liveTask tells tasks of all looks apart.
type liveTask struct {
	pid, tid int
	key      uint64
}

// number is what stands for a task in the CPU column.
func (w *liveWriter) number(k *trace.Task) int {
	if k == w.last {
		return w.lastNum
	}
	id := liveTask{k.PID, k.TID, k.Key}
	n, ok := w.numbers[id]
	if !ok {
		n = len(w.numbers)
		w.numbers[id] = n
	}
	w.last, w.lastNum = k, n
	return n
}

func (w *liveWriter) begin(t *trace.Trace, _ int64) {
	w.any = false
	if w.text != nil {
		w.text.Continue(t)
		return
	}
	w.numbers = make(map[liveTask]int)
	w.d.graph.CPU, w.d.function.CPU = w.number, w.number
	if w.function {
		w.d.function.NoParent = true // nobody knows who was the caller
		w.text = ftrace.NewFunction(w.buf, t, w.d.function)
		return
	}
	if w.color {
		w.d.graph.Color = durationColor
	}
	w.text = ftrace.NewGraph(w.buf, t, w.d.graph)
}

func (w *liveWriter) event(ev *trace.Event) error {
	w.any = true
	return w.text.Event(ev)
}

func (w *liveWriter) end(over bool) error {
	if pipeClosed(w.to) {
		return syscall.EPIPE
	}
	err := w.text.Flush()
	if over {
		err = w.text.Close()
	}
	if err != nil {
		return err
	}
	return w.buf.Flush()
}

// How often live looks for events: when there were some, and when there were none.
const (
	liveBusy = 20 * time.Millisecond
	liveIdle = 50 * time.Millisecond
)

func (w *liveWriter) wait(done <-chan struct{}) {
	if w.any {
		pause(liveBusy, done)
	} else {
		pause(liveIdle, done)
	}
	w.any = false
}

func (w *liveWriter) due() bool { return false }
