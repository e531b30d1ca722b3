// Package folded writes call paths, one a line, each with the time spent in its last function: what flamegraph.pl,
// inferno, speedscope and others make flame graphs of.
//
//	main;calculate;parse_expression 4520
//
// Times are in ns; of a trace that has none, it is the number of calls. In a trace of several processes, paths begin
// with the name and the number of the process. In names, ";" becomes ":", and characters that would control a terminal
// are replaced.
package folded

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Write writes the paths of s.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	roots, err := s.Roots()
	if err != nil {
		return sum, err
	}
	b := bufio.NewWriterSize(w, 64<<10)
	f := folder{w: b, s: s, sum: &sum, untimed: s.Trace.Clockless()}
	for _, r := range roots {
		process := ""
		if r.Task != nil {
			process = name(fmt.Sprintf("%s-%d", r.Task.Comm, r.Task.PID)) + ";"
		}
		f.write(r.Node, process)
	}
	return sum, b.Flush()
}

type folder struct {
	w       *bufio.Writer
	s       *export.Source
	sum     *export.Summary
	untimed bool
}

func (f *folder) write(n *trace.Node, path string) {
	path += name(f.s.Trace.Name(n.Func))
	f.sum.Count(n)
	value := n.Self
	if f.untimed {
		value = int64(n.Calls)
	}
	if value > 0 {
		fmt.Fprintf(f.w, "%s %d\n", path, value)
	}
	for _, c := range n.Children {
		f.write(c, path+";")
	}
}

func name(s string) string {
	return strings.ReplaceAll(safetext.Line(s), ";", ":")
}
