package objects

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// machine is what has to be known about one: how a call of a profiling function looks and what a table's word needs.
// It is a value without state, so one never sees what another file has set.
type machine struct {
	abs   uint32 // relocation that stores an address in a word of the class
	rela  bool   // tables' relocations have room for their addend
	exact bool   // the linker moves code: every site needs a symbol of its own
	funcs bool   // function symbols can be a base; not where bit 0 of their value tells an instruction set

	joined bool // several relocations may belong to one call

	// inPlace: the addend is in the table's word although the relocations have room for it, where the linker does not look
	// (howto.partial_inplace of BFD's elf32-sh.c).
	inPlace bool

	call func(c *code, off uint64, typ uint32) (hit, bool)
	// nop returns what turns the call whose relocation is at off into nops, and where it goes; nil where the bytes are
	// not those a compiler leaves. Machines without it keep their calls.
	nop func(c *code, h hit, off uint64) (at uint64, b []byte)
}

// addendsInPlace reports whether the words of a table hold the addends.
func (m *machine) addendsInPlace() bool { return !m.rela || m.inPlace }

// code is a text section and what is needed to read it.
type code struct {
	b     []byte
	order byteOrder
	is64  bool
}

// hit is a recognised call. Offsets are relative to the place that is relocated, off.
type hit struct {
	back uint8 // off - back is the first byte a tracer may overwrite; 128 and above: off + 256 - back
	len  uint8 // how many bytes from there
	call uint8 // off - call is the call instruction; 128 and above as above
	form Form
}

// start is the first byte of the site whose relocated place is off.
func (h hit) start(off uint64) uint64 { return off - uint64(int64(int8(h.back))) }

// at is the call instruction of the site whose relocated place is off.
func (h hit) at(off uint64) uint64 { return off - uint64(int64(int8(h.call))) }

// Form says how a site calls the profiling function.
type Form uint8

// The forms.
const (
	FormNone      Form = iota
	FormCall           // one direct call instruction
	FormGOT            // a call through the global offset table
	FormRegister       // the address is loaded and called: movabs and call, lui, addiu and jalr
	FormSaved          // a call with the instructions around it that save the return address (s390x)
	FormLiteral        // a word with the address after an indirect jump (SuperH)
	FormPatchable      // nops of -fpatchable-function-entry
	FormAddress        // the address is taken; no call

	formMore Form = 0xff // belongs to the hit of an earlier relocation: there is nothing to record
)

var formNames = [...]string{"none", "call", "got-call", "register-call", "saved-call", "literal", "patchable",
	"address"}

func (f Form) String() string {
	if int(f) < len(formNames) {
		return formNames[f]
	}
	return fmt.Sprintf("form-%d", uint8(f))
}

// MarshalText returns the form's name.
func (f Form) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// EF_MIPS_ABI2 of e_flags marks N32 (MIPS EABI of the GNU tools, "ELF header flags").
const efMIPSABI2 = 0x20

// Machines debug/elf does not have all relocations of.
const (
	rSHDir32 = 1
	rSHGot32 = 160
	rLarch32 = 1
	rLarch64 = 2
)

// machineOf returns the description of the file's machine and class.
func machineOf(f *elfio.File) (machine, error) {
	big := f.Order() == binary.BigEndian
	pick := func(n32, n64 uint32) uint32 {
		if f.Is64() {
			return n64
		}
		return n32
	}
	m := machine{rela: true, funcs: true}
	ok := true
	only := func(is64 bool) { ok = ok && f.Is64() == is64 }
	little := func() { ok = ok && !big }
	switch f.Header.Machine {
	case elf.EM_X86_64: // with class 32: x32
		little()
		m.abs, m.call, m.nop = pick(uint32(elf.R_X86_64_32), uint32(elf.R_X86_64_64)), callX86, nopX86
	case elf.EM_386:
		little()
		only(false)
		m.abs, m.rela, m.call, m.nop = uint32(elf.R_386_32), false, call386, nop386
	case elf.EM_AARCH64: // with class 32: ILP32
		m.abs, m.call, m.nop = pick(1, uint32(elf.R_AARCH64_ABS64)), callARM64, nopARM64
	case elf.EM_ARM:
		only(false)
		m.abs, m.rela, m.funcs, m.call, m.nop = uint32(elf.R_ARM_ABS32), false, false, callARM, nopARM
	case elf.EM_PPC:
		only(false)
		m.abs, m.call = uint32(elf.R_PPC_ADDR32), callPPC
	case elf.EM_PPC64:
		only(true)
		m.abs, m.call = uint32(elf.R_PPC64_ADDR64), callPPC64
	case elf.EM_S390:
		ok = ok && big
		m.abs, m.call = pick(uint32(elf.R_390_32), uint32(elf.R_390_64)), callS390
	case elf.EM_SPARCV9:
		ok = ok && big
		only(true)
		m.abs, m.call = uint32(elf.R_SPARC_64), callSPARC
	case elf.EM_MIPS:
		m.abs, m.call = pick(uint32(elf.R_MIPS_32), uint32(elf.R_MIPS_64)), callMIPS
		m.rela, m.joined = f.Is64() || f.Header.Flags&efMIPSABI2 != 0, true
	case elf.EM_SH:
		only(false)
		m.abs, m.inPlace, m.call = rSHDir32, true, callSH
	case elf.EM_RISCV:
		little()
		m.abs, m.exact, m.call = pick(uint32(elf.R_RISCV_32), uint32(elf.R_RISCV_64)), true, callRISCV
	case elf.EM_LOONGARCH:
		little()
		m.abs, m.exact, m.call = pick(rLarch32, rLarch64), true, callLoong
	default:
		return m, fmt.Errorf("machine %v is not supported", f.Header.Machine)
	}
	if !ok {
		return m, fmt.Errorf("machine %v with %v and %v is not supported", f.Header.Machine,
			elf.Class(f.Header.Ident[elf.EI_CLASS]), elf.Data(f.Header.Ident[elf.EI_DATA]))
	}
	return m, nil
}

// word32 reads the instruction word at off; ok is false where it is not inside the section.
func (c *code) word32(off uint64) (uint32, bool) {
	b, ok := c.bytes(off, 4)
	if !ok {
		return 0, false
	}
	return c.order.Uint32(b), true
}

func (c *code) half(off uint64) (uint16, bool) {
	b, ok := c.bytes(off, 2)
	if !ok {
		return 0, false
	}
	return c.order.Uint16(b), true
}

func (c *code) bytes(off, n uint64) ([]byte, bool) {
	if off > uint64(len(c.b)) || n > uint64(len(c.b))-off {
		return nil, false
	}
	return c.b[off : off+n], true
}

// byteOrder is what binary.LittleEndian and binary.BigEndian are.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func orderOf(f *elfio.File) byteOrder {
	if f.Order() == binary.BigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}
