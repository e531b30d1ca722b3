package trace

import (
	"io"
	"testing"
)

// countedReads counts the bytes that are read.
type countedReads struct {
	r     io.ReaderAt
	bytes int
}

func (c *countedReads) ReadAt(b []byte, off int64) (int, error) {
	c.bytes += len(b)
	return c.r.ReadAt(b, off)
}

// TestChosenBlocksRead: with an index, what counts is a part of a trace is found without reading the rest.
func TestChosenBlocksRead(t *testing.T) {
	const root, rare = 20, 21
	k, now, written := oneTask(t)
	for i := range 200_000 {
		now += 10
		fn := uint32(1 + i%7)
		if i == 100_000 {
			k.Enter(now, root)
			k.Enter(now+10, rare)
			k.Exit(now+100_000, rare)
			k.Exit(now+100_001, root)
			now += 100_001
		}
		k.Enter(now, fn)
		now += 10
		k.Exit(now, fn)
	}
	events := written()
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	is := func(id uint32) func(FuncID) bool { return func(fn FuncID) bool { return fn.ID == id } }
	for what, calls := range map[string]Calls{
		"a function":            {Match: is(rare)},
		"inside a function":     {Roots: is(root)},
		"from a duration on":    {Threshold: 50_000},
		"all of them, but none": {Roots: is(root), Match: is(rare), Threshold: 50_000, Without: is(30)},
	} {
		r, g := ReportOptions{Calls: calls}, GraphOptions{Calls: calls}
		rows, tree := seeRows(t, plain, r), seeTree(t, plain, g)
		reads := &countedReads{r: indexed.file}
		indexed.file = reads
		if have := seeRows(t, indexed, r); have != rows || rows == "" {
			t.Errorf("%s: %s, want %s", what, have, rows)
		}
		if have := seeTree(t, indexed, g); have != tree {
			t.Errorf("%s: %s, want %s", what, have, tree)
		}
		if reads.bytes > len(events)/50 {
			t.Errorf("%s: %d bytes were read of %d", what, reads.bytes, len(events))
		}
		indexed.file = reads.r
	}
}
