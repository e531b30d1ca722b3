package inject

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

func TestInjectRefuses(t *testing.T) {
	f, err := elfio.Parse(elftest.Images(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8})
	if err != nil {
		t.Fatal(err)
	}
	alloc := Section{Name: ".x", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: l.RX, Size: 4}
	entry, _ := f.Offset(f.Header.Entry)
	for name, c := range map[string]struct {
		change func(*Injection)
		want   string
	}{
		"layout": {func(in *Injection) { in.Layout.RX += 64 }, "belongs to another image"},
		"empty":  {func(in *Injection) { in.RX = nil }, "empty"},
		"memory": {func(in *Injection) { in.RWSize = 65 }, "the layout has 0x40"},
		"edit outside": {func(in *Injection) {
			in.Edits = []elfio.RawEdit{{Off: uint64(len(f.Raw())) - 1,
				New: []byte("xy")}}
		}, "outside the file"},
		"edit of header": {func(in *Injection) { in.Edits = []elfio.RawEdit{{Off: 60, New: []byte("12345678")}} },
			"overlaps the headers"},
		"edits overlap": {func(in *Injection) {
			in.Edits = []elfio.RawEdit{{Off: entry + 2, New: []byte("x")}, {Off: entry, New: []byte("abc")}}
		}, "overlap"},
		"section outside": {func(in *Injection) { a := alloc; a.Size = 5; in.Sections = []Section{a} },
			"neither in the new segment"},
		"section align": {func(in *Injection) { a := alloc; a.Addr++; a.Size = 1; a.Align = 4; in.Sections = []Section{a} }, "not aligned"},
		"section link": {func(in *Injection) { a := alloc; a.Link = ".nowhere"; in.Sections = []Section{a} },
			"does not exist"},
		"symbol section": {func(in *Injection) { in.Symbols = []Symbol{{Name: "s", Section: ".nowhere"}} },
			"no section .nowhere"},
		"table outside": {func(in *Injection) { in.EhFrameHdr = [2]uint64{l.RX + 2, 4} }, "outside the new segment"},
		"moved outside": {func(in *Injection) { in.Moved = []Moved{{1, l.RX, 5}} }, "outside the new segment"},
		"moved nothing": {func(in *Injection) { in.Moved = []Moved{{0, l.RX, 1}} }, "moved section 0"},
	} {
		in := Injection{Layout: l, RX: []byte("code")}
		c.change(&in)
		if _, err := injected(f, in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
