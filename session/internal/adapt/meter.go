//go:build linux

package adapt

import (
	"math"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// A recorder sees all chunks, and a chunk says when it began, when its last event was and how many events it has. That
// is all it takes to know what tracing costs a thread that runs: the chunks of a thread follow each other without a gap, so
// the time they cover is the thread's, and its events times what one costs is the part of it that tracing took. A server
// waits most of that time, and works in between: what counts is how long it had a processor, which the kernel tells
// (Options.CPU). It is asked only of threads that would be above the limit if they had done nothing but record. Those that
// hardly work at all may cost more of that than the limit (idle).
//
// Measured is in windows, long enough to average over many calls and short enough that a program that runs for twenty
// milliseconds is helped: it begins with one phase of a few after the other, each with functions of its own. Threads are
// looked at one by one: one that waits must not hide one that does not. A thread that was cheap for a while may cost more
// for as long: what counts besides the window is an average that forgets half of the past in a fifteenth of a second, and a
// little above the limit is nothing (grace). So short bursts lose nothing, and over a tenth of a second the limit holds.
// What a chunk can add to that average is bounded (most): on a busy machine a thread loses the processor in the middle of
// a chunk, which says nothing about its costs. Only of threads above it some chunks are read, which functions they call
// and what those do by themselves (sample.go); and only as many functions as it takes to come below the limit are
// switched off (choose.go).
//
// A decision takes effect with the next chunk of each thread (stub/src/costly.c). Chunks that began before it would show
// the same functions again, and have more switched off than it takes, so they are left out.
//
// Functions stay off. To try now and then whether one still costs as much would bound nothing, as a phase of a program
// can be shorter than that takes, and would have the trace show some of a function's calls here and some there.

// Options are what a [Meter] goes by.
type Options struct {
	// Limit is what tracing may add to the time that a thread takes without: 0.5 is half of it.
	Limit float64
	// Event is what recording an event costs, in nanoseconds.
	Event float64
	// Window is how long the program is watched before anything is decided; 0: the default.
	Window time.Duration
	// CPU is how long a thread has had a processor since it began, in nanoseconds; ok is false if that is not known. The
	// kernel can say it as it was some milliseconds ago (late). nil: threads never wait.
	CPU func(pool.Task) (ns uint64, ok bool)
}

// window is the default of Options.Window.
const window = 2 * time.Millisecond

// maxTasks bounds how many threads are told apart; more are left out.
const maxTasks = 1 << 16

// A Meter watches what programs record. It is not safe for concurrent use.
type Meter struct {
	o     Options
	start clock.Reading
	now   clock.Reading
	from  int64  // CLOCK_MONOTONIC when the window began
	since uint64 // counter when functions were last switched off

	tasks   map[pool.Task]*thread
	tallies tallies
	hot     int             // chunks of the window that cost more than the limit
	stride  int             // one in so many of them is read
	off     map[uint32]bool // all so far
}

// load is what a thread did in some time.
type load struct {
	span   float64 // ticks
	events float64
}

func (l *load) add(o load) { l.span, l.events = l.span+o.span, l.events+o.events }

// thread is what is known of one.
type thread struct {
	window  load
	past    load    // before the window, the longer ago the less of it
	elapsed float64 // ticks that the chunks of the window cover

	busy    float64 // the part of the time in which it had a processor when that was asked last
	cpu     uint64  // how long it had had one then, in nanoseconds
	unasked float64 // ticks that its chunks have covered since then
	ahead   float64 // ticks on a processor that belong to chunks to come
}

const (
	// memory is how long it takes to forget all but 1/e of the past.
	memory = 95 * time.Millisecond
	// grace is a time in which a thread may run as if it were not traced, within that: what tracing may add to it is added once
	// more.
	grace = 2 * time.Millisecond
)

// pass begins a window; the last one was so long. It returns false if the thread has done nothing for so long that it need not be
// known.
func (t *thread) pass(last time.Duration) bool {
	keep := math.Exp(-float64(last) / float64(memory))
	t.past.add(t.window)
	t.past.span, t.past.events, t.window, t.elapsed = keep*t.past.span, keep*t.past.events, load{}, 0
	return t.past.events >= 1
}

// New returns a meter that begins at a reading of the clock.
func New(o Options, now clock.Reading) *Meter {
	if o.Window == 0 {
		o.Window = window
	}
	return &Meter{o: o, start: now, now: now, from: now.Monotonic, tasks: make(map[pool.Task]*thread), stride: 1, off: make(map[uint32]bool)}
}

// young is how long after the meter's beginning programs are in the phases in which they begin.
const young = 200 * time.Millisecond

// Soon reports whether the next decision should come soon: programs have just begun, or a thread has cost too much since the last
// one.
func (m *Meter) Soon() bool { return m.hot > 0 || m.now.Monotonic-m.start.Monotonic < int64(young) }

// Tick tells the time. It is to be called before chunks are taken.
func (m *Meter) Tick(now clock.Reading) { m.now = now }

// maxRead is how many events of a window are read, about: some ten thousand calls tell which functions are called most,
// and reading them takes the recorder about as long as writing them.
const maxRead = 8 * chunk

// chunk is how many events a chunk has, about.
const chunk = format.ChunkSize / 8

// Chunk takes a chunk of events: its thread, the counter at its beginning, its words and how many of them are events.
func (m *Meter) Chunk(task pool.Task, begin uint64, words []byte, events uint64) {
	last, ok := lastTime(words)
	if begin < m.since || !ok || events == 0 {
		return
	}
	// A chunk that takes longer than the counter's low half goes round looks shorter: once in some thousand cases so
	// short that it counts, and then in one window.
	elapsed := float64(last - uint32(begin))
	t := m.tasks[task]
	if t == nil {
		if len(m.tasks) >= maxTasks {
			return
		}
		t = &thread{busy: 1, ahead: late * m.ticks()}
		m.tasks[task] = t
	}
	l := m.bounded(load{t.busy * elapsed, float64(events)})
	t.window.add(l)
	t.elapsed += elapsed
	t.unasked += elapsed
	if m.excess(l, m.o.Limit) <= 0 {
		return
	}
	if m.hot++; m.hot%m.stride == 0 && m.tallies.words < maxRead {
		m.tallies.read(begin, words)
	}
}

// ticks is how often the counter ticks in a nanosecond.
func (m *Meter) ticks() float64 {
	ns := m.now.Monotonic - m.start.Monotonic
	if ns <= 0 || m.now.Counter <= m.start.Counter {
		return 1
	}
	return float64(m.now.Counter-m.start.Counter) / float64(ns)
}

// most is how many times cheaper than the limit a chunk may count as.
const most = 4

// bounded is a load that is not too cheap to be believed.
func (m *Meter) bounded(l load) load {
	l.span = min(l.span, (1+most/m.o.Limit)*m.cost(l))
	return l
}

const (
	// idle is the part of the time which counts for what a thread does by itself if it has had a processor for less: what
	// works for a moment now and then would lose what it calls most for nothing that anybody notices.
	idle = 1.0 / 16
	// late is how old the kernel's word can be how long a thread has had a processor, in nanoseconds: it is brought up to
	// date when the thread loses it, and by the timer's interrupts, of which there are 100 or more a second.
	late = 10e6
	// maxAsked is how many threads are asked for in a window: it takes some microseconds each.
	maxAsked = 64
)

// ask corrects the load of the last window by how long the thread had a processor.
func (m *Meter) ask(task pool.Task, t *thread) {
	cpu, ok := m.o.CPU(task)
	if !ok || cpu < t.cpu || t.unasked <= 0 {
		return
	}
	// The chunk that it fills is not there yet, and the last one that was may have been filled when the kernel was asked last.
	had := float64(cpu-t.cpu)*m.ticks() + t.ahead
	ran := min(had, t.unasked)
	t.ahead = min(had-ran, late*m.ticks())
	t.busy = max(ran/t.unasked, idle)
	t.cpu, t.unasked = cpu, 0
	t.window = m.bounded(load{t.busy * t.elapsed, t.window.events})
}

// mayExceed reports whether a thread could be above the limit, if it had done nothing but record.
func (m *Meter) mayExceed(t *thread) bool {
	return t.window.events > 0 && (t.past.events+t.window.events)*m.o.Event > m.o.Limit*float64(grace)
}

// cost is what recording a load's events took, in ticks.
func (m *Meter) cost(l load) float64 { return l.events * m.o.Event * m.ticks() }

// excess returns how many events a load has above those that keep tracing at a part of the time that the thread
// takes without.
func (m *Meter) excess(l load, limit float64) float64 {
	// What an event costs is an estimate, which can be above what there is.
	without := max(l.span-m.cost(l), l.span/8)
	return l.events - limit*without/(m.o.Event*m.ticks())
}
