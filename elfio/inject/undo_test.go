package inject

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// A damaged undo record is found out, never followed.
func TestUninjectDamaged(t *testing.T) {
	raw := elftest.Images(t)["x86_64-exec"]
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8})
	if err != nil {
		t.Fatal(err)
	}
	out, err := injected(f, Injection{Layout: l, RX: []byte("code")})
	if err != nil {
		t.Fatal(err)
	}
	g, err := elfio.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	rec := g.Sections[g.SectionIndex(undoSection)]
	// The last bytes find the record where there are no sections; they are not needed here.
	for i := range rec.Size - undoTrailer {
		bad := bytes.Clone(out)
		bad[rec.Off+i] ^= 0x55
		if b, err := Undo(bad); err == nil && !bytes.Equal(b, raw) {
			t.Fatalf("byte %d of the record changed, and another original came out", i)
		}
	}
	code, _ := f.Offset(f.Header.Entry)
	bad := bytes.Clone(out)
	bad[code] ^= 1
	if _, err := Undo(bad); !errors.Is(err, ErrUndoLost) {
		t.Errorf("code changed after injection: %v", err)
	}
	if u, err := newImage(g).findUndo(); err != nil || u.size != uint64(len(raw)) || len(u.spans) == 0 ||
		u.spans[0] != (span{0, 64}) {
		t.Errorf("undo record %+v, %v", u, err)
	}
}
