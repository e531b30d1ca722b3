package main

import (
	"fmt"

	"github.com/fentry-dev/fentry/trace"
)

// focusLine is a line of graph --focus --json: relation is function, caller or
// callee; of is the function in focus. Times are in nanoseconds.
type focusLine struct {
	Relation string `json:"relation"`
	Of       string `json:"of"`
	Name     string `json:"name"`
	Source   string `json:"source,omitempty"`
	Calls    uint64 `json:"calls"`
	Total    int64  `json:"total_ns"`
	Self     *int64 `json:"self_ns,omitempty"`
}

func (c *graphCmd) writeFocus(out *output, fs []trace.Focused, total int64, src *sources) error {
	if c.json {
		return writeFocusJSON(out, fs, src)
	}
	least := int64(c.min / 100 * float64(total))
	line := func(n trace.Neighbour, self, label string) {
		if l := src.line(n.Func); l != "" {
			label += out.paint.with(sgrDim, "  "+l)
		}
		fmt.Fprintf(out, "%12s %12s %12s %7s  %s\n",
			grouped(n.Calls), durationCell(n.Total), self, percent(n.Total, total), label)
	}
	for i := range fs {
		f := &fs[i]
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, out.paint.with(sgrBold, graphHeading(false)))
		for _, n := range f.Callers {
			if n.Total >= least {
				line(n, "", "  ┌─ "+printable(n.Name))
			}
		}
		line(f.Neighbour, durationCell(f.Self), out.paint.with(sgrBold, printable(f.Name)))
		for _, n := range f.Callees {
			if n.Total >= least {
				line(n, "", "  └─ "+printable(n.Name))
			}
		}
	}
	return out.Flush()
}

func writeFocusJSON(out *output, fs []trace.Focused, src *sources) error {
	enc := jsonLines(out)
	for i := range fs {
		f := &fs[i]
		lines := []focusLine{{
			Relation: "function", Of: f.Name, Name: f.Name, Source: src.line(f.Func),
			Calls: f.Calls, Total: f.Total, Self: &f.Self,
		}}
		for _, n := range f.Callers {
			name := n.Name
			if n.Func == (trace.FuncID{}) {
				name = ""
			}
			lines = append(lines, focusLine{
				Relation: "caller", Of: f.Name, Name: name, Source: src.line(n.Func), Calls: n.Calls, Total: n.Total,
			})
		}
		for _, n := range f.Callees {
			lines = append(lines, focusLine{
				Relation: "callee", Of: f.Name, Name: n.Name, Source: src.line(n.Func), Calls: n.Calls, Total: n.Total,
			})
		}
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
	}
	return nil
}
