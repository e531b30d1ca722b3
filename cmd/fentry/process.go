package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/fentry-dev/fentry/trace"
)

// infoProcess is a process in info --json. Times are in nanoseconds since the
// trace's start.
type infoProcess struct {
	PID    int         `json:"pid"`
	Parent int         `json:"parent_pid,omitempty"`
	Start  int64       `json:"start_ns"`
	Args   []string    `json:"args,omitempty"` // of the program it ran last
	Titles []infoTitle `json:"titles,omitempty"`
	// Status is null unless Source says how it is known.
	Status *int             `json:"exit_status"`
	Signal int              `json:"signal,omitempty"`
	Source trace.ExitSource `json:"exit_source,omitempty"`

	p *trace.Process
}

type infoTitle struct {
	Time int64  `json:"time_ns"`
	Text string `json:"text"`
}

func newInfoProcess(p *trace.Process) infoProcess {
	in := infoProcess{PID: p.PID, Parent: p.ParentPID, Start: p.Start, p: p}
	for q := p; q != nil && in.Args == nil; q = q.Parent {
		if n := len(q.Programs); n > 0 {
			in.Args = q.Programs[n-1].Args
		}
	}
	for _, t := range p.Titles {
		in.Titles = append(in.Titles, infoTitle(t))
	}
	if e := p.Exit; e != nil {
		in.Source, in.Signal = e.Source, int(e.Signal)
		if e.Signal == 0 {
			in.Status = &e.Status
		}
	}
	return in
}

// How many characters of a command line are printed: alone, and in a table beside
// other columns.
const (
	maxCommandLine = 200
	shortCommand   = 40
)

// commandLine is what a process was in the end, for people.
func commandLine(p *trace.Process) string { return commandAt(p, math.MaxInt64) }

func commandAt(p *trace.Process, at int64) string {
	if p == nil {
		return ""
	}
	return short(printable(p.CommandLine(at)), maxCommandLine)
}

// short cuts text to n characters.
func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

// commandOf is what a task's process was in the end, or before it executed the next
// program.
func commandOf(k *trace.Task) string {
	if k.Process == nil {
		return ""
	}
	for i := range k.Process.Programs {
		// A program's first event is behind its announcement.
		if g := &k.Process.Programs[i]; i > 0 && g.Time > k.Start {
			return commandAt(k.Process, g.Time-1)
		}
	}
	return commandLine(k.Process)
}

// exitCell says how a process ended.
func exitCell(p *trace.Process) string {
	if p.Exit == nil {
		return "-"
	}
	return p.Exit.String()
}

func sourceCell(p *trace.Process) string {
	if p.Exit == nil {
		return "-"
	}
	return string(p.Exit.Source)
}

// writeProcesses prints the table of processes.
func writeProcesses(w io.Writer, paint paint, list []infoProcess) {
	var tab table
	for _, h := range []string{"PID", "PARENT", "START", "STATUS", "FROM", "COMMAND"} {
		tab.column(h, h != "FROM" && h != "COMMAND")
	}
	for i := range list {
		p := list[i].p
		parent := "-"
		if p.ParentPID != 0 {
			parent = fmt.Sprint(p.ParentPID)
		}
		tab.row(fmt.Sprint(p.PID), parent, durationCell(p.Start), exitCell(p), sourceCell(p), commandLine(p))
	}
	tab.write(w, paint)
}

// processTree prints processes below those that made them. A parent that was not
// traced has a line of its own, so that its children are together.
type processTree struct {
	w     io.Writer
	paint paint
	t     *trace.Trace
}

func (pt *processTree) write() {
	var roots []int
	children := map[int][]*trace.Process{} // of processes that are not in the trace, by their ids
	for _, p := range pt.t.Processes {
		if p.Parent != nil {
			continue
		}
		if children[p.ParentPID] == nil {
			roots = append(roots, p.ParentPID)
		}
		children[p.ParentPID] = append(children[p.ParentPID], p)
	}
	for _, pid := range roots {
		// The parent of the first process is the recorder, or a shell that nobody asks about.
		if kids := children[pid]; pid == 0 || len(kids) == 1 && kids[0].Index == 0 {
			for _, p := range kids {
				pt.node(p, "", "")
			}
			continue
		}
		line := "not traced"
		if pt.t.Info != nil && pid == pt.t.Info.PID {
			line = printable(trace.QuoteArgs(pt.t.Info.Command)) + "  (not traced)"
		}
		fmt.Fprintf(pt.w, "%d %s\n", pid, pt.paint.with(sgrDim, line))
		pt.below(children[pid], "")
	}
}

// maxTreeDepth bounds the indentation; what is deeper stands as deep.
const maxTreeDepth = 100

func (pt *processTree) below(list []*trace.Process, indent string) {
	for i, p := range list {
		branch, deeper := "├─ ", "│  "
		if i == len(list)-1 {
			branch, deeper = "└─ ", "   "
		}
		if len(indent) > maxTreeDepth*len(deeper) {
			deeper = ""
		}
		pt.node(p, indent+branch, indent+deeper)
	}
}

func (pt *processTree) node(p *trace.Process, prefix, indent string) {
	line := commandLine(p)
	if line == "" {
		line = printable(p.Tasks[0].Comm)
	}
	if len(p.Programs) == 0 && p.Parent != nil {
		line += "  (forked)"
	}
	note := ""
	if n := threads(p); n > 1 {
		note = fmt.Sprintf(", %d threads", n)
	}
	if p.Exit != nil && p.Exit.Signal != 0 {
		note += ", " + p.Exit.String()
	} else if p.Exit != nil {
		note += ", status " + p.Exit.String()
	}
	if note != "" {
		note = "  [" + strings.TrimPrefix(note, ", ") + "]"
	}
	fmt.Fprintf(pt.w, "%s%d %s%s\n", pt.paint.with(sgrDim, prefix), p.PID, line, pt.paint.with(sgrDim, note))
	pt.below(p.Children, indent)
}

// threads is the number of a process's threads: an exec makes another task of one.
func threads(p *trace.Process) int {
	ids := map[int]bool{}
	for _, k := range p.Tasks {
		ids[k.TID] = true
	}
	return len(ids)
}
