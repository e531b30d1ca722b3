package plain

import (
	"cmp"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// Refusal says why a function cannot be traced by moving its first instructions. Codes are stable.
type Refusal string

// Refusals. Package record explains them in words.
const (
	GoImage       Refusal = "go-image"
	StackWalker   Refusal = "stack-walker"
	Measured      Refusal = "measured"
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
	ReturnsTwice  Refusal = "returns-twice"
	Exclusive     Refusal = "exclusive-at-entry"
	TextReloc     Refusal = "text-relocation"
)

// Entry is where a function's first instructions can be displaced.
type Entry struct {
	Addr     uint64 // first byte to be overwritten: behind a landing pad
	Len      int    // bytes to be overwritten: whole instructions, and padding behind a short function
	Moved    int    // how many of them are the function's instructions
	Calls    bool   // a call moves
	Catches  bool   // a call moves for which there is a handler, or through which nothing may be thrown
	Untabled bool   // no unwind entry describes the function
	Swaps    bool   // the function swaps pieces of its stack (swap.go)
	Signed   bool   // on arm64: there, the function has signed its return address
	Refusal  Refusal
	// Brief: Refusal is for a jump to a thunk. The other fields are those of a short jump, to padding near by, if there is
	// some (see Pads).
	Brief bool
}

// Entry returns where function i can be displaced, or why it cannot. It may be called by several goroutines at once.
func (f *Finder) Entry(i int) Entry {
	if f.foreign != "" {
		return Entry{Refusal: f.foreign}
	}
	fn := &f.funcs[i]
	if f.ml.has(fn.Addr) {
		return Entry{Refusal: StackWalker}
	}
	text := *f.text
	e := entry{f: f, i: i, start: fn.Addr, end: f.end(i)}
	b := text.Range(fn.Addr, f.limit(i))
	var lead int
	lead, e.signed = f.m.begin(f, b)
	e.at = e.start + uint64(lead)
	e.code = b[lead:]
	for _, judge := range [...]func() Refusal{e.function, e.unwinding} {
		if r := judge(); r != "" {
			return Entry{Refusal: r}
		}
	}
	var first Refusal
	for k, n := range f.m.jumps() {
		r := e.site(n)
		if r == "" {
			return Entry{
				Addr: e.at, Len: e.n, Moved: e.moved, Calls: e.calls, Catches: e.catches, Untabled: e.fde.CIE == nil,
				Swaps:  f.facts[i]&swapsStack != 0,
				Signed: e.signed, Refusal: first, Brief: k > 0,
			}
		}
		if first = cmp.Or(first, r); r != Short && r != JumpInto {
			break
		}
	}
	return Entry{Refusal: first}
}

// entry is one function while it is judged.
type entry struct {
	f              *Finder
	i              int
	start, at, end uint64 // of the function; where it is displaced
	code           []byte // from at to the next function
	fde            ehframe.FDE
	rows           []ehframe.Row
	signed         bool // the return address is signed at at
	jump           int  // bytes of what takes the place of instructions
	n, moved       int
	calls          bool // a call is among what is displaced
	catches        bool // the copy needs language-specific data
}

// own is the function's code from at.
func (e *entry) own() []byte { return e.code[:e.end-min(e.at, e.end)] }

// function judges what is known about the whole of it.
func (e *entry) function() Refusal {
	f := e.f
	facts, marks := f.facts[e.i], f.marks.get(e.start)
	switch {
	case f.funcs[e.i].Name == "" && marks&(called|pointed) == 0 && f.m.part(e, facts, marks):
		return OnlyJumpedTo
	case marks&landingPad != 0 || f.marks.get(e.at)&landingPad != 0 || facts&ranInto != 0:
		return JumpInto
	case facts&undecodable != 0:
		return Undecodable
	case facts&usesCaller != 0 && facts&swapsStack == 0:
		return ReadsReturn
	case f.inRange(e.code):
		return AddressTaken
	case facts&forks != 0:
		return ReturnsTwice
	case facts&loopsFramed != 0 || facts&loopsAtEntry != 0 && facts&redZone != 0:
		return LoopAtEntry
	case facts&flagsResult != 0 || f.m.live(e):
		return FlagsLive
	}
	return ""
}

// unwinding judges what unwinders know.
func (e *entry) unwinding() Refusal {
	var ok bool
	if e.fde, ok = e.f.index.Find(e.start); !ok {
		return e.untabled()
	}
	d, c := &e.fde, e.fde.CIE
	if c.Signal || !e.f.m.startsAtEntry(c) || e.f.unread[d.PC] {
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
	row := e.rows[first]
	if row.Signed != e.signed {
		return UnusualUnwind
	}
	if row.Signed = false; !e.f.m.atEntry(&row) {
		return UnusualUnwind
	}
	return ""
}

// untabled judges a function that unwinders know nothing of.
func (e *entry) untabled() Refusal {
	if e.f.facts[e.i]&(followed|joined) != followed {
		return NoUnwindInfo
	}
	e.fde = ehframe.FDE{PC: e.start, Size: e.end - e.start}
	return ""
}

// site decides how much is displaced by a jump of so many bytes, and judges that.
func (e *entry) site(jump int) Refusal {
	e.jump, e.n, e.moved, e.calls, e.catches = jump, 0, 0, false, false
	if r := e.f.m.window(e); r != "" {
		return r
	}
	if e.f.relocated(e.at, e.at+uint64(e.n)) {
		return TextReloc
	}
	return e.around()
}

// callee judges a call that is to be displaced, by what it calls: that sees another return address then.
func (f *Finder) callee(to uint64) Refusal {
	if k := f.function(to); k >= 0 && f.facts[k]&(usesCaller|swapsStack) == usesCaller {
		return CallAtEntry
	}
	return ""
}

// call notes what a call, by its return address, needs: exceptions pass the copy of one that is known to have no landing
// pad. The copies of others, and of those through which nothing may be thrown, have language-specific data of their own.
func (e *entry) call(ret uint64) {
	e.calls = true
	if e.fde.LSDA == 0 {
		return
	}
	for _, c := range e.f.early[e.fde.PC] {
		if ret-1 >= c.Lo && ret-1 < c.Hi && c.Pad == 0 {
			return
		}
	}
	e.catches = true
}

// caught judges whether language-specific data for the moved calls can be made.
func (e *entry) caught() Refusal {
	lead := e.at - e.fde.PC
	_, err := e.fde.AppendMovedLSDA(nil, e.f.file, e.fde.LSDA, lead, lead+uint64(e.moved), e.f.fixed,
		func(off uint64) (uint64, bool) { return off, e.f.m.begins(e.code[:e.moved], int(off-lead)) })
	if err != nil {
		return CallAtEntry
	}
	return ""
}

// around judges what is in the window, and its rows.
func (e *entry) around() Refusal {
	end := e.at + uint64(e.n)
	if e.f.marks.any(e.at+e.f.m.align(), end)&anyTarget != 0 {
		return JumpInto
	}
	lead := e.at - e.fde.PC
	if e.f.index.Begins(e.start+1, end) || lead+uint64(e.moved) > e.fde.Size {
		return UnusualUnwind
	}
	for i := range e.rows {
		if r := &e.rows[i]; r.At > lead && r.At <= lead+uint64(e.moved) {
			if !e.f.m.begins(e.code[:e.moved], int(r.At-lead)) {
				return UnusualUnwind
			}
		}
	}
	if e.catches {
		return e.caught()
	}
	return ""
}
