package tracee

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/fentry-dev/fentry/arch"
)

// What has its new bytes already, as in a child that was forked between two stops, is left; foreign bytes are an error.
func TestPending(t *testing.T) {
	code := make([]byte, 3*PageSize)
	mem := arch.Bytes{Addr: 0x1000, Data: code}
	edit := func(at uint64) arch.Edit { return arch.Edit{Addr: 0x1000 + at, Old: []byte{0, 0}, New: []byte{7, 8}} }
	edits := []arch.Edit{edit(0), edit(2), edit(100), edit(PageSize + 200), edit(3*PageSize - 2)}
	if left, err := pending(mem, edits); err != nil || len(left) != len(edits) {
		t.Fatalf("%d of %d: %v", len(left), len(edits), err)
	}
	if err := arch.Write(mem, PageSize, edits[1:3]); err != nil {
		t.Fatal(err)
	}
	left, err := pending(mem, edits)
	if err != nil || len(left) != 3 || left[0].Addr != edits[0].Addr || left[1].Addr != edits[3].Addr {
		t.Errorf("%v %v", left, err)
	}
	back, err := pending(mem, chosen(edits, true, isEarly))
	if err != nil || len(back) != 2 || back[0].Addr != edits[1].Addr {
		t.Errorf("%v %v", back, err)
	}
	code[101] = 9
	var bug *arch.Bug
	if _, err := pending(mem, edits); !errors.As(err, &bug) || bug.Class != arch.Mismatch {
		t.Errorf("%v", err)
	}
	if _, err := pending(mem, []arch.Edit{{Addr: 0x1000 - 1, Old: []byte{0}, New: []byte{1}}}); err == nil {
		t.Error("what is not there has no error")
	}
}

// What was prepared is written only where nothing has changed since, and else edit by edit; edits that are left alone are; and
// each that was written is told.
func TestSiteWriter(t *testing.T) {
	const apart, n = 40, 6 * stopStep / 40
	code := make([]byte, n*apart)
	defer runtime.KeepAlive(&code)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	base := uint64(uintptr(unsafe.Pointer(&code[0])))
	var edits []arch.Edit
	for i := range uint64(n) {
		edits = append(edits, arch.Edit{Addr: base + i*apart, Old: []byte{0, 0}, New: []byte{7, 8}})
	}
	changed := func(i int) bool { return bytes.Equal(code[i*apart:][:2], edits[i].New) }
	later := func() time.Time { return time.Now().Add(time.Minute) }
	w := &siteWriter{mem: &Process{pid: os.Getpid(), mem: mem}}
	w.prepare(edits)
	if len(w.steps) < 3 {
		t.Fatalf("%d steps", len(w.steps))
	}
	second := w.steps[0].n
	code[second*apart+10] = 99                  // between two, by somebody else
	copy(code[(second+1)*apart:], edits[0].New) // written meanwhile
	alone := map[int]bool{0: true, n - 1: true} //
	got, err := w.write(edits, alone, later())  //
	if err != nil || got != n || len(w.written) != n-3 || code[second*apart+10] != 99 {
		t.Fatalf("%d of %d, %d written, %d between: %v", got, n, len(w.written), code[second*apart+10], err)
	}
	for i := range edits {
		if changed(i) == alone[i] {
			t.Fatalf("edit %d: %x", i, code[i*apart:][:2])
		}
	}
	// Back, a few at a time.
	back := chosen(edits[1:n-1], true, isEarly)
	for rest, stops := back, 0; len(rest) > 0; stops++ {
		w.prepare(rest)
		w.steps = w.steps[:1]
		got, err := w.write(rest, nil, later())
		if err != nil || got == 0 || stops > n {
			t.Fatalf("%d: %v", got, err)
		}
		rest = rest[got:]
	}
	if code[second*apart+10] = 0; slices.ContainsFunc(code, func(b byte) bool { return b != 0 }) {
		t.Error("the code is not what it was")
	}
	// Without time nothing is written, and what is foreign is an error.
	w.prepare(edits)
	if got, err := w.write(edits, nil, time.Now()); got != 0 || err != nil || changed(0) {
		t.Errorf("%d: %v", got, err)
	}
	code[apart] = 9
	var bug *arch.Bug
	if _, err := w.write(edits, nil, later()); !errors.As(err, &bug) || bug.Class != arch.Mismatch || changed(0) {
		t.Errorf("%v", err)
	}
}

func TestSpans(t *testing.T) {
	all := []area{{100, 10}, {20, 5}, {25, 5}, {105, 20}, {200, 1}, {110, 2}}
	s := newSpans(all)
	if len(s) != 3 {
		t.Errorf("%v", s)
	}
	for v := range uint64(300) {
		want := slices.ContainsFunc(all, func(a area) bool { return v-a.at < a.size })
		if s.has(v) != want {
			t.Errorf("%d: %v", v, !want)
		}
	}
	if spans(nil).has(0) {
		t.Error("nothing has an address")
	}
}
