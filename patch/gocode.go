package patch

import (
	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/record/moves"
)

// What a Go function has elsewhere, in this order: its runs of moved instructions, each with its events and the jump back;
// the rare parts of its events; and what only the runtime goes to. All is contiguous.

// goCode is that of one function.
type goCode struct {
	movedCode
	g     goMachine
	f     *golang.Func
	after int    // where a recovered function returns to; 0: it defers nothing
	parts []part // by offset
	phantoms
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
	mover
	syscallMachine
	goShape() *arch.GoShape
	// goMost is the most bytes that a function's code can have, so that its branches reach its rare parts, which are
	// behind all else.
	goMost() int
	appendGoEvent(dst []byte, at uint64, e *arch.GoEvent) ([]byte, error)
	// appendGoRare appends the rare part of the event whose code is at address event.
	appendGoRare(dst []byte, event uint64, e *arch.GoEvent) ([]byte, error)
	// placeVeneer adds what leads to one of the runtime's routines from code that is far away from it, and returns its address;
	// 0: there is no need.
	placeVeneer(l *layout, routine string) uint64
	// syscallParts are those of the copy of a system call; nil: its instructions are not where they were.
	syscallParts(s *Syscall, code []byte) []part
	// placeStart adds what the runtime needs to reach the program's own entry point.
	placeStart(l *layout)
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
	c := &goCode{movedCode: movedCode{m: m, name: f.Name, entry: f.Entry, next: f.Next, moves: plan, id: id}, g: m, f: f}
	shape, at := m.goShape(), 0
	put := func(n int, pc uint64, mode partMode) {
		if n > 0 {
			c.parts = append(c.parts, part{at, pc, mode})
		}
		at += n
	}
	err := c.lay(code, shape.Len, golang.Only(f.Name), func(n int, pc uint64, event bool) {
		if !event {
			put(n, pc, asOriginal)
			return
		}
		put(shape.Begin, pc, asOriginal)
		put(shape.Taken-shape.Begin, pc, restarts)
		put(shape.Stored-shape.Taken, pc, unsafePart)
		put(shape.Len-shape.Stored, pc, asOriginal)
	})
	if err != nil {
		return nil, err
	}
	for i := range c.events {
		e := &c.events[i]
		e.rare = at
		put(shape.Rare, e.pc, unsafePart)
	}
	if to := f.DeferReturn(); to != 0 {
		c.after = at
		put(m.movedJumpLen(), to, asOriginal)
	}
	c.size = at
	return c, nil
}

// appendGo appends the code for the address that it has been given.
func (c *goCode) appendGo(dst, code []byte, to *goRoutines) ([]byte, error) {
	start, m := len(dst), c.g
	dst, err := c.append(dst, code, func(dst []byte, at uint64, i int) ([]byte, error) {
		return m.appendGoEvent(dst, at, c.event(i, to))
	})
	for i := range c.events {
		if err == nil {
			dst, err = m.appendGoRare(dst, c.at+uint64(c.events[i].at), c.event(i, to))
		}
	}
	if err == nil && c.after != 0 {
		dst, err = m.appendMovedJump(dst, c.at+uint64(len(dst)-start), c.f.DeferReturn())
	}
	if err == nil {
		err = c.proveSize(len(dst) - start)
	}
	if err != nil {
		return nil, err
	}
	for range c.phantoms.n() {
		dst = append(dst, m.goFill()...)
	}
	return dst, nil
}

// event describes the i-th event.
func (c *goCode) event(i int, to *goRoutines) *arch.GoEvent {
	e := &c.events[i]
	deep := c.f.DeferReturn() != 0 && !golang.Tells(c.name)
	return &arch.GoEvent{
		ID: c.eventID(i), Switch: to.switches + uint64(c.id-1), IDBase: to.idBase, GoID: to.goID, Thread: to.thread, TLS: to.tls,
		Rare: c.at + uint64(e.rare), Slow: to.slow, Deep: deep,
		Always: deep || c.name == golang.Park && !e.exit || golang.Only(c.name) != moves.BothEnds,
	}
}
