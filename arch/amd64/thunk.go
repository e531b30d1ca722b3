package amd64

import (
	"encoding/binary"
	"fmt"
)

// ThunkSize is the size and alignment of a thunk in bytes. Thunks of an image
// stand one after another in the order of their ids, from 1: the runtime finds
// them all from one.
const ThunkSize = 64

// A ThunkKind says what a thunk does and how its site gets there.
type ThunkKind uint8

const (
	// ThunkGraph records entry and exit. The site, before the prologue, is a jump
	// to the thunk.
	ThunkGraph ThunkKind = iota
	// ThunkFunc records the entry. The site, before the prologue, is a jump to the thunk.
	ThunkFunc
	// ThunkMcount records entry and exit. The site, behind the prologue, is a call
	// of the thunk, which returns behind the site; the enter routine replaces the
	// return address at 8(%rbp) by that of the thunk's exit part.
	ThunkMcount
	// ThunkMcountFunc records the entry. The site, behind the prologue, is a call of the thunk.
	ThunkMcountFunc
)

func (k ThunkKind) String() string {
	switch k {
	case ThunkGraph:
		return "graph"
	case ThunkFunc:
		return "func"
	case ThunkMcount:
		return "mcount"
	case ThunkMcountFunc:
		return "mcount-func"
	}
	return fmt.Sprintf("ThunkKind(%d)", uint8(k))
}

// A Thunk is the code between a traced site and the runtime. Addresses are those
// at which the code will run, or all the same distance from them.
type Thunk struct {
	Addr  uint64 // of the thunk, a multiple of ThunkSize
	Armed uint64 // of the runtime's u32 fentry_armed; 0 there: the thunk does nothing
	Enter uint64 // of the runtime's enter routine
	Exit  uint64 // of the runtime's exit routine; only for ThunkGraph and ThunkMcount
	Body  uint64 // first byte behind the site
	ID    uint32 // the site's, 1 to MaxThunkID
	Kind  ThunkKind
}

// MaxThunkID is the largest id: greater ones are reserved in traces.
const MaxThunkID = 0x7ffeffff

// Offsets of a thunk's parts. The runtime's sources (stub/src/layout.h) have the same.
const (
	thunkCallEnd = 19 // enter returns here
	thunkPad     = 24 // the body's call, and a nop before it
	thunkRet     = 32 // the body returns here
	thunkRetPush = 37
	thunkRetJump = 42
	thunkBypass  = 47 // not armed
	thunkEnd     = 52
)

// Encode writes the thunk's ThunkSize bytes to dst. Errors: a *RangeError when
// something cannot be reached; ids and addresses that cannot be.
func (t *Thunk) Encode(dst []byte) error {
	if len(dst) < ThunkSize {
		return fmt.Errorf("thunk at %#x: %d bytes, needs %d", t.Addr, len(dst), ThunkSize)
	}
	if t.Addr%ThunkSize != 0 {
		return fmt.Errorf("thunk at %#x: not aligned to %d", t.Addr, ThunkSize)
	}
	if t.ID == 0 || t.ID > MaxThunkID {
		return fmt.Errorf("thunk at %#x: id %#x is not in 1..%#x", t.Addr, t.ID, MaxThunkID)
	}
	b := dst[:ThunkSize]
	for i := range b {
		b[i] = 0xcc // int3: nothing may come here
	}
	mcount := t.Kind == ThunkMcount || t.Kind == ThunkMcountFunc
	exits := t.Kind == ThunkGraph || t.Kind == ThunkMcount
	if t.Kind > ThunkMcountFunc {
		return fmt.Errorf("thunk at %#x: unknown kind %d", t.Addr, t.Kind)
	}
	bypass := byte(thunkBypass)
	if !exits {
		bypass = thunkCallEnd // the same code as when enter has returned
	}
	d, err := disp32("cmpl", t.Addr, t.Addr+7, t.Armed)
	if err != nil {
		return fmt.Errorf("thunk %d: %w", t.ID, err)
	}
	copy(b, []byte{0x83, 0x3d, 0, 0, 0, 0, 0}) // cmpl $0, armed(%rip)
	binary.LittleEndian.PutUint32(b[2:], d)
	copy(b[7:], []byte{0x74, bypass - 9}) // je bypass
	b[9] = 0x68                           // push $id
	binary.LittleEndian.PutUint32(b[10:], t.ID)
	put := func(at int, op func([]byte, uint64, uint64) ([]byte, error), to uint64) {
		if err == nil {
			_, err = op(b[at:at:ThunkSize], t.Addr+uint64(at), to)
		}
	}
	put(14, AppendCall, t.Enter) // call enter, which drops the id
	if exits {
		copy(b[thunkRet:], []byte{0x48, 0x8d, 0x64, 0x24, 0xf8}) // lea -8(%rsp), %rsp: slot S again
		b[thunkRetPush] = 0x68                                   // push $id | exit
		binary.LittleEndian.PutUint32(b[thunkRetPush+1:], t.ID|1<<31)
		put(thunkRetJump, AppendJump, t.Exit) // jmp exit
	}
	switch {
	case t.Kind == ThunkGraph:
		copy(b[thunkCallEnd:], []byte{
			0x48, 0x8d, 0x64, 0x24, 0x08, // lea 8(%rsp), %rsp: drop the return address at S
			0x0f, 0x1f, 0x00, // nopl (%rax)
		})
		put(thunkPad+3, AppendCall, t.Body)
		put(thunkBypass, AppendJump, t.Body)
	case t.Kind == ThunkFunc:
		put(thunkCallEnd, AppendJump, t.Body)
	case mcount:
		b[thunkCallEnd] = 0xc3 // ret: behind the site
		if exits {
			b[thunkBypass] = 0xc3
		}
	}
	if err != nil {
		return fmt.Errorf("thunk %d: %w", t.ID, err)
	}
	return nil
}
