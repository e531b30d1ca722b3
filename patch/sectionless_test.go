package patch_test

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// sectionless is a file without its section headers, cut as sstrip does, and, if so asked, without its unwind information.
func sectionless(t *testing.T, image []byte, frames bool) []byte {
	t.Helper()
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	clear(image[40:48]) // e_shoff
	clear(image[60:64]) // e_shnum, e_shstrndx
	if i := f.ProgIndex(elf.PT_GNU_EH_FRAME); !frames && i >= 0 {
		p := f.Progs[i]
		p.Type = elf.PT_NULL
		f.PutProg(image[f.Header.Phoff+uint64(i)*uint64(f.Header.Phentsize):], p)
	}
	if f, err = elfio.Parse(image); err != nil {
		t.Fatal(err)
	}
	_, n := f.Overlay()
	return image[:uint64(len(image))-n]
}

// A patched file without section headers is recognised, verified, and known to be patched by whoever looks for sites.
func TestVerifySectionless(t *testing.T) {
	for _, on := range targets {
		for _, frames := range []bool{true, false} {
			var flags []string
			if !frames {
				flags = []string{"-pg", "-rdynamic"} // what can be traced without unwind information
			}
			image := sectionless(t, read(t, on.compile(t, "p.c", source, flags...)), frames)
			find := record.Options{Plain: record.PlainAll}
			to := filepath.Join(t.TempDir(), "p")
			p := patchPlain(t, image, patch.Options{}, find, to)
			f, err := elfio.Parse(read(t, to))
			if err != nil {
				t.Fatal(err)
			}
			if in, err := patch.Inspect(f); err != nil || in.ImageID != p.ImageID || in.Added == 0 {
				t.Errorf("%s: %+v: %v", on.name, in, err)
			}
			if table, err := ehframe.Read(f); err != nil || table.Len() == 0 {
				t.Errorf("%s: unwind information: %v", on.name, err)
			}
			sites, err := record.Find(f, find)
			if err != nil {
				t.Fatal(err)
			}
			patched := 0
			for i := range sites {
				if sites[i].Reason == record.ReasonPatched {
					patched++
				}
			}
			if frames && patched == 0 {
				t.Errorf("%s: none of %d functions is patched", on.name, p.Traced())
			}
		}
	}
}
