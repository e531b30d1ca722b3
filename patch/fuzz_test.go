package patch_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// fuzzImages are images of both machines, the seeds of the targets here: freestanding ones, and what
// compilers that are there make, which have all that real ones have.
func fuzzImages(f *testing.F) (out [][]byte) {
	if compiled != nil {
		return compiled
	}
	names, err := filepath.Glob("../record/testdata/prebuilt/*.elf")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append([]string{"testdata/tiny", "testdata/tiny-arm64"}, names...) {
		b := read(f, name)
		if x, err := elfio.Parse(b); err == nil && x.Header.Entry != 0 {
			out = append(out, b)
		}
	}
	for _, on := range targets {
		if !testtool.Have(f, on.prefix+"gcc") {
			continue
		}
		for _, kind := range []string{"fentry", "fentry-nopie", "mcount", "patchable", "patchable-before", "signed"} {
			if flags := on.kinds[kind]; flags != nil {
				out = append(out, read(f, on.compile(f, "p.c", source, append(flags, "-Wl,-z,max-page-size=4096")...)))
			}
		}
	}
	compiled = out
	return out
}

var compiled [][]byte // by fuzzImages

// change overwrites bytes as changes says: three bytes of offset and a new byte each. So a fuzzer changes
// what it means to change, and nothing else.
func change(b, changes []byte) []byte {
	b = bytes.Clone(b)
	for ; len(changes) >= 4; changes = changes[4:] {
		at := int(changes[0]) | int(changes[1])<<8 | int(changes[2])<<16
		b[at%len(b)] = changes[3]
	}
	return b
}

// perByte is what is allocated for a byte of an image, besides what is added, which is far smaller than fixed.
const (
	perByte = 256
	added   = 1 << 20
)

// checkEdits checks what must hold for the edits of any plan.
func checkEdits(t *testing.T, f *elfio.File, edits []arch.Edit) {
	t.Helper()
	end := uint64(0)
	for i, e := range edits {
		if i > 0 && e.Addr < end {
			t.Errorf("edit of %s at %#x begins before the end of the last one, %#x", e.Func, e.Addr, end)
		}
		if len(e.New) != len(e.Old) {
			t.Errorf("edit of %s at %#x: % x for % x", e.Func, e.Addr, e.New, e.Old)
		}
		if have, err := f.Bytes(e.Addr, len(e.Old)); err != nil || !bytes.Equal(have, e.Old) {
			t.Errorf("edit of %s at %#x: the image has % x (%v), not % x", e.Func, e.Addr, have, err, e.Old)
		}
		end = e.Addr + uint64(len(e.Old))
	}
}

// FuzzNew: whatever the image, planning ends with a plan or an error. What a plan makes is as it says, and
// can be undone.
func FuzzNew(f *testing.F) {
	images := fuzzImages(f)
	for i := range images {
		for _, options := range []uint8{0, 1, 2, 8, 64, 65, 128, 130, 192} {
			f.Add(uint8(i), options, []byte{})
		}
		f.Add(uint8(i), uint8(0), []byte{0x40, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, which, options uint8, changes []byte) {
		b := change(images[int(which)%len(images)], changes)
		o := patch.Options{
			Target: patch.Target(options & 1), Tracer: patch.Tracer(options >> 1 & 3 % 3),
			Keep: options&8 != 0, Overlay: options&16 != 0,
		}
		if options&32 != 0 {
			o.Depth = uint32(options)
		}
		var p *patch.Plan
		var err error
		plain := record.PlainNone
		if options&128 != 0 {
			plain = record.PlainAll
		}
		cost.Check(t, len(b)+added, perByte, func() {
			p, err = newPlanWith(b, o, record.Options{Plain: plain, LibraryCalls: plain == record.PlainAll})
		})
		if err != nil {
			return
		}
		file, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if options&64 != 0 && p.Traced() > 1 { // what is edited is as good as what was made so
			for i := range p.Functions {
				if fn := &p.Functions[i]; fn.Action == patch.Trace {
					fn.Action = patch.Leave
					break
				}
			}
			before := p.Traced()
			if err := p.Build(); err != nil || p.Traced() != before-1 {
				t.Fatalf("edited: %d functions traced, were %d (%v)", p.Traced(), before, err)
			}
		}
		checkEdits(t, file, edits(t, p))
		if o.Target == patch.Process {
			m, err := p.Memory()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range [][2]uint64{{m.RXAddr, uint64(len(m.RX))}, {m.RWAddr, m.RWSize}} {
				for _, s := range file.Progs {
					if s.Type == 1 && s.Memsz > 0 && r[0] < s.Vaddr+s.Memsz && s.Vaddr < r[0]+r[1] {
						t.Errorf("added memory %#x+%#x lies over a segment %#x+%#x", r[0], r[1], s.Vaddr, s.Memsz)
					}
				}
			}
			if m.Entry < m.RXAddr || m.Entry-m.RXAddr >= uint64(len(m.RX)) {
				t.Errorf("entry %#x outside %#x+%#x", m.Entry, m.RXAddr, len(m.RX))
			}
			return
		}
		var out []byte
		cost.Check(t, len(b)+added, perByte, func() { out, err = p.Image() })
		if err != nil {
			return
		}
		in, err := patch.Verify(out)
		if err != nil || len(in.Sites) != p.Traced() || in.Tracer != o.Tracer || in.ImageID != p.ImageID ||
			!bytes.Equal(in.BuildID, p.BuildID) {
			t.Errorf("verify: %+v, %v", in, err)
		}
		back, err := patch.Undo(out)
		if err != nil || !bytes.Equal(back, b) {
			t.Fatalf("undo: %v", err)
		}
		if _, err := newPlan(out, o); err == nil {
			t.Error("patched twice")
		}
	})
}

// FuzzVerify: of a patched file that has been changed, what can be said is said, and nothing that is wrong.
func FuzzVerify(f *testing.F) {
	type pair struct{ orig, patched []byte }
	var pairs []pair
	for i, b := range fuzzImages(f) {
		p, err := newPlan(b, patch.Options{})
		if err != nil {
			continue
		}
		out, err := p.Image()
		if err != nil {
			f.Fatal(err)
		}
		pairs = append(pairs, pair{b, out})
		x, err := elfio.Parse(out)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), []byte{})
		for _, name := range []string{".fentry.info", ".fentry.sites", ".fentry.undo", ".fentry.thunks"} {
			off := x.Sections[x.SectionIndex(name)].Off
			for _, k := range []uint64{0, 8, 16, 20, 24, 48, 56, 64} {
				f.Add(uint8(i), append(binary.LittleEndian.AppendUint32(nil, uint32(off+k))[:3], 0xff))
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, changes []byte) {
		x := pairs[int(which)%len(pairs)]
		b := change(x.patched, changes)
		var in *patch.Info
		var err error
		cost.Check(t, len(b), perByte, func() { in, err = patch.Verify(b) })
		if err == nil && len(in.Sites)*16 > len(b) {
			t.Errorf("%d sites in %d bytes", len(in.Sites), len(b))
		}
		back, undone := patch.Undo(b)
		if err == nil && undone != nil {
			t.Errorf("verified, but cannot be undone: %v", undone)
		}
		if undone == nil && !bytes.Equal(back, x.orig) {
			t.Error("undo gives another file")
		}
	})
}
