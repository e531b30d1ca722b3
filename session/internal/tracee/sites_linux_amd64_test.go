package tracee

import (
	"errors"
	"testing"

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
