package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
)

// perByte is what is allocated for a byte of an image: its tables, and twice over what they are sorted in.
const perByte = 256

// fuzzImage is a small image with debug information, and where a fuzzer changes it.
func fuzzImage(f *testing.F, sections func(name string) bool) (base []byte, places []span) {
	base, err := os.ReadFile(filepath.Join("testdata", "lines.elf"))
	if err != nil {
		f.Fatal(err)
	}
	img, err := elfio.Parse(base)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range img.Sections {
		if s.Type != elf.SHT_NOBITS && s.Size > 0 && sections(s.Name) {
			places = append(places, span{s.Off, s.Size})
		}
	}
	return base, places
}

type span struct{ off, size uint64 }

// change overwrites bytes as changes says: a place, two bytes of offset in it, and a new byte each.
func change(base []byte, places []span, changes []byte) []byte {
	b := bytes.Clone(base)
	for ; len(changes) >= 4; changes = changes[4:] {
		p := places[int(changes[0])%len(places)]
		b[p.off+uint64(binary.LittleEndian.Uint16(changes[1:]))%p.size] = changes[3]
	}
	return b
}

// FuzzLines changes bytes of the debug sections of a small image.
func FuzzLines(f *testing.F) {
	base, places := fuzzImage(f, func(name string) bool { return strings.HasPrefix(name, ".debug_") })
	img, err := elfio.Parse(base)
	if err != nil {
		f.Fatal(err)
	}
	tab, err := New(img)
	if err != nil {
		f.Fatal(err)
	}
	addrs := make([]uint64, 0, len(tab.Funcs()))
	for _, fn := range tab.Funcs() {
		addrs = append(addrs, fn.Addr, fn.Addr+4)
	}
	f.Add([]byte{})
	f.Add([]byte{1, 2, 0, 3})
	f.Fuzz(func(t *testing.T, changes []byte) {
		b := change(base, places, changes)
		img, err := elfio.Parse(b)
		if err != nil {
			return
		}
		tab, err := New(img)
		if err != nil {
			return
		}
		// A row is a byte of .debug_line at least, and 16 in memory; the standard library has more for the entry of a
		// file.
		cost.Check(t, len(b), 1<<10, func() {
			for _, a := range addrs {
				l, ok, err := tab.Line(a)
				if !ok && l != (Line{}) || err != nil && ok || ok && (l.Line < 0 || l.File == "") {
					t.Errorf("%#x: %v, %v, %v", a, l, ok, err)
				}
				frames, err := tab.Frames(a)
				if err == nil && (len(frames) == 0 || frames[0].Line != l || frames[len(frames)-1].Inlined) {
					t.Errorf("%#x: frames %v, line %v", a, frames, l)
				}
			}
		})
		if again, err := New(img); err != nil {
			t.Error(err)
		} else if one, ok1, _ := tab.Line(addrs[0]); true {
			if two, ok2, _ := again.Line(addrs[0]); one != two || ok1 != ok2 {
				t.Errorf("%#x: %v, then %v", addrs[0], one, two)
			}
		}
	})
}

// FuzzTable changes bytes of a small image's headers and tables of functions. What is read is sorted, and found again.
func FuzzTable(f *testing.F) {
	base, places := fuzzImage(f, func(name string) bool {
		return name == ".symtab" || name == ".dynsym" || name == ".strtab" || strings.HasPrefix(name, ".eh_frame") || name == ".shstrtab"
	})
	img, err := elfio.Parse(base)
	if err != nil {
		f.Fatal(err)
	}
	places = append(places, span{0, 64 + 56*uint64(len(img.Progs))}, span{img.Header.Shoff, 64 * uint64(len(img.Sections))})
	for i := range places {
		f.Add([]byte{byte(i), 8, 0, 1}, uint64(0x1000))
		f.Add([]byte{byte(i), 24 + 4, 0, 0xff, byte(i), 24 + 8, 0, 0xff}, ^uint64(0))
	}
	f.Fuzz(func(t *testing.T, changes []byte, addr uint64) {
		b := change(base, places, changes)
		img, err := elfio.Parse(b)
		if err != nil {
			return
		}
		var tab *Table
		cost.Check(t, len(b), perByte, func() { tab, err = New(img) })
		if err != nil {
			return
		}
		funcs := tab.Funcs()
		for i, fn := range funcs {
			if i > 0 && fn.Addr <= funcs[i-1].Addr {
				t.Fatalf("function %d at %#x behind one at %#x", i, fn.Addr, funcs[i-1].Addr)
			}
			if tab.At(fn.Addr) != i || tab.Before(fn.Addr) != i {
				t.Fatalf("function %d at %#x is found as %d, and before it is %d", i, fn.Addr, tab.At(fn.Addr), tab.Before(fn.Addr))
			}
			if got, ok := tab.Lookup(fn.Addr); fn.Size > 0 && (!ok || got != fn) {
				t.Errorf("looking for %+v finds %+v, %v", fn, got, ok)
			}
		}
		if fn, ok := tab.Lookup(addr); ok && (addr < fn.Addr || fn.Size > 0 && addr-fn.Addr >= fn.Size || !slices.Contains(funcs, fn)) {
			t.Errorf("%#x is in %+v", addr, fn)
		}
		for _, s := range tab.Symbols() {
			if s.Type() == elf.STT_FUNC && s.Defined() && elf.SectionIndex(s.Shndx) != elf.SHN_ABS {
				if i := tab.At(s.Value); i < 0 || funcs[i].Name == "" && BaseName(s.Name) != "" {
					t.Errorf("the function %q at %#x is not there", s.Name, s.Value)
				}
			}
		}
		if name, _, ok := tab.debugLink(); ok && (name == "" || strings.ContainsAny(name, "/\x00")) {
			t.Errorf("debug link %q", name)
		}
	})
}

