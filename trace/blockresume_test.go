package trace

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndexGoesOnAside: a call is put aside, the index ends there, and is made whole. That the call comes back, and was
// the longest that began in its block, is known only then, and a walk of long calls has to visit that block.
func TestIndexGoesOnAside(t *testing.T) {
	const long, short = 20, 21
	k, now, written := oneTask(t)
	blocks := func() {
		for range 2000 {
			k.Enter(now, short)
			k.Exit(now+1, short)
			now += 2
		}
	}
	blocks()
	k.Enter(now, long)
	blocks()
	k.Resync(now, 1)
	blocks()
	blocks()
	k.Exit(now+1_000_000, long)
	now += 1_000_001
	blocks()
	// What is shown of the long call.
	seen := func(tr *Trace) (s string) {
		o := WalkOptions{Calls: Calls{Match: func(fn FuncID) bool { return fn.ID == long }, Threshold: 500_000}}
		err := tr.Walk(o, func(ev *Event) error {
			if ev.Func.ID == long && ev.Kind != Unwound { // as which it was short
				s += fmt.Sprintln(ev.Kind, ev.Time, ev.Dur, ev.Self)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sizes := blockSizes{500, 0, 1, 1 << 20}
	plain, indexed := withBlocks(t, written(), sizes)
	var m memoryFile
	size, err := plain.writeBlocks(&m, sizes)
	if err != nil {
		t.Fatal(err)
	}
	want := seen(plain)
	if have := seen(indexed); have != want || want == "" {
		t.Fatal(cmp.Diff(want, have))
	}
	for i, end := range append(segmentHeads(m.b[:size]), int(size)) {
		x, _, err := indexed.readBlocks(bytes.NewReader(m.b[:end]), int64(end))
		if err != nil {
			t.Fatal(err)
		}
		indexed.part, indexed.blocks = x, nil
		if indexed.blocks, err = indexed.writeIndex(&memoryFile{}, sizes); err != nil {
			t.Fatal(err)
		}
		if have := seen(indexed); have != want {
			t.Errorf("made whole from segment %d on: %s", i, cmp.Diff(want, have))
		}
	}
}
