package link

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// x86-64 relocations (psABI for AMD64, "Relocation Types" and "Optimize GOTPCRELX Relocations").
//
// There is no GOT with contents: a load of a symbol's address from the GOT becomes a computation of it, which
// works at any load address. Only symbols supplied at run time have a slot, and undefined weak ones a word of zeroes.

func (l *linker) applyX86(r *relocation) error {
	switch t := elf.R_X86_64(r.Type); t {
	case elf.R_X86_64_PC32, elf.R_X86_64_PLT32:
		to := r.target.addr
		switch {
		case r.target.imported:
			if t == elf.R_X86_64_PC32 {
				return l.errAt(r, "a symbol supplied at run time can only be reached through the GOT: compile with -fPIC")
			}
			stub, err := l.stubX86(r)
			if err != nil {
				return err
			}
			to = stub
		case r.target.undef && t == elf.R_X86_64_PLT32:
			to = l.trapX86(r) // a call that a test for 0 keeps from running
		case r.target.undef:
			return l.errAt(r, "undefined weak symbol: a direct reference cannot give 0, compile with -fPIC")
		case r.target.absolute:
			return l.errAt(r, "absolute symbol: its distance depends on the load address")
		}
		return l.put32(r, to)
	case elf.R_X86_64_PC64:
		if r.target.imported || r.target.undef || r.target.absolute {
			return l.errAt(r, "symbol has no address before run time")
		}
		b, err := l.field(r, 0, 8)
		if err != nil {
			return err
		}
		l.c.Order.PutUint64(b, r.target.addr+uint64(r.Addend)-r.place())
		return nil
	case elf.R_X86_64_GOTPCREL, elf.R_X86_64_GOTPCRELX, elf.R_X86_64_REX_GOTPCRELX:
		return l.gotX86(r)
	default:
		return l.errAt(r, "not PC-relative, would need a dynamic relocation")
	}
}

// put32 stores to + addend - place.
func (l *linker) put32(r *relocation, to uint64) error {
	b, err := l.field(r, 0, 4)
	if err != nil {
		return err
	}
	v := int64(to + uint64(r.Addend) - r.place())
	if v != int64(int32(v)) {
		return l.errAt(r, "target %#x is farther than 2 GiB from %#x", to, r.place())
	}
	l.c.Order.PutUint32(b, uint32(v))
	return nil
}

// gotX86 resolves a reference to a GOT entry.
func (l *linker) gotX86(r *relocation) error {
	if r.target.imported {
		slot, err := l.slot(r.target.name)
		if err != nil {
			return l.errAt(r, "%v", err)
		}
		return l.put32(r, slot)
	}
	if r.target.undef {
		at := l.zeroWord()
		l.reload(r)
		return l.put32(r, at)
	}
	if r.Addend != -4 {
		return l.errAt(r, "addend %d: the field is not the last of its instruction", r.Addend)
	}
	op, err := l.field(r, -2, 6)
	if err != nil {
		return err
	}
	switch {
	case r.target.absolute:
		// mov sym@GOTPCREL(%rip), %reg  ->  mov $sym, %reg: REX.R becomes REX.B, reg the r/m field
		rex, err := l.field(r, -3, 1)
		if err != nil {
			return err
		}
		v := int64(r.target.addr)
		if op[0] != 0x8b || op[1]&0xc7 != 0x05 || rex[0]&0xfb != 0x48 || v != int64(int32(v)) {
			return l.errAt(r, "absolute value %#x needs a GOT entry", r.target.addr)
		}
		rex[0] = 0x48 | rex[0]&4>>2
		op[0], op[1] = 0xc7, 0xc0|op[1]>>3&7
		l.c.Order.PutUint32(op[2:], uint32(v))
		return nil
	case op[0] == 0x8b && op[1]&0xc7 == 0x05:
		op[0] = 0x8d // mov sym@GOTPCREL(%rip), %reg  ->  lea sym(%rip), %reg
		return l.put32(r, r.target.addr)
	case op[0] == 0xff && op[1] == 0x15:
		op[0], op[1] = 0x67, 0xe8 // call *sym@GOTPCREL(%rip)  ->  addr32 call sym
		return l.put32(r, r.target.addr)
	case op[0] == 0xff && op[1] == 0x25:
		op[0], op[5] = 0xe9, 0x90 // jmp *sym@GOTPCREL(%rip)  ->  jmp sym; nop
		r.Off--
		return l.put32(r, r.target.addr)
	}
	return l.errAt(r, "instruction % x cannot do without the GOT", op[:2])
}

// stubX86 returns the address of a jump through the slot of an imported function.
func (l *linker) stubX86(r *relocation) (uint64, error) {
	name := r.target.name
	if a, ok := l.stubs[name]; ok {
		return a, nil
	}
	slot, err := l.slot(name)
	if err != nil {
		return 0, l.errAt(r, "%v", err)
	}
	l.padRX(16)
	at := l.o.RX + uint64(len(l.out.RX))
	d, err := raw.Disp32("the slot of "+name, slot, at+10)
	if err != nil {
		return 0, l.errAt(r, "%v", err)
	}
	code := []byte{
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0xff, 0x25, 0, 0, 0, 0, // jmp *slot(%rip)
	}
	l.c.Order.PutUint32(code[6:], d)
	l.placed(elfio.Section{Name: ".plt", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
		Size: uint64(len(code))}, at, 16)
	l.out.RX = append(l.out.RX, code...)
	l.reload(r)
	if l.stubs == nil {
		l.stubs = map[string]uint64{}
	}
	l.stubs[name] = at
	return at, nil
}

// trapX86 returns the address of an instruction that traps, what calls of undefined weak functions are bound to.
func (l *linker) trapX86(r *relocation) uint64 {
	if l.trap == 0 {
		l.trap = l.o.RX + uint64(len(l.out.RX))
		l.placed(elfio.Section{Name: ".plt", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Size: 2},
			l.trap, 1)
		l.out.RX = append(l.out.RX, 0x0f, 0x0b) // ud2
		l.reload(r)
	}
	return l.trap
}
