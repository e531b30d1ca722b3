package record

import (
	"math"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/moves"
)

// Moves that are kept, of functions of OCaml's. Addresses are distances from the function's.

// leastRun and leastBranch are fewer bytes than a run or a branch takes, and leastEvent than an event.
const leastRun, leastEvent, leastBranch = 6, 2, 4

// mostMoved is more than the instructions of a run have in bytes.
const mostMoved = math.MaxUint16

func (w *keptWriter) moves(m *moves.Moves, fn uint64) {
	w.number(uint64(len(m.Runs)))
	for i := range m.Runs {
		r := &m.Runs[i]
		w.signed(r.Addr - fn)
		w.number(uint64(r.Len))
		w.number(uint64(r.Room))
		w.signed(r.Via - fn)
		w.flags(r.Via != 0, r.Outside)
		w.number(uint64(len(r.Events)))
		for _, e := range r.Events {
			w.number(uint64(e.At))
			w.flags(e.Exit)
		}
	}
	w.number(uint64(len(m.Branches)))
	for i := range m.Branches {
		b := &m.Branches[i]
		w.signed(b.Addr - fn)
		w.number(uint64(b.Len))
		w.signed(b.To - fn)
		w.signed(b.Via - fn)
		w.flags(b.Via != 0)
	}
}

// moves reads those of the function at an address. What moves has to be in the image.
func (r *keptReader) moves(f *elfio.File, fn uint64) *moves.Moves {
	m := &moves.Moves{}
	at := func() uint64 { return fn + uint64(r.signed()) }
	via := func(addr uint64, has bool) uint64 {
		if !has {
			return 0
		}
		return addr
	}
	inside := func(addr uint64, n int) {
		if _, err := f.Bytes(addr, n); err != nil {
			r.bad = true
		}
	}
	for range r.count(leastRun) {
		run := moves.Run{Addr: at(), Len: int(r.number(mostMoved)), Room: int(r.number(mostMoved))}
		to, has := at(), false
		r.flags(&has, &run.Outside)
		run.Via = via(to, has)
		for range r.count(leastEvent) {
			e := moves.Event{At: int(r.number(uint64(run.Len)))}
			r.flags(&e.Exit)
			run.Events = append(run.Events, e)
		}
		inside(run.Addr, run.Len)
		m.Runs = append(m.Runs, run)
	}
	for range r.count(leastBranch) {
		b := moves.Branch{Addr: at(), Len: int(r.number(mostMoved)), To: at()}
		to, has := at(), false
		r.flags(&has)
		b.Via = via(to, has)
		inside(b.Addr, b.Len)
		m.Branches = append(m.Branches, b)
	}
	return m
}
