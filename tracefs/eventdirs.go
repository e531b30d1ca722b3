//go:build linux

package tracefs

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fentry-dev/fentry/internal/fuse"
)

// The files of events: events/ with a directory for each system and each event, set_event and available_events. As there
// are hundreds of events, a directory below events/ is made when somebody looks into it.

// eventSettings are which events an instance records. They are values, as settings are.
type eventSettings struct {
	on      []uint64 // bits, by place in events.all; nil: none
	filters map[int]*eventFilter
	systems map[string]*eventFilter // what was written to a system's filter last
}

// has tells whether an event is on.
func (s *eventSettings) has(i int) bool { return i>>6 < len(s.on) && s.on[i>>6]>>(i&63)&1 != 0 }

// any tells whether one is.
func (s *eventSettings) any() bool {
	return slices.ContainsFunc(s.on, func(w uint64) bool { return w != 0 })
}

// put switches some events.
func (s *eventSettings) put(which []int, on bool) {
	s.on = slices.Clone(s.on)
	for _, i := range which {
		for i>>6 >= len(s.on) {
			s.on = append(s.on, 0)
		}
		if s.on[i>>6] &^= 1 << (i & 63); on {
			s.on[i>>6] |= 1 << (i & 63)
		}
	}
}

// keeps tells whether an event that has happened is to be shown.
func (s *eventSettings) keeps(i int, h *happened) bool {
	f := s.filters[i]
	return f == nil || f.keep == nil || f.keep(h)
}

// enableEvents switches events of an instance.
func (in *instance) enableEvents(which []int, on bool) error {
	now := in.epochs.now()
	if !slices.ContainsFunc(which, func(i int) bool { return now.events.has(i) != on }) {
		return nil // who resets all of them writes to hundreds of files
	}
	return in.change(func(s *settings) { s.events.put(which, on) })
}

// eventState is the text of enable: 0, 1, or X if some are on and others off, with a * if calls of functions switch them.
func (in *instance) eventState(which []int) string {
	on, soft := 0, false
	for _, i := range which {
		if in.epochs.now().events.has(i) {
			on++
		}
		soft = soft || slices.ContainsFunc(in.probes, func(p *probe) bool { return p.event == i || p.on == i })
	}
	state := "X"
	switch {
	case on == 0:
		state = "0"
	case on == len(which):
		state = "1"
	}
	if soft && len(which) == 1 {
		state += "*"
	}
	return state + "\n"
}

// enableFile is the file enable of some events.
func enableFile(which []int) *file {
	return &file{
		name: "enable",
		read: func(in *instance) ([]byte, error) {
			if err := in.fs.scan(); err != nil {
				return nil, err
			}
			return []byte(in.eventState(which)), nil
		},
		write: func(in *instance, s string, _ writer) error {
			n, err := parseNumber(s)
			if err == nil && n > 1 {
				err = syscall.EINVAL
			}
			if err != nil {
				return err
			}
			if err := in.fs.scan(); err != nil {
				return err
			}
			return in.enableEvents(which, n == 1)
		},
	}
}

// systemFilterHelp is a system's filter at first.
const systemFilterHelp = `### global filter ###
# Use this to set filters for multiple events.
# Only events with the given fields will be affected.
# If no events are modified, an error message will be displayed here
`

// filterText is the text of a filter's file.
func filterText(f *eventFilter, none string) string {
	if f == nil {
		return none
	}
	return f.text + "\n"
}

// setFilters gives events a filter; 0 takes it away. An event that has not got the filter's fields is left as it was, unless
// there is only one.
func (in *instance) setFilters(which []int, system, text string) error {
	text = strings.TrimSpace(text)
	now := in.epochs.now().events.filters
	if text == "0" && system == "" && !slices.ContainsFunc(which, func(i int) bool { return now[i] != nil }) {
		return nil
	}
	next, systems := maps.Clone(now), maps.Clone(in.epochs.now().events.systems)
	if next == nil {
		next, systems = make(map[int]*eventFilter), make(map[string]*eventFilter)
	}
	var failed *filterError
	some := text == "0"
	for _, i := range which {
		if text == "0" {
			delete(next, i)
			continue
		}
		f, err := newFilter(&in.fs.events.all[i], text)
		if some = some || err == nil; err == nil || len(which) == 1 {
			next[i] = f
		}
		if err != nil && (failed == nil || err.at > failed.at) {
			failed = err
		}
	}
	if delete(systems, system); system != "" && text != "0" {
		f := &eventFilter{text: text}
		if !some {
			f.text += "\n^\nparse_error: " + whySystem
		}
		systems[system] = f
	}
	err := in.change(func(s *settings) { s.events.filters, s.events.systems = next, systems })
	if err == nil && !some && failed != nil {
		return syscall.EINVAL
	}
	return err
}

