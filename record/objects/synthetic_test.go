package objects_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// synthetic makes an ELF64 object with one text section of instruction words and one relocation of the first of them
// against an undefined symbol. With rel it is of type SHT_REL.
func synthetic(machine elf.Machine, big, rela bool, words []uint32, typ uint32, callee string) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	if big {
		order = binary.BigEndian
	}
	var text, syms, rels, strs, names bytes.Buffer
	binary.Write(&text, order, words)
	strs.WriteString("\x00" + callee + "\x00")
	for _, s := range []elf.Sym64{{}, {Info: 3, Shndx: 1}, {Name: 1, Info: 0x10}} {
		binary.Write(&syms, order, s)
	}
	info := uint64(2)<<32 | uint64(typ)
	if rela {
		binary.Write(&rels, order, elf.Rela64{Info: info})
	} else {
		binary.Write(&rels, order, elf.Rel64{Info: info})
	}
	name := func(s string) uint32 {
		at := uint32(names.Len())
		names.WriteString(s + "\x00")
		return at
	}
	name("")
	sections := []struct {
		h    elf.Section64
		data []byte
	}{
		{},
		{elf.Section64{Name: name(".text"), Type: 1, Flags: 6, Addralign: 4}, text.Bytes()},
		{elf.Section64{Name: name(".rela.text"), Type: 4, Link: 3, Info: 1, Addralign: 8, Entsize: 24}, rels.Bytes()},
		{elf.Section64{Name: name(".symtab"), Type: 2, Link: 4, Info: 2, Addralign: 8, Entsize: 24}, syms.Bytes()},
		{elf.Section64{Name: name(".strtab"), Type: 3, Addralign: 1}, strs.Bytes()},
		{elf.Section64{Name: name(".shstrtab"), Type: 3, Addralign: 1}, nil},
	}
	if !rela {
		sections[2].h.Type, sections[2].h.Entsize = 9, 16
	}
	sections[5].data = names.Bytes()
	var body bytes.Buffer
	for i := range sections {
		for body.Len()%8 != 0 {
			body.WriteByte(0)
		}
		if i > 0 {
			sections[i].h.Off, sections[i].h.Size = uint64(64+body.Len()), uint64(len(sections[i].data))
		}
		body.Write(sections[i].data)
	}
	for body.Len()%8 != 0 {
		body.WriteByte(0)
	}
	h := elf.Header64{Type: 1, Machine: uint16(machine), Version: 1, Shoff: uint64(64 + body.Len()), Ehsize: 64,
		Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 5}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	if big {
		h.Ident[5] = 2
	}
	var out bytes.Buffer
	binary.Write(&out, order, h)
	out.Write(body.Bytes())
	for _, s := range sections {
		binary.Write(&out, order, s.h)
	}
	return out.Bytes()
}
