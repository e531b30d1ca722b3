package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// TestBirth: the record of a goroutine that is made can come before or behind what the goroutine does, from whichever
// thread, and is no event of anybody's.
func TestBirth(t *testing.T) {
	const g = format.GoroutineStack
	tr := goTrace(t, func(a, b *TaskWriter) {
		a.Stack(1010, g|1)
		a.Enter(1010, 1)
		a.record(1012, format.RecGoroutine, 7, 1, 0x401000, 0x402010)
		a.record(1013, format.RecGoroutine, 9, 1, 0x401000, 0x402010) // it calls nothing that is traced
		a.Exit(1014, 1)
		b.Stack(1020, g|7)
		b.Enter(1021, 2)
		b.Stack(1022, g|8)
		b.Enter(1022, 3)
		b.Exit(1023, 3)
		a.record(1030, format.RecGoroutine, 8, 7, 0x403000, 0x404000)
	})
	got := map[string]Birth{}
	for _, k := range tr.Tasks {
		if b, ok := tr.Birth(k); ok {
			got[k.Number()] = b
		}
	}
	want := map[string]Birth{
		"g7": {Time: 12, Parent: 1, Function: "0x401000", By: "0x40200f"},
		"g8": {Time: 30, Parent: 7, Function: "0x403000", By: "0x403fff"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("births (-want +got):\n%s", d)
	}
	events := 0
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind == Unknown || ev.Kind == Cut {
			t.Errorf("%+v", ev)
		}
		if ev.Kind == Entry {
			events++
		}
		return nil
	})
	if err != nil || events != 3 {
		t.Errorf("%d entries, %v", events, err)
	}
}
