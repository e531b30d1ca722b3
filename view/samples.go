package view

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/trace"
)

// Counting every call of a long time takes seconds. An outline has the exact stack at every border of two blocks, which
// are some ten microseconds to a millisecond apart: samples, as a profiler takes them, each for the time to the next. A
// flame graph of them is there at once, and close to the one that is counted meanwhile.

// fewSamples is how many blocks are counted before anything is answered.
const fewSamples = 32

// sampled returns the flame graph that outlines tell of a scope; nil if there is no outline, or so little to count
// that it can be counted at once.
func (v *Viewer) sampled(s *Scope) *Flames {
	tasks := v.tasks(s)
	if tasks == nil {
		tasks = v.t.Tasks
	}
	funcs := funcNumbers{v: v}
	out := &Flames{Root: &Flame{Func: -1}}
	below := map[*Flame]map[trace.FuncID]*Flame{}
	for _, k := range tasks {
		if v.ends[k.Index] < s.From || k.Start > s.To {
			continue
		}
		o := v.outline(k)
		if o == nil {
			return nil
		}
		for i := range len(o.Borders) - 1 {
			from, to := max(o.Borders[i].Time, s.From), min(o.Borders[i+1].Time, s.To)
			if to <= from {
				continue
			}
			out.Samples++
			var stack []trace.FuncID
			for c := o.Borders[i].Top; c >= 0; c = o.Calls[c].Parent {
				stack = append(stack, o.Calls[c].Func)
			}
			slices.Reverse(stack)
			if s.Func != (trace.FuncID{}) {
				first := slices.Index(stack, s.Func)
				if first < 0 {
					continue
				}
				stack = stack[first:]
			}
			if len(stack) > 0 {
				out.Root.sample(stack, to-from, below, &funcs)
			}
		}
	}
	if out.Samples <= fewSamples {
		return nil
	}
	out.Root.order()
	out.Funcs = funcs.list
	return out
}

// sample adds a time that was spent in a stack of calls. below has the children of each node.
func (f *Flame) sample(stack []trace.FuncID, ns int64, below map[*Flame]map[trace.FuncID]*Flame, funcs *funcNumbers) {
	f.Total += ns
	for _, fn := range stack {
		if fn == (trace.FuncID{}) {
			continue
		}
		child := below[f][fn]
		if child == nil {
			child = &Flame{Func: funcs.of(fn)}
			if below[f] == nil {
				below[f] = map[trace.FuncID]*Flame{}
			}
			below[f][fn] = child
			f.Children = append(f.Children, child)
		}
		child.Total += ns
		f = child
	}
	f.Self += ns
}

// order sorts children by total time, the longest first.
func (f *Flame) order() {
	slices.SortFunc(f.Children, func(a, b *Flame) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Func, b.Func))
	})
	for _, k := range f.Children {
		k.order()
	}
}
