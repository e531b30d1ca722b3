package ehframe

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// TestUsualFDEs compares what is read at once with what is read field by field.
func TestUsualFDEs(t *testing.T) {
	usual := 0
	for _, path := range []string{"../testdata/x86_64-exec", "../testdata/x86_64-shared", "/usr/bin/gdb",
		"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Logf("not compared: %v", err)
			continue
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		i := f.SectionIndex(".eh_frame")
		if i < 0 {
			continue
		}
		data, err := f.SectionData(i)
		if err != nil {
			t.Fatal(err)
		}
		a := area{c: raw.CodecOf(b), what: ".eh_frame", data: data, off: f.Sections[i].Off, addr: f.Sections[i].Addr,
			sized: true}
		for pos := uint64(0); uint64(len(data))-pos >= 4; {
			e, err := a.entry(pos)
			if err != nil {
				t.Fatal(err)
			}
			if e.body == nil {
				pos += 4
				continue
			}
			if e.id != 0 {
				at := e.idPos - uint64(e.id)
				cie, err := a.cie(at)
				if err != nil {
					t.Fatal(err)
				}
				want, err := a.fde(e, cie)
				if err != nil {
					t.Fatal(err)
				}
				u := a.usual(cie, at)
				if got, next, ok := u.read(&a, pos); ok {
					usual++
					if d := cmp.Diff(want, got, cmp.AllowUnexported(CIE{})); d != "" || next != e.next {
						t.Fatalf("%s: FDE at %#x, next %#x, want %#x:\n%s", path, pos, next, e.next, d)
					}
				}
				// Cut off anywhere, it is left to the other reader.
				for n := pos; n < e.next; n++ {
					short := a
					short.data = data[:n:n]
					if _, _, ok := u.read(&short, pos); ok {
						t.Fatalf("%s: FDE at %#x read from %d bytes", path, pos, n-pos)
					}
				}
			}
			pos = e.next
		}
	}
	if usual == 0 {
		t.Error("no entry was read at once")
	}
}
