package patch_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
)

// What is kept is what was there, but for the path of the buffer, and nothing else is taken for it.
func TestKeptMemory(t *testing.T) {
	image := read(t, onAMD64.compile(t, "kept.c", "int f(int i) { return i + 1; }\nint main(void) { return f(41); }\n", "-pg", "-mfentry"))
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	pools := []string{"/proc/1/fd/1000", "/proc/22/fd/1000"}
	var all [][]byte
	for _, pool := range pools {
		m, err := plan(t, image, patch.Options{Target: patch.Process, Session: pool}).Memory()
		if err != nil {
			t.Fatal(err)
		}
		b := patch.AppendMemory(nil, m, f)
		if !m.Keeps() || bytes.Contains(b, []byte(pool)) {
			t.Errorf("%s is kept", pool)
		}
		all = append(all, b)
		kept, whole, sum := keptOf(t, b)
		if sum != patch.KeptSum(b) || kept.Size() != uint64(len(m.RX)) || kept.CodePages() != m.CodePages() || !kept.Keeps() {
			t.Errorf("%s: %d bytes of %d, %d pages of %d", pool, kept.Size(), len(m.RX), kept.CodePages(), m.CodePages())
		}
		if !bytes.Equal(whole.RX, withoutSession(m)) || !reflect.DeepEqual(bare(whole.Edits), bare(m.Edits)) ||
			!bytes.Equal(patch.AppendMemory(nil, whole, f), b) {
			t.Errorf("%s: another one", pool)
		}
		for _, lo := range []uint64{0, m.Edits[0].Addr, m.Edits[0].Addr + 1, m.Edits[len(m.Edits)-1].Addr} {
			for _, hi := range []uint64{0, m.Edits[0].Addr + 1, m.Edits[len(m.Edits)-1].Addr, ^uint64(0)} {
				fresh, _, _ := keptOf(t, b)
				have, ok := fresh.BesideCode(lo, hi)
				want, wantOK := m.BesideCode(lo, hi)
				if ok != wantOK || ok && !reflect.DeepEqual(bare(have), bare(want)) {
					t.Errorf("%s: beside %#x to %#x: %v, %t, want %v, %t", pool, lo, hi, have, ok, want, wantOK)
				}
			}
		}
		if have := m.SessionPath(); !bytes.Equal(have, append([]byte(pool), make([]byte, len(have)-len(pool))...)) {
			t.Errorf("the buffer is at %q", have)
		}
		other := *kept
		if err := other.SetSession("1000"); err != nil || !bytes.HasPrefix(other.SessionPath(), []byte("1000\x00")) || kept.SessionPath()[0] != 0 {
			t.Errorf("%q, %q: %v", other.SessionPath(), kept.SessionPath(), err)
		}
		if err := kept.SetSession(strings.Repeat("x", 512)); err == nil {
			t.Error("a path that is too long")
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("it depends on where the buffer is")
	}
	step, damaged := 1, 0
	for n := 0; n < len(all[0]); n += step {
		if n > 2048 { // behind the head
			step = 61
		}
		bad := bytes.Clone(all[0])
		bad[n] ^= 0x10
		for _, b := range [][]byte{bad, all[0][:n]} {
			m, _, err := patch.ReadMemory(bytes.NewReader(b), int64(len(b)), func() { damaged++ })
			if err == nil {
				_, err = m.Whole()
			}
			if err == nil || m != nil && damaged == 0 {
				t.Fatalf("damaged at %d, %d bytes: %v", n, len(b), err)
			}
			damaged = 0
		}
	}
}

// keptOf is memory that was kept, and all of it.
func keptOf(t *testing.T, b []byte) (kept, whole *patch.Memory, sum uint32) {
	t.Helper()
	damaged := 0
	kept, sum, err := patch.ReadMemory(bytes.NewReader(b), int64(len(b)), func() { damaged++ })
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := patch.ReadMemory(bytes.NewReader(b), int64(len(b)), func() { damaged++ })
	if err == nil {
		whole, err = other.Whole()
	}
	if err != nil || damaged > 0 {
		t.Fatal(err, damaged)
	}
	return kept, whole, sum
}

// bare are edits without what they are for.
func bare(edits []arch.Edit) []arch.Edit {
	out := make([]arch.Edit, len(edits))
	for i, e := range edits {
		out[i] = arch.Edit{Addr: e.Addr, Old: e.Old, New: e.New}
	}
	return out
}
