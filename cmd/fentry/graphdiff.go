package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

// graph --diff prints one tree of the call paths of two traces, those first whose time changed most.

// diffWriter prints the tree in depth-first order.
type diffWriter struct {
	out    *output
	enc    *json.Encoder
	depth  int
	least  int64 // changes below are not shown
	hidden uint64
}

// writeDiff prints how the tree differs from that of the trace that --diff names.
func (c *graphCmd) writeDiff(a *app, cmd *cobra.Command, t *trace.Trace, root *trace.Node) (err error) {
	old, sel, err := c.openOld(a, cmd, c.diff)
	if err != nil {
		return err
	}
	defer old.Close()
	before, err := c.tree(cmd, old, &sel)
	if err != nil {
		return err
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	w := diffWriter{out: out, depth: c.depth, least: int64(c.min / 100 * float64(max(before.Total, root.Total)))}
	if c.json {
		w.enc = jsonLines(out)
	} else {
		fmt.Fprintln(out, out.paint.with(sgrBold, fmt.Sprintf("%12s %12s %13s %8s %10s %10s  %s",
			"OLD TOTAL", "NEW TOTAL", "CHANGE", "%", "OLD CALLS", "NEW CALLS", "FUNCTION")))
	}
	changes := trace.CompareGraphs(before, root)
	w.prune(changes)
	if err := w.children(changes, 0, nil, ""); err != nil {
		return err
	}
	if w.hidden > 0 && !c.json {
		a.notef("%s below --min %v not shown", plural(w.hidden, "change", "changes"), c.min)
	}
	sel.warn(a, old)
	reportLost(a, old)
	return nil
}

// changed is by how much the time of a path changed, either way.
func changed(n *trace.NodeChange) int64 {
	d := n.New.Total - n.Old.Total
	return max(d, -d)
}

// prune takes out paths that changed too little, with all below them: what got slower and what got faster below a path
// can make up for each other.
func (w *diffWriter) prune(n *trace.NodeChange) (kept bool) {
	n.Children = slices.DeleteFunc(n.Children, func(k *trace.NodeChange) bool { return !w.prune(k) })
	if len(n.Children) > 0 || changed(n) >= w.least {
		return true
	}
	w.hidden++
	return false
}

func (w *diffWriter) children(n *trace.NodeChange, depth int, path []string, indent string) error {
	if w.depth > 0 && depth >= w.depth {
		return nil
	}
	slices.SortStableFunc(n.Children, func(a, b *trace.NodeChange) int { return cmp.Compare(changed(b), changed(a)) })
	for i, k := range n.Children {
		branch, below := branches(i == len(n.Children)-1, depth)
		at := append(path[:len(path):len(path)], k.Name)
		if err := w.line(k, depth, at, indent+branch); err != nil {
			return err
		}
		if err := w.children(k, depth+1, at, indent+below); err != nil {
			return err
		}
	}
	return nil
}

// graphDiffLine is a line of graph --diff --json. Times are in nanoseconds; Old or New is null if the path was not taken
// in that trace.
type graphDiffLine struct {
	Depth int       `json:"depth"`
	Name  string    `json:"name"`
	Path  []string  `json:"path"`
	Old   *nodeLine `json:"old"`
	New   *nodeLine `json:"new"`
}

// nodeLine is a call path in one of the traces.
type nodeLine struct {
	Calls     uint64 `json:"calls"`
	Recursive uint64 `json:"recursive"`
	Total     int64  `json:"total_ns"`
	Self      int64  `json:"self_ns"`
}

func (w *diffWriter) line(k *trace.NodeChange, depth int, path []string, prefix string) error {
	if w.enc != nil {
		side := func(n *trace.Node) *nodeLine {
			if n.Name == "" {
				return nil
			}
			return &nodeLine{n.Calls, n.Recursive, n.Total, n.Self}
		}
		return w.enc.Encode(graphDiffLine{Depth: depth, Name: k.Name, Path: path, Old: side(&k.Old), New: side(&k.New)})
	}
	total := func(n *trace.Node) string {
		if n.Name == "" {
			return ""
		}
		return durationCell(n.Total)
	}
	calls := func(n *trace.Node) string {
		if n.Name == "" {
			return ""
		}
		return grouped(n.Calls)
	}
	d := k.New.Total - k.Old.Total
	part := changePercent(k.Old.Total, d)
	switch {
	case k.Old.Name == "":
		part = "new"
	case k.New.Name == "":
		part = "gone"
	}
	_, err := fmt.Fprintf(w.out, "%12s %12s %13s %8s %10s %10s  %s%s\n", total(&k.Old), total(&k.New),
		signed(d, durationCell), part, calls(&k.Old), calls(&k.New), w.out.paint.with(sgrDim, prefix), printable(k.Name))
	return err
}
