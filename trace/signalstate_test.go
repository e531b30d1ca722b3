package trace

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSignalState: handlers run from their call to its end, however that ends, and what they block ends with them.
func TestSignalState(t *testing.T) {
	dir := build(t, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
		k.Enter(100, 1)
		k.SysEnter(101, 14, []uint64{0, 0x7000, 0, 8}, Data{Arg: 1, Asked: 8, Address: 0x7000, Bytes: []byte{1, 0, 0, 0, 0, 0, 0, 0}})
		k.SysExit(102, 0)
		k.Signal(110, Signal{Number: 10, Handler: FuncID{ID: 2}, Blocked: 1})
		k.Enter(111, 2)
		k.Signal(112, Signal{Number: 12, Handler: FuncID{ID: 3}, Blocked: 1 | 1<<9})
		k.Stack(113, 9)
		k.Enter(114, 3)
		k.Exit(115, 3)
		k.Stack(116, 0)
		k.Exit(117, 2)
		k.Signal(120, Signal{Number: 11}) // to a handler that is not traced
		k.Enter(121, 2)
		k.Exit(122, 2)
		k.Signal(130, Signal{Number: 11, Handler: FuncID{ID: 2}})
		k.Enter(131, 2)
		k.Resync(132, 1) // it is left by a jump
		k.Enter(133, 3)
		k.Exit(134, 3)
		k.Exit(140, 1)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	tr := open(t, dir)
	var have []string
	err := tr.Walk(WalkOptions{}, tr.WithSignalState(func(ev *Event) error {
		if s := ev.Signals; ev.Kind == Entry && ev.Func.Image != SyscallImage {
			have = append(have, fmt.Sprintf("%d %d %v %x", ev.Func.ID, s.Handlers, s.OtherStack, s.Blocked))
		}
		return nil
	}))
	want := []string{"1 0 false 0", "2 1 false 1", "3 2 true 1", "2 0 false 0", "2 1 false 0", "3 0 false 0"}
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}
