package view

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// A Call is one call, where it can be found on the timeline.
type Call struct {
	Func
	Task  int    `json:"task"`
	Start int64  `json:"start"`
	Dur   int64  `json:"dur"` // -1: not known here
	Self  int64  `json:"self"`
	Row   int    `json:"row"`
	Stack uint64 `json:"stack,string"`
	End   string `json:"ended,omitempty"` // how, if it did not return
}

// maxSlowest bounds the list of the slowest calls.
const maxSlowest = 1000

// Slowest returns the n longest calls that end in a scope, the longest first.
func (v *Viewer) Slowest(s Scope, n int) ([]Call, error) {
	from, to := v.window(&s)
	list, err := v.t.Slowest(min(n, maxSlowest), trace.WalkOptions{Tasks: v.tasks(&s), From: from, To: to,
		Calls: s.only()})
	if err != nil {
		return nil, err
	}
	out := make([]Call, len(list))
	for i := range list {
		c := &list[i]
		out[i] = Call{
			Func: v.function(c.Func), Task: c.Task.Index, Start: c.Start, Dur: c.Dur, Self: c.Self, Row: c.Depth, Stack: c.Stack,
		}
		if c.Kind != trace.Exit {
			out[i].End = c.Kind.String()
		}
	}
	return out, nil
}

// errFound ends a walk that has found what was looked for.
var errFound = errors.New("found")

// firstStep is how far a search backwards looks at first, in ns. Each step is eight times the one before, so that all
// of them are little more than the last one.
const firstStep = 1 << 20

// Find returns the first call that begins behind Scope.From, or, backwards, the last one before Scope.To, of Scope.Func
// or, if that is zero, of functions whose names have text in them. It returns nil if there is none.
func (v *Viewer) Find(ctx context.Context, s Scope, text string, backwards bool) (*Call, error) {
	match := s.only().Match
	if match == nil {
		match = v.matchName(text)
	}
	var found *Call
	take := func(ev *trace.Event) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ev.Kind != trace.Entry || !match(ev.Func) || ev.Time <= s.From || ev.Time >= s.To {
			return nil
		}
		found = &Call{
			Func: v.function(ev.Func), Task: ev.Task.Index, Start: ev.Time, Dur: -1, Row: ev.Depth, Stack: ev.Stack,
		}
		if ev.Flags&trace.FlagLeaf != 0 {
			found.Dur, found.Self = ev.Dur, ev.Self
		}
		if backwards {
			return nil
		}
		return errFound
	}
	walk := func(from, to int64) error {
		err := v.t.Walk(trace.WalkOptions{Tasks: v.tasks(&s), From: from, To: to, Calls: trace.Calls{Match: match}}, take)
		if errors.Is(err, errFound) {
			return nil
		}
		return err
	}
	if !backwards {
		return found, walkTo(walk, s.From, s.To)
	}
	for to, step := min(s.To, v.end+1), int64(firstStep); to > s.From && found == nil; step *= 8 {
		from := max(to-step, s.From, 0)
		if err := walkTo(walk, from, to); err != nil {
			return nil, err
		}
		if from == s.From || from == 0 {
			break
		}
		to = from + 1
	}
	return found, nil
}

// walkTo walks, where the end 0 is not that of the trace.
func walkTo(walk func(from, to int64) error, from, to int64) error {
	if to <= 0 {
		return nil
	}
	return walk(from, to)
}

// Detail is what is known of one call beside what the timeline shows.
type Detail struct {
	Func
	Dur    int64    `json:"dur"` // -1: not found
	Image  string   `json:"image,omitempty"`
	Source string   `json:"source,omitempty"` // file:line
	Self   int64    `json:"self"`
	Ended  string   `json:"ended,omitempty"`
	Text   string   `json:"text,omitempty"` // of a system call, as strace shows it
	Stack  []Caller `json:"callers"`        // the calls around it, the innermost first
	// Walked is the stack that was walked when the call began, if one was, the innermost function first; WalkedEnd says
	// why there are no more, if those are not all.
	Walked    []Frame `json:"walked,omitempty"`
	WalkedEnd string  `json:"walked_end,omitempty"`
}

// A Caller is a call around another.
type Caller struct {
	Func
	Start int64 `json:"start"`
}

// maxCallers bounds Detail.Stack.
const maxCallers = 256

