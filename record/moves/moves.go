// Package moves plans how a function is traced that is recorded in place, at both of its ends, because no return address on
// its stack can be replaced: which instructions go elsewhere, with the code in front of them that records, and what is
// rewritten to go there.
//
// Such are Go's functions (package record/golang) and OCaml's (package record/ocaml).
package moves

import "slices"

// Moves are how a function is traced: the instructions that go elsewhere, and branches of those that stay.
type Moves struct {
	Runs     []Run // by address
	Branches []Branch
}

// OfEntry are those that recording the entry takes, if they can be told from the others; else all.
func (m *Moves) OfEntry() *Moves {
	if len(m.Branches) > 0 {
		return m
	}
	out := &Moves{}
	for i := range m.Runs {
		r := &m.Runs[i]
		if !slices.ContainsFunc(r.Events, func(e Event) bool { return !e.Exit }) {
			continue
		}
		if r.Via != 0 && !r.Outside {
			return m
		}
		out.Runs = append(out.Runs, *r)
	}
	return out
}

// A Run is whole instructions that go elsewhere.
type Run struct {
	Addr uint64
	Len  int    // bytes of the instructions
	Room int    // bytes that may be rewritten: Len, or with padding 5
	Via  uint64 // where there is no room for a long jump: place for it, in another run; 0: there is, or nothing comes here
	// Outside: that place is padding behind another function.
	Outside bool
	Events  []Event
}

// An Event is recorded before the instruction at an offset of its run, or behind all.
type Event struct {
	At   int
	Exit bool
}

// Ends says at which ends of a function's calls there are events.
type Ends uint8

// The values of Ends.
const (
	BothEnds Ends = iota
	OnlyEntries
	OnlyExits
)

// A Branch is rewritten to go where an instruction is now that has moved.
type Branch struct {
	Addr uint64
	Len  int
	To   uint64 // where the instruction was
	Via  uint64 // of a short branch: place for a long jump
}

// Reason says why a function cannot be traced so; "": it can.
type Reason string

// The reasons. Package record explains them.
const (
	NoRoom          Reason = "no-room"
	ConditionalExit Reason = "conditional-exit"
	ScratchExit     Reason = "scratch-exit"
	LoopAtEntry     Reason = "loop-at-entry"
	Undecodable     Reason = "undecodable"
)
