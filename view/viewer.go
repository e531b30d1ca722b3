package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// A Viewer answers what a page asks about a trace. It is safe for concurrent use.
type Viewer struct {
	t        *trace.Trace
	end      int64 // of the trace, in ns since its start
	ends     []int64
	outlines []outline
	blocks   *blocks
	answers  *answers
}

// An outline is a task's, made when it is first asked for.
type outline struct {
	once sync.Once
	o    *trace.Outline
}

// New returns a Viewer of an open trace, which has to stay open. It makes the trace's index if there is none, which can
// take as long as reading the trace.
func New(t *trace.Trace) (*Viewer, error) {
	if _, err := t.MakeIndex(trace.IndexOptions{File: t.Bytes >= trace.WorthIndex, Memory: true, Keep: true}); err != nil {
		return nil, err
	}
	v := &Viewer{t: t, ends: make([]int64, len(t.Tasks)), outlines: make([]outline, len(t.Tasks)), blocks: newBlocks(),
		answers: newAnswers()}
	var unknown []*trace.Task
	for i, k := range t.Tasks {
		_, last, ok := t.Span(k)
		v.ends[i] = last
		if !ok {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 { // such as of a trace that is being written: it is not large, or not to be hurried
		if err := t.Walk(trace.WalkOptions{Tasks: unknown}, func(ev *trace.Event) error {
			v.ends[ev.Task.Index] = max(v.ends[ev.Task.Index], ev.Time)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for _, e := range v.ends {
		v.end = max(v.end, e)
	}
	return v, nil
}

// outline returns a task's outline; nil: there is no index that has one.
func (v *Viewer) outline(k *trace.Task) *trace.Outline {
	l := &v.outlines[k.Index]
	l.once.Do(func() { l.o = v.t.Outline(k, maxRows) })
	return l.o
}

// About is what the page shows of a trace as a whole. Times are in ns since the trace's start.
type About struct {
	Dir       string         `json:"dir"`
	Command   string         `json:"command,omitempty"`
	Start     int64          `json:"start_unix_ns,omitempty"` // real time
	Begin     int64          `json:"begin"`                   // of the first event
	End       int64          `json:"end"`
	Tracer    string         `json:"tracer,omitempty"`
	Clockless bool           `json:"clockless"` // times are sequence numbers
	Lost      uint64         `json:"lost"`
	Notes     []string       `json:"notes"` // what is wrong with the trace
	Processes []AboutProcess `json:"processes"`
	Tasks     []AboutTask    `json:"tasks"`
	Units     int            `json:"units"`  // of a tile
	Levels    int            `json:"levels"` // of tiles
}

// AboutProcess is a process of the trace.
type AboutProcess struct {
	PID     int    `json:"pid"`
	Command string `json:"command,omitempty"`
	Start   int64  `json:"start"`
	Exit    string `json:"exit,omitempty"`
}

// AboutTask is a task of the trace, a thread or a goroutine: its number is its position.
type AboutTask struct {
	TID     int    `json:"tid"` // of a goroutine, its number
	Name    string `json:"name"`
	Process int    `json:"process"` // position in About.Processes
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
}

// About returns what the page shows of the trace as a whole.
func (v *Viewer) About() *About {
	t := v.t
	a := &About{
		Dir: safetext.Line(t.Dir), Start: t.Clock.Realtime, End: v.end, Clockless: t.Clockless(), Lost: t.Lost,
		Notes:     []string{},
		Processes: []AboutProcess{}, Tasks: []AboutTask{}, Units: tileUnits, Levels: tileLevels,
	}
	if t.Info != nil {
		a.Command, a.Tracer = safetext.Line(strings.Join(t.Info.Command, " ")), t.Info.Tracer
	}
	if t.Ending != trace.EndWritten {
		a.Notes = append(a.Notes, "The recording did not end, or goes on: the trace may be incomplete.")
	}
	if l := t.Losses(); l.Events > 0 || l.Uncounted != nil || l.Gaps > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("Events are missing: %d counted as lost.", l.Events))
	}
	if a.Clockless {
		a.Notes = append(a.Notes, "Recorded without a clock: times are the order of events.")
	}
	for i, p := range t.Problems {
		if i == 5 {
			a.Notes = append(a.Notes, fmt.Sprintf("%d more problems.", len(t.Problems)-i+t.Unlisted))
			break
		}
		a.Notes = append(a.Notes, safetext.Message(p.Error()))
	}
	for _, p := range t.Processes {
		about := AboutProcess{PID: p.PID, Start: p.Start}
		about.Command = safetext.Line(p.CommandLine(v.end))
		if p.Exit != nil {
			about.Exit = p.Exit.String()
		}
		a.Processes = append(a.Processes, about)
	}
	for i, k := range t.Tasks {
		if i == 0 || k.Start < a.Begin {
			a.Begin = k.Start
		}
		about := AboutTask{TID: k.TID, Name: safetext.Line(k.Comm), Start: k.Start, End: max(v.ends[i], k.Start)}
		if k.Goroutine != 0 {
			about.Name = "goroutine" // its number is its TID
		}
		if k.Process != nil {
			about.Process = k.Process.Index
		}
		a.Tasks = append(a.Tasks, about)
	}
	return a
}

// A Scope is a part of a trace: the time from From to To, in ns since the trace's start, of a task, of a process, or of
// all of them.
type Scope struct {
	From, To      int64
	Task, Process int // positions; -1: any
	// Func chooses calls of a function, where one is asked for; the zero FuncID: all.
	Func trace.FuncID
}

// tasks are the tasks of a scope; nil: all of the trace.
func (v *Viewer) tasks(s *Scope) []*trace.Task {
	switch {
	case s.Task >= 0:
		return []*trace.Task{v.t.Tasks[s.Task]}
	case s.Process >= 0:
		return v.t.Processes[s.Process].Tasks
	}
	return nil
}

// window is the time of a scope as readers of traces want it: nothing if it is all there is.
func (v *Viewer) window(s *Scope) (from, to int64) {
	if s.From <= 0 && s.To >= v.end {
		return 0, 0
	}
	return s.From, s.To
}

// A Func is a function as the page knows it.
type Func struct {
	ID   string `json:"id"` // see FuncKey
	Name string `json:"name"`
	Sys  bool   `json:"sys,omitempty"` // it is a system call
}

// FuncKey is a function's id as text: the image's position and the function's number in it.
func FuncKey(id trace.FuncID) string { return fmt.Sprintf("%d.%d", id.Image, id.ID) }

// function describes a function.
func (v *Viewer) function(id trace.FuncID) Func {
	return Func{ID: FuncKey(id), Name: v.t.Label(id), Sys: id.Image == trace.SyscallImage}
}

// funcNumbers gives the functions of an answer numbers, so that it has each name once.
type funcNumbers struct {
	v    *Viewer
	at   map[trace.FuncID]int
	list []Func
}

func (n *funcNumbers) of(id trace.FuncID) int {
	i, ok := n.at[id]
	if !ok {
		if n.at == nil {
			n.at = map[trace.FuncID]int{}
		}
		i = len(n.list)
		n.at[id] = i
		n.list = append(n.list, n.v.function(id))
	}
	return i
}

// matchName returns a test whether the text occurs in functions' names, in whatever case.
func (v *Viewer) matchName(text string) func(trace.FuncID) bool {
	text = strings.ToLower(text)
	return trace.Remember(func(id trace.FuncID) bool {
		return strings.Contains(strings.ToLower(v.t.Label(id)), text)
	})
}

// sortBoxes orders boxes by place and time.
func sortBoxes(boxes []Box) {
	slices.SortFunc(boxes, func(a, b Box) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Start, b.Start),
			cmp.Compare(a.End, b.End))
	})
}
