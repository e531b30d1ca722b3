//go:build linux

package adapt

import (
	"slices"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// A program is a thread that records calls. A tick is a nanosecond.
type program struct {
	t     uint64
	begin uint64
	words []byte
	n     uint64
	off   map[uint32]bool
}

func (p *program) event(id uint32, after uint64) {
	p.t += after
	if p.off[id&^format.IDExit] {
		return
	}
	p.words = le.AppendUint64(p.words, uint64(id)<<32|uint64(uint32(p.t)))
	p.n++
}

// call records a call that takes so long by itself, before and after what is inside.
func (p *program) call(id uint32, self uint64, inside func()) {
	p.event(id, self/2)
	if inside != nil {
		inside()
	}
	p.event(id|format.IDExit, self/2)
}

// hand gives what was recorded to the meter.
func (p *program) hand(m *Meter, thread uint32) {
	m.Chunk(pool.Task{PID: thread, TID: thread}, p.begin, p.words, p.n)
	p.begin, p.words, p.n = p.t, nil, 0
}

const (
	outer = 1 + iota // calls the others
	small            // is called most
	long             // is called as often and takes long
	rare             // is called once in a window
)

// work is what the program does in a window.
func (p *program) work(m *Meter, thread uint32) {
	for i := range 40 {
		for range 200 {
			p.call(outer, 400, func() {
				for range 4 {
					p.call(small, 40, nil)
				}
				p.call(long, 4000, nil)
			})
		}
		if i == 20 {
			p.call(rare, 10, nil)
		}
		p.hand(m, thread)
	}
}

func reading(t uint64) clock.Reading { return clock.Reading{Counter: t, Monotonic: int64(t)} }

func all(uint32) bool { return true }

func ids(off []Off) []uint32 {
	var ids []uint32
	for _, o := range off {
		ids = append(ids, o.ID)
	}
	return ids
}

// run lets a program run for some windows, and returns what was switched off in each.
func run(m *Meter, p *program, windows int, may func(uint32) bool) (off [][]uint32) {
	for range windows {
		p.work(m, 7)
		m.Tick(reading(p.t))
		o := m.Decide(may)
		for _, id := range ids(o) {
			p.off[id] = true
		}
		m.Done(o, p.t)
		off = append(off, ids(o))
	}
	return off
}

func start(limit float64) (*Meter, *program) {
	p := &program{t: 1 << 40, begin: 1 << 40, off: make(map[uint32]bool)}
	m := New(Options{Limit: limit, Event: 10}, reading(p.t-1000))
	m.Tick(reading(p.t))
	return m, p
}

// TestDecide: what is called most for what it does is switched off, nothing is once tracing costs less than the limit, and
// what is called rarely never is.
func TestDecide(t *testing.T) {
	// A round of 4 calls of small, one of long and one of outer takes 4,560 ns, of which 120 are events: 2.7 % more.
	for _, tt := range []struct {
		limit float64
		want  [][]uint32
	}{
		{0.5, [][]uint32{nil, nil}},
		{0.03, [][]uint32{nil, nil}},
		{0.02, [][]uint32{{small}, nil, nil}},
		{0.003, [][]uint32{{outer, small, long}, nil, nil}},
	} {
		m, p := start(tt.limit)
		if have := run(m, p, len(tt.want), all); !slices.EqualFunc(have, tt.want, slices.Equal) {
			t.Errorf("limit %v: switched off %v, want %v", tt.limit, have, tt.want)
		}
	}
	m, p := start(0.02)
	if have := run(m, p, 1, func(id uint32) bool { return id != small }); slices.Contains(have[0], small) {
		t.Errorf("switched off %v, of which %d may not be", have, small)
	}
}

// TestDecideRate: how often a second a function was called is right within a tenth.
func TestDecideRate(t *testing.T) {
	m, p := start(0.02)
	from := p.t
	p.work(m, 7)
	m.Tick(reading(p.t))
	off := m.Decide(all)
	calls := float64(40*200*4) / float64(p.t-from) * 1e9
	if len(off) != 1 || float64(off[0].Rate) < 0.9*calls || float64(off[0].Rate) > 1.1*calls {
		t.Errorf("%+v, want %.0f calls a second", off, calls)
	}
}

// TestWaiting: threads that wait do not hide one that does not, and have nothing of their own switched off.
func TestWaiting(t *testing.T) {
	m, p := start(0.02)
	waiting := &program{t: p.t, begin: p.t}
	for i := range 100 {
		waiting.call(9, 1<<20, nil)
		waiting.hand(m, uint32(100+i))
	}
	p.work(m, 7)
	m.Tick(reading(p.t))
	if have := ids(m.Decide(all)); !slices.Equal(have, []uint32{small}) {
		t.Errorf("switched off %v, want %v", have, []uint32{small})
	}
}

// A server waits for requests, and works for a time on each: half of that is its events.
type server struct {
	program
	cpu, told, at uint64 // how long it had a processor, what the kernel says of it, and since when
}

// request answers one. The kernel tells how long it had a processor at the end, and every tick before.
func (s *server) request(m *Meter, works, waits, tick uint64) (off []uint32) {
	for from := s.t; s.t-from < works; {
		s.call(small, 40, nil)
		s.cpu += 40
		if s.cpu-s.at >= tick {
			s.told, s.at = s.cpu, s.cpu
		}
		if s.n >= chunk {
			s.hand(m, 7)
			m.Tick(reading(s.t))
			off = append(off, ids(m.Decide(all))...)
		}
	}
	s.told, s.at = s.cpu, s.cpu
	s.t += waits
	return off
}

// TestServer: waiting is no work. A server whose events cost as much as all else that it does has too many of them, unless it
// hardly works.
func TestServer(t *testing.T) {
	for _, tt := range []struct {
		works, waits uint64
		off          bool
	}{
		{40_000, 200_000, true},
		{40_000, 20_000, true},
		{40_000, 2_000_000, false},
		{10_000_000, 20_000_000, true},
		{2_000_000, 1_000_000_000, false},
	} {
		for _, tick := range []uint64{1_000_000, 4_000_000, 10_000_000} {
			s := server{program: program{t: 1 << 40, begin: 1 << 40}}
			m := New(Options{Limit: 0.5, Event: 10, CPU: func(pool.Task) (uint64, bool) { return max(s.told, 1), true }}, reading(s.t-1000))
			var off []uint32
			for range 500_000_000/(tt.works+tt.waits) + 10 {
				off = append(off, s.request(m, tt.works, tt.waits, tick)...)
			}
			if slices.Contains(off, small) != tt.off {
				t.Errorf("works %d ns, waits %d ns, tick %d ns: switched off %v", tt.works, tt.waits, tick, off)
			}
		}
	}
}

// TestLate: a thread that always runs is within the limit, however late the kernel says that it does.
func TestLate(t *testing.T) {
	p := &program{t: 1 << 40, begin: 1 << 40}
	m := New(Options{Limit: 0.5, Event: 10, CPU: func(pool.Task) (uint64, bool) {
		const tick = 10_000_000
		return max((p.t-1<<40)/tick*tick, 1), true
	}}, reading(p.t-1000))
	for p.t < 1<<40+500_000_000 {
		for range 200 {
			p.call(long, 70, nil) // of which 20 are the events: 40 %
		}
		p.hand(m, 7)
		m.Tick(reading(p.t))
		if off := m.Decide(all); off != nil {
			t.Fatalf("switched off %v after %d ms", off, (p.t-1<<40)/1e6)
		}
	}
}

// TestBurst: a thread that was cheap until now may cost too much for a moment, and not for long.
func TestBurst(t *testing.T) {
	m, p := start(0.02)
	for range 4000 {
		for range 200 {
			p.call(long, 2000, nil) // half of what it may
		}
		p.hand(m, 7)
		m.Tick(reading(p.t))
		if off := m.Decide(all); off != nil {
			t.Fatalf("switched off %v of a thread that is cheap", off)
		}
	}
	have := run(m, p, 20, all)
	first := slices.IndexFunc(have, func(ids []uint32) bool { return ids != nil })
	if first < 1 || first > 10 || !slices.Equal(have[first], []uint32{small}) {
		t.Errorf("switched off %v, want nothing first, and %d soon", have, small)
	}
	for range 2000 {
		m.Tick(reading(m.now.Counter + 2*uint64(window)))
		m.Decide(all)
	}
	if len(m.tasks) != 0 {
		t.Errorf("%d threads are known that do nothing", len(m.tasks))
	}
}

// TestGrace: what begins with calls that cost too much has some milliseconds of them, and not many.
func TestGrace(t *testing.T) {
	m, p := start(0.5)
	from := p.t
	for p.t-from < 100_000_000 {
		for range 800 {
			p.call(small, 40, nil) // twice what it may be: half of the events are too many
		}
		p.hand(m, 7)
		m.Tick(reading(p.t))
		if off := m.Decide(all); off != nil {
			break
		}
	}
	const least = 2 * grace // as half of the events are, half of the time is
	if took := time.Duration(p.t - from); took < least || took > least+2*window {
		t.Errorf("switched off after %v, want %v", took, least)
	}
}

// TestSoon: a decision should come soon in the beginning, and when something costs too much.
func TestSoon(t *testing.T) {
	m, p := start(0.02)
	if !m.Soon() {
		t.Error("not in the beginning")
	}
	p.t += uint64(young)
	p.begin = p.t
	m.Tick(reading(p.t))
	m.Decide(all)
	if m.Soon() {
		t.Error("of a program that does nothing")
	}
	p.work(m, 7)
	if !m.Soon() {
		t.Error("not of a program that costs too much")
	}
	m.Tick(reading(p.t))
	m.Decide(all)
	if m.Soon() {
		t.Error("behind the decision")
	}
}

// TestPreempted: a thread that loses the processor now and then is no cheaper for that.
func TestPreempted(t *testing.T) {
	m, p := start(0.02)
	for i := range 40 {
		for range 200 {
			for range 4 {
				p.call(small, 40, nil)
			}
		}
		if i < 4 {
			p.t += 50_000_000
		}
		p.call(outer, 40, nil)
		p.hand(m, 7)
	}
	m.Tick(reading(p.t))
	if have := ids(m.Decide(all)); !slices.Equal(have, []uint32{small}) {
		t.Errorf("switched off %v, want %d", have, small)
	}
}

// TestDone: chunks that began before programs were told show nothing new.
func TestDone(t *testing.T) {
	m, p := start(0.02)
	p.work(m, 7)
	m.Tick(reading(p.t))
	off := m.Decide(all)
	late := *p // has not heard of it
	late.work(m, 8)
	m.Done(off, late.t)
	m.Tick(reading(late.t))
	m.Decide(all)
	again := *p
	again.begin = p.t
	again.work(m, 7)
	m.Tick(reading(again.t + uint64(window)))
	if have := m.Decide(all); len(off) != 1 || have != nil {
		t.Errorf("switched off %v, and then %v by old chunks", off, have)
	}
}

// TestWindow: nothing is decided before its end.
func TestWindow(t *testing.T) {
	m, p := start(0.02)
	p.work(m, 7)
	m.Tick(reading(1<<40 + uint64(window) - 2000))
	if off := m.Decide(all); off != nil {
		t.Errorf("switched off %v after %v", off, window-2*time.Microsecond)
	}
}

// FuzzChunk: whatever programs hand over, deciding ends, and what is switched off was called.
func FuzzChunk(f *testing.F) {
	_, p := start(1)
	p.call(outer, 10, func() { p.call(small, 2, nil); p.call(0x7fffffff, 1, nil) })
	f.Add(p.words, uint64(1<<40), uint64(4))
	f.Add(le.AppendUint64(nil, 0x7ffe17ff<<32), uint64(0), uint64(1<<63))
	f.Fuzz(func(t *testing.T, words []byte, begin, events uint64) {
		cpu := func(pool.Task) (uint64, bool) { return begin, events&1 != 0 }
		m := New(Options{Limit: 0.01, Event: 1e3, CPU: cpu}, reading(1))
		m.Tick(reading(2))
		for i := range uint32(3) {
			m.Chunk(pool.Task{PID: i}, begin, words, events)
		}
		m.Tick(reading(2 + uint64(window)))
		called := map[uint32]bool{}
		for w := words; len(w) >= 8; w = w[1:] {
			called[le.Uint32(w[4:])] = true
		}
		for _, o := range m.Decide(all) {
			if !called[o.ID] {
				t.Errorf("%d is switched off, and was not called", o.ID)
			}
		}
	})
}
