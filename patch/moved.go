package patch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/record/moves"
)

// What a function that is recorded in place has elsewhere: its runs of moved instructions, each with its events and the jump
// back. What else there is of it stands behind these.

// movedCode is that of one function. Offsets are from its beginning.
type movedCode struct {
	m      mover
	fn     int // its place in Plan.Functions
	name   string
	entry  uint64 // its own address
	next   uint64 // and the one behind it
	moves  *moves.Moves
	id     uint32
	at     uint64         // the address of its code
	runs   []int          // where the runs are
	backs  []int          // and their jumps back, or their ends
	copies map[uint64]int // where an instruction is now, behind the entry's event
	events []movedEvent
	jumps  []uint64 // where moved instructions jump to
	end    int      // of the last run
	size   int
}

// A movedInst is an instruction that moves.
type movedInst struct {
	n, moved int    // how long it is, and when it has moved
	jump     uint64 // where it jumps to; 0: it does not
}

// movedEvent is an event at an offset, and its rare part, if it has one.
type movedEvent struct {
	at, rare int
	exit     bool
	pc       uint64 // of the instruction before which it is
}

// A mover is a machine on which functions are recorded in place. Lengths are those of the code that its methods append.
type mover interface {
	// movedInst decodes the instruction at the beginning of code, at an address.
	movedInst(code []byte, at uint64) (movedInst, error)
	// appendMovedInst appends for address to the first instruction of code, which is at address at. copied says where an
	// instruction has gone that has moved, too.
	appendMovedInst(dst, code []byte, at, to uint64, copied func(uint64) (uint64, bool)) ([]byte, error)
	// continues reports whether what is behind code can be reached from its last instruction.
	continues(code []byte) bool
	appendMovedJump(dst []byte, from, to uint64) ([]byte, error)
	movedJumpLen() int
	// movedReaches reports whether a jump gets from an address to another one, and back.
	movedReaches(from, to uint64) bool
	// movedWindows are what is rewritten of a function where it was.
	movedWindows(c *movedCode, code []byte) ([]movedWindow, error)
}

// A reverter is one on which such functions can be the original's again.
type reverter interface {
	mover
	// movedReturns returns the instructions in the middle of what is rewritten of a function, and where they are now; false: it
	// has to stay as it is.
	movedReturns(c *movedCode, code []byte) ([]arch.GoReturn, bool)
}

// A movedWindow is what is rewritten of a function where it was.
type movedWindow struct {
	addr uint64
	new  []byte
}

// lay lays out the runs of a function, whose code is given, with events of some bytes at the ends that only says. put is told of
// each piece: its length, which instruction it is about, and whether it is an event.
func (c *movedCode) lay(code []byte, event int, only moves.Ends, put func(n int, pc uint64, event bool)) error {
	c.copies, c.size = map[uint64]int{}, 0
	add := func(n int, pc uint64, event bool) {
		put(n, pc, event)
		c.size += n
	}
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		c.runs = append(c.runs, c.size)
		events := r.Events
		if only != moves.BothEnds {
			events = slices.DeleteFunc(slices.Clone(events), func(e moves.Event) bool { return e.Exit != (only == moves.OnlyExits) })
		}
		record := func(exit bool, pc uint64) {
			c.events = append(c.events, movedEvent{at: c.size, exit: exit, pc: pc})
			add(event, pc, true)
			events = events[1:]
		}
		src := code[r.Addr-c.entry:][:r.Len]
		for o := 0; o < r.Len; {
			pc := r.Addr + uint64(o)
			in, err := c.m.movedInst(src[o:], pc)
			if err != nil || o+in.n > r.Len {
				return fmt.Errorf("instruction at %#x: %v", pc, err)
			}
			if len(events) > 0 && events[0].At == o && !events[0].Exit {
				record(false, pc)
			}
			c.copies[pc] = c.size
			if len(events) > 0 && events[0].At == o {
				record(true, pc)
			}
			if in.jump != 0 {
				c.jumps = append(c.jumps, in.jump)
			}
			add(in.moved, pc, false)
			o += in.n
		}
		end := r.Addr + uint64(r.Len)
		if len(events) > 0 {
			record(false, end)
		}
		c.backs = append(c.backs, c.size)
		if c.m.continues(src) {
			add(c.m.movedJumpLen(), end, false)
		}
	}
	c.end = c.size
	return nil
}

