//go:build linux

package tracefs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// The file trigger of an event: what happens when the event does, whether it is recorded or not, as with commands at
// functions (probe.go), but also depending on a filter: traceoff if ret < 0.

// triggerHelp is the text of a file without triggers.
const triggerHelp = "# Available triggers:\n# traceon traceoff snapshot stacktrace enable_event disable_event\n"

// triggerCommands are those that an event can have.
var triggerCommands = []string{commandOn, commandOff, commandSnap, commandStack, commandEnable, commandDisable}

// triggerKinds are what there is one of at an event, by command: it is switched on or off.
var triggerKinds = map[string]string{
	commandOn: commandOn, commandOff: commandOn, commandEnable: commandEnable, commandDisable: commandEnable,
	commandSnap: commandSnap, commandStack: commandStack,
}

// triggerFile is the file of an event.
func triggerFile(i int) *file {
	return &file{
		name: "trigger",
		read: func(in *instance) ([]byte, error) {
			if err := in.fs.scan(); err != nil {
				return nil, err
			}
			return in.listTriggers(i), nil
		},
		write: func(in *instance, s string, _ writer) error { return in.trigger(i, strings.TrimSpace(s)) },
	}
}

// trigger is a line written to the file of an event: [!]COMMAND[:SYSTEM:EVENT][:COUNT] [if FILTER].
func (in *instance) trigger(on int, line string) error {
	line, not := strings.CutPrefix(line, "!")
	head, rest, _ := strings.Cut(line, " ")
	condition, conditional := strings.CutPrefix(strings.TrimSpace(rest), "if ")
	command, count, counted := strings.Cut(head, ":")
	if !slices.Contains(triggerCommands, command) || rest != "" && !conditional {
		return syscall.EINVAL
	}
	p := &probe{fn: -1, on: on, command: command, event: -1, left: unlimited}
	if command == commandEnable || command == commandDisable {
		if p.event, count, counted = in.fs.events.ofCommand(count); p.event < 0 {
			return syscall.EINVAL
		}
	}
	if err := in.fs.scan(); err != nil { // what has happened until now does nothing
		return err
	}
	same := func(q *probe) bool {
		return q.on == on && triggerKinds[q.command] == triggerKinds[command] && q.event == p.event
	}
	if not {
		in.probes = slices.DeleteFunc(in.probes, same)
		return in.fs.install()
	}
	if counted {
		n, err := parseCount(count)
		if err != nil {
			return err
		}
		p.left = n
	}
	if conditional {
		var failed *filterError
		if p.filter, failed = newFilter(&in.fs.events.all[on], strings.TrimSpace(condition)); failed != nil {
			return syscall.EINVAL
		}
	}
	switch {
	case slices.ContainsFunc(in.probes, same):
		return syscall.EEXIST
	case len(in.probes) >= mostTriggers+len(in.fs.functions.all):
		return syscall.ENOMEM
	}
	in.probes = append(in.probes, p)
	if command == commandSnap && in.snap == nil {
		in.snap = []byte{}
	}
	return in.fs.install()
}

// mostTriggers bounds how many events have.
const mostTriggers = 10_000

// listTriggers is the text of an event's file.
func (in *instance) listTriggers(on int) []byte {
	var b bytes.Buffer
	for _, p := range in.probes {
		if p.on != on {
			continue
		}
		b.WriteString(in.fs.text(p))
		if p.filter != nil {
			fmt.Fprintf(&b, " if %s", p.filter.text)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return []byte(triggerHelp)
	}
	return b.Bytes()
}
