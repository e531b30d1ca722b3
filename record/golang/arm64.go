package golang

import (
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/moves"
)

// AArch64.
//
// All instructions have four bytes, and so has the jump to where one has gone: it is always enough, and nothing can come to
// the middle. So only the first instruction moves, or that behind the check for room on the stack, and those by which the
// function ends.

// arm64Body is the code of one function.
type arm64Body struct {
	f     *Func
	ins   []arm64.Inst
	sp    Values
	aimed []bool // by instruction: something goes there but what is before it
	data  []bool // it is a literal
}

func (b *arm64Body) pc(i int) uint64 { return b.f.Entry + uint64(i)*arm64.InstLen }

// arm64Site returns how a function is traced.
func (im *Image) arm64Site(f *Func) (moves.Moves, Reason) {
	b, r := im.arm64Body(f)
	if r != "" {
		return moves.Moves{}, r
	}
	entry := b.checkEnd()
	if r := b.entryReason(entry); r != "" {
		return moves.Moves{}, r
	}
	var m moves.Moves
	for i := range b.ins {
		exit, r := b.exit(im, i)
		if r != "" {
			return moves.Moves{}, r
		}
		run := moves.Run{Addr: b.pc(i), Len: arm64.InstLen, Room: arm64.InstLen}
		if i == entry {
			run.Events = append(run.Events, moves.Event{})
		}
		if exit {
			run.Events = append(run.Events, moves.Event{Exit: true})
		}
		if run.Events != nil {
			m.Runs = append(m.Runs, run)
		}
	}
	return m, ""
}

// arm64Body decodes a function.
func (im *Image) arm64Body(f *Func) (*arm64Body, Reason) {
	code := im.text[f.Entry-im.TextStart : f.Next-im.TextStart]
	b := &arm64Body{f: f}
	var err error
	if b.sp, err = im.Values(f, le.Uint32(f.rec[RecPCSP:])); err != nil || b.sp == nil {
		return nil, External
	}
	if _, err = im.Values(f, PCData(f.rec, PCDataUnsafe)); err != nil {
		return nil, External
	}
	if len(code)%arm64.InstLen != 0 || f.Entry%arm64.InstLen != 0 {
		return nil, Undecodable
	}
	for len(code) > 0 && le.Uint32(code[len(code)-arm64.InstLen:]) == 0 { // padding
		code = code[:len(code)-arm64.InstLen]
	}
	for o := 0; o < len(code); o += arm64.InstLen {
		b.ins = append(b.ins, arm64.DecodeWord(le.Uint32(code[o:])))
	}
	if len(b.ins) == 0 {
		return nil, External
	}
	b.follow()
	return b, ""
}

// follow notes where instructions go, and what they read that is no code.
func (b *arm64Body) follow() {
	b.aimed, b.data = make([]bool, len(b.ins)), make([]bool, len(b.ins))
	for i := range b.ins {
		in := &b.ins[i]
		to, inside := b.inside(in.Target(b.pc(i)))
		switch {
		case !inside:
		case in.PCRel == arm64.PCRelBranch && in.Op != arm64.Call:
			b.aimed[to] = true
		case in.PCRel == arm64.PCRelMem:
			const most = 16 // bytes of a literal
			for k := range most / arm64.InstLen {
				if to+k < len(b.data) {
					b.data[to+k] = true
				}
			}
		}
	}
}

// inside returns which instruction begins at an address.
func (b *arm64Body) inside(addr uint64) (int, bool) {
	i := (addr - b.f.Entry) / arm64.InstLen
	return int(i), addr >= b.f.Entry && i < uint64(len(b.ins))
}

// entryReason says why the instruction before which the entry is recorded cannot move.
func (b *arm64Body) entryReason(entry int) Reason {
	switch in := &b.ins[entry]; {
	case b.aimed[entry]:
		return LoopAtEntry
	case b.data[entry]:
		return Undecodable
	case in.Op == arm64.Other, in.Op == arm64.Ret, in.Op == arm64.Nop:
		return ""
	case in.PCRel != arm64.PCRelNone && in.Op != arm64.Call, in.Op == arm64.JmpInd:
		return ""
	}
	return NoRoom
}

// exit reports whether the function ends with an instruction.
func (b *arm64Body) exit(im *Image, i int) (bool, Reason) {
	in := &b.ins[i]
	if b.data[i] {
		return false, ""
	}
	switch in.Op {
	case arm64.Ret:
		return true, ""
	case arm64.JmpInd:
		if b.isTable(im, i) {
			return false, ""
		}
		if usesEvent(in.Reg) {
			return false, ScratchExit
		}
		return true, ""
	case arm64.Jmp, arm64.Jcc, arm64.Cbz, arm64.Tbz, arm64.Cb:
		_, inside := b.inside(in.Target(b.pc(i)))
		if !inside && in.Op != arm64.Jmp {
			return false, ConditionalExit
		}
		return !inside, ""
	}
	return false, ""
}

// usesEvent reports whether recording changes a register.
func usesEvent(reg byte) bool { return reg == 16 || reg == 17 || reg >= 19 && reg <= 25 }

// isTable reports whether an indirect jump is that of a switch: there is a frame, which a function that ends has given
// back, or its target was loaded from a table, by an index.
func (b *arm64Body) isTable(im *Image, i int) bool {
	if b.sp.At(b.pc(i)) != 0 {
		return true
	}
	const loadIndexed, mask = 0xf8607800, 0xffe0fc00 // ldr x, [x, x, lsl #3]
	for k := i - 1; k >= 0 && !b.aimed[k+1]; k-- {
		if w := b.ins[k].Word; arm64.Writes(w)>>b.ins[i].Reg&1 != 0 {
			return w&mask == loadIndexed
		}
	}
	return false
}

// checkEnd returns how many instructions at the beginning of a function look whether there is room on the stack; 0: none
// do. The forms are those of cmd/internal/obj/arm64, for small frames, larger ones and huge ones:
//
//	ldr x16, [x28, #16]; cmp sp, x16; b.ls
//	ldr x16, [x28, #16]; sub x17, sp, #N; cmp x17, x16; b.ls
//	ldr x16, [x28, #16]; mov x27, #N; subs x17, sp, x27; b.lo; cmp x17, x16; b.ls
func (b *arm64Body) checkEnd() int {
	const guard, ofThread = 0xf9400b90, 0xf9400f90 // that of goroutines, or of a thread's own, 8 bytes behind
	if w := b.ins[0].Word; w != guard && w != ofThread {
		return 0
	}
	const most, lowerOrSame = 10, 9
	for i := 1; i+1 < min(len(b.ins), most) && !b.aimed[i]; i++ {
		if in := &b.ins[i]; in.Op == arm64.Jcc && in.Cond == lowerOrSame {
			if _, inside := b.inside(in.Target(b.pc(i))); inside && !b.aimed[i+1] {
				return i + 1
			}
			return 0
		}
	}
	return 0
}
