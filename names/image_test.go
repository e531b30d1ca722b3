package names

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// demo is a program for x86-64 that is built already.
const demo = "../cmd/fentry/demo/demo.elf"

// patched is the demo with the tracer in it.
func patched(t testing.TB) (*patch.Plan, []byte) {
	t.Helper()
	b, err := os.ReadFile(demo)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := patch.New(f, sites, patch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A patched program says what its ids mean, as the plan has it; a file that is not the image does not.
func TestFind(t *testing.T) {
	p, out := patched(t)
	path := write(t, "demo", out)
	im := Image{ID: p.ImageID, Paths: []string{"", "/nonexistent", demo, path}}
	tab, err := Find(im)
	if err != nil {
		t.Fatal(err)
	}
	traced := 0
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.ID == 0 {
			continue
		}
		traced++
		want := Func{ID: fn.ID, Addr: fn.Func, Size: fn.Size, Site: fn.Addr, Kind: "patched", Name: fn.Name}
		if got, ok := tab.Func(fn.ID); !ok || got != want {
			t.Errorf("id %d: %+v, want %+v", fn.ID, got, want)
		}
	}
	if traced == 0 || len(tab.Funcs) != traced || int(tab.MaxID()) != traced || tab.Image != p.ImageID ||
		tab.Machine != "x86_64" || !bytes.Equal(tab.BuildID, p.BuildID) || tab.Entry != p.Entry {
		t.Errorf("%d functions, largest id %d, want %d; image %x %s %x %#x", len(tab.Funcs), tab.MaxID(), traced,
			tab.Image, tab.Machine, tab.BuildID, tab.Entry)
	}
	for _, c := range []struct {
		im   Image
		want string
	}{
		{Image{ID: p.ImageID, Paths: []string{demo}}, demo + ": not patched by fentry"},
		{Image{ID: p.ImageID + 1, Paths: []string{"/nonexistent", path}}, path + ": not the program that was traced: it has been patched again since"},
		{Image{ID: p.ImageID, Linked: true, Paths: []string{path}}, path + ": not the program that was traced: it has been built again since"},
		{Image{ID: p.ImageID, Paths: []string{"/nonexistent"}}, "/nonexistent: no such file or directory"},
		{Image{ID: p.ImageID, Paths: []string{"/dev/null", "/nonexistent"}}, "/dev/null: not a regular file"},
		{Image{ID: p.ImageID}, "the trace does not name the program's file"},
	} {
		if tab, err := Find(c.im); tab != nil || err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.im, err, c.want)
		}
	}
}

// Lines are those of the file that is the image or what it was made from: by image id, by build-id, by entry point.
func TestFindLines(t *testing.T) {
	const lines = "../symbol/testdata/lines.elf"
	b, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%x", f.BuildID())
	tab, err := symbol.New(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range []Image{{}, {BuildID: id}, {Entry: f.Header.Entry}} {
		im.Paths = []string{demo, lines}
		l, err := FindLines(im)
		if err != nil {
			t.Fatalf("%+v: %v", im, err)
		}
		for _, fn := range tab.Funcs() {
			if at, ok, err := l.At(fn.Addr); err != nil || !ok || !strings.HasPrefix(at.String(), "/src/lines.c:") {
				t.Errorf("%s: %v %v %v", fn.Name, at, ok, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		im   Image
		want string
	}{
		{Image{Entry: f.Header.Entry + 4}, "it has been built again since"},
		{Image{Linked: true}, "it has been built again since"},
	} {
		c.im.Paths = []string{lines}
		if _, err := FindLines(c.im); err == nil || !strings.HasPrefix(err.Error(), lines+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.im, err, c.want)
		}
	}
	if _, err := FindLines(Image{Paths: []string{demo}}); !errors.Is(err, symbol.ErrNoLines) {
		t.Error(err)
	}
	if p, out := patched(t); len(p.BuildID) > 0 {
		im := Image{ID: 1, BuildID: "00", Paths: []string{write(t, "demo", out)}}
		if _, err := FindLines(im); err == nil || !strings.Contains(err.Error(), "its build-id is another") {
			t.Error(err)
		}
	}
}

// A file that is no program is refused.
func TestRefused(t *testing.T) {
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(head[16:], uint16(elf.ET_EXEC))
	le.PutUint16(head[18:], uint16(elf.EM_X86_64))
	le.PutUint32(head[20:], 1)
	le.PutUint64(head[32:], 1<<63) // program headers, of which there are none
	le.PutUint16(head[52:], 64)
	le.PutUint16(head[54:], 56)
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("#!/bin/sh\n"), "header": head, "cut": head[:40]} {
		path := write(t, name, b)
		for _, linked := range []bool{false, true} {
			if _, err := Find(Image{ID: 1, Linked: linked, Paths: []string{path}}); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// FuzzFrom: a changed program gives the functions that it says, or an error.
func FuzzFrom(f *testing.F) {
	p, out := patched(f)
	x, err := elfio.Parse(out)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), uint64(0), false)
	for _, name := range []string{".fentry.info", ".fentry.sites", ".symtab", ".strtab", ".eh_frame"} {
		if i := x.SectionIndex(name); i >= 0 {
			f.Add(uint32(x.Sections[i].Off), uint64(1)<<63, false)
			f.Add(uint32(x.Sections[i].Off+8), uint64(0xff), true)
		}
	}
	f.Fuzz(func(t *testing.T, at uint32, flip uint64, linked bool) {
		b := bytes.Clone(out)
		if w := int(at) % (len(b) - 8); true {
			binary.LittleEndian.PutUint64(b[w:], binary.LittleEndian.Uint64(b[w:])^flip)
		}
		ef, err := elfio.Parse(b)
		if err != nil {
			return
		}
		im := Image{ID: p.ImageID, Linked: linked}
		if linked && ef.Is64() {
			im.ID = linkedID(ef)
		}
		var tab *Table
		cost.Check(t, len(b), 64, func() { tab, err = From(ef, im) })
		if err != nil {
			return
		}
		for i := range tab.Funcs {
			if fn, ok := tab.Func(uint32(i + 1)); !linked && (!ok || fn != tab.Funcs[i]) {
				t.Fatalf("id %d: %+v %v", i+1, fn, ok)
			}
		}
	})
}

// A program that is truncated while its names or lines are read gives an error that names it.
func TestTruncated(t *testing.T) {
	p, out := patched(t)
	path := write(t, "demo", out)
	im := Image{ID: p.ImageID, Paths: []string{path}}
	err := im.eachFile(func(_ *mapped.File, f *elfio.File) error {
		if err := os.Truncate(path, 8192); err != nil {
			t.Fatal(err)
		}
		_, err := From(f, im)
		return err
	})
	if err == nil || err.Error() != path+": truncated to 8192 bytes while it was read" {
		t.Error(err)
	}

	b, err := os.ReadFile("../symbol/testdata/lines.elf")
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range []func(l *Lines, addr uint64) error{
		func(l *Lines, addr uint64) error { _, _, err := l.At(addr); return err },
		func(l *Lines, addr uint64) error { _, err := l.Frames(addr); return err },
	} {
		path = write(t, "lines", b)
		l, err := FindLines(Image{Paths: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		tab, err := symbol.New(f)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := read(l, tab.Funcs()[0].Addr)
			if err == nil || err.Error() != path+": truncated to 0 bytes while it was read" {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
