package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/internal/sitetable"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
)

// Actions.
//
// What is done at calls of some functions beside recording them is in a table of the image. Their thunks go to routines
// that look there, so nothing is asked at calls of others. A function without a place in Options.Select is traced all the
// same if it has an action, for its calls to be noticed, but they are recorded only if the action needs that.

// An Act is something that is done at calls of a function.
type Act struct {
	Kind  stub.ActionKind
	Words int    // most words that it writes behind a call's entry, headers of records included
	Value uint64 // what the kind says; not with Data
	Limit uint32 // how often it is done in a process; 0: always
	Data  []byte // what the kind needs in memory: the runtime finds its distance from the symbol fentry_image in the value
	Plain uint8  // as in [stub.Action]
}

// An ActRule says which functions have actions.
type ActRule struct {
	Functions *record.Filter // those that have Acts; not with Of
	Acts      []Act
	Of        func(*record.Site) []Act // what a function has; nil: Functions says it
	// Note is what readers are to know of what a function's actions write, see [Plan.Notes]; "" or nil: nothing.
	Note func(*record.Site) string
	Key  string // differs between rules whose Of differs
}

// Actions are what is done at calls of functions, in the order of rules.
type Actions struct{ Rules []ActRule }

// Filtered reports whether filters say which functions have actions, and nothing else is to be known of them: of no actions, too.
func (a *Actions) Filtered() bool {
	return a == nil || !slices.ContainsFunc(a.Rules, func(r ActRule) bool { return r.Of != nil || r.Note != nil })
}

// Apart returns the same actions, with filters that know for themselves what they match ([record.Filter.Apart]).
func (a *Actions) Apart() *Actions {
	if a == nil {
		return nil
	}
	rules := slices.Clone(a.Rules)
	for i := range rules {
		rules[i].Functions = rules[i].Functions.Apart()
	}
	return &Actions{Rules: rules}
}

// For returns what filters say of the actions, for the functions of another filter.
func (a *Actions) For(f *record.Filter) *Actions {
	if a == nil {
		return nil
	}
	var rules []ActRule
	for _, r := range a.Rules {
		if r.Of == nil {
			rules = append(rules, ActRule{Functions: f, Acts: r.Acts})
		}
	}
	return &Actions{Rules: rules}
}

// of returns what is done at calls of a function of an image.
func (a *Actions) of(path string) func(*record.Site) []Act {
	if a == nil {
		return func(*record.Site) []Act { return nil }
	}
	filters := make([]*record.Filter, len(a.Rules))
	for i := range a.Rules {
		filters[i] = a.Rules[i].Functions.In(path)
	}
	return func(s *record.Site) (acts []Act) {
		for i := range a.Rules {
			switch r := &a.Rules[i]; {
			case r.Of != nil:
				acts = append(acts, r.Of(s)...)
			case filters[i].MatchSite(s):
				acts = append(acts, r.Acts...)
			}
		}
		return acts
	}
}

// Notes are what readers are to know of functions, by id: the image has them in a section if it is a file.
func (p *Plan) Notes() map[uint32]string {
	if p.Options.Actions == nil {
		return p.goNotes()
	}
	var notes map[uint32]string
	for i := range p.Options.Actions.Rules {
		r := &p.Options.Actions.Rules[i]
		if r.Note == nil {
			continue
		}
		for k := range p.Functions {
			fn := &p.Functions[k]
			if fn.ID == 0 || fn.Site == nil {
				continue
			}
			if text := r.Note(fn.Site); text != "" {
				if notes == nil {
					notes = make(map[uint32]string)
				}
				notes[fn.ID] = text
			}
		}
	}
	return notes
}

// notes lays them out.
func (l *layout) notes() {
	if notes := l.p.Notes(); notes != nil && l.p.Options.Target == File {
		b := sitetable.AppendNotes(nil, notes)
		l.add(piece{name: sitetable.NotesSection, size: uint64(len(b)), align: 8, owner: nobody, ready: b})
	}
}

// selective reports whether an action decides at run time which calls are recorded, or looks at their times.
func (a *Actions) selective() bool {
	return a.Has(func(x Act) bool { return x.Kind.Selective(x.Value) })
}

// Has reports whether there is such an action among those that rules have for all their functions.
func (a *Actions) Has(is func(Act) bool) bool {
	return a != nil && slices.ContainsFunc(a.Rules, func(r ActRule) bool { return slices.ContainsFunc(r.Acts, is) })
}

