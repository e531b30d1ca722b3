//go:build linux

package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The language of [Control]: lines of commands, which are understood as a whole before anything is done.

// A word of a line, and in which column it begins.
type word struct {
	text string
	at   int
}

// words cuts a line at blanks, and behind the first two words of a command at commas, unless its values have some. A
// semicolon at the end of a word is one of its own.
func words(line string) (ws []word) {
	start, of := -1, 0 // of: words of the command so far
	whole := false     // its values have commas of their own
	for i := 0; i <= len(line); i++ {
		end := i == len(line) || line[i] == ' ' || line[i] == '\t' || line[i] == ',' && of >= 2 && !whole
		switch {
		case end && start >= 0:
			text := line[start:i]
			if rest, ok := strings.CutSuffix(text, ";"); ok {
				if rest != "" {
					ws = append(ws, word{rest, start + 1})
				}
				ws, of = append(ws, word{";", i}), 0
			} else {
				if of == 0 {
					whole = slices.Contains(doingSettings, text)
				}
				ws, of = append(ws, word{text, start + 1}), of+1
			}
			start = -1
		case !end && start < 0:
			start = i
		}
	}
	return ws
}

// A command is one of a line.
type command struct {
	name   word
	op     word // "": it asks
	values []word
	end    int // column behind it

	// What values say, by name.
	on        bool
	triggers  bool // some of its patterns were commands of ftrace's
	number    uint32
	threshold time.Duration
	last      time.Duration
}

// maxRules bounds how many patterns a recording can be given in the course of time.
const maxRules = 10_000

// commandForm says what a command looks like.
type commandForm struct {
	ops   []string // "": it has no values, and asks or does something
	parse func(c *command) *ControlError
}

// assign is for settings with one value.
var assign = []string{"=", ""}

// change is for sets of functions.
var change = []string{"=", "+=", "-=", ""}

var commandForms = map[string]commandForm{
	"tracing_on":         {assign, (*command).parseOn},
	"syscalls":           {assign, (*command).parseOn},
	"current_tracer":     {assign, (*command).parseTracer},
	"set_ftrace_filter":  {change, nil},
	"set_ftrace_notrace": {change, nil},
	"set_graph_function": {change, nil},
	setTrigger:           {change, nil},
	setArguments:         {change, nil},
	setResults:           {change, nil},
	"max_graph_depth":    {assign, (*command).parseNumber},
	"tracing_thresh":     {assign, (*command).parseThreshold},
	"dump":               {[]string{""}, (*command).parseDump},
	"status":             {[]string{""}, (*command).parseNothing},
	"settle":             {[]string{""}, (*command).parseNothing},
	"ping":               {[]string{""}, (*command).parseNothing},
	"detach":             {[]string{""}, (*command).parseDetach},
}

