package arm64

import (
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
)

// Ftrace implements arch.Ftrace for arm64. A site is the one instruction that calls: bl, or nop.
//
// Functions compiled with -fpatchable-function-entry=2 begin with two nops, after a landing pad if there is one.
// Their site is the second; the first becomes mov x9, x30, by InitChange:
//
//	compiled   nop           nop
//	disabled   mov x9, x30   nop
//	enabled    mov x9, x30   bl trampoline
//
// That happens once, before the code can run, because a thread that stopped between the two would reach a bl with the
// wrong x9. From then on every change is to one aligned word, between nop, bl and another bl, which processors may
// fetch while it is written (Arm ARM B2.2.5, "Concurrent modification and execution of instructions"); mov is not one
// of those instructions. A thread between the two does no harm: x9 is dead at a function's entry.
//
// Functions compiled with -pg have one bl after the prologue, and no mov.
//
// The zero value is for tables of such functions. An Ftrace may be copied.
type Ftrace struct {
	// Before is M of -fpatchable-function-entry=N,M: the number of nops before the function, to the first of which
	// the table's words point.
	Before int
	// Veneers is the island for calls whose target is out of reach, or nil. Veneers that sites use already must have
	// been added to it by Route.
	Veneers *Veneers
}

var _ arch.Ftrace = Ftrace{}

// McountInsnSize returns 4: the return address of a site's call is the end of the site.
func (Ftrace) McountInsnSize() int { return InstLen }

// maxBefore bounds the nops that CallAdjust looks at.
const maxBefore = 256

// CallAdjust returns the site that a word of __mcount_loc or
// __patchable_function_entries stands for:
//   - the nops before the function, Before of them, are skipped; if Before is 0, nops followed by a landing pad are;
//   - a landing pad, bti, is skipped;
//   - if there are two instructions, nop or mov x9, x30, and then nop or bl, the site is the second;
//   - otherwise the site is the instruction there.
//
// The error for an addr that is unreadable or not a multiple of 4 is a *arch.Bug.
func (f Ftrace) CallAdjust(mem arch.Memory, addr uint64) (uint64, error) {
	c := arch.Change{Site: arch.Site{Addr: addr, Len: InstLen}}
	if addr%InstLen != 0 {
		return 0, c.Bug(arch.Fault, nil, nil, fmt.Errorf("instructions are at multiples of %d", InstLen))
	}
	if f.Before < 0 || f.Before > maxBefore {
		return 0, c.Bug(arch.Fault, nil, nil, fmt.Errorf("%d nops before a function", f.Before))
	}
	first, err := word(mem, addr)
	if err != nil {
		return 0, c.Bug(arch.Fault, nil, nil, err)
	}
	if f.Before > 0 {
		for k := range f.Before {
			if w, err := word(mem, addr+uint64(k)*InstLen); err != nil || w != WordNop {
				return 0, c.Bug(arch.Mismatch, appendWord(nil, w), appendWord(nil, WordNop), err)
			}
		}
		addr += uint64(f.Before) * InstLen
		if first, err = word(mem, addr); err != nil {
			return 0, c.Bug(arch.Fault, nil, nil, err)
		}
	} else if first == WordNop {
		for k := 1; k < maxBefore; k++ {
			w, err := word(mem, addr+uint64(k)*InstLen)
			if err == nil && isBti(w) {
				addr += uint64(k) * InstLen
				first = w
			}
			if err != nil || w != WordNop {
				break
			}
		}
	}
	if isBti(first) {
		w, err := word(mem, addr+InstLen)
		if err != nil {
			return 0, c.Bug(arch.Fault, nil, nil, err)
		}
		addr, first = addr+InstLen, w
	}
	if first == WordNop || first == WordMovX9LR {
		w, err := word(mem, addr+InstLen)
		if err == nil && (w == WordNop || first == WordMovX9LR && DecodeWord(w).Op == Call) {
			return addr + InstLen, nil
		}
	}
	return addr, nil
}

func isBti(w uint32) bool { return DecodeWord(w).Op == Bti }

