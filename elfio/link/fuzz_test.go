package link

import (
	"debug/elf"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/cost"
)

func FuzzObject(f *testing.F) {
	for _, b := range elftest.Images(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := elfio.Parse(raw)
		if err != nil {
			return
		}
		size, _, sizeErr := WritableSize(x)
		var l *Linked
		o := Options{RX: 0x10000000, RW: 0x20000000, Symbols: map[string]uint64{"missing": 0x10000000},
			Import: func(n string) bool { return len(n)%2 == 0 }}
		cost.Check(t, len(raw), 4*elftest.PerByte, func() { l, err = Object(x, o) })
		if err != nil {
			return
		}
		if sizeErr != nil || l.RWSize > size {
			t.Errorf("%d bytes of zeroed memory, WritableSize says %d (%v)", l.RWSize, size, sizeErr)
		}
		for _, s := range l.Sections {
			if s.Flags&elf.SHF_WRITE == 0 && (s.Addr < 0x10000000 || s.Addr+s.Size > 0x10000000+uint64(len(l.RX))) {
				t.Errorf("section %+v outside %d bytes", s, len(l.RX))
			}
		}
	})
}
