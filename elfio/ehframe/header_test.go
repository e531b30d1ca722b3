package ehframe

import (
	"bytes"
	"debug/elf"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// The tables of .eh_frame_hdr that linkers may write besides the usual one.
func TestMergeHeaderEncodings(t *testing.T) {
	raw := elftest.Images(t)["x86_64-shared"]
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(1 << 20)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			at = max(at, p.Vaddr+1<<20)
		}
	}
	extra := []Entry{{at + 100, at + 50}, {1, at + 60}}
	want, err := MergeHeader(f, at, extra)
	if err != nil {
		t.Fatal(err)
	}
	// The first row is the lowest address, the last the highest.
	rows := want[12:]
	pc := func(row []byte) uint64 { return at + uint64(int64(int32(f.Order().Uint32(row)))) }
	if pc(rows) != 1 || pc(rows[len(rows)-8:]) != at+100 {
		t.Errorf("rows from %#x to %#x", pc(rows), pc(rows[len(rows)-8:]))
	}
	for i := 8; i < len(rows); i += 8 {
		if pc(rows[i:]) < pc(rows[i-8:]) {
			t.Errorf("row %d is out of order", i/8)
		}
	}
	hdr := f.Progs[f.ProgIndex(elf.PT_GNU_EH_FRAME)].Off
	parse := func(enc ...byte) *elfio.File {
		b := bytes.Clone(raw)
		copy(b[hdr+1:], enc)
		g, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	// Without a table the rows come from .eh_frame: the same.
	if got, err := MergeHeader(parse(0x1b, encOmit, encOmit), at, extra); err != nil || !bytes.Equal(got, want) {
		t.Errorf("no table: %v\n% x\n% x", err, got, want)
	}
	if _, err := MergeHeader(parse(0x1b, 3, 0x1b), at, extra); err == nil || !strings.Contains(err.Error(), "1b 03 1b") {
		t.Errorf("another table encoding: %v", err)
	}
	if _, err := MergeHeader(parse(0x4b, 3, 0x3b), at, extra); err == nil {
		t.Error("a pointer relative to functions was accepted")
	}
	if _, err := MergeHeader(f, at+1<<33, extra); err == nil || !strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("8 GiB away: %v", err)
	}
}