// Detail returns what is known of the call of a task that began at Scope.From. It is found by its row, which is its
// depth, and its function.
func (v *Viewer) Detail(s Scope, depth int) (*Detail, error) {
	d := &Detail{Func: v.function(s.Func), Dur: -1, Self: -1, Stack: []Caller{}}
	d.Image, d.Source = v.source(s.Func)
	stacks := map[uint64][]Caller{}
	begun, stack := false, uint64(0)
	begin := trace.WalkOptions{Tasks: v.tasks(&s), From: s.From, To: max(s.From, 1), Open: true}
	if err := v.t.Walk(begin, func(ev *trace.Event) error {
		if ev.Kind != trace.Entry {
			return nil
		}
		st := stacks[ev.Stack]
		if ev.Depth == depth && ev.Func == s.Func && ev.Time == s.From && !begun {
			begun, stack = true, ev.Stack
			d.Text = v.callText(ev)
			for i := min(len(st), depth) - 1; i >= 0 && len(d.Stack) < maxCallers; i-- {
				d.Stack = append(d.Stack, st[i])
			}
		}
		stacks[ev.Stack] = append(st[:min(len(st), ev.Depth)], Caller{v.function(ev.Func), ev.Time})
		return nil
	}); err != nil || !begun {
		return d, err
	}
	if err := v.walked(d, &s, depth, stack); err != nil {
		return d, err
	}
	err := v.ending(&s, depth, stack, func(ev *trace.Event) {
		d.Dur, d.Self = ev.Time-s.From, ev.Self
		if ev.Kind != trace.Exit {
			d.Ended = ev.Kind.String()
		}
		d.Text += v.resultText(ev)
	})
	return d, err
}

// ending calls fn with the end of the call that Detail describes. If it ends in another block of the index than it
// begins in, the outline knows when.
func (v *Viewer) ending(s *Scope, depth int, stack uint64, fn func(ev *trace.Event)) error {
	o := v.outline(v.t.Tasks[s.Task])
	from, to, crosses := s.From, int64(0), false
	if o != nil {
		for i := range o.Calls {
			c := &o.Calls[i]
			if c.Func == s.Func && c.Start == s.From && int(c.Depth) == depth && c.Stack == stack {
				from, to, crosses = max(c.End-1, s.From), c.End+1, true
			}
		}
		for i := 0; !crosses && i < len(o.Borders); i++ { // in its block, which is one of those that begin before it
			if b := &o.Borders[i]; b.First <= s.From {
				to = max(b.Last, s.From) + 1
			}
		}
	}
	err := v.t.Walk(trace.WalkOptions{Tasks: v.tasks(s), From: from, To: to}, func(ev *trace.Event) error {
		switch ev.Kind {
		case trace.Exit, trace.Unwound, trace.Unfinished:
			off := ev.Time - ev.Dur - s.From // times and durations are rounded, each by itself
			if ev.Depth == depth && ev.Func == s.Func && ev.Stack == stack && max(off, -off) <= 2 {
				fn(ev)
				return errFound
			}
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

// callText is a call with what is known of its arguments: a system call as strace shows it, and functions whose
// arguments were captured; "" if nothing is known.
func (v *Viewer) callText(ev *trace.Event) string {
	if ev.Func.Image == trace.SyscallImage {
		return safetext.Line(v.t.Made(ev).Text())
	}
	c := v.t.Capture(ev)
	if c == nil || ev.Args == nil {
		return ""
	}
	b := append([]byte(v.t.Name(ev.Func)), '(')
	if ev.Args.Open {
		b = append(b, '?')
	} else {
		b = c.AppendArguments(b, ev.Args.Words, ev.Args.Memory())
	}
	return safetext.Line(string(append(b, ')')))
}

// resultText is what is known of what a call returned.
func (v *Viewer) resultText(ev *trace.Event) string {
	if ev.Func.Image == trace.SyscallImage {
		return safetext.Line(string(v.t.Made(ev).AppendResult([]byte(" = "))))
	}
	c := v.t.Capture(ev)
	if c == nil || c.Result == nil || ev.Result == nil || ev.Result.Open {
		return ""
	}
	return safetext.Line(string(c.AppendResult([]byte(" = "), ev.Result.Words, ev.Result.Memory())))
}

// source returns a function's program or library, and its line.
func (v *Viewer) source(id trace.FuncID) (image, line string) {
	if int(id.Image) >= len(v.t.Images) {
		return "", ""
	}
	image = safetext.Line(v.t.Images[id.Image].Path)
	file, at, err := v.t.Source(id)
	if err == nil && file != "" {
		line = safetext.Line(fmt.Sprintf("%s:%d", filepath.Clean(file), at))
	}
	return image, line
}