// eventFile is what events/SYSTEM/EVENT has.
func eventFiles(all *events, i int) []*file {
	e, which := &all.all[i], []int{i}
	return []*file{
		enableFile(which),
		{name: "filter",
			read: text(func(in *instance) string { return filterText(in.epochs.now().events.filters[i], "none\n") }),
			write: func(in *instance, s string, _ writer) error {
				return in.setFilters(which, "", s)
			}},
		triggerFile(i),
		{name: "format", read: func(*instance) ([]byte, error) { return e.format(), nil }},
		{name: "id", read: text(func(*instance) string { return strconv.Itoa(e.id) + "\n" })},
	}
}

// systemFiles is what events/SYSTEM has beside events.
func systemFiles(all *events, system string) []*file {
	which := all.find(system, "")
	return []*file{
		enableFile(which),
		{name: "filter",
			read: text(func(in *instance) string { return filterText(in.epochs.now().events.systems[system], systemFilterHelp) }),
			write: func(in *instance, s string, _ writer) error {
				return in.setFilters(which, system, s)
			}},
	}
}

// eventDir is a directory below events/, or that one.
type eventDir struct {
	dir
	in     *instance
	system string // "": events/ itself
}

// newEventDir returns one, with its files.
func newEventDir(in *instance, system string) *eventDir {
	d := &eventDir{in: in, system: system}
	all := in.fs.events
	if system == "" {
		d.addFile(in, -1, enableFile(all.find("", "")))
		return d
	}
	for _, f := range systemFiles(all, system) {
		d.addFile(in, -1, f)
	}
	return d
}

// Lookup returns a file, or the directory of a system or of an event.
func (d *eventDir) Lookup(name string) (fuse.Node, error) {
	if n, err := d.dir.Lookup(name); err == nil {
		return n, nil
	}
	all := d.in.fs.events
	if d.system == "" {
		if !slices.Contains(all.systems, name) {
			return nil, syscall.ENOENT
		}
		return newEventDir(d.in, name), nil
	}
	which := all.find(d.system, name)
	if name == "" || len(which) == 0 {
		return nil, syscall.ENOENT
	}
	sub := &dir{}
	for _, f := range eventFiles(all, which[0]) {
		sub.addFile(d.in, -1, f)
	}
	return sub, nil
}

// List returns the names in it.
func (d *eventDir) List() []fuse.Entry {
	list := d.dir.List()
	all := d.in.fs.events
	if d.system == "" {
		for _, s := range all.systems {
			list = append(list, fuse.Entry{Name: s, Dir: true})
		}
		return list
	}
	for _, i := range all.find(d.system, "") {
		list = append(list, fuse.Entry{Name: all.all[i].name, Dir: true})
	}
	return list
}

// eventLines lists some events.
func (e *events) lines(has func(i int) bool) []byte {
	var b bytes.Buffer
	for i := range e.all {
		if has(i) {
			b.WriteString(e.all[i].String() + "\n")
		}
	}
	return b.Bytes()
}

// eventWord is a word of set_event: SYSTEM:EVENT, SYSTEM:*, SYSTEM or EVENT, with ! in front to switch off.
func (in *instance) eventWord(word string) error {
	name, off := strings.CutPrefix(word, "!")
	which := in.fs.events.named(name)
	if len(which) == 0 && name != "*:*" { // which may mean none
		return syscall.EINVAL
	}
	return in.enableEvents(which, !off)
}

// named returns the events that a word means.
func (e *events) named(word string) []int {
	system, name, ok := strings.Cut(word, ":")
	if !ok {
		if which := e.find(system, ""); system != "" && len(which) > 0 {
			return which
		}
		if system == "" {
			return nil
		}
		return e.find("", system)
	}
	if name, _, _ = strings.Cut(name, ":"); name == "*" { // :mod: of the kernel's modules is none here
		name = ""
	}
	if system == "*" {
		system = ""
	}
	return e.find(system, name)
}

// eventList is set_event, open. Each word counts at once; opening it with O_TRUNC switches all off.
type eventList struct {
	textHandle
	words words
}

func openEvents(in *instance, _ int, flags uint32) handle {
	l := &eventList{}
	l.in = in
	l.make = func() ([]byte, error) {
		if err := in.fs.scan(); err != nil {
			return nil, err
		}
		return in.fs.events.lines(in.epochs.now().events.has), nil
	}
	return l
}

func (l *eventList) write(b []byte, _ writer) error {
	l.in.fs.mu.Lock()
	defer l.in.fs.mu.Unlock()
	return l.words.write(b, l.in.eventWord)
}

func (l *eventList) flush() error {
	l.in.fs.mu.Lock()
	defer l.in.fs.mu.Unlock()
	return l.words.end(l.in.eventWord)
}

// noEventsOn is what truncating set_event does.
func (in *instance) noEventsOn() error {
	if !in.epochs.now().events.any() {
		return nil
	}
	return in.change(func(s *settings) { s.events.on = nil })
}