// commandNames are those that there are, for people.
func commandNames() string {
	var names []string
	for name := range commandForms {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// parseCommands understands a line.
func parseCommands(line string) (cs []command, err *ControlError) {
	ws := words(line)
	end := len(line) + 1
	for len(ws) > 0 {
		n := slices.IndexFunc(ws, func(w word) bool { return w.text == ";" })
		stop, rest := end, []word(nil)
		if n >= 0 {
			stop, rest = ws[n].at, ws[n+1:]
		} else {
			n = len(ws)
		}
		c, err := parseCommand(ws[:n], stop)
		if err != nil {
			return nil, err
		}
		cs, ws = append(cs, c), rest
	}
	if len(cs) == 0 {
		return nil, &ControlError{1, "no command: " + commandNames()}
	}
	if len(cs) > 1 {
		for i := range cs {
			if c := &cs[i]; c.op.text == "" {
				return nil, &ControlError{c.name.at, c.name.text + " stands alone"}
			}
		}
	}
	return cs, nil
}

// parseCommand understands a command that ends before a column.
func parseCommand(ws []word, end int) (c command, err *ControlError) {
	if len(ws) == 0 {
		return c, &ControlError{end, "no command: " + commandNames()}
	}
	c.name, c.end = ws[0], end
	form, ok := commandForms[c.name.text]
	if !ok {
		return c, &ControlError{c.name.at, "no such command: " + commandNames()}
	}
	if c.values = ws[1:]; !slices.Contains(form.ops, "=") {
		return c, form.parse(&c)
	}
	if len(ws) == 1 {
		return c, nil // it asks
	}
	c.op, c.values = ws[1], ws[2:]
	if !slices.Contains(form.ops, c.op.text) || c.op.text == "" {
		return c, &ControlError{c.op.at, c.name.text + " is followed by " + strings.Join(form.ops[:len(form.ops)-1], ", ")}
	}
	if form.parse != nil {
		if err := c.one(); err != nil {
			return c, err
		}
		return c, form.parse(&c)
	}
	if len(c.values) == 0 && c.op.text != "=" {
		return c, &ControlError{end, c.op.text + " is followed by patterns"}
	}
	return c, nil
}

// one wants one value.
func (c *command) one() *ControlError {
	switch len(c.values) {
	case 0:
		return &ControlError{c.end, "= is followed by a value"}
	case 1:
		return nil
	}
	return &ControlError{c.values[1].at, "one value"}
}

func (c *command) parseOn() *ControlError {
	v := c.values[0]
	if v.text != "0" && v.text != "1" {
		return &ControlError{v.at, "0 or 1"}
	}
	c.on = v.text == "1"
	return nil
}

// The tracers that a recording can be switched between while it runs.
const (
	tracerGraph    = "function_graph"
	tracerFunction = "function"
	tracerNop      = "nop"
)

func (c *command) parseTracer() *ControlError {
	v := c.values[0]
	if v.text != tracerNop && !slices.Contains(tracerNames(), v.text) {
		return &ControlError{v.at, fmt.Sprintf("no tracer: nop, or %s", strings.Join(tracerNames(), ", "))}
	}
	return nil
}

func (c *command) parseNumber() *ControlError {
	v := c.values[0]
	n, err := strconv.ParseUint(v.text, 10, 31)
	if err != nil {
		return &ControlError{v.at, "a number of levels; 0: no limit"}
	}
	c.number = uint32(n)
	return nil
}

// mostThreshold is more than anybody waits, and far from what overflows.
const mostThreshold = 24 * time.Hour

// parseThreshold: as the kernel has it, a number is one of microseconds.
func (c *command) parseThreshold() *ControlError {
	v := c.values[0]
	text := v.text
	if _, err := strconv.ParseUint(text, 10, 63); err == nil {
		text += "us"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > mostThreshold {
		return &ControlError{v.at, "a time such as 10us, or a number of microseconds; 0: no limit"}
	}
	c.threshold = d
	return nil
}

func (c *command) parseNothing() *ControlError {
	if len(c.values) > 0 {
		return &ControlError{c.values[0].at, c.name.text + " is followed by nothing"}
	}
	return nil
}

// unload follows detach where who asks waits until it is done.
const unload = "unload"

func (c *command) parseDetach() *ControlError {
	if len(c.values) == 0 {
		return nil
	}
	if c.values[0].text != unload {
		return &ControlError{c.values[0].at, "detach is followed by nothing, or unload"}
	}
	if len(c.values) > 1 {
		return &ControlError{c.values[1].at, "unload is followed by nothing"}
	}
	return nil
}

func (c *command) parseDump() *ControlError {
	if len(c.values) == 0 {
		return nil
	}
	var err error
	if c.last, err = time.ParseDuration(c.values[0].text); err != nil || c.last <= 0 {
		return &ControlError{c.values[0].at, "not a time such as 200ms"}
	}
	if len(c.values) > 1 {
		return &ControlError{c.values[1].at, "dump is followed by one time at most"}
	}
	return nil
}
