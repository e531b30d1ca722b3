//go:build linux

package tracefs

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"

	"github.com/fentry-dev/fentry/trace"
)

// What happens when a function is called: traceoff, traceon, stacktrace, snapshot, dump, cpudump, enable_event and
// disable_event.
//
// The kernel does it in the call. Here the call is an event like all others, and what it does is found out when it is
// looked for: before anything is read or changed, and now and then meanwhile (FS.watch). As an epoch begins at the time of
// the event, nothing that was recorded between the call and the look is shown: so it seems to have happened in the call.
// The function itself is recorded as long as it has a probe, shown or not.

// A probe is a command at a function, or at an event (eventtrigger.go).
type probe struct {
	fn      int          // -1: none
	on      int          // the event's place; -1: none
	filter  *eventFilter // of the event; nil: none
	command string
	event   int   // of enable_event and disable_event, its place; -1: the command has none
	left    int64 // how often it may still happen; unlimited: any number of times
}

const unlimited = -1

// wantsEvents tells whether a probe needs events to be recorded.
func (p *probe) wantsEvents() bool { return p.on >= 0 || p.event >= 0 }

// Commands.
const (
	commandOff     = "traceoff"
	commandOn      = "traceon"
	commandStack   = "stacktrace"
	commandSnap    = "snapshot"
	commandDump    = "dump"
	commandDumpCPU = "cpudump"
	commandEnable  = "enable_event"
	commandDisable = "disable_event"
)

var commands = []string{commandOff, commandOn, commandStack, commandSnap, commandDump, commandDumpCPU, commandEnable, commandDisable}

// command is a word written to set_ftrace_filter that has a command: PATTERN:COMMAND, PATTERN:COMMAND:COUNT or
// !PATTERN:COMMAND. An error is EINVAL, and nothing has been done then.
func (in *instance) command(word string) error {
	pattern, not := strings.CutPrefix(word, "!")
	pattern, command, _ := strings.Cut(pattern, ":")
	command, count, counted := strings.Cut(command, ":")
	if !slices.Contains(commands, command) {
		return syscall.EINVAL
	}
	event := -1
	if command == commandEnable || command == commandDisable {
		if event, count, counted = in.fs.events.ofCommand(count); event < 0 {
			return syscall.EINVAL
		}
	}
	which := in.fs.functions.matching(pattern, nil)
	if not {
		return in.removeProbes(which, command, event)
	}
	left := int64(unlimited)
	if command == commandDump || command == commandDumpCPU {
		left, counted = 1, false // there is no use in more of these
	}
	if counted && (count != "" || event >= 0) {
		n, err := parseCount(count)
		if err != nil {
			return err
		}
		left = n
	}
	if len(which) == 0 {
		return syscall.EINVAL
	}
	if err := in.fs.scan(); err != nil { // calls until now do nothing
		return err
	}
	had := make(map[int]bool)
	for _, p := range in.probes {
		if p.fn >= 0 && p.command == command && p.event == event {
			had[p.fn] = true
		}
	}
	for _, fn := range which {
		if !had[fn] {
			in.probes = append(in.probes, &probe{fn: fn, on: -1, command: command, event: event, left: left})
		}
	}
	if command == commandSnap && in.snap == nil {
		in.snap = []byte{}
	}
	return in.fs.install()
}

// parseCount reads how often a command is done: what a further colon is in front of does not count. As in the kernel the largest
// number is for any number of times; here all are that are more than can happen.
func parseCount(s string) (int64, error) {
	s, _, _ = strings.Cut(s, ":")
	n, err := parseUint(s, 0)
	switch {
	case err != nil:
		return 0, err
	case n > math.MaxInt64:
		return unlimited, nil
	}
	return int64(n), nil
}

// ofCommand returns the event of SYSTEM:EVENT[:COUNT], -1 if there is none, and the count.
func (e *events) ofCommand(text string) (event int, count string, counted bool) {
	system, text, _ := strings.Cut(text, ":")
	name, count, counted := strings.Cut(text, ":")
	if which := e.find(system, name); system != "" && name != "" && len(which) == 1 {
		return which[0], count, counted
	}
	return -1, "", false
}

func (in *instance) removeProbes(which []int, command string, event int) error {
	gone := make(map[int]bool)
	for _, fn := range which {
		gone[fn] = true
	}
	if err := in.fs.scan(); err != nil {
		return err
	}
	n := len(in.probes)
	in.probes = slices.DeleteFunc(in.probes, func(p *probe) bool {
		return p.fn >= 0 && p.command == command && p.event == event && gone[p.fn]
	})
	if len(in.probes) == n {
		return syscall.EINVAL
	}
	return in.fs.install()
}

