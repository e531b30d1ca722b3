package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/moves"
)

// OCaml's functions on AArch64: one instruction moves at each end, as it has room for a jump. x16 and x17 are free there, which
// OCaml uses in the middle of what it does, and d16 to d31. A tail call by a register has another one than these: by
// them go switches, into a list of branches, and raises, to a handler.

// ocaml has one instruction move at each end. Padding is never needed.
func (arm64Machine) ocaml(f *Finder, i int, _ *Pads) (moves.Moves, Refusal) {
	start, end := f.funcs[i].Addr, f.end(i)
	text := *f.text
	code := text.Range(start, end)
	if f.facts[i]&undecodable != 0 || end <= start || uint64(len(code)) < end-start || (end-start)%arm64.InstLen != 0 {
		return moves.Moves{}, Undecodable
	}
	var fr frames
	if fr.open(f.index, start); !fr.found || fr.fde.PC != start {
		return moves.Moves{}, NoUnwindInfo
	}
	if f.marks.get(start)&ownBranch != 0 {
		return moves.Moves{}, LoopAtEntry
	}
	var m moves.Moves
	raised := false // the last instruction has given the handler's frame back
	for o := 0; o < len(code); o += arm64.InstLen {
		pc := start + uint64(o)
		in := arm64.DecodeWord(binary.LittleEndian.Uint32(code[o:]))
		run := moves.Run{Addr: pc, Len: arm64.InstLen, Room: arm64.InstLen}
		if o == 0 {
			if !ocamlBegins(in) {
				return moves.Moves{}, OCamlNoRoom
			}
			run.Events = append(run.Events, moves.Event{})
		}
		exit, why := ocamlEnds(in, pc, start, end)
		if why != "" {
			return moves.Moves{}, why
		}
		if exit && !raised {
			const stackPointer = 31
			if row, ok := fr.at(pc); !ok || row.Reg != stackPointer || row.Off != 0 { // x30 has been loaded again, whatever it says
				return moves.Moves{}, UnusualUnwind
			}
			run.Events = append(run.Events, moves.Event{Exit: true})
		}
		if run.Events != nil {
			m.Runs = append(m.Runs, run)
		}
		const trap = 26
		raised = arm64.Writes(in.Word)>>trap&1 != 0
	}
	return m, ""
}

// ocamlBegins reports whether a function's first instruction can move. Stores are on the stack, or may be.
func ocamlBegins(in arm64.Inst) bool {
	const loadsAndStores, pattern, load = 0x0a000000, 0x08000000, 1 << 22
	if in.PCRel == arm64.PCRelMem {
		return false
	}
	if in.Op == arm64.Other {
		return in.Word&loadsAndStores != pattern || in.Word&load != 0
	}
	return in.Op == arm64.Ret || in.Op == arm64.Nop || in.Op == arm64.JmpInd || in.PCRel != arm64.PCRelNone && in.Op != arm64.Call
}

// ocamlEnds reports whether a function ends with an instruction, unless that is a raise by ret.
func ocamlEnds(in arm64.Inst, pc, start, end uint64) (bool, Refusal) {
	switch in.Op {
	case arm64.Ret:
		return true, ""
	case arm64.JmpInd:
		return in.Reg != 16 && in.Reg != 17, ""
	case arm64.Jmp, arm64.Jcc, arm64.Cbz, arm64.Tbz, arm64.Cb:
		to := in.Target(pc)
		if to >= start && to < end {
			return false, ""
		}
		if in.Op != arm64.Jmp {
			return false, Undecodable
		}
		return true, ""
	}
	return false, ""
}
