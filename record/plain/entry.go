package plain

import (
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record/code"
)

// Refusal says why a function cannot be traced by moving its first instructions. Codes are stable.
type Refusal string

// Refusals. Package record explains them in words.
const (
	GoImage       Refusal = "go-image"
	StackWalker   Refusal = "stack-walker"
	Loader        Refusal = "loader-internal"
	OnlyJumpedTo  Refusal = "only-jumped-to"
	NoUnwindInfo  Refusal = "no-unwind-info"
	UnusualUnwind Refusal = "unusual-unwind-info"
	ReadsReturn   Refusal = "reads-return-address"
	FlagsLive     Refusal = "flags-live"
	LoopAtEntry   Refusal = "loop-at-entry"
	JumpInto      Refusal = "jump-into-site"
	CallAtEntry   Refusal = "call-at-entry"
	SystemCall    Refusal = "system-call-at-entry"
	Undecodable   Refusal = "undecodable"
	Short         Refusal = "short-function"
)

// Entry is where a function's first instructions can be displaced.
type Entry struct {
	Addr    uint64 // first byte to be overwritten: behind a landing pad
	Len     int    // bytes to be overwritten: whole instructions, and padding behind a short function
	Moved   int    // how many of them are the function's instructions
	Refusal Refusal
}

// Entry returns where function i can be displaced, or why it cannot. It may be called by several goroutines at once.
func (f *Finder) Entry(i int) Entry {
	if f.foreign != "" {
		return Entry{Refusal: f.foreign}
	}
	fn := &f.funcs[i]
	text := *f.text
	e := entry{f: f, i: i, start: fn.Addr, end: f.end(i)}
	b := text.Range(fn.Addr, f.limit(i))
	if len(b) >= code.PadLen && f.m.HasPad(b) {
		e.at = e.start + code.PadLen
	} else {
		e.at = e.start
	}
	e.code = b[e.at-e.start:]
	for _, judge := range [...]func() Refusal{e.function, e.unwinding, e.window, e.around} {
		if r := judge(); r != "" {
			return Entry{Refusal: r}
		}
	}
	return Entry{Addr: e.at, Len: e.n, Moved: e.moved}
}

// entry is one function while it is judged.
type entry struct {
	f              *Finder
	i              int
	start, at, end uint64 // of the function; where it is displaced
	code           []byte // from at to the next function
	fde            ehframe.FDE
	rows           []ehframe.Row
	n, moved       int
}

// function judges what is known about the whole of it.
func (e *entry) function() Refusal {
	f := e.f
	facts, marks := f.facts[e.i], f.marks.get(e.start)
	switch {
	case f.funcs[e.i].Name == "" && marks&(called|pointed) == 0 && e.looksPart(facts, marks):
		return OnlyJumpedTo
	case marks&landingPad != 0 || f.marks.get(e.at)&landingPad != 0 || facts&ranInto != 0:
		return JumpInto
	case facts&undecodable != 0:
		return Undecodable
	case facts&usesCaller != 0:
		return ReadsReturn
	case facts&loopsFramed != 0 || facts&loopsAtEntry != 0 && facts&redZone != 0:
		return LoopAtEntry
	case facts&flagsResult != 0 || e.flagsLive():
		return FlagsLive
	}
	return ""
}

// looksPart judges a function without a name that only jumps enter: it can be one that is only tail-called, or a part
// of another that compilers have moved away. A hook is for functions only; and in a part of a function that calls
// nothing, the memory below the stack pointer can be in use, which a hook overwrites. Parts are reached by conditional
// branches or by jump tables, jump back, or are not aligned; and if there is doubt, a part is what it is taken for.
func (e *entry) looksPart(facts fact, marks mark) bool {
	return marks&(otherBranch|tableEntry) != 0 || facts&leaves != 0 || e.start%functionAlign != 0 ||
		facts&redZone != 0 && facts&calls == 0
}

// functionAlign is what compilers align functions to, unless they are to be small.
const functionAlign = 16

