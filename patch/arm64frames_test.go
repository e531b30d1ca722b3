package patch_test

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// At every row of every function of a program with a C library, the patched program's unwind tables say of the frame what
// the original's say, and look behind thunks where the return address is at that row: by the CIE, so that the tables
// hardly grow.
func TestReturnAddressByColumn(t *testing.T) {
	for _, flags := range [][]string{{"-static"}, {"-static", "-O0", "-fstack-protector-all"}} {
		image := read(t, onARM64.compile(t, "p.c", source, flags...))
		out, err := plainPlan(t, image, patch.Options{}, record.Options{}).Image()
		if err != nil {
			t.Fatal(err)
		}
		was, err := ehframe.Read(parse(t, image))
		if err != nil {
			t.Fatal(err)
		}
		f := parse(t, out)
		stays, err := ehframe.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		places := entriesOf(t, out, stays)
		columns, all := 0, 0
		for a := range was.All() {
			rows, err := a.AppendRows(nil)
			if err != nil {
				t.Fatal(err)
			}
			all++
			for i := range rows {
				b, ok := entryAt(places, a, rows[i].At)
				if !ok {
					t.Fatalf("%v: nothing describes it at +%#x", a, rows[i].At)
				}
				if checkColumn(t, a, &b, rows[i]) {
					columns++
				}
			}
		}
		if columns < 1000 || columns < all {
			t.Errorf("%v: %d rows of %d functions have a return address by column", flags, columns, all)
		}
	}
}

// entriesOf are the entries of a patched image by their first address: those that are in their place, and others.
func entriesOf(t *testing.T, image []byte, stays *ehframe.Table) map[uint64]ehframe.FDE {
	t.Helper()
	f := parse(t, image)
	out := map[uint64]ehframe.FDE{}
	i := f.SectionIndex(".fentry.frames")
	if i < 0 {
		t.Fatal("no unwind information has been added")
	}
	data, err := f.SectionData(i)
	if err != nil {
		t.Fatal(err)
	}
	added, err := ehframe.Parse(f, data, f.Sections[i].Addr)
	if err != nil {
		t.Fatal(err)
	}
	for d := range stays.All() {
		out[d.PC] = *d
	}
	for d := range added.All() {
		out[d.PC] = *d // what has been copied is overwritten where it was, or no longer right
	}
	return out
}

// entryAt is the entry for a distance from the beginning of an original one: one that begins there or before.
func entryAt(places map[uint64]ehframe.FDE, a *ehframe.FDE, at uint64) (ehframe.FDE, bool) {
	for back := uint64(0); back <= at; back += arm64.InstLen {
		if d, ok := places[a.PC+at-back]; ok {
			return d, d.PC+d.Size > a.PC+at
		}
	}
	return ehframe.FDE{}, false
}

// checkColumn compares a row with what the entry b of a patched image says of its address, and reports whether the return
// address is found by the column of the pc there.
func checkColumn(t *testing.T, a, b *ehframe.FDE, want ehframe.Row) bool {
	t.Helper()
	got := rowAt(t, b, a.PC+want.At)
	marked := b.CIE.RetReg == arm64.PCColumn && got.Off%2 != 0
	got.Off &^= 1
	if got.Reg != want.Reg || got.Off != want.Off || got.Signed != want.Signed || a.LSDA != b.LSDA && b.PC+b.Size != a.PC+want.At {
		t.Fatalf("%v: %+v has become %+v", a, want, got)
	}
	if b.CIE.RetReg != arm64.PCColumn {
		return false
	}
	rules := arm64.Callers{Shadow: arm64.AnyShadow}
	has := func(off int64) bool {
		code := bytes.TrimRight(b.CIE.Instructions[len(a.CIE.Instructions):], "\x00")
		return bytes.Equal(code, bytes.TrimRight(rules.ColumnRule(off), "\x00"))
	}
	inRegister := !want.Saved && (has(arm64.InRegister) || marked || want.Reg == arm64.StackPointer && want.Off == 0)
	if !inRegister && !(want.Saved && !marked && has(want.Ret)) {
		t.Fatalf("%v: the return address at +%#x (%+v) is looked for elsewhere", a, want.At, want)
	}
	return true
}
