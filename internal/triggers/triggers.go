// Package triggers reads what is to be done at calls of functions as users write it: FUNCTION@ACTION, as uftrace has it,
// with ftrace's names of actions and its counts.
//
// A trigger is FUNCTIONS@ACTION[:COUNT][,ACTION[:COUNT]...], split at the last @: names of functions can have one, too.
// Among the actions can be a condition, time>T: then they are done at the ends of calls that took longer than T. It knows nothing about functions or about how actions are done.
package triggers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Kind is what is done.
type Kind string

// What can be done.
const (
	TraceOn    Kind = "traceon"    // tracing goes on with this call
	TraceOff   Kind = "traceoff"   // tracing pauses before this call
	StackTrace Kind = "stacktrace" // the trace shows the calls that are open
	Depth      Kind = "depth"      // so many levels are recorded, this call included
	Finish     Kind = "finish"     // the recording ends
	Snapshot   Kind = "snapshot"   // a flight recorder writes what it has
	Color      Kind = "color"      // the function is shown in a color
)

// kindOf is the kind of a name. There are other names: uftrace's.
func kindOf(name string) Kind {
	switch name {
	case "trace_on", "trace-on":
		return TraceOn
	case "trace_off", "trace-off":
		return TraceOff
	case "backtrace":
		return StackTrace
	}
	return Kind(name)
}

// colors are the values of Color, by their numbers in the escape sequences of terminals less firstColor (ECMA-48,
// 8.3.117).
var colors = []string{"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}

const firstColor = 30

// An Action is one thing that is done.
type Action struct {
	Kind  Kind
	Value uint64 // levels; the number of the color for terminals (ECMA-48, 8.3.117)
	Limit uint32 // how often; 0: always
}

// A Trigger says what is done at calls of some functions.
type Trigger struct {
	Functions string // a pattern of package record
	// Over is 0, or actions are done at the ends of calls that took longer.
	Over    time.Duration
	Actions []Action
}

// timePrefix is what a condition begins with.
const timePrefix = "time>"

// Forms returns how actions are written, for people.
func Forms() []string {
	return []string{"traceon", "traceoff", "stacktrace", "snapshot", "depth=N", "finish", "color=NAME",
		timePrefix + "T"}
}

// Parse reads a trigger. Errors name the position, counted in bytes from 1.
func Parse(s string) (*Trigger, error) {
	at := strings.LastIndexByte(s, '@')
	switch {
	case at < 0:
		return nil, position(s, len(s), "no action: a trigger is FUNCTION@ACTION")
	case at == 0:
		return nil, position(s, 0, "no function: a trigger is FUNCTION@ACTION")
	}
	t := &Trigger{Functions: s[:at]}
	for at++; ; {
		word, _, more := strings.Cut(s[at:], ",")
		if limit, ok := strings.CutPrefix(word, timePrefix); ok {
			if err := t.over(limit); err != "" {
				return nil, position(s, at+len(timePrefix), err)
			}
			if at += len(word) + 1; !more {
				return checked(s, t)
			}
			continue
		}
		a, bad, err := action(word)
		if err != "" {
			return nil, position(s, at+bad, err)
		}
		if slices.ContainsFunc(t.Actions, func(b Action) bool { return a.Kind == b.Kind }) {
			return nil, position(s, at, fmt.Sprintf("%s is there twice", a.Kind))
		}
		t.Actions = append(t.Actions, a)
		if at += len(word) + 1; !more {
			return checked(s, t)
		}
	}
}

// over reads the time of a condition. It returns what is wrong.
func (t *Trigger) over(s string) string {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return fmt.Sprintf("%q is no time such as 10us", s)
	case t.Over != 0:
		return "there are two times"
	}
	t.Over = d
	return ""
}

// checked returns a trigger if its actions and its condition go together.
func checked(s string, t *Trigger) (*Trigger, error) {
	if t.Over == 0 {
		return t, nil
	}
	at := strings.LastIndex(s, timePrefix)
	if !slices.ContainsFunc(t.Actions, func(a Action) bool { return a.Kind != Color }) {
		return nil, position(s, at, fmt.Sprintf("%s%v: nothing is to be done then; there are traceon, traceoff, stacktrace, "+
			"snapshot and finish", timePrefix, t.Over))
	}
	if slices.ContainsFunc(t.Actions, func(a Action) bool { return a.Kind == Depth }) {
		return nil, position(s, at, "depth= is about what a call does, and its time is known when it has ended")
	}
	return t, nil
}

// An Error says where in a trigger something is wrong.
type Error struct {
	Spec string
	At   int // bytes before it
	Why  string
}

func (e *Error) Error() string { return fmt.Sprintf("%q, position %d: %s", e.Spec, e.At+1, e.Why) }

func position(s string, at int, why string) error { return &Error{s, at, why} }

// action reads ACTION[:COUNT]. err is "" or what is wrong, at offset bad.
func action(s string) (a Action, bad int, err string) {
	word, count, counted := strings.Cut(s, ":")
	name, value, valued := strings.Cut(word, "=")
	a.Kind = kindOf(name)
	behind := len(name) + 1 // where the value is
	switch a.Kind {
	case TraceOn, TraceOff, StackTrace, Finish, Snapshot:
		if valued {
			return a, len(name), fmt.Sprintf("%s has no value", name)
		}
	case Depth:
		n, e := strconv.ParseUint(value, 10, 31)
		if e != nil || n == 0 {
			return a, behind, fmt.Sprintf("%s=%s: not a number of levels", name, value)
		}
		a.Value = n
	case Color:
		i := slices.Index(colors, value)
		if i < 0 {
			return a, behind, fmt.Sprintf("no color %q; there are %s", value, strings.Join(colors, ", "))
		}
		a.Value = uint64(firstColor + i)
	default:
		return a, 0, fmt.Sprintf("no action %q; there are %s", name, strings.Join(Forms(), ", "))
	}
	if !counted {
		return a, 0, ""
	}
	n, e := strconv.ParseUint(count, 10, 32)
	switch {
	case a.Kind == Finish || a.Kind == Color:
		return a, len(word), fmt.Sprintf("%s has no count", a.Kind)
	case e != nil || n == 0:
		return a, len(word) + 1, fmt.Sprintf("%q is not how often it is to be done", count)
	}
	a.Limit = uint32(n)
	return a, 0, ""
}
