package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// relrFile is an empty 64-bit image, for decoding only; its size bounds the relocations.
func relrFile(t testing.TB, size int) *File {
	t.Helper()
	raw := make([]byte, max(size, 64))
	copy(raw, "\x7fELF\x02\x01\x01")
	raw[18] = byte(elf.EM_X86_64)
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func relrWords(words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func TestRelr(t *testing.T) {
	f := relrFile(t, 4096)
	for _, c := range []struct {
		words []uint64
		want  []uint64
	}{
		{[]uint64{0x1000}, []uint64{0x1000}},
		{[]uint64{0x1000, 1}, []uint64{0x1000}},
		{[]uint64{0x1000, 0b1011}, []uint64{0x1000, 0x1008, 0x1018}},
		{[]uint64{0x1000, 1<<63 | 1, 0b11}, []uint64{0x1000, 0x1000 + 63*8, 0x1000 + 64*8}},
		{[]uint64{0x1000, 1, 0b11}, []uint64{0x1000, 0x1000 + 64*8}},
		{[]uint64{0x1000, 0x2000, 0b101}, []uint64{0x1000, 0x2000, 0x2010}},
	} {
		got, err := f.decodeRelr(nil, relrWords(c.words...), "DT_RELR", 0)
		if err != nil {
			t.Errorf("%#x: %v", c.words, err)
		}
		var at []uint64
		for _, r := range got {
			at = append(at, r.Off)
			if elf.R_X86_64(r.Type) != elf.R_X86_64_RELATIVE {
				t.Errorf("%#x: type %d", c.words, r.Type)
			}
		}
		if !slices.Equal(at, c.want) {
			t.Errorf("%#x: %#x, want %#x", c.words, at, c.want)
		}
	}
}

// A table that names more places than there can be is refused before it takes the memory.
func TestRelrBudget(t *testing.T) {
	f := relrFile(t, 800)
	if _, err := f.decodeRelr(nil, relrWords(0x1000, ^uint64(0), ^uint64(0)), "DT_RELR", 0); err == nil {
		t.Error("127 places in a file of 100 words")
	}
}

// DynamicRelocs agrees with readelf.
func TestDynamicRelocsAgainstReadelf(t *testing.T) {
	testtool.Need(t, "readelf")
	line := regexp.MustCompile(`(?m)^([0-9a-f]{8,16})  ([0-9a-f]{8,16}) R_`)
	relr := regexp.MustCompile(`(?m)^([0-9a-f]{16})$`)
	for name, raw := range elftest.Images(t) {
		f, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.Type == elf.ET_REL {
			continue
		}
		rels, err := f.DynamicRelocs()
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("readelf", "-rW", elftest.WriteExec(t, raw)).Output()
		if err != nil {
			t.Fatal(err)
		}
		var want, got []uint64
		for _, m := range line.FindAllSubmatch(out, -1) {
			v, _ := strconv.ParseUint(string(m[1]), 16, 64)
			want = append(want, v)
		}
		if bytes.Contains(out, []byte("RELR")) || bytes.Contains(out, []byte(".relr.dyn")) {
			for _, m := range relr.FindAllSubmatch(out, -1) {
				v, _ := strconv.ParseUint(string(m[1]), 16, 64)
				want = append(want, v)
			}
		}
		for _, r := range rels {
			got = append(got, r.Off)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: relocations at %#x, readelf has %#x\n%s", name, got, want, out)
		}
	}
}
