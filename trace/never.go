package trace

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/names"
)

// Never returns the functions that were traced and never called, sorted by name: those of the images' symbols that have
// no call in rows, which are a report's of all tasks. An image linked with the tracer is an error, because no table
// says which of its functions call the tracer; so is one without symbols.
func (t *Trace) Never(rows []FuncStat) ([]FuncStat, error) {
	called := make(map[FuncID]bool, len(rows))
	for i := range rows {
		if r := &rows[i]; r.Calls+r.NoEntry > 0 {
			called[r.Func] = true
		}
	}
	var never []FuncStat
	for i := range t.Images {
		tab, ok := t.syms[i].(interface{ Traced() iter.Seq[Func] })
		switch im := &t.Images[i]; {
		case !ok:
			return nil, fmt.Errorf("image %s: no symbols: which of its functions were traced is unknown", im.label())
		case im.IDs == OffsetIDs:
			return nil, fmt.Errorf("image %s: linked with the tracer: which of its functions call it is unknown", im.label())
		}
		for f := range tab.Traced() {
			if id := (FuncID{uint32(i), f.ID}); !called[id] && f.Kind != names.KindSilent {
				never = append(never, FuncStat{Func: id, Name: t.Name(id)})
			}
		}
	}
	slices.SortStableFunc(never, func(a, b FuncStat) int { return cmp.Compare(a.Name, b.Name) })
	return never, nil
}
