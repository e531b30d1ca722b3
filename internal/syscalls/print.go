package syscalls

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Made is a system call that was made, as it was recorded.
type Made struct {
	Machine Machine
	Number  uint64
	Args    [6]uint64
	Result  uint64
	// Ended says that the call has ended, and Result and Out are known.
	Ended bool
	// In is what memory held when the call began, Out when it ended.
	In, Out Memory
	// Unknown says that the number and the arguments are not known either: only that a call was made.
	Unknown bool
	// NoArgs says that the arguments are not known.
	NoArgs bool
	// TaskName, if not nil, returns the name of a task, "" if it is not known. Tasks in arguments and results get theirs
	// behind their numbers: 4711 <worker>.
	TaskName func(tid int) string
}

// Memory is what is known of a process's memory.
type Memory []Span

// A Span is some bytes of memory.
type Span struct {
	Address uint64
	Bytes   []byte
	// NUL says that behind the bytes is a NUL.
	NUL bool
}

// at returns the bytes that are known from an address on, and whether a NUL is behind them.
func (m Memory) at(address uint64) (b []byte, nul bool) {
	for i := range m {
		s := &m[i]
		if off := address - s.Address; address >= s.Address && (off < uint64(len(s.Bytes)) || off == 0) {
			return s.Bytes[off:], s.NUL
		}
	}
	return nil, false
}

// read returns n bytes, false if they are not all known.
func (m Memory) read(address uint64, n int) ([]byte, bool) {
	b, _ := m.at(address)
	for len(b) < n { // what was recorded in pieces
		more, _ := m.at(address + uint64(len(b)))
		if len(more) == 0 {
			return b, false
		}
		b = append(b[:len(b):len(b)], more...)
	}
	return b[:n], true
}

// maxErrno is the kernel's: results above -maxErrno are errors.
const maxErrno = 4095

// Errno returns the error of a result, 0 if it is none.
func Errno(result uint64) int {
	if e := -int64(result); e > 0 && e <= maxErrno {
		return int(e)
	}
	return 0
}

// Failed tells whether a result is an error of the call: the kernel's own, which mean that it is made again, are none.
func (c *Made) failed() bool { return c.Ended && Errno(c.Result) != 0 }

// Text returns the call as strace -v shows it, without its result: openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC).
func (c *Made) Text() string { return string(c.appendCall(nil)) }

// Line returns the call with its result.
func Line(c *Made) string {
	return string(c.AppendResult(append(c.appendCall(nil), " = "...)))
}

// appendCall appends the call without its result.
func (c *Made) appendCall(b []byte) []byte {
	switch {
	case c.Unknown:
		return append(b, "syscall_?(...)"...)
	case c.NoArgs:
		return append(append(b, c.Machine.Name(c.Number)...), "(...)"...)
	}
	p := printer{Made: c, call: c.Machine.Call(c.Number), b: b}
	p.b = append(append(p.b, c.Machine.Name(c.Number)...), '(')
	if p.call == nil {
		for i := range c.Args {
			p.sep(i)
			p.hex(c.Args[i])
		}
		return append(p.b, ')')
	}
	for i := range p.call.Args {
		if !p.argument(i) {
			break
		}
	}
	return append(p.b, ')')
}

// A printer appends the text of one call.
type printer struct {
	*Made
	call *Call
	b    []byte
	mem  Memory // what the argument that is shown points to
	arg  int    // which it is
}

func (p *printer) sep(i int) {
	if i > 0 {
		p.b = append(p.b, ", "...)
	}
}

func (p *printer) str(s string)   { p.b = append(p.b, s...) }
func (p *printer) hex(v uint64)   { p.b = appendHex(p.b, v) }
func (p *printer) int(v int64)    { p.b = strconv.AppendInt(p.b, v, 10) }
func (p *printer) uint(v uint64)  { p.b = strconv.AppendUint(p.b, v, 10) }
func (p *printer) octal(v uint64) { p.b = appendOctal(p.b, v) }

func appendOctal(b []byte, v uint64) []byte {
	if v == 0 {
		return append(b, '0')
	}
	return strconv.AppendUint(append(b, '0'), v, 8)
}

func (p *printer) enum(group string, v uint64) { p.b = p.Machine.enum(p.b, group, v) }
func (p *printer) flags(group string, v uint64) {
	p.b = p.Machine.flags(p.b, group, v, "0")
}

// address appends a pointer.
func (p *printer) address(v uint64) {
	if v == 0 {
		p.str("NULL")
		return
	}
	p.hex(v)
}

// argument appends an argument and what is between it and the one before. It returns false behind the last one.
func (p *printer) argument(i int) bool {
	s := &p.call.Args[i].spec
	v := p.Args[i]
	switch s.kind {
	case "skip":
		return true
	case "more":
		return false
	}
	if fn := variable()[s.kind]; fn != nil {
		return fn(p, i)
	}
	p.sep(i)
	p.arg = i
	if s.sign == 0 {
		p.scalar(s, v)
		return true
	}
	p.mem = p.In
	if s.sign == '>' || s.sign == '&' && p.Ended && !p.failed() && len(p.Out) > 0 {
		p.mem = p.Out
	}
	if s.sign == '>' && (!p.Ended || p.failed()) {
		p.address(v)
		return true
	}
	if v == 0 {
		p.str("NULL")
		return true
	}
	p.pointer(s, v)
	return true
}

