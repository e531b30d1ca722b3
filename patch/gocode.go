package patch

import (
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/record/moves"
)

// What a Go function has elsewhere, in this order: its runs of moved instructions, each with its events and the jump back;
// the rare parts of its events; and what only the runtime goes to. All is contiguous.

// A goInst is an instruction that moves.
type goInst struct {
	n, moved int    // how long it is, and when it has moved
	jump     uint64 // where it jumps to; 0: it does not
}

// goCode is that of one function. Offsets are from its beginning.
type goCode struct {
	m      goMachine
	fn     int // its place in Plan.Functions
	f      *golang.Func
	moves  *moves.Moves
	id     uint32
	at     uint64         // its address
	runs   []int          // where the runs are
	copies map[uint64]int // where an instruction is now, behind the entry's event
	events []goEvent
	jumps  []uint64 // where moved instructions jump to
	after  int      // where a recovered function returns to; 0: it defers nothing
	size   int      // without what the module adds
	parts  []part   // by offset
	phantoms
}

// goEvent is an event at an offset, and its rare part.
type goEvent struct {
	at, rare int
	exit     bool
	pc       uint64 // of the instruction before which it is
}

// A part is code that looks to the runtime like that of an address of the original, up to the next part.
type part struct {
	at   int
	pc   uint64
	mode partMode
}

type partMode uint8

const (
	asOriginal partMode = iota
	restarts            // a goroutine that is stopped goes on at the latest entry
	unsafePart          // a goroutine is not stopped here
)

// A goMachine is one whose Go programs are traced. Lengths are those of the code that its methods append.
type goMachine interface {
	machine
	syscallMachine
	goShape() *arch.GoShape
	appendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error)
	// appendGoRare appends the rare part of the event whose code is at address event.
	appendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error)
	// goInst decodes the instruction at the beginning of code, at an address.
	goInst(code []byte, at uint64) (goInst, error)
	// appendGoInst appends for address to the first instruction of code, which is at address at. copied says where an
	// instruction has gone that has moved, too.
	appendGoInst(dst, code []byte, at, to uint64, copied func(uint64) (uint64, bool)) ([]byte, error)
	// goContinues reports whether what is behind code can be reached from its last instruction.
	goContinues(code []byte) bool
	appendGoJump(dst []byte, from, to uint64) ([]byte, error)
	goJumpLen() int
	// goReaches reports whether a jump gets from an address to another one, and back.
	goReaches(from, to uint64) bool
	// goMost is the most bytes that a function's code can have, so that its branches reach its rare parts, which are
	// behind all else.
	goMost() int
	// placeVeneer adds what leads to one of the runtime's routines from code that is far away from it, and returns its address;
	// 0: there is no need.
	placeVeneer(l *layout, routine string) uint64
	// syscallParts are those of the copy of a system call; nil: its instructions are not where they were.
	syscallParts(s *Syscall, code []byte) []part
	// placeStart adds what the runtime needs to reach the program's own entry point.
	placeStart(l *layout)
	// goWindows are what is rewritten of a function where it was.
	goWindows(c *goCode, code []byte) ([]goWindow, error)
	// goFill is what fills one of the places in the code where nothing is executed.
	goFill() []byte
}

// goRoutines are addresses that all events need.
type goRoutines struct {
	switches, idBase, slow uint64
	goID, thread           uint32
	tls                    uint64
}

