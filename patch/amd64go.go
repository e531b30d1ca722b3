package patch

import (
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/golang"
)

// What a Go function has elsewhere, in this order: its runs of moved instructions, each with its events and the jump back;
// the rare parts of its events; and what only the runtime goes to. All is contiguous.

// goCode is that of one function. Offsets are from its beginning.
type goCode struct {
	f      *golang.Func
	moves  *golang.Moves
	id     uint32
	at     uint64         // its address
	runs   []int          // where the runs are
	copies map[uint64]int // where an instruction is now, behind the entry's event
	events []goEvent
	after  int    // where a recovered function returns to; 0: it defers nothing
	size   int    // without what the module adds
	parts  []part // by offset
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

// goDeep is what the runtime has to know of the ids of events.
const goDeep = amd64.GoDeep

// goRoutines are addresses that all events need.
type goRoutines struct {
	switches, idBase, slow uint64
	goID                   uint32
}

// layGo lays out the code of a function.
func layGo(code []byte, f *golang.Func, m *golang.Moves, id uint32) (*goCode, error) {
	c := &goCode{f: f, moves: m, id: id, copies: map[uint64]int{}}
	at := 0
	put := func(n int, pc uint64, mode partMode) {
		c.parts = append(c.parts, part{at, pc, mode})
		at += n
	}
	for i := range m.Runs {
		r := &m.Runs[i]
		c.runs = append(c.runs, at)
		events := r.Events
		if only := golang.Only(f.Name); only != golang.BothEnds {
			events = slices.DeleteFunc(slices.Clone(events), func(e golang.Event) bool { return e.Exit != (only == golang.OnlyExits) })
		}
		event := func(exit bool, pc uint64) {
			c.events = append(c.events, goEvent{at: at, exit: exit, pc: pc})
			put(amd64.GoEventBegin, pc, asOriginal)
			put(amd64.GoEventTaken-amd64.GoEventBegin, pc, restarts)
			put(amd64.GoEventStored-amd64.GoEventTaken, pc, unsafePart)
			put(amd64.GoEventLen-amd64.GoEventStored, pc, asOriginal)
			events = events[1:]
		}
		src := code[r.Addr-f.Entry:][:r.Len]
		for o := 0; o < r.Len; {
			pc := r.Addr + uint64(o)
			in, err := amd64.Decode(src[o:])
			if err != nil || o+in.Len > r.Len {
				return nil, fmt.Errorf("instruction at %#x: %v", pc, err)
			}
			if len(events) > 0 && events[0].At == o && !events[0].Exit {
				event(false, pc)
			}
			c.copies[pc] = at
			if len(events) > 0 && events[0].At == o {
				event(true, pc)
			}
			put(amd64.RelocatedLen(in), pc, asOriginal)
			o += in.Len
		}
		end := r.Addr + uint64(r.Len)
		if len(events) > 0 {
			event(false, end)
		}
		if amd64.Continues(src) {
			put(amd64.JumpLen, end, asOriginal)
		}
	}
	for i := range c.events {
		e := &c.events[i]
		e.rare = at
		put(amd64.GoRareLen, e.pc, unsafePart)
	}
	if to := f.DeferReturn(); to != 0 {
		c.after = at
		put(amd64.JumpLen, to, asOriginal)
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
			dst, err = amd64.AppendGoEvent(dst, here(), c.event(next, to))
			next++
		}
	}
	for i := range c.moves.Runs {
		r := &c.moves.Runs[i]
		src := code[r.Addr-c.f.Entry:][:r.Len]
		for o := 0; o < r.Len && err == nil; {
			pc := r.Addr + uint64(o)
			in, _ := amd64.Decode(src[o:]) // as it has been laid out
			event(c.size)
			if err == nil {
				dst, err = amd64.Retarget(dst, in, src[o:], here(), c.target(in, pc))
			}
			o += in.Len
		}
		event(c.size)
		if err == nil && amd64.Continues(src) {
			dst, err = amd64.AppendJump(dst, here(), r.Addr+uint64(r.Len))
		}
	}
	for i := range c.events {
		if err == nil {
			dst, err = amd64.AppendGoRare(dst, c.at+uint64(c.events[i].at), c.event(i, to))
		}
	}
	if err == nil && c.after != 0 {
		dst, err = amd64.AppendJump(dst, here(), c.f.DeferReturn())
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %#x: %w", c.f.Name, c.f.Entry, err)
	}
	if n := len(dst) - start; n != c.size {
		return nil, internalf("%s at %#x: %d bytes of moved code in %d", c.f.Name, c.f.Entry, n, c.size)
	}
	for range c.phantoms.n() {
		dst = append(dst, 0xcc)
	}
	return dst, nil
}

