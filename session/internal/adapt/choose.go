//go:build linux

package adapt

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/session/internal/pool"
)

// An Off is a function that is to be switched off.
type Off struct {
	ID   uint32
	Rate uint32 // how often a second threads called it that are above the limit, estimated
}

// Of two functions that are called equally often, the one that does less by itself tells less, and its calls cost more of
// the time it takes; of two that do the same, the one that is called more often brings more. So functions are taken by
// their calls times their calls over the time they took by themselves, greatest first. Most calls are those of few
// functions: in python 36 % of ten, 66 % of thirty and 89 % of a hundred among 1,700 (docs/rationale.md).

const (
	// aim is how far below the limit the calls that are left are to cost, as a part of it: other functions will be
	// called more often, and what is off costs something, too.
	aim = 0.7
	// few is the part of the calls that were read from which on a function is worth to be switched off: what is called
	// less costs little, and can be the very thing that is looked for.
	few = 1.0 / 2048
)

// Decide returns what is to be switched off now, in the order of ids: nothing, as a rule. may tells whether a function
// may be switched off at all.
func (m *Meter) Decide(may func(id uint32) bool) []Off {
	if m.now.Monotonic-m.from < int64(m.o.Window) {
		return nil
	}
	// Of threads above the limit: their events, those above what is aimed at, and the ticks that their chunks cover.
	var events, too, elapsed float64
	asked := 0
	for task, t := range m.tasks {
		if m.o.CPU != nil && asked < maxAsked && m.mayExceed(t) {
			m.ask(task, t)
			asked++
		}
		all := t.past
		all.add(t.window)
		if m.excess(t.window, m.o.Limit) > 0 && m.excess(all, m.o.Limit) > m.o.Limit*float64(grace)/m.o.Event {
			events += t.window.events
			elapsed += t.elapsed
			too += m.excess(t.window, aim*m.o.Limit)
		}
	}
	var off []Off
	if too > 0 {
		off = m.choose(too/events, events/(elapsed/m.ticks()/1e9), may)
	}
	m.begin()
	return off
}

// begin begins a window.
func (m *Meter) begin() {
	last := time.Duration(m.now.Monotonic - m.from)
	m.from = m.now.Monotonic
	maps.DeleteFunc(m.tasks, func(_ pool.Task, t *thread) bool { return !t.pass(last) })
	m.tallies.reset()
	m.stride = max(1, m.hot*chunk/maxRead)
	m.hot = 0
}

// Done says that programs have been told, at a counter, to switch functions off.
func (m *Meter) Done(off []Off, counter uint64) {
	for _, o := range off {
		m.off[o.ID] = true
	}
	m.since = counter
}

// choose chooses functions with a part of all calls that were read; threads above the limit record so many events a second.
func (m *Meter) choose(part, events float64, may func(uint32) bool) []Off {
	type candidate struct {
		id    uint32
		calls uint64
		score float64
	}
	all := uint64(0)
	for _, id := range m.tallies.seen {
		all += m.tallies.at(id).calls
	}
	least := max(2, uint64(float64(all)*few))
	var cs []candidate
	for _, id := range m.tallies.seen {
		if t := m.tallies.at(id); t.calls >= least && !m.off[id] && may(id) {
			calls := float64(t.calls)
			cs = append(cs, candidate{id, t.calls, calls * calls / float64(max(t.self, 1))})
		}
	}
	slices.SortFunc(cs, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id)) })
	rate := events / float64(max(m.tallies.words, 1)) // from calls that were read to calls a second
	var off []Off
	taken := uint64(0)
	for _, c := range cs {
		if float64(taken) >= part*float64(all) {
			break
		}
		taken += c.calls
		off = append(off, Off{c.id, uint32(min(float64(c.calls)*rate, math.MaxUint32))})
	}
	slices.SortFunc(off, func(a, b Off) int { return cmp.Compare(a.ID, b.ID) })
	return off
}
