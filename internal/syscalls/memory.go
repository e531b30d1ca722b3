package syscalls

import (
	"encoding/binary"
	"strconv"
	"sync"
)

// What arguments point to. A structure is so many bytes on each machine, and a function that shows them; what is made
// of several pieces of memory has functions of its own.

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// A structure is what some kinds of arguments point to.
type structure struct {
	size  [machines]int
	limit int // bytes to capture of several elements, if not MaxElements
	show  func(p *printer, b []byte)
}

func same(size int) [machines]int { return [machines]int{size, size} }

// structures are set by init, because what shows some of them looks others up, and made when the first is wanted.
var structures func() map[string]structure

func init() {
	structures = sync.OnceValue(func() map[string]structure {
		return map[string]structure{
			"int":       {size: same(4), show: func(p *printer, b []byte) { p.int(int64(int32(le32(b)))) }},
			"uint":      {size: same(4), show: (*printer).uintWord},
			"intword":   {size: same(4), show: (*printer).intWord},
			"uintword":  {size: same(4), show: (*printer).uintWord},
			"socklen":   {size: same(4), show: (*printer).sockLen},
			"ulong":     {size: same(8), show: func(p *printer, b []byte) { p.bracketed(func() { p.uint(le64(b)) }) }},
			"long":      {size: same(8), show: func(p *printer, b []byte) { p.bracketed(func() { p.int(int64(le64(b))) }) }},
			"xword":     {size: same(8), show: func(p *printer, b []byte) { p.bracketed(func() { p.hex(le64(b)) }) }},
			"ptrword":   {size: same(8), show: func(p *printer, b []byte) { p.bracketed(func() { p.address(le64(b)) }) }},
			"timerid":   {size: same(4), show: (*printer).intWord},
			"off":       {size: same(8), show: func(p *printer, b []byte) { p.bracketed(func() { p.int(int64(le64(b))) }) }},
			"off_in":    {size: same(8), show: (*printer).sendOffset},
			"pipefd":    {size: same(8), show: (*printer).pipeFDs},
			"mempolicy": {size: same(4), show: (*printer).memPolicy},

			"timespec":   {size: same(16), show: (*printer).timespec},
			"timeval":    {size: same(16), show: (*printer).timeval},
			"timeval2":   {size: same(32), show: (*printer).timevals},
			"utimens":    {size: same(32), show: (*printer).utimens},
			"utimbuf":    {size: same(16), show: (*printer).utimbuf},
			"timezone":   {size: same(8), show: (*printer).timezone},
			"itimerval":  {size: same(32), show: (*printer).itimerval},
			"itimerspec": {size: same(32), show: (*printer).itimerspec},
			"timex":      {size: same(208), show: (*printer).timex},
			"tms":        {size: same(32), show: (*printer).tms},

			"stat":            {size: [machines]int{144, 128}, show: (*printer).stat},
			"statx":           {size: same(256), show: (*printer).statx},
			"statfs":          {size: same(120), show: (*printer).statfs},
			"open_how":        {size: same(24), show: (*printer).openHow},
			"cachestat":       {size: same(40), show: (*printer).cachestat},
			"cachestat_range": {size: same(16), show: (*printer).cachestatRange},
			"utsname":         {size: same(390), show: (*printer).utsname},
			"sysinfo":         {size: same(112), show: (*printer).sysinfo},
			"pollfd":          {size: same(8), show: (*printer).pollfd},
			"epoll_event":     {size: [machines]int{12, 16}, show: (*printer).epollEvent},
			"fdset":           {size: same(1), limit: 128, show: nil},
			"dirents":         {size: same(1), limit: 2048, show: nil},
			"dirents64":       {size: same(1), limit: 2048, show: nil},

			"sockaddr": {size: same(1), limit: 128, show: nil},
			"sockopt":  {size: same(1), limit: 64, show: nil},

			"sigset":      {size: same(1), limit: 8, show: nil},
			"sigset_pair": {size: same(16), show: (*printer).sigsetPair},
			"sigaction":   {size: same(32), show: (*printer).sigaction},
			"siginfo":     {size: same(128), show: (*printer).siginfo},
			"stack":       {size: same(24), show: (*printer).stackT},
			"sigevent":    {size: same(64), show: (*printer).sigevent},

			"clone_args":  {size: same(1), limit: 88, show: nil},
			"wstatus":     {size: same(4), show: (*printer).waitStatus},
			"rusage":      {size: same(144), show: (*printer).rusage},
			"rlimit":      {size: same(16), show: (*printer).rlimit},
			"sched_param": {size: same(4), show: (*printer).intWord},
			"sched_attr":  {size: same(1), limit: 56, show: nil},
			"cpuset":      {size: same(1), limit: 128, show: nil},
			"nodemask":    {size: same(1), limit: 0, show: nil},
			"cap_header":  {size: same(8), show: (*printer).capHeader},
			"cap_data":    {size: same(24), show: (*printer).capData},
			"uids":        {size: same(4), show: func(p *printer, b []byte) { p.uid(uint64(le32(b))) }},
			"futex_waitv": {size: same(24), show: (*printer).futexWaitv},
			"sembuf":      {size: same(6), show: (*printer).sembuf},
			"mq_attr":     {size: same(64), show: (*printer).mqAttr},
			"mincore":     {size: same(1), limit: 1, show: nil},
		}
	})
}

