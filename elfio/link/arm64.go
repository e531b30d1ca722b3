package link

import "debug/elf"

// AArch64 relocations (ELF for the Arm 64-bit Architecture, "Relocation").
//
// The page-relative pairs work at any load address because segments move by whole pages of 64 KiB. GOT references
// become adrp and add where the symbol is known.

// Names debug/elf lacks.
const (
	rARM64PREL64 = 260
	rARM64PREL32 = 261
	rARM64PREL16 = 262
	rARM64PLT32  = 314

	rARM64TPRelLDST8NC  = 553
	rARM64TPRelLDST16NC = 555
	rARM64TPRelLDST32NC = 557
	rARM64TPRelLDST64NC = 559
)

func (l *linker) applyARM64(r *relocation) error {
	if r.target.imported {
		switch elf.R_AARCH64(r.Type) {
		case elf.R_AARCH64_ADR_GOT_PAGE, elf.R_AARCH64_LD64_GOT_LO12_NC:
		default:
			return l.errAt(r, "a symbol supplied at run time can only be reached through the GOT: compile with -fPIC")
		}
		slot, err := l.slot(r.target.name)
		if err != nil {
			return l.errAt(r, "%v", err)
		}
		return l.gotARM64(r, slot)
	}
	if r.target.undef {
		switch elf.R_AARCH64(r.Type) {
		case elf.R_AARCH64_ADR_GOT_PAGE, elf.R_AARCH64_LD64_GOT_LO12_NC:
		default:
			return l.errAt(r, "undefined weak symbol: a direct reference cannot give 0, compile with -fPIC")
		}
		at := l.zeroWord()
		l.reload(r)
		return l.gotARM64(r, at)
	}
	if r.target.absolute {
		return l.errAt(r, "absolute symbol: its distance depends on the load address")
	}
	x := r.target.addr + uint64(r.Addend)
	if r.target.tls {
		return l.tlsARM64(r, x)
	}
	d := int64(x - r.place())
	switch t := elf.R_AARCH64(r.Type); t {
	case rARM64PREL64:
		b, err := l.field(r, 0, 8)
		if err != nil {
			return err
		}
		l.c.Order.PutUint64(b, uint64(d))
		return nil
	case rARM64PREL32, rARM64PLT32:
		return l.put32(r, r.target.addr)
	case elf.R_AARCH64_CALL26, elf.R_AARCH64_JUMP26:
		return l.insn(r, d, 2, 26, 0)
	case elf.R_AARCH64_CONDBR19, elf.R_AARCH64_LD_PREL_LO19:
		return l.insn(r, d, 2, 19, 5)
	case elf.R_AARCH64_TSTBR14:
		return l.insn(r, d, 2, 14, 5)
	case elf.R_AARCH64_ADR_PREL_LO21:
		return l.adr(r, d)
	case elf.R_AARCH64_ADR_PREL_PG_HI21, elf.R_AARCH64_ADR_PREL_PG_HI21_NC:
		return l.adr(r, int64(x&^0xfff-r.place()&^0xfff)>>12)
	case elf.R_AARCH64_ADD_ABS_LO12_NC, elf.R_AARCH64_LDST8_ABS_LO12_NC:
		return l.low12(r, x, 0)
	case elf.R_AARCH64_LDST16_ABS_LO12_NC:
		return l.low12(r, x, 1)
	case elf.R_AARCH64_LDST32_ABS_LO12_NC:
		return l.low12(r, x, 2)
	case elf.R_AARCH64_LDST64_ABS_LO12_NC:
		return l.low12(r, x, 3)
	case elf.R_AARCH64_LDST128_ABS_LO12_NC:
		return l.low12(r, x, 4)
	case elf.R_AARCH64_ADR_GOT_PAGE: // adrp x, :got:sym  ->  adrp x, sym
		return l.adr(r, int64(x&^0xfff-r.place()&^0xfff)>>12)
	case elf.R_AARCH64_LD64_GOT_LO12_NC: // ldr xD, [xN, :got_lo12:sym]  ->  add xD, xN, :lo12:sym
		b, err := l.field(r, 0, 4)
		if err != nil {
			return err
		}
		w := l.c.Order.Uint32(b)
		if w&0xffc00000 != 0xf9400000 {
			return l.errAt(r, "instruction %#08x is no 64-bit load", w)
		}
		l.c.Order.PutUint32(b, 0x91000000|w&0x3ff|uint32(x&0xfff)<<10)
		return nil
	}
	return l.errAt(r, "not PC-relative, would need a dynamic relocation")
}

// gotARM64 points an adrp or ldr of a GOT reference to a word.
func (l *linker) gotARM64(r *relocation, word uint64) error {
	if elf.R_AARCH64(r.Type) == elf.R_AARCH64_ADR_GOT_PAGE {
		return l.adr(r, int64(word&^0xfff-r.place()&^0xfff)>>12)
	}
	return l.low12(r, word, 3)
}

// insn stores d>>shift into the width-bit field at bit pos of the instruction.
func (l *linker) insn(r *relocation, d int64, shift, width, pos uint) error {
	b, err := l.field(r, 0, 4)
	if err != nil {
		return err
	}
	v := d >> shift
	if d&(1<<shift-1) != 0 || v<<(64-width)>>(64-width) != v {
		return l.errAt(r, "distance %#x does not fit %d bits in units of %d", d, width, 1<<shift)
	}
	mask := uint32(1<<width-1) << pos
	w := l.c.Order.Uint32(b)
	l.c.Order.PutUint32(b, w&^mask|uint32(v)<<pos&mask)
	return nil
}

// adr stores the 21-bit immediate of adr and adrp: immlo in bits 29-30, immhi in 5-23.
func (l *linker) adr(r *relocation, v int64) error {
	b, err := l.field(r, 0, 4)
	if err != nil {
		return err
	}
	if v<<43>>43 != v {
		return l.errAt(r, "distance %#x does not fit 21 bits", v)
	}
	w := l.c.Order.Uint32(b) &^ (3<<29 | 0x7ffff<<5)
	l.c.Order.PutUint32(b, w|uint32(v&3)<<29|uint32(v>>2&0x7ffff)<<5)
	return nil
}

// low12 stores the low 12 bits of x in units of 1<<scale into bits 10-21.
func (l *linker) low12(r *relocation, x uint64, scale uint) error {
	b, err := l.field(r, 0, 4)
	if err != nil {
		return err
	}
	if x&(1<<scale-1) != 0 {
		return l.errAt(r, "target %#x is not aligned to %d", x, 1<<scale)
	}
	w := l.c.Order.Uint32(b) &^ (0xfff << 10)
	l.c.Order.PutUint32(b, w|uint32(x&0xfff>>scale)<<10)
	return nil
}
