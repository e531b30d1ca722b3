// Package callgrind writes a trace as callgrind does, for callgrind_annotate, KCachegrind and QCachegrind: the time in
// each function, and for each pair of caller and callee the calls and the time in them. Files and lines are those where
// functions begin, if there is debug information.
package callgrind

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// The format has a cost for each pair of caller and callee, and readers get a function's inclusive cost by adding up
// those of the pairs in which it is called. So recursion would be counted again and again, at each of its levels. Here
// the time of a call counts only if its function is not open around it already, as in a report; the pairs of inner
// calls have numbers of calls only. What nothing traced has called is called by "(start)", so that the time of a
// function that also begins threads is complete.

// Write writes the profile.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	root, err := s.Graph(trace.GraphOptions{KeepRecursion: true})
	if err != nil {
		return sum, err
	}
	c := &collector{sum: &sum, rows: map[trace.FuncID]*row{}, open: map[trace.FuncID]int{}, untimed: s.Trace.Clockless()}
	c.add(root)
	p := &writer{w: bufio.NewWriterSize(w, 64<<10), t: s.Trace}
	p.write(c)
	return sum, p.w.Flush()
}

// A row is a function, that of the zero FuncID the one that calls what nothing traced has called.
type row struct {
	fn    trace.FuncID
	self  int64
	calls map[trace.FuncID]*call
}

// A call is what one function calls another.
type call struct {
	fn    trace.FuncID
	count uint64
	time  int64
}

type collector struct {
	sum     *export.Summary
	rows    map[trace.FuncID]*row
	open    map[trace.FuncID]int // how often a function is on the path
	untimed bool
}

func (c *collector) row(fn trace.FuncID) *row {
	r := c.rows[fn]
	if r == nil {
		r = &row{fn: fn, calls: map[trace.FuncID]*call{}}
		c.rows[fn] = r
	}
	return r
}

// add adds a path and those below it, and returns the time in them.
func (c *collector) add(n *trace.Node) int64 {
	r := c.row(n.Func)
	c.sum.Count(n)
	time := n.Self
	if c.untimed {
		time = int64(n.Calls)
	}
	r.self += time
	c.open[n.Func]++
	for _, child := range n.Children {
		to := r.calls[child.Func]
		if to == nil {
			to = &call{fn: child.Func}
			r.calls[child.Func] = to
		}
		to.count += child.Calls
		t := c.add(child)
		if c.open[child.Func] == 0 {
			to.time += t
		}
		time += t
	}
	c.open[n.Func]--
	return time
}

type writer struct {
	w     *bufio.Writer
	t     *trace.Trace
	names map[string]map[string]int // by kind of name: numbers of those that were written
}

func (p *writer) write(c *collector) {
	unit := "ns : time in ns"
	if c.untimed {
		unit = "calls : number of calls"
	}
	event, _, _ := strings.Cut(unit, " ")
	fmt.Fprintf(p.w, "# callgrind format\nversion: 1\ncreator: fentry\n")
	if p.t.Info != nil {
		fmt.Fprintf(p.w, "pid: %d\ncmd: %s\n", p.t.Info.PID, safetext.Line(strings.Join(p.t.Info.Command, " ")))
	}
	fmt.Fprintf(p.w, "positions: line\nevent: %s\nevents: %s\n", unit, event)
	p.names = map[string]map[string]int{}
	rows := slices.SortedFunc(maps.Values(c.rows), func(a, b *row) int { return compare(a.fn, b.fn) })
	var total int64
	for _, r := range rows {
		total += r.self
	}
	fmt.Fprintf(p.w, "summary: %d\n", total)
	for _, r := range rows {
		line := p.place("", r.fn)
		fmt.Fprintf(p.w, "%d %d\n", line, r.self)
		for _, to := range slices.SortedFunc(maps.Values(r.calls), func(a, b *call) int { return compare(a.fn, b.fn) }) {
			at := p.place("c", to.fn)
			fmt.Fprintf(p.w, "calls=%d %d\n%d %d\n", to.count, at, line, to.time)
		}
	}
}

func compare(a, b trace.FuncID) int {
	return cmp.Or(cmp.Compare(a.Image, b.Image), cmp.Compare(a.ID, b.ID))
}

// place writes the object, file and name of a function, with a "c" in front for one that is called, and returns its
// line, 0 if that is unknown.
func (p *writer) place(prefix string, fn trace.FuncID) int {
	if fn.ID == 0 {
		fmt.Fprintf(p.w, "ob=%s\nfl=%s\nfn=%s\n", p.name("ob", "???"), p.name("fl", "???"), p.name("fn", "(start)"))
		return 0
	}
	file, line, err := p.t.Source(fn)
	if err != nil || file == "" {
		file, line = "???", 0
	}
	object := "???"
	if int(fn.Image) < len(p.t.Images) {
		object = p.t.Images[fn.Image].Path
	}
	fmt.Fprintf(p.w, "%sob=%s\n", prefix, p.name("ob", object))
	fl := prefix + "fl"
	if prefix == "c" {
		fl = "cfi"
	}
	fmt.Fprintf(p.w, "%s=%s\n%sfn=%s\n", fl, p.name("fl", file), prefix, p.name("fn", p.t.Name(fn)))
	return line
}

// name returns a name with its number, the first time, and the number alone afterwards.
func (p *writer) name(kind, name string) string {
	of := p.names[kind]
	if of == nil {
		of = map[string]int{}
		p.names[kind] = of
	}
	if n, ok := of[name]; ok {
		return fmt.Sprintf("(%d)", n)
	}
	of[name] = len(of) + 1
	return fmt.Sprintf("(%d) %s", len(of), safetext.Line(name))
}