// flagsLive reports whether the function may use the flags that its caller leaves.
func (e *entry) flagsLive() bool {
	need := amd64.AllFlags
	for b := e.code[:e.end-min(e.at, e.end)]; len(b) > 0; {
		in, err := amd64.Decode(b)
		if err != nil {
			return false
		}
		reads, kills := in.FlagUse(b[:in.Len])
		if reads&need != 0 {
			return true
		}
		if need &^= kills; need == 0 || in.Op != amd64.Other && in.Op != amd64.Push && in.Op != amd64.Pop && in.Op != amd64.Nop {
			return false
		}
		b = b[in.Len:]
	}
	return false
}

// unwinding judges what unwinders know.
func (e *entry) unwinding() Refusal {
	var ok bool
	if e.fde, ok = e.f.index.Find(e.start); !ok {
		return NoUnwindInfo
	}
	d, c := &e.fde, e.fde.CIE
	if c.Signal || !amd64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions) || e.f.unread[d.PC] {
		return UnusualUnwind
	}
	var err error
	if e.rows, err = d.AppendRows(nil); err != nil {
		return UnusualUnwind
	}
	first := 0
	for first+1 < len(e.rows) && e.rows[first+1].At <= e.at-d.PC {
		first++
	}
	if !atEntry(&e.rows[first]) {
		return UnusualUnwind
	}
	return ""
}

// window decides how much is displaced.
func (e *entry) window() Refusal {
	own := e.code[:e.end-min(e.at, e.end)]
	ends := false
	for e.n < amd64.JumpLen && !ends {
		if e.n >= len(own) {
			return Short
		}
		in, err := amd64.Decode(own[e.n:])
		if err == amd64.ErrTruncated {
			return Short
		}
		if err != nil {
			return Undecodable
		}
		if r := e.instruction(in, e.at+uint64(e.n)); r != "" {
			return r
		}
		ends = in.Op.EndsBlock()
		e.n += in.Len
	}
	e.moved = e.n
	for e.n < amd64.JumpLen { // padding, behind the function or in it: no target, as around sees
		in, err := amd64.Decode(e.code[min(e.n, len(e.code)):])
		if err != nil || in.Op != amd64.Nop && in.Op != amd64.Int3 {
			return Short
		}
		e.n += in.Len
	}
	return ""
}

// instruction judges one that is to be displaced.
func (e *entry) instruction(in amd64.Inst, pc uint64) Refusal {
	switch in.Op {
	case amd64.Call:
		if t := in.Target(pc); t >= e.start && t < e.end { // to find out its own address
			return CallAtEntry
		}
		return e.call(pc + uint64(in.Len))
	case amd64.CallInd:
		return e.call(pc + uint64(in.Len))
	case amd64.CallFar, amd64.JmpFar:
		return CallAtEntry
	case amd64.Syscall, amd64.Sysret, amd64.Int, amd64.Int3, amd64.Iret, amd64.RetFar, amd64.Xbegin, amd64.Hlt, amd64.Ud:
		return SystemCall
	case amd64.Endbr64:
		return JumpInto // something may
	}
	return ""
}

// call judges a call by its return address: the copy has no landing pads, and an exception passes it. So there must be
// none, and the call must not be one through which nothing may be thrown.
func (e *entry) call(ret uint64) Refusal {
	if e.fde.LSDA == 0 {
		return ""
	}
	for _, c := range e.f.early[e.fde.PC] {
		if ret-1 >= c.Lo && ret-1 < c.Hi && c.Pad == 0 {
			return ""
		}
	}
	return CallAtEntry
}

// around judges what is in the window, and its rows.
func (e *entry) around() Refusal {
	end := e.at + uint64(e.n)
	if e.f.marks.any(e.at+1, end)&anyTarget != 0 {
		return JumpInto
	}
	lead := e.at - e.fde.PC
	if e.f.index.Begins(e.start+1, end) || lead+uint64(e.moved) > e.fde.Size {
		return UnusualUnwind
	}
	for i := range e.rows {
		if r := &e.rows[i]; r.At > lead && r.At <= lead+uint64(e.moved) {
			if _, ok := amd64.DisplacedAt(e.code[:e.moved], int(r.At-lead)); !ok {
				return UnusualUnwind
			}
		}
	}
	return ""
}
