package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/show"
	"github.com/fentry-dev/fentry/trace"
)

// replay --slowest prints the longest calls, each with what happened inside. A call can
// be as long as the trace, so what is shown of it is bounded: some levels of nesting,
// what took a part of its time that is worth looking at, and a number of lines.

const (
	insideLevels = 3   // levels that are shown unless --depth says something else
	insideShare  = 100 // a call inside is shown if it took one part in so many, unless --threshold says something else
	insideLines  = 60
)

// checkSlowest says what --slowest cannot be combined with.
func (c *replayCmd) checkSlowest(cmd *cobra.Command) error {
	switch {
	case !cmd.Flags().Changed("slowest"):
		return nil
	case c.slowest < 1:
		return usagef(cmd, "--slowest %d: not a number of calls", c.slowest)
	case len(c.roots) > 0:
		return usagef(cmd, "--slowest cannot be combined with --graph")
	case len(c.conditions) > 0:
		return usagef(cmd, "--slowest cannot be combined with --if")
	case len(c.without) > 0 || c.tails != tailCalls[0]:
		return usagef(cmd, "--slowest cannot be combined with --graph-notrace or --tail-calls nest")
	case c.format == "function":
		return usagef(cmd, "--slowest requires the format graph or json")
	}
	return nil
}

// runSlowest prints the longest calls.
func (c *replayCmd) runSlowest(out *output, t *trace.Trace, sel *selection, d display) error {
	if _, err := t.MakeIndex(trace.IndexOptions{File: t.Bytes >= trace.WorthIndex, Memory: true}); err != nil {
		return pathError(err)
	}
	sel.walk.Open = false
	calls, err := t.Slowest(c.slowest, sel.walk)
	if err != nil {
		return pathError(err)
	}
	d.graph.NoHeader = true
	for i := range calls {
		call := &calls[i]
		if c.format != "json" {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintln(out, out.paint.with(sgrBold, slowestHeading(t, i+1, call)))
		}
		if err := c.inside(out, t, sel, d, call); err != nil {
			return err
		}
	}
	return nil
}

func slowestHeading(t *trace.Trace, n int, c *trace.Call) string {
	how := ""
	if c.Kind != trace.Exit {
		how = ", " + c.Kind.String()
	}
	return fmt.Sprintf("# %d. %s: %s, at %d.%06d s, %s%s", n, t.Name(c.Func), duration(uint64(max(c.Dur, 0))),
		c.Start/1e9, c.Start%1e9/1000, printable(c.Task.String()), how)
}

// inside prints a call with what happened in it.
func (c *replayCmd) inside(out *output, t *trace.Trace, sel *selection, d display, call *trace.Call) error {
	w := c.writer(out, t, d, "")
	o := show.Options{Depth: c.depth, Threshold: sel.calls.Threshold}
	if o.Depth == 0 {
		o.Depth = insideLevels
	}
	if c.threshold == "" {
		o.Threshold = call.Dur / insideShare
	}
	lines, more := 0, 0
	f := show.New(o, func(ev *trace.Event) error {
		line := ev.Flags&trace.FlagLeaf == 0 || ev.Kind == trace.Entry // the end of a leaf is none
		if line {
			lines++
		}
		if lines > insideLines && ev.Depth > 0 { // the call's end is always shown
			if line {
				more++
			}
			return nil
		}
		return w.Event(ev)
	})
	in := insideCall{call: call, emit: f.Event}
	// Times of events and durations are rounded, each by itself.
	walk := trace.WalkOptions{
		Tasks: []*trace.Task{call.Task}, From: max(call.Start-1, 0), To: call.Start + call.Dur + 1,
		Calls: trace.Calls{Threshold: o.Threshold},
	}
	if err := t.Walk(walk, in.event); err != nil {
		return pathError(err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if more > 0 && c.format != "json" {
		fmt.Fprintf(out, "# %s not shown; --threshold and --depth choose\n", plural(uint64(more), "more line", "more lines"))
	}
	return nil
}

// insideCall passes on the events of a call and of those inside, at their depth in it.
type insideCall struct {
	call  *trace.Call
	emit  func(*trace.Event) error
	begun bool
	over  bool
}

func (in *insideCall) event(ev *trace.Event) error {
	c := in.call
	if in.over || ev.Stack != c.Stack {
		return nil
	}
	var last bool
	switch ev.Kind {
	case trace.Entry:
		in.begun = in.begun || ev.Depth == c.Depth && ev.Func == c.Func
	case trace.Exit, trace.Unwound, trace.Unfinished:
		last = ev.Depth == c.Depth && ev.Func == c.Func && ev.Dur == c.Dur
	case trace.Skipped:
		if !in.begun {
			return nil
		}
		skipped := *ev
		skipped.Depth = max(ev.Depth-c.Depth, 0)
		return in.emit(&skipped)
	default:
		return nil
	}
	if !in.begun && !last || ev.Depth < c.Depth {
		return nil
	}
	in.over = last
	inner := *ev
	inner.Depth -= c.Depth
	return in.emit(&inner)
}
