package inject

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// manySections gives an image section headers up to number n.
func manySections(t *testing.T, b []byte, n uint32) []byte {
	t.Helper()
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.Clone(b)
	c := raw.CodecOf(b)
	h := c.ReadHeader(b)
	h.Shoff = uint64(len(out))
	h.Shnum = 0
	c.WriteHeader(out, h)
	for i := range n {
		s := elfio.Section{Type: elf.SHT_PROGBITS, Addralign: 1}
		if int(i) < len(f.Sections) {
			s = f.Sections[i]
		}
		if i == 0 {
			s.Size = uint64(n)
		}
		e := make([]byte, c.ShdrSize())
		f.PutSection(e, &s)
		out = append(out, e...)
	}
	return out
}

// Injection crosses from plain to extended section numbers, and stays there.
func TestInjectExtendedSectionNumbers(t *testing.T) {
	tiny := elftest.Images(t)["x86_64-exec"]
	for _, n := range []uint32{0xfefe, 0xfeff, 0xff00, 0xff01, 70000} {
		f, err := elfio.Parse(manySections(t, tiny, n))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := f.Encode(); err != nil || !bytes.Equal(b, f.Raw()) {
			t.Errorf("%#x sections: encoding gives another image (%v)", n, err)
		}
		l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8})
		if err != nil {
			t.Fatal(err)
		}
		rx := []byte("code")
		out, err := injected(f, Injection{Layout: l, RX: rx,
			Symbols: []Symbol{{Name: "fentry:x", Value: l.RX, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := elfio.Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Sections) != int(n)+3 { // .fentry.rx, .fentry.bss, .fentry.undo
			t.Errorf("%#x sections became %#x", n, len(g.Sections))
		}
		if msg := checkInjected(f, out, l, rx); msg != "" {
			t.Errorf("%#x sections: %s", n, msg)
		}
		if back, err := Undo(out); err != nil || !bytes.Equal(back, f.Raw()) {
			t.Errorf("%#x sections: Undo does not give the original (%v)", n, err)
		}
	}
}
