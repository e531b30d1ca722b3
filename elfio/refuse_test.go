package elfio

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Malformed headers are refused with the structure's name and its offset.
func TestParseRefuses(t *testing.T) {
	base := elftest.Images(t)["x86_64-exec"]
	f, err := Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	header := func(change func(*raw.Header)) func([]byte) []byte {
		return func(b []byte) []byte {
			h := f.hdr
			change(&h)
			f.c.WriteHeader(b, h)
			return b
		}
	}
	section := func(i int, change func(*Section)) func([]byte) []byte {
		return func(b []byte) []byte {
			s := f.Sections[i]
			change(&s)
			f.PutSection(b[f.Header.Shoff+uint64(i)*64:], &s)
			return b
		}
	}
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		want   string
	}{
		{"empty", func(b []byte) []byte { return nil }, "ELF header at offset 0x0: not an ELF file"},
		{"short", func(b []byte) []byte { return b[:40] }, "ELF header at offset 0x0: file ends inside it"},
		{"class", func(b []byte) []byte { b[4] = 3; return b }, "offset 0x4: unknown class 3"},
		{"byte order", func(b []byte) []byte { b[5] = 0; return b }, "offset 0x5: unknown byte order 0"},
		{"version", func(b []byte) []byte { b[6] = 9; return b }, "offset 0x6: unknown version 9"},
		{"program headers outside", header(func(h *raw.Header) { h.Phoff = ^uint64(0) - 100 }),
			"program header table at offset 0xffffffffffffff9b"},
		{"program headers too many", header(func(h *raw.Header) { h.Phnum = 0xfffe }),
			"program header table at offset 0x40: 65534 entries"},
		{"program header size", header(func(h *raw.Header) { h.Phentsize = 55 }), "program header entries have 55 bytes"},
		{"section headers outside", header(func(h *raw.Header) { h.Shoff = 1 << 63 }),
			"section header table at offset 0x8000000000000000"},
		{"section headers too many", header(func(h *raw.Header) { h.Shnum = 0xfeff }), "65279 entries"},
		{"section header size", header(func(h *raw.Header) { h.Shentsize = 1 }), "section header entries have 1 bytes"},
		{"no section headers", header(func(h *raw.Header) { h.Shoff = 0 }), "section headers at offset 0"},
		{"name table", header(func(h *raw.Header) { h.Shstrndx = 999 }), "section name table is section 999"},
		{"name", section(1, func(s *Section) { s.NameOff = 1 << 30 }), "section header 1 at offset"},
		{"name table outside", section(int(f.Header.Shstrndx), func(s *Section) { s.Size = ^uint64(0) }),
			"(section name table) at offset"},
		{"extended number", header(func(h *raw.Header) { h.Shnum = 0; h.Shoff = 0x10 }), "section header 0 at offset"},
	} {
		_, err := Parse(c.change(bytes.Clone(base)))
		var fe *FormatError
		if err == nil || !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAccessorsRefuse(t *testing.T) {
	base := elftest.Images(t)["x86_64-exec"]
	f, err := Parse(bytes.Clone(base))
	if err != nil {
		t.Fatal(err)
	}
	text := f.SectionIndex(".text")
	for name, call := range map[string]func() error{
		"no such section":       func() error { _, err := f.SectionData(len(f.Sections)); return err },
		"negative section":      func() error { _, err := f.SectionData(-1); return err },
		"not loaded":            func() error { _, err := f.Bytes(1, 1); return err },
		"negative length":       func() error { _, err := f.Bytes(f.Header.Entry, -1); return err },
		"behind the segment":    func() error { _, err := f.Bytes(f.Header.Entry, 1<<30); return err },
		"no relocation table":   func() error { _, err := f.Relocs(text); return err },
		"build-id length":       func() error { _, err := f.BuildIDEdit([]byte{1}); return err },
		"section count changed": func() error { g := *f; g.Sections = g.Sections[1:]; _, err := g.headerEdits(); return err },
		"section outside": func() error {
			g := *f
			g.Sections = append([]Section(nil), f.Sections...)
			g.Sections[text].Off = ^uint64(0)
			_, err := g.SectionData(text)
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, ok := f.Offset(^uint64(0)); ok {
		t.Error("the last address has an offset")
	}
}