// walks reports whether the runtime is to walk stacks.
func (o *Options) walks() bool {
	return o.StackEvery > 0 || o.StackAt != SyscallSets{} || o.Actions.Has(func(x Act) bool { return x.Kind == stub.ActStack })
}

// Key returns a text that differs between actions that differ.
func (a *Actions) Key() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	for i := range a.Rules {
		r := &a.Rules[i]
		fmt.Fprintf(&b, "%q %+v %q\n", r.Functions.Key(), r.Acts, r.Key)
	}
	return b.String()
}

// quiet reports whether calls of a function that is not selected need not be recorded for its actions.
func quiet(acts []Act) bool {
	return !slices.ContainsFunc(acts, func(a Act) bool { return a.Kind.Records(a.Value) })
}

// checkActions returns an error for actions that a tracer cannot have.
func (o *Options) checkActions() error {
	switch {
	case o.StackEvery > 0 && (o.Tracer != FunctionGraph || o.NoClock || o.Depth > 0 || o.Threshold > 0 || o.Roots != nil || o.Hide != nil):
		return errors.New("stacks on a timer require the tracer function_graph with a clock, and all calls of the functions")
	case o.Actions == nil:
	case o.Tracer == Profile || o.Tracer == Count:
		return fmt.Errorf("the tracer %s has no events, and so no actions at calls", o.Tracer)
	case o.Tracer == Function && o.Actions.selective():
		return fmt.Errorf("the tracer %s has no calls inside others: no action can limit their depth or time", o.Tracer)
	}
	return nil
}

// An acting function is one that has actions.
type acting struct {
	function int // its place in Plan.Functions
	acts     []Act
	exit     bool // something is done when it returns
}

// findActing finds the functions that have actions, and counts these.
func (l *layout) findActing() (actions int, err error) {
	p := l.p
	if l.acting = nil; p.Options.Actions == nil {
		return 0, nil
	}
	of := p.Options.Actions.of(p.Options.Path)
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.Action != Trace || inPlace(fn.Site) {
			continue
		}
		acts := of(fn.Site)
		if len(acts) == 0 {
			continue
		}
		if fn.quiet {
			acts = append([]Act{{Kind: stub.ActQuiet}}, acts...)
		}
		l.acting = append(l.acting, acting{i, acts, AtExit(acts)})
		actions += len(acts)
		if err := checkActs(acts); err != nil {
			return 0, fmt.Errorf("%s: %w", fn.Site.Display(), err)
		}
	}
	return actions, nil
}

// entry is an act's in a table of actions, but for its value if that is a distance.
func (a *Act) entry(id uint32) stub.Action {
	return stub.Action{ID: id, Kind: a.Kind, Words: a.Words, Value: a.Value, Limit: a.Limit, Plain: a.Plain}
}

// checkActs returns an error for what cannot be done at calls of one function.
func checkActs(acts []Act) error {
	all := make([]stub.Action, len(acts))
	for i := range acts {
		all[i] = acts[i].entry(0)
	}
	return stub.CheckActions(all)
}

// actingAt returns what the function at a place in Plan.Functions has; nil: it has no actions.
func (l *layout) actingAt(i int) *acting {
	k, ok := slices.BinarySearchFunc(l.acting, i, func(a acting, i int) int { return a.function - i })
	if !ok {
		return nil
	}
	return &l.acting[k]
}

// actions lays out the table of actions, and what they need behind it.
func (l *layout) actions() {
	var table []stub.Action
	var data []byte
	n := 0
	for i := range l.acting {
		if l.p.Functions[l.acting[i].function].ID != 0 {
			n += len(l.acting[i].acts)
		}
	}
	if n == 0 {
		return
	}
	at := l.align(8)
	size := (stub.ActionsSize(n, int(l.traced)) + 7) &^ 7
	for i := range l.acting {
		id := l.p.Functions[l.acting[i].function].ID
		if id == 0 {
			continue
		}
		for _, a := range l.acting[i].acts {
			e := a.entry(id)
			if a.Data != nil {
				e.Value = at + uint64(size+len(data)) - l.runtime.image
				data = append(data, a.Data...)
				data = append(data, make([]byte, -len(data)&7)...)
			}
			table = append(table, e)
		}
	}
	b := stub.AppendActions(make([]byte, 0, size+len(data)), table, int(l.traced))
	b = append(b[:size], data...)
	l.runtime.actions, l.runtime.nActions = at, n
	l.add(piece{name: ".fentry.actions", size: uint64(len(b)), align: 8, owner: nobody, ready: b})
}
