//go:build linux

package tracefs

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/trace"
)

// The events that there are, as the kernel has them: raw_syscalls has one for the beginning and one for the end of any
// system call, syscalls two for each. A number that is not in the table has those of raw_syscalls alone, as there.
//
// What a line of trace says of an event, its fields and its print format are what kernel/trace/trace_syscalls.c makes, so
// that programs that read format understand what they find.

// event is one of them.
type event struct {
	id     int // common_type
	system string
	name   string
	label  string // what stands in front of its values: sys_openat
	exit   bool
	raw    bool
	fields []field
	print  string // as format has it
}

// field is one of an event's.
type field struct {
	decl   string // in C, with its name
	name   string
	offset int
	size   int
	signed bool
	text   bool // a string that is in the program's memory
	get    func(*happened) int64
}

// happened is an event that has happened, of which fields are asked for.
type happened struct {
	ev   *trace.Event
	id   int
	cpu  int
	args [6]int64
	made func() *syscalls.Made
}

// Systems of events.
const (
	systemRaw      = "raw_syscalls"
	systemSyscalls = "syscalls"
)

// events are those of a machine: never nil, and without any if there is no such thing as an event.
type events struct {
	all     []event
	systems []string
	byCall  map[uint64]int // the event sys_enter of a call by its number; its sys_exit is the next one
}

// firstEvent is the number of the first of them: below are the kernel's own, as of events/ftrace.
const firstEvent = 100

// callNames are system calls whose events are not called as they are: by the functions that the kernel has for them.
var callNames = map[string]string{
	"stat": "newstat", "fstat": "newfstat", "lstat": "newlstat", "uname": "newuname", "umount2": "umount", "sendfile": "sendfile64",
}

// eventsOf are the events of a machine.
var eventsOf = func() func(syscalls.Machine) *events {
	made := map[syscalls.Machine]*events{}
	var mu sync.Mutex
	return func(m syscalls.Machine) *events {
		mu.Lock()
		defer mu.Unlock()
		if made[m] == nil {
			made[m] = newEvents(m)
		}
		return made[m]
	}
}()

// noEvents are those of a target that cannot tell of any.
var noEvents = &events{}

// common are the fields that all events have. That of the processor has no place in an event.
var common = []field{
	{decl: "unsigned short common_type", name: "common_type", size: 2, get: func(h *happened) int64 { return int64(h.id) }},
	{decl: "unsigned char common_flags", name: "common_flags", offset: 2, size: 1, get: func(*happened) int64 { return 0 }},
	{decl: "unsigned char common_preempt_count", name: "common_preempt_count", offset: 3, size: 1,
		get: func(*happened) int64 { return 0 }},
	{decl: "int common_pid", name: "common_pid", offset: 4, size: 4, signed: true,
		get: func(h *happened) int64 { return int64(h.ev.Task.TID) }},
}

// value is the number of a call as it begins, or its result as it ends.
func value(h *happened) int64 { return int64(h.ev.Sys.Value) }

// number is the number of a call.
func number64(h *happened) int64 { n, _ := h.ev.Func.Syscall(); return int64(n) }

