package inject

import (
	"bytes"
	"compress/flate"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/cost"
)

func FuzzInject(f *testing.F) {
	for _, raw := range elftest.Images(f) {
		f.Add(raw, uint16(100), uint16(16), uint16(50))
	}
	f.Fuzz(func(t *testing.T, raw []byte, rw, align, edit uint16) {
		x, err := elfio.Parse(raw)
		if err != nil {
			return
		}
		l, err := NewLayout(x, Memory{RW: uint64(rw), RWAlign: uint64(align)})
		if err != nil {
			return
		}
		if l.RX%rxAlign != 0 && l.Segment%rxAlign == 0 {
			t.Errorf("RX at %#x", l.RX)
		}
		in := Injection{Layout: l, RX: bytes.Repeat([]byte{0x90}, 100), Entry: l.RX,
			Symbols: []Symbol{{Name: "fentry:x", Value: l.RX, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
			Edits:   []elfio.RawEdit{{Off: uint64(edit), New: []byte("edit")}}}
		if hdr, err := ehframe.MergeHeader(x, l.RX+16, []ehframe.Entry{{PC: l.RX, FDE: l.RX + 8}}); err == nil &&
			l.EhFrame && len(hdr) <= 84 {
			in.EhFrameHdr = [2]uint64{l.RX + 16, uint64(len(hdr))}
			copy(in.RX[16:], hdr)
		}
		var plan *elfio.Output
		cost.Check(t, len(raw), elftest.PerByte, func() { plan, err = Into(x, in) })
		if err != nil {
			return
		}
		if err := disjoint(plan.Edits); err != nil {
			t.Error(err)
		}
		for _, e := range plan.Edits {
			if e.Off+uint64(len(e.New)) > uint64(len(raw)) {
				t.Errorf("%d bytes at %#x are changed, of %d", len(e.New), e.Off, len(raw))
			}
		}
		out := plan.Bytes()
		if len(out) > len(raw)*3+1<<22 {
			t.Errorf("%d bytes from %d", len(out), len(raw))
		}
		y, err := elfio.Parse(out)
		if err != nil {
			t.Fatalf("the result does not parse: %v", err)
		}
		if b, err := y.Bytes(l.RX, len(in.RX)); err != nil || !bytes.Equal(b, in.RX) {
			t.Errorf("RX is not at its address (%v)", err)
		}
		back, err := Undo(out)
		if err != nil || !bytes.Equal(back, raw) {
			t.Errorf("Uninject does not give the original (%v)", err)
		}
	})
}

func FuzzUninject(f *testing.F) {
	for _, raw := range elftest.Images(f) {
		x, err := elfio.Parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		l, err := NewLayout(x, Memory{RW: 64, RWAlign: 8})
		if err != nil {
			continue
		}
		out, err := injected(x, Injection{Layout: l, RX: []byte("code")})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out []byte
		var err error
		cost.Check(t, len(raw), elftest.PerByte, func() { out, err = Undo(raw) })
		if err == nil && len(out) > len(raw) {
			t.Errorf("original of %d bytes in a file of %d", len(out), len(raw))
		}
		if x, err := elfio.Parse(raw); err == nil {
			_ = Verify(x)
		}
	})
}

// FuzzUndoRecord: a record gives back what it was made of, and any body that is read names ranges of the original.
func FuzzUndoRecord(f *testing.F) {
	f.Add([]byte("the original, of which some is changed"), []byte{4, 8, 2, 1, 0, 3})
	f.Add([]byte("x"), []byte{})
	f.Add([]byte("a body \x02\x01\x01\x02\x01xy"), []byte{7, 3})
	f.Fuzz(func(t *testing.T, orig, places []byte) {
		var edits []elfio.RawEdit
		for at := uint64(0); len(places) >= 2; places = places[2:] {
			at += uint64(places[0])
			if n := uint64(places[1]); at+n <= uint64(len(orig)) {
				edits = append(edits, elfio.RawEdit{Off: at, New: make([]byte, n)})
				at += n
			}
		}
		rec := encodeUndo(orig, edits, nil)
		if last, ok := trailer(append(bytes.Clone(orig), rec...)); !ok || !bytes.Equal(last, rec) {
			t.Fatal("the record is not found")
		}
		u, err := decodeUndo(rec, 0, uint64(len(orig)))
		if err != nil {
			t.Fatal(err)
		}
		if u.size != uint64(len(orig)) || u.sum != checksum(orig) || len(u.spans) != len(edits) {
			t.Fatalf("%+v for %d bytes and %d edits", u, len(orig), len(edits))
		}
		old := u.old
		for i, e := range edits {
			n := uint64(len(e.New))
			if u.spans[i] != (span{e.Off, n}) || !bytes.Equal(old[:n], orig[e.Off:e.Off+n]) {
				t.Fatalf("range %d: %+v, want %#x+%#x", i, u.spans[i], e.Off, n)
			}
			old = old[n:]
		}

		// The same bytes as a body.
		var z bytes.Buffer
		w, _ := flate.NewWriter(&z, flate.HuffmanOnly)
		w.Write(orig)
		w.Close()
		le := binary.LittleEndian
		rec = append(bytes.Clone(rec[:undoHeader]), z.Bytes()...)
		le.PutUint64(rec[48:], uint64(z.Len()))
		le.PutUint64(rec[56:], uint64(len(orig)))
		const window = 64 << 10 // what DEFLATE keeps
		cost.Check(t, len(orig)+window, elftest.PerByte, func() { u, err = decodeUndo(rec, 0, uint64(len(orig))) })
		if err != nil {
			return
		}
		at, total := uint64(0), uint64(0)
		for _, s := range u.spans {
			if s.off < at || s.off+s.n < s.off || s.off+s.n > u.size {
				t.Fatalf("range %+v behind %#x of %#x", s, at, u.size)
			}
			at = s.off + s.n
			total += s.n
		}
		if total != uint64(len(u.old)) {
			t.Fatalf("%d bytes for ranges of %d", len(u.old), total)
		}
	})
}