// append appends the runs for the address that the code has been given. event appends the i-th event.
func (c *movedCode) append(dst, code []byte, event func(dst []byte, at uint64, i int) ([]byte, error)) ([]byte, error) {
	start := len(dst)
	here := func() uint64 { return c.at + uint64(len(dst)-start) }
	var err error
	next := 0
	events := func() { // those that are here
		for err == nil && next < len(c.events) && c.events[next].at == len(dst)-start {
			dst, err = event(dst, here(), next)
			next++
		}
	}
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		src := code[r.Addr-c.entry:][:r.Len]
		for o := 0; o < r.Len && err == nil; {
			pc := r.Addr + uint64(o)
			in, _ := c.m.movedInst(src[o:], pc) // as it has been laid out
			events()
			if err == nil {
				dst, err = c.m.appendMovedInst(dst, src[o:], pc, here(), c.copied)
			}
			o += in.n
		}
		events()
		if err == nil && c.m.continues(src) {
			dst, err = c.m.appendMovedJump(dst, here(), r.Addr+uint64(r.Len))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %#x: %w", c.name, c.entry, err)
	}
	return dst, nil
}

// place returns where the instruction of the i-th run is that was at an address, with its event, or what goes back behind all.
func (c *movedCode) place(i int, addr uint64) (int, bool) {
	r := &c.moves.Runs[i]
	switch addr {
	case r.Addr:
		return c.runs[i], true
	case r.Addr + uint64(r.Len):
		return c.backs[i], true
	}
	o, ok := c.copies[addr]
	return o, ok
}

// runEnd is where the i-th run ends.
func (c *movedCode) runEnd(i int) int {
	if i+1 < len(c.runs) {
		return c.runs[i+1]
	}
	return c.end
}

// reached reports whether jumps get to the function and back from what is added between two addresses, and to what its
// instructions jump to.
func (c *movedCode) reached(from, to uint64) bool {
	reaches := func(addr uint64) bool { return c.m.movedReaches(addr, from) && c.m.movedReaches(addr, to) }
	return reaches(c.entry) && reaches(c.next) && !slices.ContainsFunc(c.jumps, func(a uint64) bool { return !reaches(a) })
}

// proveSize checks how much code has been appended.
func (c *movedCode) proveSize(n int) error {
	if n != c.size {
		return internalf("%s at %#x: %d bytes of moved code in %d", c.name, c.entry, n, c.size)
	}
	return nil
}

// endBit is that of an event's id which says that a call ends.
const endBit = 1 << 31

// eventID is the id of the i-th event.
func (c *movedCode) eventID(i int) uint32 {
	if c.events[i].exit {
		return c.id | endBit
	}
	return c.id
}

// copied returns where the instruction has gone that was at an address, false: it is still there.
func (c *movedCode) copied(addr uint64) (uint64, bool) {
	o, ok := c.copies[addr]
	return c.at + uint64(o), ok
}

// canRevert notes that a function can be the original's again, if so. sortReturns has to follow when all have been noted.
func (l *layout) canRevert(m reverter, c *movedCode, code []byte) {
	if returns, ok := m.movedReturns(c, code); ok {
		if l.movedBack == nil {
			l.movedBack = map[int]bool{}
		}
		l.movedBack[c.fn], l.movedReturns = true, append(l.movedReturns, returns...)
	}
}

func (l *layout) sortReturns() {
	slices.SortFunc(l.movedReturns, func(a, b arch.GoReturn) int { return cmp.Compare(a.From, b.From) })
}

// movedCopy returns the copy of an instruction in the middle of what is rewritten of a function that can be the original's again.
func (l *layout) movedCopy(addr uint64) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(l.movedReturns, addr, func(r arch.GoReturn, addr uint64) int { return cmp.Compare(r.From, addr) })
	if !ok {
		return 0, false
	}
	return l.movedReturns[i].To, true
}
