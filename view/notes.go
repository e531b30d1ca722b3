package view

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// What happened and is no call stands above the calls of its task: marks, signals, triggers, lost events, stacks that
// were walked. A tile has no more than one of each unit, with a line of text; all that is known of one is an answer of
// its own. A stack that was walked at a call is also shown with that call.

// A Note is something that happened and is no call: a mark, a signal, lost events.
type Note struct {
	Time int64  `json:"time"`
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// A NoteDetail is all that is known of a note.
type NoteDetail struct {
	Note
	Facts [][2]string `json:"facts"`           // names and values
	Stack []Frame     `json:"stack,omitempty"` // functions, the innermost first
	End   string      `json:"end,omitempty"`   // why there are no more, if those are not all
	// Callers are the calls that are open around it, the innermost first.
	Callers []Caller `json:"callers"`
}

// A Frame is a function of a stack that was walked.
type Frame struct {
	Name    string `json:"name"`
	Place   string `json:"place,omitempty"` // file:line
	Inlined bool   `json:"inlined,omitempty"`
}

// noteText is the text of a note, which stands beside its kind.
func (v *Viewer) noteText(ev *trace.Event) string {
	switch ev.Kind {
	case trace.Comm:
		return ev.Comm
	case trace.Mark:
		return fmt.Sprintf("%d %s", ev.Count, ev.Text)
	}
	if text, ok := export.NoteText(v.t, ev); ok {
		return strings.TrimLeft(strings.TrimPrefix(text, ev.Kind.String()), ": ")
	}
	return ev.Text
}

// backtrace returns the stack of an event: nil if it has none, and why it has no more, "" if that is all.
func (v *Viewer) backtrace(ev *trace.Event) (stack []Frame, end string) {
	frames, end := export.Backtrace(v.t, ev)
	if end == "outermost" {
		end = ""
	}
	for _, f := range frames {
		one := Frame{Name: f.Name, Inlined: f.Inlined}
		if f.File != "" {
			one.Place = fmt.Sprintf("%s:%d", filepath.Clean(f.File), f.Line)
		}
		stack = append(stack, one)
	}
	return stack, end
}

// Note returns what is known of the note of a kind that a task has at Scope.From; nil if there is none.
func (v *Viewer) Note(s Scope, kind string) (*NoteDetail, error) {
	var d *NoteDetail
	open := map[uint64][]Caller{}
	walk := trace.WalkOptions{Tasks: v.tasks(&s), From: s.From, To: max(s.From, 1), Open: true}
	err := v.t.Walk(walk, func(ev *trace.Event) error {
		st := open[ev.Stack]
		switch ev.Kind {
		case trace.Entry:
			open[ev.Stack] = append(st[:min(len(st), ev.Depth)], Caller{v.function(ev.Func), ev.Time})
		case trace.Exit, trace.Unwound, trace.Unfinished:
			open[ev.Stack] = st[:min(len(st), ev.Depth)]
		}
		if ev.Time != s.From || ev.Kind.String() != kind {
			return nil
		}
		d = &NoteDetail{
			Note:  Note{ev.Time, kind, safetext.Line(v.noteText(ev))},
			Facts: v.noteFacts(ev), Callers: []Caller{},
		}
		d.Stack, d.End = v.backtrace(ev)
		for i := len(open[ev.Stack]) - 1; i >= 0 && len(d.Callers) < maxCallers; i-- {
			d.Callers = append(d.Callers, open[ev.Stack][i])
		}
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return d, err
}

// noteFacts are what a note says beside its text.
func (v *Viewer) noteFacts(ev *trace.Event) [][2]string {
	facts := [][2]string{}
	add := func(name, value string) { facts = append(facts, [2]string{name, safetext.Line(value)}) }
	if s := ev.Signal; s != nil && ev.Kind == trace.SignalDelivered {
		add("Code", fmt.Sprint(s.Code))
		add("Address", fmt.Sprintf("%#x", s.Address))
		add("Interrupted at", fmt.Sprintf("%#x", s.PC))
		if s.Handler.ID != 0 {
			add("Handler", v.t.Label(s.Handler))
		}
	}
	if ev.Kind == trace.SwitchOff {
		add("Calls a second", fmt.Sprint(ev.Count))
	}
	return facts
}

// walked sets the stack of a call, if one was walked when it began: behind its entry, before anything else is called.
func (v *Viewer) walked(d *Detail, s *Scope, depth int, stack uint64) error {
	begun := false
	err := v.t.Walk(trace.WalkOptions{Tasks: v.tasks(s), From: s.From}, func(ev *trace.Event) error {
		switch {
		case !begun:
			begun = ev.Kind == trace.Entry && ev.Func == s.Func && ev.Time == s.From && ev.Depth == depth && ev.Stack == stack
			if begun || ev.Time <= s.From {
				return nil
			}
		case ev.Kind == trace.Stacktrace && ev.Func == s.Func && ev.Stack == stack:
			d.Walked, d.WalkedEnd = v.backtrace(ev)
		case ev.Kind != trace.Entry && ev.Kind != trace.Exit:
			return nil
		}
		return errFound
	})
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}