// whole are kinds that are shown by functions of their own: they are not one structure, or an array of one.
var whole func() map[string]func(p *printer, s *spec, v uint64)

func init() {
	whole = sync.OnceValue(func() map[string]func(p *printer, s *spec, v uint64) {
		return map[string]func(p *printer, s *spec, v uint64){
			"path":       func(p *printer, s *spec, v uint64) { p.text(v, 0) },
			"str":        func(p *printer, s *spec, v uint64) { p.text(v, MaxText) },
			"mount_data": func(p *printer, s *spec, v uint64) { p.text(v, MaxText) },
			"cwd":        func(p *printer, s *spec, v uint64) { p.text(v, 0) },
			"buf":        func(p *printer, s *spec, v uint64) { p.data(v, p.elements(s)) },
			"argv":       (*printer).strings,
			"iovec":      (*printer).iovecs,
			"iovec_bare": (*printer).bareVectors,
			"msghdr":     func(p *printer, s *spec, v uint64) { p.msghdr(v, int(int64(p.Result)), s.sign == '>') },
			"mmsghdr":    (*printer).mmsghdrs,
			"sockaddr":   (*printer).sockaddrArg,
			"sockopt":    (*printer).sockopt,
			"sigset":     (*printer).sigsetArg,
			"fdset":      (*printer).fdset,
			"dirents":    (*printer).dirents,
			"dirents64":  (*printer).dirents,
			"clone_args": (*printer).cloneArgs,
			"sched_attr": (*printer).schedAttr,
			"cpuset":     (*printer).cpuset,
			"nodemask":   func(p *printer, s *spec, v uint64) { p.address(v) },
			"msgbuf":     (*printer).msgbuf,
			"mincore":    func(p *printer, s *spec, v uint64) { p.address(v) },
		}
	})
}

// pointer appends what an argument points to.
func (p *printer) pointer(s *spec, v uint64) {
	if fn := whole()[s.kind]; fn != nil {
		fn(p, s, v)
		return
	}
	st, ok := structures()[s.kind]
	if !ok || st.show == nil {
		p.address(v)
		return
	}
	size := st.size[p.Machine]
	if s.count.from == countOne {
		p.structure(&st, size, v)
		return
	}
	n := max(0, p.elements(s))
	if n == 0 && s.sign != '&' {
		p.str("[]")
		return
	}
	if _, ok := p.mem.read(v, size); !ok {
		p.address(v)
		return
	}
	p.str("[")
	for i := range n {
		p.sep(i)
		b, ok := p.mem.read(v+uint64(i*size), size)
		if !ok || i == MaxElements {
			p.str("...")
			break
		}
		st.show(p, b)
	}
	p.str("]")
}

// structure appends one, or its address if its bytes are not known.
func (p *printer) structure(st *structure, size int, v uint64) {
	if b, ok := p.mem.read(v, size); ok {
		st.show(p, b)
	} else {
		p.address(v)
	}
}

func (p *printer) intWord(b []byte)   { p.bracketed(func() { p.int(int64(int32(le32(b)))) }) }
func (p *printer) uintWord(b []byte)  { p.bracketed(func() { p.uint(uint64(le32(b))) }) }
func (p *printer) memPolicy(b []byte) { p.bracketed(func() { p.enum("mpol_mode", uint64(le32(b))) }) }

func (p *printer) bracketed(fn func()) {
	p.str("[")
	fn()
	p.str("]")
}