// zstdFrame is b as a zstd frame (RFC 8878, 3.1.1) of raw blocks, and of runs where all bytes are one.
func zstdFrame(b []byte) []byte {
	le := binary.LittleEndian
	out := le.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, uint32(len(b))) // one segment, size in 4 bytes
	for last := false; !last; {
		n := min(len(b), 100<<10)
		block := b[:n]
		b, last = b[n:], n == len(b)
		h := uint32(n) << 3
		if last {
			h |= 1
		}
		if n > 0 && len(bytes.Trim(block, string(block[:1]))) == 0 && block[0] < 0x80 {
			h, block = h|2, block[:1]
		}
		out = append(le.AppendUint32(out, h)[:len(out)+3], block...)
	}
	return out
}

// FuzzExpand: what is compressed comes back, and no stream makes more than its header announced, which is bounded.
func FuzzExpand(f *testing.F) {
	compressed := map[elf.CompressionType]func(b []byte) []byte{
		compressZSTD: zstdFrame,
		elf.COMPRESS_ZLIB: func(b []byte) []byte {
			var out bytes.Buffer
			w := zlib.NewWriter(&out)
			w.Write(b)
			w.Close()
			return out.Bytes()
		},
	}
	seed := []byte(strings.Repeat("a section of debug information ", 50))
	for how, c := range compressed {
		f.Add(seed, uint32(how), uint64(len(seed)), true)
		f.Add(c(seed), uint32(how), uint64(len(seed)), false)
		f.Add(c(make([]byte, 1<<20)), uint32(how), uint64(1<<20), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, how uint32, size uint64, plain bool) {
		if plain {
			for how, c := range compressed {
				if got, err := expand(how, c(b), uint64(len(b))); err != nil || !bytes.Equal(got, b) {
					t.Errorf("compression %d of %q gives %q, %v", how, b, got, err)
				}
			}
			return
		}
		size = min(size, 1<<22)
		const window = 8 << 20 // what a zstd frame can ask for, whatever its size
		var got []byte
		var err error
		cost.Check(t, len(b)+int(size)+window>>5, 1<<5, func() { got, err = expand(elf.CompressionType(how), b, size) })
		if err == nil && uint64(len(got)) != size {
			t.Errorf("%d bytes, want %d", len(got), size)
		}
	})
}

func FuzzDemangle(f *testing.F) {
	for _, s := range []string{"_ZN2ns3Foo3barEi", "_RINvNtC3std3mem8align_ofjE", "_ZN4core3str5Fooxy3bar17h0123456789abcdefE", "___Z4mainvE_block_invoke", "_GLOBAL__sub_I_x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var forms []string
		var typed string
		cost.Check(t, len(s)+1<<maxDemangled, 1<<10, func() {
			for _, st := range []Style{Simple, Full, No} {
				out := Demangle(s, st)
				if limit := max(len(s), 1<<maxDemangled); len(out) > limit {
					t.Errorf("%q: %d bytes", s, len(out))
				}
				if !Mangled(BaseName(s)) && out != BaseName(s) {
					t.Errorf("%q has become %q", s, out)
				}
			}
			forms, typed = DemangleForms(s)
		})
		if slices.Contains(forms, "") || len(forms) > 4 || len(forms)+len(typed) > 0 && !Mangled(s) {
			t.Errorf("%q: forms %q", s, forms)
		}
	})
}
