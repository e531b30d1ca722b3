package patch

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/stub"
)

// Actions of a process that runs.
//
// Its runtime has a table of them, of which a recorder makes another: what was planned, and what has come since. Thunks of
// functions that have some lead to other routines, which is the recorder's to see to.

// A RunningTable is a table of actions, and where it is to be.
type RunningTable struct {
	At    uint64 // its address in the process
	Image uint64 // that of the image's fentry_image: values of actions are distances from there
	Sites int    // functions that have ids: 1 to this

	Planned []stub.Action    // which the image came with
	Acts    map[uint32][]Act // and what functions have besides, by id: of each end of a call what these capture, if they do
}

// Actions returns the entries of the table, sorted by function, those planned first.
func (t *RunningTable) actions() (all []stub.Action, data []byte) {
	for _, a := range t.Planned {
		if !slices.ContainsFunc(t.Acts[a.ID], func(b Act) bool { return b.captures(a.Kind) }) {
			all = append(all, a)
		}
	}
	n := len(all)
	for _, acts := range t.Acts {
		n += len(acts)
	}
	behind := t.At + uint64(t.tableSize(n)) - t.Image
	for id, acts := range t.Acts {
		for _, a := range acts {
			e := a.entry(id)
			if a.Data != nil {
				e.Value = behind + uint64(len(data))
				data = append(data, a.Data...)
				data = append(data, make([]byte, -len(data)&7)...)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b stub.Action) int { return cmp.Compare(a.ID, b.ID) })
	return all, data
}

func (t *RunningTable) tableSize(actions int) int {
	return (stub.ActionsSize(actions, t.Sites) + 7) &^ 7
}

// Check returns an error for what cannot be done at calls of a function.
func (t *RunningTable) Check() error {
	for all, _ := t.actions(); len(all) > 0; {
		n := 1
		for n < len(all) && all[n].ID == all[0].ID {
			n++
		}
		if err := stub.CheckActions(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// Encode returns the table with all that belongs to it, and its entries: counts of those that are limited follow it.
func (t *RunningTable) Encode() (b []byte, all []stub.Action) {
	all, data := t.actions()
	size := t.tableSize(len(all))
	b = stub.AppendActions(make([]byte, 0, size+len(data)), all, t.Sites)
	return append(b[:size], data...), all
}

// AtExit reports whether something is done when a function returns.
func AtExit(acts []Act) bool {
	return slices.ContainsFunc(acts, func(a Act) bool { return a.Kind.AtExit(a.Value) })
}

// Selective reports whether actions decide at run time which calls are recorded, or look at their times.
func Selective(acts []Act) bool {
	return slices.ContainsFunc(acts, func(a Act) bool { return a.Kind.Selective(a.Value) })
}

// Quiet is what a function has in front of other acts whose calls are recorded for nothing else; nil: some of these need
// that its calls are recorded.
func Quiet(acts []Act) []Act {
	if !quiet(acts) {
		return nil
	}
	return []Act{{Kind: stub.ActQuiet}}
}

// captures reports whether an act captures what another of a kind would.
func (a Act) captures(kind stub.ActionKind) bool {
	return a.Kind == kind && (kind == stub.ActArgs || kind == stub.ActResult)
}

// AddActs adds acts to those that a function has. Of each end of a call something is captured once.
func AddActs(acts, more []Act) []Act {
	for _, a := range more {
		if slices.ContainsFunc(acts, func(b Act) bool { return b.captures(a.Kind) }) {
			continue
		}
		acts = append(acts, a)
	}
	return acts
}