// word reads an instruction.
func word(mem arch.Memory, addr uint64) (uint32, error) {
	var b [InstLen]byte
	if err := mem.ReadAt(b[:], addr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

// InitChange returns the change that writes mov x9, x30 in place of the nop before a two-instruction site as
// compilers emit it. It must be made before any thread can run there. The change's own site is the instruction before
// site.
func InitChange(site arch.Site) arch.Change {
	site.Addr -= InstLen
	return arch.Change{Action: arch.Init, Site: site}
}

// CheckSite returns an error for a site that is not one instruction.
func (Ftrace) CheckSite(s arch.Site) error {
	if s.Len != InstLen || s.Addr%InstLen != 0 {
		return fmt.Errorf("a site is one instruction, not %d bytes", s.Len)
	}
	return nil
}

// Verify compares the bytes at the site with what c starts from, and checks the first instruction of a
// two-instruction site: after a nop a call is refused, because the mov is missing. The report names the form that
// this package would have written.
func (f Ftrace) Verify(mem arch.Memory, c arch.Change, actual []byte) *arch.Bug {
	if expected, ok := f.startsFrom(mem, c, binary.LittleEndian.Uint32(actual)); !ok {
		return c.Bug(arch.Mismatch, actual, expected, nil)
	}
	if c.Action != arch.Init && c.Action != arch.Call {
		return nil
	}
	at, want := c.Site.Addr+InstLen, uint32(WordNop)
	if c.Action == arch.Call {
		at, want = c.Site.Addr-InstLen, WordMovX9LR
	}
	w, err := word(mem, at)
	switch {
	case c.Action == arch.Call && (err != nil || w != WordNop): // -pg, or there is the mov
	case err != nil:
		return c.Bug(arch.Fault, nil, nil, err)
	case w != want:
		c.Site.Addr = at
		return c.Bug(arch.Mismatch, appendWord(nil, w), appendWord(nil, want), nil)
	}
	return nil
}

func (f Ftrace) startsFrom(mem arch.Memory, c arch.Change, w uint32) (expected []byte, ok bool) {
	in := DecodeWord(w)
	switch c.Action {
	case arch.Init, arch.Call, arch.GraphEnable:
		return appendWord(nil, WordNop), w == WordNop
	case arch.Nop, arch.Modify:
		if via, ok := f.Veneers.find(c.Site.Addr, c.Old); ok {
			expected, _ = AppendCall(nil, c.Site.Addr, via)
		}
		return expected, in.Op == Call && leadsTo(mem, in.Target(c.Site.Addr), c.Old, c.Site.Slot)
	case arch.Func:
		return nil, in.Op == Call
	case arch.GraphDisable:
		if via, ok := f.Veneers.find(c.Site.Addr, c.Old); ok {
			expected, _ = AppendJump(nil, c.Site.Addr, via)
		}
		return expected, in.Op == Jmp && leadsTo(mem, in.Target(c.Site.Addr), c.Old, 0)
	}
	return nil, false
}

// leadsTo reports whether a branch to address at arrives at address to: at once, or
// through veneers, or through the stub of a procedure linkage table that loads its
// target from slot, if that is not 0.
func leadsTo(mem arch.Memory, at, to, slot uint64) bool {
	for range 4 { // linkers make chains of two at the most: a veneer, and a landing
		if at == to {
			return true
		}
		b := make([]byte, 5*InstLen)
		n := len(b)
		for n > 0 && mem.ReadAt(b[:n], at) != nil {
			n -= InstLen
		}
		b = b[:n]
		if len(b) >= InstLen && isBti(binary.LittleEndian.Uint32(b)) {
			b, at = b[InstLen:], at+InstLen
		}
		if slot != 0 && loadsSlot(b, at, slot) {
			return true
		}
		next, ok := VeneerTarget(b, at)
		if in, err := Decode(b); !ok && err == nil && in.Op == Jmp {
			next, ok = in.Target(at), true
		}
		if !ok {
			return false
		}
		at = next
	}
	return false
}

// loadsSlot recognises adrp x16, slot; ldr x17, [x16, #:lo12:slot]; add x16, x16,
// #:lo12:slot; br x17, the stub of AArch64's ELF linkers.
func loadsSlot(b []byte, at, slot uint64) bool {
	if len(b) < 4*InstLen {
		return false
	}
	le := binary.LittleEndian
	page, ldr, add, br := DecodeWord(le.Uint32(b)), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	lo := uint32(slot) & pageMask
	return page.Op == Adrp && page.Reg == 16 && page.Target(at) == slot&^pageMask &&
		ldr == 0xf9400211|lo/8<<10 && lo%8 == 0 && add == addImm(16, 16, lo) && br == 0xd61f0220
}

// branch encodes a branch, by a veneer if need be.
func (f Ftrace) branch(op func([]byte, uint64, uint64) ([]byte, error), from, to uint64) ([]byte, error) {
	via := to
	if f.Veneers != nil && to%InstLen == 0 {
		var err error
		if via, err = f.Veneers.Route(from, to); err != nil {
			return nil, err
		}
	}
	return op(nil, from, via)
}

// Replacement returns the bytes that c leaves at the site. A call whose target is out of reach gets a veneer in
// Veneers.
func (f Ftrace) Replacement(c arch.Change) ([]byte, error) {
	switch c.Action {
	case arch.Init:
		return appendWord(nil, WordMovX9LR), nil
	case arch.Nop, arch.GraphDisable:
		return appendWord(nil, WordNop), nil
	case arch.Call, arch.Modify, arch.Func:
		return f.branch(AppendCall, c.Site.Addr, c.New)
	case arch.GraphEnable:
		return f.branch(AppendJump, c.Site.Addr, c.New)
	}
	return nil, fmt.Errorf("action %d writes nothing", c.Action)
}