// elements returns how many elements an argument points to, -1 if what says it is negative.
func (p *printer) elements(s *spec) int {
	var n int64
	switch s.count.from {
	case countOne:
		return 1
	case countArg:
		n = int64(p.Args[s.count.arg])
		if k := p.call.Args[s.count.arg].kind; k == "d" || k == "u" {
			n = int64(int32(n))
		}
	case countDeref:
		b, ok := p.Out.read(p.Args[s.count.arg], 4)
		if !ok {
			b, ok = p.In.read(p.Args[s.count.arg], 4)
		}
		if !ok {
			return 0
		}
		n = int64(int32(le32(b)))
	case countResult:
		n = int64(p.Result)
	}
	return int(max(-1, min(n, 1<<31)))
}

// AppendResult appends the result: 3, -1 ENOENT (No such file or directory), ? for a call that has not ended.
func (c *Made) AppendResult(b []byte) []byte {
	call := c.Machine.Call(c.Number)
	if !c.Ended || call != nil && call.result == "none" {
		return append(b, '?')
	}
	if e := Errno(c.Result); e != 0 {
		return appendErrno(b, e)
	}
	kind := "d"
	if call != nil && !c.Unknown {
		kind = call.result
	}
	p := printer{Made: c, call: call, b: b}
	p.result(kind)
	return p.b
}

// restarts are the kernel's own errors, which a program never sees: the call is made again, or ends with EINTR.
var restarts = map[int]string{
	512: "ERESTARTSYS (To be restarted if SA_RESTART is set)",
	513: "ERESTARTNOINTR (To be restarted)",
	514: "ERESTARTNOHAND (To be restarted if no handler)",
	516: "ERESTART_RESTARTBLOCK (Interrupted by signal)",
}

func appendErrno(b []byte, e int) []byte {
	if s, ok := restarts[e]; ok {
		return append(append(b, "? "...), s...)
	}
	name := unix.ErrnoName(unix.Errno(e))
	if name == "" {
		return strconv.AppendInt(append(b, "-1 (errno "...), int64(e), 10)
	}
	switch name { // two names of one number
	case "EWOULDBLOCK":
		name = "EAGAIN"
	case "ENOTSUP":
		name = "EOPNOTSUPP"
	case "EDEADLOCK":
		name = "EDEADLK"
	case "EFSCORRUPTED":
		name = "EUCLEAN"
	}
	b = append(append(b, "-1 "...), name...)
	if text := ErrnoText(e); text != "" {
		b = append(append(append(b, " ("...), text...), ')')
	}
	return b
}

// ErrnoName returns the name of an error, such as ENOENT; "" if it has none.
func ErrnoName(e int) string {
	b := appendErrno(nil, e)
	if len(b) < 3 || b[3] == '(' || b[0] == '?' {
		return ""
	}
	b = b[3:]
	for i, c := range b {
		if c == ' ' {
			return string(b[:i])
		}
	}
	return string(b)
}

// ErrnoText returns what the C library says of an error.
func ErrnoText(e int) string {
	s := unix.Errno(e).Error()
	switch {
	case e == int(unix.EHWPOISON):
		return "Memory page has hardware error"
	case strings.HasPrefix(s, "errno "):
		return ""
	case s != "" && s[0] >= 'a' && s[0] <= 'z':
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

func (p *printer) result(kind string) {
	v := p.Result
	switch kind {
	case "x", "key":
		if kind == "key" {
			p.int(int64(v))
			return
		}
		p.hex(v)
	case "o":
		p.octal(v)
	case "fd", "d", "off":
		p.int(int64(v))
	case "pid", "signal":
		p.int(int64(v))
		if kind == "pid" {
			p.task(int(v))
		} else if v != 0 {
			p.str(" (")
			p.signal(v)
			p.str(")")
		}
	case "poll":
		p.int(int64(v))
		p.polled()
	case "select":
		p.int(int64(v))
		p.selected()
	case "fcntl":
		p.fcntlResult()
	case "times":
		p.int(int64(v))
	case "prctl":
		p.int(int64(v))
		if uint32(p.Args[0]) == prGetDumpable {
			p.str(" (")
			p.enum("dumpable", v)
			p.str(")")
		}
	case "membarrier":
		if v == 0 || p.Args[0] != 0 {
			p.int(int64(v))
			return
		}
		p.hex(v)
		p.str(" (")
		p.flags("membarrier", v)
		p.str(")")
	case "sched":
		p.hex(v)
		p.str(" (")
		p.enum("sched", v)
		p.str(")")
	case "ioprio":
		p.hex(v)
		p.str(" (")
		p.ioprio(v)
		p.str(")")
	default:
		p.int(int64(v))
		p.str(" (")
		p.enum(kindGroup(kind), v)
		p.str(")")
	}
}

// kindGroup returns the group in enum(GROUP).
func kindGroup(kind string) string {
	s := parseSpec(kind)
	return s.group
}

// task appends the name of a task.
func (p *printer) task(tid int) {
	if p.TaskName == nil || tid <= 0 {
		return
	}
	if name := p.TaskName(tid); name != "" {
		p.str(" <")
		p.b = appendText(p.b, []byte(name), '>')
		p.str(">")
	}
}
