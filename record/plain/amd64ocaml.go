package plain

import (
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/moves"
)

// OCaml's functions on x86-64.

// ocaml plans the moves of a function's body.
func (amd64Machine) ocaml(f *Finder, i int, pads *Pads) (moves.Moves, Refusal) {
	b, why := f.ocamlBody(i)
	if why != "" {
		return moves.Moves{}, why
	}
	if pads != nil {
		b.Padding, b.Pad = pads.take, 0 // which may be somebody's by now
	}
	m, r := b.Plan(false)
	switch r {
	case "":
		return m, ""
	case moves.NoRoom, moves.ScratchExit:
		return m, OCamlNoRoom
	case moves.LoopAtEntry:
		return m, LoopAtEntry
	}
	return m, Undecodable
}

// ocamlScratch are r10 and r11.
const ocamlScratch = 1<<10 | 1<<11

// ocamlBody decodes a function.
func (f *Finder) ocamlBody(i int) (*moves.Body, Refusal) {
	start, end := f.funcs[i].Addr, f.end(i)
	text := *f.text
	code := text.Range(start, end)
	if f.facts[i]&undecodable != 0 || end <= start || uint64(len(code)) < end-start {
		return nil, Undecodable
	}
	var fr frames
	if fr.open(f.index, start); !fr.found || fr.fde.PC != start {
		return nil, NoUnwindInfo
	}
	b, why := moves.Decode(start, code, func(uint64) int32 { return 0 }, ocamlStays)
	if why != "" || len(b.Ins) == 0 {
		return nil, Undecodable
	}
	if begin, behind := f.padding(i); b.Pad == 0 && begin == end {
		b.Pad = min(int(behind-begin), amd64.JumpLen)
	}
	b.Scratch = ocamlScratch
	b.Stay = func(i int) bool { return growsStack(b, i) }
	b.Alike = func(from, to uint64) bool { return sameFrame(&fr, from, to) }
	for i := range b.Ins {
		x := &b.Ins[i]
		const others = tailJump | otherBranch | called | pointed | landingPad | tableEntry
		if i > 0 && f.marks.get(x.PC)&others != 0 {
			x.Fixed, x.Leader = true, true
		}
		if row, ok := fr.at(x.PC); x.Exit && (!ok || !f.m.atEntry(row)) {
			return nil, UnusualUnwind
		}
	}
	if b.ReadsScratch(func(*moves.Instruction, uint16) uint16 { return 0 }) {
		return nil, UnusualUnwind
	}
	return b, ""
}

// ocamlStays reports whether the function does not end with an indirect jump, or a return: that is a switch's,
//
//	movslq (table, index, 4), index; add table, index; jmp *index
//
// or raises an exception, which leads to another frame: pop 16(%r14); pop %r11; jmp *%r11, or ret.
func ocamlStays(b *moves.Body, i int) bool {
	if i < 2 {
		return false
	}
	x, last, before := &b.Ins[i], &b.Ins[i-1], &b.Ins[i-2]
	handler := func(x *moves.Instruction) bool { return x.Op == amd64.Pop && x.HasModRM }
	if x.Op == amd64.Ret {
		return handler(last)
	}
	const add, movslq = 0x01, 0x63
	return last.Op == amd64.Pop && handler(before) ||
		x.ModRM>>6 == 3 && last.Enc == amd64.Legacy && last.Map == 0 && last.Opcode == add &&
			before.Enc == amd64.Legacy && before.Map == 0 && before.Opcode == movslq
}

// growsStack reports whether an instruction may be the first to touch what the stack has grown by.
func growsStack(b *moves.Body, i int) bool {
	x, raw := &b.Ins[i], b.Raw(i)
	if x.Op == amd64.Push {
		return true
	}
	const load, lea = 0x8b, 0x8d
	if !x.HasModRM || x.Enc == amd64.Legacy && x.Map == 0 && (x.Opcode == load || x.Opcode == lea) {
		return false
	}
	return x.Addressed(raw)>>amd64.RSP&1 != 0
}

// sameFrame reports whether unwinders find the same callers at two addresses.
func sameFrame(fr *frames, a, b uint64) bool {
	at, ok := fr.at(a)
	other, also := fr.at(b)
	if !ok || !also {
		return false
	}
	x, y := *at, *other
	x.At, y.At = 0, 0
	return x == y
}
