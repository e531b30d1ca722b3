package trace

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestScale: calls are in parts by the durations that people ask for, whatever the counter's frequency.
func TestScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, hz := range []float64{1e6, 24e6, 1e9, 2.596122e9, 5e9} {
		s := newScale(hz)
		var c Clock
		c.set(hz, "")
		for _, ns := range []int64{0, 1, 1000, 50_000, 1e6, 1e10} {
			if k := c.atLeast(ns); c.Span(k) < ns || k > 0 && c.Span(k-1) >= ns {
				t.Errorf("%v Hz: %d ns are %d ticks", hz, ns, k)
			}
		}
		if c.Span(s.from[4]) < 1000 || c.Span(s.from[4]-1) >= 1000 {
			t.Errorf("%v Hz: no part begins at 1 us, but at %d ticks", hz, s.from[4])
		}
		for range 10_000 {
			ticks := rng.Uint64() >> rng.IntN(64)
			if i := rng.IntN(len(s.from) + 1); i < len(s.from) {
				ticks = s.from[i] - rng.Uint64N(2)
			}
			want := 0
			for _, from := range s.from {
				if ticks >= from {
					want++
				}
			}
			if have := s.part(ticks); int(have) != want {
				t.Fatalf("%v Hz: %d ticks are in part %d, not %d", hz, ticks, have, want)
			}
		}
	}
}

// sometimesLong is a trace of one task, most of whose calls take less than a microsecond. Long ones are everywhere.
func sometimesLong(t *testing.T) (events []byte, last uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	k, now, written := oneTask(t)
	for i := range 200_000 {
		long := uint64(5)
		if i%50 == 0 {
			long = rng.Uint64N(10_000)
		}
		k.Enter(now, 1)
		k.Enter(now+1, 2+uint32(i%3))
		k.Exit(now+1+long, 2+uint32(i%3))
		k.Exit(now+2+long, 1)
		now += long + 3
	}
	return written(), now
}

// TestPartsRead: a report with a threshold that people ask for decodes nothing, though each block has calls that count.
func TestPartsRead(t *testing.T) {
	events, last := sometimesLong(t)
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	of := func(id uint32) func(FuncID) bool { return func(fn FuncID) bool { return fn.ID == id } }
	for name, c := range map[string]struct {
		o     ReportOptions
		least int // bytes of 100 that are read, and the most
		most  int
	}{
		"1us":               {ReportOptions{Calls: Calls{Threshold: 1000}}, 0, 2},
		"5us":               {ReportOptions{Calls: Calls{Threshold: 5000}}, 0, 2},
		"of a function":     {ReportOptions{Calls: Calls{Threshold: 2000, Match: of(3)}}, 0, 2},
		"of a task":         {ReportOptions{Calls: Calls{Threshold: 1000}, PerTask: true}, 0, 2},
		"in a window":       {ReportOptions{Calls: Calls{Threshold: 1000}, From: int64(last / 5), To: int64(last / 2)}, 0, 4},
		"of another number": {ReportOptions{Calls: Calls{Threshold: 1234}}, 3, 30},
	} {
		n := readFor(t, name, plain, indexed, func(tr *Trace) string { return seeAll(t, tr, c.o) })
		if share := 100 * n / len(events); share < c.least || share > c.most {
			t.Errorf("%s: %d %% of the events were read", name, share)
		}
	}
}

// TestWaitsSummed: a report or graph of a thread's waiting decodes nothing, whether it was on a processor or not.
func TestWaitsSummed(t *testing.T) {
	_, last := sometimesLong(t)
	k, now, written := oneTask(t)
	for range 200_000 {
		k.Enter(now, 1)
		k.Enter(now+1, 2)
		k.Exit(now+3, 2)
		k.Exit(now+4, 1)
		now += last / 200_000
	}
	off := []Off{{From: last / 3, To: last/3 + 5000}, {From: last / 2, To: last/2 + 70, Unknown: true}}
	for at := last/2 + 1000; at < now-1000; at += last / 1000 { // in nearly all blocks
		off = append(off, Off{From: at, To: at + at%17, Unknown: at%5 == 0})
	}
	if err := k.w.WriteSched(k.id, 0, now+1, off); err != nil {
		t.Fatal(err)
	}
	events := written()
	plain, indexed := withBlocks(t, events, blockSizes{1000, 0, 4, 1 << 20})
	for _, o := range []ReportOptions{{}, {PerProcess: true}, {Calls: Calls{Match: func(fn FuncID) bool { return fn.ID == 2 }}}, {From: int64(last / 4)}} {
		o.Waits = true
		if n := readFor(t, o, plain, indexed, func(tr *Trace) string { return seeAll(t, tr, o) }); n > len(events)/20 {
			t.Errorf("%+v: %d bytes were read of %d", o, n, len(events))
		}
		g := GraphOptions{From: o.From, Calls: o.Calls, PerProcess: o.PerProcess, Waits: true}
		if n := readFor(t, g, plain, indexed, func(tr *Trace) string { return seeTree(t, tr, g) }); n > len(events)/20 {
			t.Errorf("%+v: %d bytes were read of %d", g, n, len(events))
		}
		rows, err := indexed.Report(o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(rows, func(r FuncStat) bool { return r.Wait > 0 }) {
			t.Errorf("%+v: nothing has waited: %+v", o, rows)
		}
	}
}