// event describes the i-th event.
func (c *goCode) event(i int, to *goRoutines) *amd64.GoEvent {
	e := &c.events[i]
	id := c.id
	if e.exit {
		id |= 1 << 31
	}
	deep := c.f.DeferReturn() != 0 && !golang.Tells(c.f.Name)
	return &amd64.GoEvent{
		ID: id, Switch: to.switches + uint64(c.id-1), IDBase: to.idBase, GoID: to.goID,
		Rare: c.at + uint64(e.rare), Slow: to.slow, Deep: deep,
		Always: deep || c.f.Name == golang.Park && !e.exit || golang.Only(c.f.Name) != golang.BothEnds,
	}
}

// target is what a moved instruction refers to: the copy of an instruction that has moved, too.
func (c *goCode) target(in amd64.Inst, pc uint64) uint64 {
	to := in.Target(pc)
	if in.PCRel != amd64.PCRelBranch {
		return to
	}
	if o, ok := c.copies[to]; ok {
		return c.at + uint64(o)
	}
	return to
}

// goWindows are what is rewritten of a function where it was.
func (c *goCode) windows(code []byte) ([]goWindow, error) {
	var out []goWindow
	var far []amd64Jump
	for i := range c.moves.Runs {
		r, to := &c.moves.Runs[i], c.at+uint64(c.runs[i])
		w := goWindow{addr: r.Addr, new: make([]byte, max(r.Len, min(r.Room, amd64.JumpLen)))}
		for k := range w.new {
			w.new[k] = 0xcc
		}
		switch {
		case r.Room >= amd64.JumpLen:
			far = append(far, amd64Jump{r.Addr, to})
		case r.Via != 0:
			b, err := amd64.AppendJumpShort(w.new[:0], r.Addr, r.Via)
			if err != nil || len(b) > len(w.new) {
				return nil, fmt.Errorf("%s: site %#x: %v", c.f.Name, r.Addr, err)
			}
			far = append(far, amd64Jump{r.Via, to})
		default:
			continue // nothing comes here any more
		}
		out = append(out, w)
	}
	for _, b := range c.moves.Branches {
		raw := code[b.Addr-c.f.Entry:][:b.Len]
		in, err := amd64.Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: branch %#x: %w", c.f.Name, b.Addr, err)
		}
		to := c.at + uint64(c.copies[b.To])
		w := goWindow{addr: b.Addr}
		if b.Via != 0 {
			w.new = []byte{raw[0], byte(b.Via - b.Addr - amd64.JumpShortLen)}
			far = append(far, amd64Jump{b.Via, to})
		} else if w.new, err = amd64.Retarget(nil, in, raw, b.Addr, to); err != nil {
			return nil, fmt.Errorf("%s: branch %#x: %w", c.f.Name, b.Addr, err)
		}
		out = append(out, w)
	}
	for _, j := range far {
		if err := j.write(out); err != nil {
			return nil, fmt.Errorf("%s: %w", c.f.Name, err)
		}
	}
	return out, nil
}

// An amd64Jump is a jump of five bytes that one of the windows has.
type amd64Jump struct{ from, to uint64 }

func (j amd64Jump) write(windows []goWindow) error {
	for i := range windows {
		w := &windows[i]
		if o := j.from - w.addr; o < uint64(len(w.new)) && len(w.new)-int(o) >= amd64.JumpLen {
			_, err := amd64.AppendJump(w.new[o:o], j.from, j.to)
			return err
		}
	}
	return internalf("no room for a jump at %#x", j.from)
}
