package ehframe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// headed is an image at address base that is nothing but headers and a search table of so many entries, which says that
// .eh_frame is at an address.
func headed(t *testing.T, base, ehFrame uint64, count uint32) *elfio.File {
	t.Helper()
	const at, head = 64 + 2*56, 12
	n := head + 8*uint64(count)
	var b bytes.Buffer
	for _, v := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2,
		},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Vaddr: base, Filesz: at + n, Memsz: at + n, Align: 1},
		elf.Prog64{Type: uint32(elf.PT_GNU_EH_FRAME), Off: at, Vaddr: base + at, Filesz: n, Memsz: n, Align: 4},
		byte(1), headerEnc, uint32(ehFrame - (base + at + 4)), count, make([]byte, 8*count),
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	f, err := elfio.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An empty search table that leads to no .eh_frame, as mold writes for an image without one, is no unwind information.
func TestNoFrames(t *testing.T) {
	const base, at = 0x400000, 0x500000
	extra := []Entry{{at + 100, at + 50}}
	for _, c := range []struct {
		name          string
		base, ehFrame uint64
	}{
		{"address 0", base, 0}, {"ELF header", base, base}, {"both", 0, 0},
	} {
		f := headed(t, c.base, c.ehFrame, 0)
		table, err := Read(f)
		if err != nil || table.Len() != 0 {
			t.Errorf("%s: %v", c.name, err)
		}
		got, err := MergeHeader(f, at, extra)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if want, err := NewHeader(f, at, 0, nil, extra); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x: %v", c.name, got, want, err)
		}
		if _, err := Read(headed(t, c.base, c.ehFrame, 1)); err == nil {
			t.Errorf("%s: a table with an entry leads there", c.name)
		}
	}
	// The address of the search table, whose first bytes are no entry.
	if _, err := Read(headed(t, base, base+64+2*56, 0)); err == nil || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("an empty table that leads to other bytes: %v", err)
	}
}
