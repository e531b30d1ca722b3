package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A wildTask does everything that a task can do, and some things that none does.
type wildTask struct {
	k     *TaskWriter
	rng   *rand.Rand
	now   uint64
	stack uint64
	calls map[uint64][]uint32 // by stack
	deep  bool
	coro  uint64   // number of stacks it changes between
	away  []uint32 // calls that were put aside, and may come back
	phase int      // calls are of four functions, for a while: so blocks have not all of them
}

func (p *wildTask) step(lossy bool) {
	r := p.rng
	p.now += r.Uint64N(40)
	if r.IntN(300) == 0 {
		p.now += r.Uint64N(1 << 33)
	}
	cur := p.calls[p.stack]
	if r.IntN(400) == 0 {
		p.phase = r.IntN(20)
	}
	fn := func() uint32 { return uint32(1 + (p.phase+r.IntN(4))%20) }
	most := 12
	if p.deep {
		most = 3000
	}
	switch n := r.IntN(1000); {
	case n < 880 && (len(cur) == 0 || len(cur) < most && r.IntN(40) < 21):
		f := fn()
		p.k.Enter(p.now, f)
		p.calls[p.stack] = append(cur, f)
	case n < 880:
		f := cur[len(cur)-1]
		p.k.Exit(p.now, f)
		p.calls[p.stack] = cur[:len(cur)-1]
		if r.IntN(6) == 0 { // a tail call
			f = fn()
			p.k.Enter(p.now, f)
			p.calls[p.stack] = append(cur[:len(cur)-1], f)
		}
	case n < 890:
		p.k.Mark(p.now, p.now, "m")
	case n < 895:
		p.k.SysEnter(p.now, r.Uint64N(4), []uint64{p.now})
		if r.IntN(3) > 0 {
			p.k.SysExit(p.now+r.Uint64N(2), uint64(r.IntN(3)-1))
		}
	case n < 900:
		p.k.SysExit(p.now, p.now) // of one that handlers have interrupted, or of none
	case n < 930 && len(cur) > 0: // aside: for ever, or until an exit
		n := 1 + r.IntN(min(4, len(cur)))
		p.k.Resync(p.now, uint64(n))
		if r.IntN(2) == 0 {
			p.now++
			p.k.Exit(p.now, cur[len(cur)-1-r.IntN(n)])
		} else {
			p.away = append(p.away, cur[len(cur)-n:]...)
		}
		p.calls[p.stack] = cur[:len(cur)-n]
	case n < 940 && len(p.away) > 0: // back after all
		i := r.IntN(len(p.away))
		p.k.Exit(p.now, p.away[i])
		p.away = slices.Delete(p.away, i, i+1)
	case n < 965 && p.coro > 0:
		p.stack = r.Uint64N(p.coro + 1)
		p.k.Stack(p.now, p.stack)
	case n < 972:
		p.k.Comm(p.now, fmt.Sprint("c", r.IntN(3)))
	case n < 975 && len(cur) > 2: // an exit further out, without a word
		n := 1 + r.IntN(2)
		p.k.Exit(p.now, cur[len(cur)-1-n])
		p.calls[p.stack] = cur[:len(cur)-1-n]
	case n < 978:
		p.k.Exit(p.now, fn()) // of whatever
	case n < 981 && lossy:
		p.k.Lost(p.now, r.Uint64N(9))
	case n < 984 && lossy:
		p.k.Flush()
		p.k.number += r.Uint32N(3)
	case n < 987:
		p.k.Enter(p.now-min(p.now-1, r.Uint64N(300)), fn()) // held back: an older time; nobody expects its exit
	case n < 989:
		p.k.End(p.now + r.Uint64N(2000))
		clear(p.calls)
	default:
		p.k.Flush() // a short chunk: so there are many blocks
	}
}

// wildTrace is a trace of several wild tasks; some are forked from others.
func wildTrace(t testing.TB, seed uint64) []byte { return wildTurns(t, seed, 300) }

// wildTurns is one in which so many times one of the tasks does something.
func wildTurns(t testing.TB, seed uint64, turns int) []byte {
	rng := rand.New(rand.NewPCG(seed, 3))
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, Monotonic: 9, Realtime: 8, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: 20})
	if seed%2 == 1 {
		w.WriteMap(1, 1000, []MapEntry{{First: 1, Count: 20, Image: testImage}})
	}
	var all []*wildTask
	add := func(parent *wildTask, now uint64) {
		id := TaskID{PID: 1 + len(all)/2, TID: 1 + len(all), Key: uint64(len(all)), Image: testImage, Comm: fmt.Sprint("c", rng.IntN(3))}
		p := &wildTask{rng: rng, now: now, calls: map[uint64][]uint32{}, deep: rng.IntN(4) == 0}
		if rng.IntN(2) == 0 {
			p.coro = 1 + rng.Uint64N(6)
		}
		if parent != nil {
			id.ParentPID, id.ParentTID = parent.k.id.PID, parent.k.id.TID
			p.calls[parent.stack] = slices.Clone(parent.calls[parent.stack])
			p.stack = parent.stack
		}
		id.Stack = p.stack
		p.k = w.Task(id)
		all = append(all, p)
	}
	for range 1 + rng.IntN(3) {
		add(nil, 1000+rng.Uint64N(2000))
	}
	lossy := rng.IntN(2) == 0
	for range turns {
		p := all[rng.IntN(len(all))]
		for range rng.IntN(80) {
			p.step(lossy)
		}
		if rng.IntN(40) == 0 && len(all) < 8 {
			add(p, p.now+rng.Uint64N(30))
		}
	}
	for _, p := range all {
		p.k.Flush()
		from := rng.Uint64N(p.now)
		if err := w.WriteSched(p.k.id, from, p.now, randomOffs(rng, from, p.now)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