// listProbes is their part of the text of set_ftrace_filter.
func (in *instance) listProbes() []byte {
	var b bytes.Buffer
	for _, p := range in.probes {
		if p.fn >= 0 {
			fmt.Fprintf(&b, "%s:%s\n", in.fs.functions.all[p.fn].Name, in.fs.text(p))
		}
	}
	return b.Bytes()
}

// text is a probe in a list.
func (fs *FS) text(p *probe) string {
	text := p.command + ":"
	if p.event >= 0 {
		text += fs.events.all[p.event].String() + ":"
	}
	if p.left == unlimited {
		return text + "unlimited"
	}
	return fmt.Sprintf("%scount=%d", text, p.left)
}

// scan looks for calls of functions with probes that it has not seen yet.
func (fs *FS) scan() error {
	var with []*instance
	for _, in := range fs.instances() {
		if len(in.probes) > 0 {
			with = append(with, in)
		}
	}
	if len(with) == 0 {
		clear(fs.scanned)
		fs.scannedFrom = fs.target.Now()
		fs.scannedUntil = fs.scannedFrom
		return nil
	}
	now := fs.target.Now()
	t, err := fs.copy(fs.scannedUntil)
	if err != nil {
		return err
	}
	defer t.Close()
	fs.look(t)
	// An event can be written a little later than it happened.
	fs.scannedUntil = t.Clock.Counter(max(0, t.Clock.Time(now)-int64(tick)))
	return fs.scanTrace(t, with)
}

func (fs *FS) scanTrace(t *trace.Trace, with []*instance) error {
	at, on := make([]map[int][]*probe, len(with)), make([]map[int][]*probe, len(with))
	for i, in := range with {
		at[i], on[i] = make(map[int][]*probe), make(map[int][]*probe)
		for _, p := range in.probes {
			if p.fn >= 0 {
				at[i][p.fn] = append(at[i][p.fn], p)
			} else {
				on[i][p.on] = append(on[i][p.on], p)
			}
		}
	}
	from, of := t.Clock.Time(fs.scannedFrom), fs.functions.lookup(t)
	changed := false
	readers := newReaders(fs.scanned)
	defer readers.end()
	err := t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if !counts(ev) {
			return nil
		}
		r := readers.task(ev.Task)
		if !r.next(ev) {
			return nil
		}
		r.take()
		happens := ev.Func.Image == trace.SyscallImage
		if ev.Kind != trace.Entry && !happens || ev.Time <= from {
			return nil
		}
		if happens {
			for _, e := range fs.events.of(ev) {
				for i, in := range with {
					for _, p := range on[i][e] {
						if p.filter == nil || p.filter.keep(fs.happens(t, e, ev)) {
							changed = in.hit(p, t.Clock.Counter(ev.Time), ev) || changed
						}
					}
				}
			}
			return nil
		}
		fn := of(ev.Func)
		for i, in := range with {
			for _, p := range at[i][fn] {
				changed = in.hit(p, t.Clock.Counter(ev.Time), ev) || changed
			}
		}
		return nil
	})
	if changed && err == nil {
		err = fs.install()
	}
	return err
}

// hit does what a probe is for, at a call of its function.
func (in *instance) hit(p *probe, at uint64, ev *trace.Event) (switched bool) {
	now := in.epochs.now()
	switch {
	case p.left == 0, p.command == commandOn && now.on, p.command == commandOff && !now.on:
		return false
	case p.event >= 0 && now.events.has(p.event) == (p.command == commandEnable):
		return false
	case p.left > 0:
		p.left--
	}
	in.fs.news++
	switch p.command {
	case commandOn, commandOff, commandEnable, commandDisable:
		s := *now
		if p.event >= 0 {
			s.events.put([]int{p.event}, p.command == commandEnable)
		} else {
			s.on = p.command == commandOn
		}
		in.epochs.add(max(at, in.epochs[len(in.epochs)-1].from), s)
		return true
	case commandDump:
		in.dumps = append(in.dumps, -1)
	case commandDumpCPU:
		in.dumps = append(in.dumps, in.fs.cpu(ev.Task))
	case commandStack:
		if now.on && len(in.stackAt) < mostStacks {
			in.stackAt[keyOf(ev, p.fn)] = true
		}
	case commandSnap:
		in.asked = true
	}
	return false
}
