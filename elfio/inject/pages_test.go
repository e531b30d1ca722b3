package inject

import (
	"bytes"
	"debug/elf"
	"fmt"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// load maps an image as a kernel with pages of some size does, segment by segment, and says what it cannot map, or what of a
// segment is not in memory in the end.
func load(f *elfio.File, raw []byte, page uint64) error {
	memory := map[uint64][]byte{} // pages, by address
	var loads []elfio.Prog
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > 0 {
			loads = append(loads, p)
		}
	}
	for _, p := range loads {
		if (p.Vaddr-p.Off)%page != 0 {
			return fmt.Errorf("segment at %#x, %#x in the file", p.Vaddr, p.Off)
		}
		from, end := p.Vaddr&^(page-1), p.Vaddr+p.Filesz
		for at := from; at < end; at += page {
			b := make([]byte, page)
			off := p.Off &^ (page - 1)
			copy(b, raw[min(off+at-from, uint64(len(raw))):])
			memory[at] = b
		}
		if p.Memsz > p.Filesz { // the rest of the last page is zeroed
			clear(memory[(end-1)&^(page-1)][(end-1)%page+1:])
		}
		for at := (end + page - 1) &^ (page - 1); at < p.Vaddr+p.Memsz; at += page {
			memory[at] = make([]byte, page)
		}
	}
	for _, p := range loads {
		for i := range p.Memsz {
			want := byte(0)
			if i < p.Filesz {
				want = raw[p.Off+i]
			}
			at := p.Vaddr + i
			if b := memory[at&^(page-1)]; b == nil || b[at%page] != want {
				return fmt.Errorf("byte %#x of the segment at %#x is another one", i, p.Vaddr)
			}
		}
	}
	return nil
}

// What a kernel with large pages can load before an injection it can load after it, with what is added.
func TestInjectedPages(t *testing.T) {
	large := 0
	for name, raw := range elftest.Images(t) {
		f, err := elfio.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, rw := range []uint64{0, 64, 0x12345} {
			l, err := NewLayout(f, Memory{RW: rw, RWAlign: 8})
			if err != nil {
				t.Logf("%s: %v", name, err)
				continue
			}
			rx := bytes.Repeat([]byte{0xd4}, 0x23456)
			out, err := injected(f, Injection{Layout: l, RX: rx})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			g, err := elfio.Parse(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, page := range []uint64{0x1000, 0x4000, 0x10000} {
				if load(f, raw, page) != nil {
					continue // not before either
				}
				if page > 0x1000 && f.Header.Machine == elf.EM_AARCH64 {
					large++
				}
				if page > newImage(f).pageSize() {
					continue // no kernel has such pages
				}
				if err := load(g, out, page); err != nil {
					t.Errorf("%s, %#x bytes added, pages of %#x bytes: %v", name, rw, page, err)
				}
			}
		}
	}
	if large == 0 {
		t.Error("no image for arm64 that kernels with large pages can load")
	}
}
