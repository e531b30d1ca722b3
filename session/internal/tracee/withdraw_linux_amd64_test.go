package tracee

import (
	"reflect"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// Pages with stubs say which jumps lead to them; of another routine's, and of any other page, nothing is read.
func TestWithdrawStubs(t *testing.T) {
	const at, routine = 0x7f0000200000, 0x7f0000100010
	var execs []execSite
	for i, nr := range execNumbers {
		execs = append(execs, execSite{at + 0x12345 + uint64(i)*0x1000, nr})
	}
	execPage, wantExecs := execStubs(at, routine, execs)
	var openPage []byte
	var wantOpens []arch.Edit
	for i := range uint64(3) {
		b, e, err := openStub(at+i*stubSize, at-0x54321+i*0x100, ways{})
		if err != nil {
			t.Fatal(err)
		}
		copy(b[stubSlot:], le.AppendUint64(nil, routine))
		openPage, wantOpens = append(openPage, b...), append(wantOpens, e)
	}
	page := func(b []byte) []byte { return append(slices.Clone(b), make([]byte, PageSize-uint64(len(b)))...) }
	if got := execEdits(page(execPage), at, routine); !reflect.DeepEqual(got, wantExecs) || len(got) != len(execs) {
		t.Errorf("%+v, want %+v", got, wantExecs)
	}
	if got := openEdits(page(openPage), at, routine); !reflect.DeepEqual(got, wantOpens) {
		t.Errorf("%+v, want %+v", got, wantOpens)
	}
	for _, b := range [][]byte{page(nil), page(openPage), page(execPage)} {
		if got := append(execEdits(b, at, routine+1), openEdits(b, at, routine+1)...); len(got) > 0 {
			t.Errorf("another routine's: %+v", got)
		}
	}
	// Whatever a process has there: a stub that is not as it was made is none.
	for i := range execStubSize {
		b := page(execPage[:execStubSize])
		b[i] ^= 0x10
		for _, e := range execEdits(b, at, routine) {
			if e.Addr == execs[0].at {
				t.Errorf("byte %d is another one, and not missed", i)
			}
		}
	}
}