func newEvents(m syscalls.Machine) *events {
	e := &events{systems: []string{systemRaw, systemSyscalls}, byCall: make(map[uint64]int)}
	id := field{decl: "long id", name: "id", offset: 8, size: 8, signed: true, get: number64}
	e.add(event{system: systemRaw, name: "sys_enter", label: "sys_enter", raw: true,
		fields: []field{id, {decl: "unsigned long args[6]", name: "args", offset: 16, size: 48}},
		print: `"NR %ld (%lx, %lx, %lx, %lx, %lx, %lx)", REC->id, REC->args[0], REC->args[1], REC->args[2], ` +
			`REC->args[3], REC->args[4], REC->args[5]`})
	ret := field{decl: "long ret", name: "ret", offset: 16, size: 8, signed: true, get: value}
	e.add(event{system: systemRaw, name: "sys_exit", label: "sys_exit", raw: true, exit: true, fields: []field{id, ret},
		print: `"NR %ld = %ld", REC->id, REC->ret`})
	nr := field{decl: "int __syscall_nr", name: "__syscall_nr", offset: 8, size: 4, signed: true, get: number64}
	for _, c := range m.Calls() {
		name := c.Name
		if n := callNames[name]; n != "" {
			name = n
		}
		e.byCall[uint64(c.Number)] = len(e.all)
		enter := event{system: systemSyscalls, name: "sys_enter_" + name, label: "sys_" + name, fields: []field{nr}}
		var text, values bytes.Buffer
		for i, a := range c.Args {
			enter.fields = append(enter.fields, field{decl: a.Type + " " + a.Name, name: a.Name, offset: 16 + 8*i, size: 8,
				text: a.Type == "const char *", get: func(h *happened) int64 { return h.args[i] }})
			fmt.Fprintf(&text, ", %s: 0x%%08lx", a.Name)
			fmt.Fprintf(&values, ", ((unsigned long)(REC->%s))", a.Name)
		}
		enter.print = strconv.Quote(string(bytes.TrimPrefix(text.Bytes(), []byte(", ")))) + values.String()
		e.add(enter)
		e.add(event{system: systemSyscalls, name: "sys_exit_" + name, label: "sys_" + name, exit: true, fields: []field{nr, ret},
			print: `"0x%lx", REC->ret`})
	}
	return e
}

// add adds an event behind the others.
func (e *events) add(ev event) {
	ev.id = firstEvent + len(e.all)
	e.all = append(e.all, ev)
}

// of returns the events that a beginning or an end of a system call is, by their places.
func (e *events) of(ev *trace.Event) (which []int) {
	number, known := ev.Func.Syscall()
	if len(e.all) == 0 || !known || ev.Sys == nil || ev.Sys.Open {
		return nil
	}
	at, named := e.byCall[number]
	switch {
	case ev.Kind == trace.Entry && named:
		return []int{0, at}
	case ev.Kind == trace.Entry:
		return []int{0}
	case ev.Kind == trace.Exit && named:
		return []int{1, at + 1}
	case ev.Kind == trace.Exit:
		return []int{1}
	}
	return nil
}

// find returns the events that a system and a name mean; "" is any.
func (e *events) find(system, name string) (which []int) {
	for i := range e.all {
		if (system == "" || e.all[i].system == system) && (name == "" || e.all[i].name == name) {
			which = append(which, i)
		}
	}
	return which
}

// String is an event as set_event has it.
func (e *event) String() string { return e.system + ":" + e.name }

// format is the text of the file of that name.
func (e *event) format() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "name: %s\nID: %d\nformat:\n", e.name, e.id)
	for i, fields := range [][]field{common, e.fields} {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, f := range fields {
			signed := 0
			if f.signed {
				signed = 1
			}
			fmt.Fprintf(&b, "\tfield:%s;\toffset:%d;\tsize:%d;\tsigned:%d;\n", f.decl, f.offset, f.size, signed)
		}
	}
	fmt.Fprintf(&b, "\nprint fmt: %s\n", e.print)
	return b.Bytes()
}

// line is what trace says of one that has happened.
func (e *event) line(h *happened) string {
	b := append([]byte(e.label), ": "...)
	switch {
	case e.raw && e.exit:
		return string(fmt.Appendf(b, "NR %d = %d", number64(h), value(h)))
	case e.raw:
		b = fmt.Appendf(b, "NR %d (", number64(h))
		for i, v := range h.args {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendUint(b, uint64(v), 16)
		}
		return string(append(b, ')'))
	case e.exit:
		return fmt.Sprintf("%s -> 0x%x", e.label, uint64(value(h)))
	}
	b = append([]byte(e.label), '(')
	for i, f := range e.fields[1:] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, f.name...), ": "...)
		b = strconv.AppendUint(b, uint64(f.get(h)), 16)
	}
	return string(append(b, ')'))
}

// happens returns what is known of an event that happens, by its place.
func (fs *FS) happens(t *trace.Trace, e int, ev *trace.Event) *happened {
	h := &happened{ev: ev, id: fs.events.all[e].id, cpu: fs.cpu(ev.Task)}
	if ev.Kind == trace.Entry {
		for i, a := range ev.Sys.Args[:min(len(ev.Sys.Args), len(h.args))] {
			h.args[i] = int64(a)
		}
	}
	h.made = sync.OnceValue(func() *syscalls.Made { return t.Made(ev) })
	return h
}