// field appends the name of a field, and a comma in front of all but the first.
func (p *printer) field(name string) {
	if p.b[len(p.b)-1] != '{' {
		p.str(", ")
	}
	p.str(name)
	p.str("=")
}

func (p *printer) intField(name string, v int64)   { p.field(name); p.int(v) }
func (p *printer) uintField(name string, v uint64) { p.field(name); p.uint(v) }
func (p *printer) hexField(name string, v uint64)  { p.field(name); p.hex(v) }
func (p *printer) flagsField(name, group string, v uint64) {
	p.field(name)
	p.flags(group, v)
}

// strings appends the strings of an execve.
func (p *printer) strings(_ *spec, v uint64) {
	b, _ := p.mem.at(v)
	if len(b) < 8 {
		p.address(v)
		return
	}
	p.str("[")
	for i := 0; ; i++ {
		b, ok := p.mem.read(v+uint64(8*i), 8)
		if ok && le64(b) == 0 {
			break
		}
		p.sep(i)
		if !ok || i == MaxArguments {
			p.str("...")
			break
		}
		p.text(le64(b), MaxText)
	}
	p.str("]")
}

// iovecs appends vectors with what they hold: of those that the kernel fills in, as much as the result says.
func (p *printer) iovecs(s *spec, v uint64) {
	left := -1
	if s.sign == '>' {
		left = int(int64(p.Result))
	}
	p.vectors(v, p.elements(s), left, true)
}

// bareVectors appends vectors of another process.
func (p *printer) bareVectors(s *spec, v uint64) { p.vectors(v, p.elements(s), -1, false) }

func (p *printer) vectors(v uint64, n, left int, text bool) {
	first, _ := p.mem.at(v)
	if len(first) < 16 {
		mem := p.mem
		if p.mem = p.In; len(mem) > 0 { // the vectors themselves were read when the call began
			first, _ = p.mem.at(v)
		}
		p.mem = mem
	}
	if n == 0 {
		p.str("[]")
		return
	}
	if n < 0 || len(first) < 16 {
		p.address(v)
		return
	}
	p.str("[")
	for i := range n {
		p.sep(i)
		b, ok := p.mem.read(v+uint64(16*i), 16)
		if !ok {
			b, ok = p.In.read(v+uint64(16*i), 16)
		}
		if !ok || i == MaxElements {
			p.str("...")
			break
		}
		base, size := le64(b), le64(b[8:])
		have := int(min(size, 1<<31-1))
		if left >= 0 {
			have = min(have, left)
			left -= have
		}
		p.str("{iov_base=")
		if text {
			p.data(base, have)
		} else {
			p.address(base)
		}
		p.str(", iov_len=")
		p.uint(size)
		p.str("}")
	}
	p.str("]")
}

// pipeFDs appends both ends.
func (p *printer) pipeFDs(b []byte) {
	p.bracketed(func() {
		p.int(int64(int32(le32(b))))
		p.str(", ")
		p.int(int64(int32(le32(b[4:]))))
	})
}

// changed appends a number that the kernel has changed as [1 => 2].
func (p *printer) changed(before, after int64, known bool) {
	p.b = strconv.AppendInt(append(p.b, '['), before, 10)
	if known && after != before {
		p.b = strconv.AppendInt(append(p.b, " => "...), after, 10)
	}
	p.b = append(p.b, ']')
}

// wasAndIs returns n bytes that the argument points to, as they were, b if that is not recorded, and as they are. known
// says whether those are recorded.
func (p *printer) wasAndIs(b []byte, n int) (before, after []byte, known bool) {
	i := p.index()
	before, ok := p.In.read(p.Args[i], n)
	if !ok {
		before = b
	}
	if after, known = p.Out.read(p.Args[i], n); !known {
		after = before
	}
	return before, after, known
}

// sockLen appends the length of an address or option, as it was and is.
func (p *printer) sockLen(b []byte) {
	before, after, known := p.wasAndIs(b, 4)
	p.changed(int64(int32(le32(before))), int64(int32(le32(after))), known && !p.failed())
}

// sendOffset appends sendfile's position, as it was and is.
func (p *printer) sendOffset(b []byte) {
	before, after, known := p.wasAndIs(b, 8)
	p.str("[")
	p.int(int64(le64(before)))
	p.str("]")
	if known && !p.failed() && le64(after) != le64(before) {
		p.str(" => [")
		p.int(int64(le64(after)))
		p.str("]")
	}
}

// index is which argument is shown.
func (p *printer) index() int { return p.arg }
