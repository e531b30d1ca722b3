package stub

import (
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// An Action is something that the runtime does at calls of a function beside recording them. Its thunk must call the
// routines fentry_act_enter or fentry_mcount_act_enter, with the function tracer fentry_actfunc_enter or
// fentry_mcount_actfunc_enter.
type Action struct {
	ID    uint32 // of the function
	Kind  ActionKind
	Words int    // most words that it writes behind the entry, headers of records included
	Value uint64 // what the kind says
	Limit uint32 // how often it is done in a process; 0: always
	// Plain says that only registers are captured, as the format's table explains it; 0: it is not known.
	Plain uint8
}

// ActionKind is what is done.
type ActionKind uint16

// What can be done, as the trace format's table explains it.
const (
	ActQuiet      ActionKind = format.ActQuiet      // the function's calls are not recorded
	ActTraceOn    ActionKind = format.ActTraceon    // tracing goes on with this call
	ActTraceOff   ActionKind = format.ActTraceoff   // tracing pauses before this call
	ActFinish     ActionKind = format.ActFinish     // the recording ends before this call
	ActStackTrace ActionKind = format.ActStacktrace // the calls that are open are wanted
	ActSnapshot   ActionKind = format.ActSnapshot   // a flight recorder is asked to write what it has
	ActDepth      ActionKind = format.ActDepth      // so many levels are recorded from here on
	ActArgs       ActionKind = format.ActArgs       // arguments are captured
	ActResult     ActionKind = format.ActResult     // the result is captured
	ActIf         ActionKind = format.ActIf         // a call is recorded only if an argument is as wanted
	ActStack      ActionKind = format.ActStack      // the stack is walked by unwind tables
)

// Timed reports whether the value says, in ns, that the action is done at the ends of calls that took longer; 0: at their
// beginnings.
func (k ActionKind) Timed() bool {
	switch k {
	case ActTraceOn, ActTraceOff, ActFinish, ActStackTrace, ActSnapshot:
		return true
	}
	return false
}

// late reports whether an action with such a value is done at the ends of long calls.
func (k ActionKind) late(value uint64) bool { return value != 0 && k.Timed() }

// Selective reports whether images with such actions need the thunks of [Image].Options.
func (k ActionKind) Selective(value uint64) bool { return k == ActDepth || k.late(value) }

// Records reports whether calls of functions with such actions are recorded even if nothing else asks for them.
func (k ActionKind) Records(value uint64) bool {
	switch k {
	case ActDepth, ActArgs, ActResult, ActStack, ActStackTrace, ActSnapshot: // all behind an entry
		return true
	}
	return k.late(value)
}

// AtExit reports whether functions with such actions need the exit routine fentry_act_exit.
func (k ActionKind) AtExit(value uint64) bool { return k == ActResult || k.late(value) }

// mostCounted is of how many actions of a function the runtime knows, where a call ends, which it has counted (act.c, leave).
const mostCounted = 64

// CheckActions returns an error for actions of a function of which the runtime cannot take back that they were counted, if a dump
// that they ask for is not made.
func CheckActions(of []Action) error {
	for i := mostCounted; i < len(of); i++ {
		if a := &of[i]; a.Kind == ActSnapshot && a.Limit != 0 && a.Kind.late(a.Value) {
			return fmt.Errorf("more than %d things are to be done at calls of a function, and behind these a number of dumps where calls have taken long", mostCounted)
		}
	}
	return nil
}

// Sizes in bytes of an entry of the table of actions, and of the zeroed memory that each one needs.
const (
	ActionSize      = format.ActionSize
	ActionCountSize = 4
)

// quick reports whether the runtime can do the action without the slow path's system calls.
func (a *Action) quick() bool {
	return (a.Kind == ActArgs || a.Kind == ActResult || a.Kind == ActIf) && a.Limit == 0
}

// ActionsSize is how many bytes the table of so many actions takes in an image with so many ids, its index included.
func ActionsSize(actions, sites int) int { return actions*ActionSize + (sites+1)*actionIndexSize }

const actionIndexSize = 4

// ParseActions reads the entries of a table of actions.
func ParseActions(b []byte) (all []Action) {
	for ; len(b) >= format.ActionSize; b = b[format.ActionSize:] {
		all = append(all, Action{
			ID: le.Uint32(b[format.ActionOID:]), Kind: ActionKind(le.Uint16(b[format.ActionOKind:])),
			Words: int(le.Uint16(b[format.ActionOWords:])), Value: le.Uint64(b[format.ActionOValue:]),
			Limit: le.Uint32(b[format.ActionOLimit:]), Plain: b[format.ActionOPlain],
		})
	}
	return all
}

// AppendActions appends the table of the actions of an image with ids from 1 to sites, which must be sorted by ID, and
// its index.
func AppendActions(b []byte, actions []Action, sites int) []byte {
	for _, a := range actions {
		e := make([]byte, ActionSize)
		le.PutUint32(e[format.ActionOID:], a.ID)
		le.PutUint16(e[format.ActionOKind:], uint16(a.Kind))
		le.PutUint16(e[format.ActionOWords:], uint16(a.Words))
		le.PutUint64(e[format.ActionOValue:], a.Value)
		le.PutUint32(e[format.ActionOLimit:], a.Limit)
		e[format.ActionOPlain] = a.Plain
		b = append(b, e...)
	}
	for n, id := 0, 1; id <= sites+1; id++ {
		first := n
		for n < len(actions) && actions[n].ID == uint32(id) {
			n++
		}
		b = le.AppendUint32(b, uint32(first)|how(actions[first:n]))
	}
	return b
}

// how is what an index says of a function's actions.
func how(of []Action) uint32 {
	if len(of) == 0 || slices.ContainsFunc(of, func(a Action) bool { return !a.quick() }) {
		return 0
	}
	entry, result := uint32(1), uint32(format.PlainNothing)
	known := func(was, plain, nothing uint32) uint32 { // of each end of a call something is captured once
		if was != nothing {
			return 0
		}
		return plain
	}
	for _, a := range of {
		switch {
		case a.Kind == ActIf:
			return format.ActionsQuick
		case a.Kind == ActResult:
			result = known(result, uint32(a.Plain), format.PlainNothing)
		case a.Plain == 0 || a.Plain > format.MostPlainArguments:
			entry = 0
		default:
			entry = known(entry, 1+1+uint32(a.Plain), 1)
		}
	}
	return format.ActionsQuick | entry<<format.ActionsEntry | result<<format.ActionsResult
}