// layGo lays out the code of a function.
func layGo(m goMachine, code []byte, f *golang.Func, plan *moves.Moves, id uint32) (*goCode, error) {
	c := &goCode{m: m, f: f, moves: plan, id: id, copies: map[uint64]int{}}
	shape := m.goShape()
	at := 0
	put := func(n int, pc uint64, mode partMode) {
		if n > 0 {
			c.parts = append(c.parts, part{at, pc, mode})
		}
		at += n
	}
	for i := range plan.Runs {
		r := &plan.Runs[i]
		c.runs = append(c.runs, at)
		events := r.Events
		if only := golang.Only(f.Name); only != golang.BothEnds {
			events = slices.DeleteFunc(slices.Clone(events), func(e moves.Event) bool { return e.Exit != (only == golang.OnlyExits) })
		}
		event := func(exit bool, pc uint64) {
			c.events = append(c.events, goEvent{at: at, exit: exit, pc: pc})
			put(shape.Begin, pc, asOriginal)
			put(shape.Taken-shape.Begin, pc, restarts)
			put(shape.Stored-shape.Taken, pc, unsafePart)
			put(shape.Len-shape.Stored, pc, asOriginal)
			events = events[1:]
		}
		src := code[r.Addr-f.Entry:][:r.Len]
		for o := 0; o < r.Len; {
			pc := r.Addr + uint64(o)
			in, err := m.goInst(src[o:], pc)
			if err != nil || o+in.n > r.Len {
				return nil, fmt.Errorf("instruction at %#x: %v", pc, err)
			}
			if len(events) > 0 && events[0].At == o && !events[0].Exit {
				event(false, pc)
			}
			c.copies[pc] = at
			if len(events) > 0 && events[0].At == o {
				event(true, pc)
			}
			if in.jump != 0 {
				c.jumps = append(c.jumps, in.jump)
			}
			put(in.moved, pc, asOriginal)
			o += in.n
		}
		end := r.Addr + uint64(r.Len)
		if len(events) > 0 {
			event(false, end)
		}
		if m.goContinues(src) {
			put(m.goJumpLen(), end, asOriginal)
		}
	}
	for i := range c.events {
		e := &c.events[i]
		e.rare = at
		put(shape.Rare, e.pc, unsafePart)
	}
	if to := f.DeferReturn(); to != 0 {
		c.after = at
		put(m.goJumpLen(), to, asOriginal)
	}
	c.size = at
	return c, nil
}

// appendGo appends the code for the address that it has been given.
func (c *goCode) appendGo(dst, code []byte, to *goRoutines) ([]byte, error) {
	start := len(dst)
	here := func() uint64 { return c.at + uint64(len(dst)-start) }
	var err error
	next := 0
	event := func(limit int) { // those up to an offset
		for err == nil && next < len(c.events) && c.events[next].at == len(dst)-start && c.events[next].at < limit {
			dst, err = c.m.appendGoEvent(dst, here(), c.event(next, to))
			next++
		}
	}
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		src := code[r.Addr-c.f.Entry:][:r.Len]
		for o := 0; o < r.Len && err == nil; {
			pc := r.Addr + uint64(o)
			in, _ := c.m.goInst(src[o:], pc) // as it has been laid out
			event(c.size)
			if err == nil {
				dst, err = c.m.appendGoInst(dst, src[o:], pc, here(), c.copied)
			}
			o += in.n
		}
		event(c.size)
		if err == nil && c.m.goContinues(src) {
			dst, err = c.m.appendGoJump(dst, here(), r.Addr+uint64(r.Len))
		}
	}
	for i := range c.events {
		if err == nil {
			dst, err = c.m.appendGoRare(dst, c.at+uint64(c.events[i].at), c.event(i, to))
		}
	}
	if err == nil && c.after != 0 {
		dst, err = c.m.appendGoJump(dst, here(), c.f.DeferReturn())
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %#x: %w", c.f.Name, c.f.Entry, err)
	}
	if n := len(dst) - start; n != c.size {
		return nil, internalf("%s at %#x: %d bytes of moved code in %d", c.f.Name, c.f.Entry, n, c.size)
	}
	for range c.phantoms.n() {
		dst = append(dst, c.m.goFill()...)
	}
	return dst, nil
}

// event describes the i-th event.
func (c *goCode) event(i int, to *goRoutines) *arch.GoEvent {
	e := &c.events[i]
	id := c.id
	if e.exit {
		id |= 1 << 31
	}
	deep := c.f.DeferReturn() != 0 && !golang.Tells(c.f.Name)
	return &arch.GoEvent{
		ID: id, Switch: to.switches + uint64(c.id-1), IDBase: to.idBase, GoID: to.goID, Thread: to.thread, TLS: to.tls,
		Rare: c.at + uint64(e.rare), Slow: to.slow, Deep: deep,
		Always: deep || c.f.Name == golang.Park && !e.exit || golang.Only(c.f.Name) != golang.BothEnds,
	}
}

// copied returns where the instruction has gone that was at an address, false: it is still there.
func (c *goCode) copied(addr uint64) (uint64, bool) {
	o, ok := c.copies[addr]
	return c.at + uint64(o), ok
}
