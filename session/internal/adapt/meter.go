//go:build linux

package adapt

import (
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// A recorder sees all chunks, and a chunk says when it began, when its last event was and how many events it has. That
// is all it takes to know what tracing costs a thread: the chunks of a thread follow each other without a gap, so the
// time they cover is the thread's, and its events times what one costs is the part of it that tracing took. What waits
// makes few events, so its chunks cover a long time and cost next to nothing.
//
// Measured is in windows, long enough to average over many calls and short enough that a program that runs for a tenth
// of a second is helped. Threads are looked at one by one: one that waits must not hide one that does not. Only of
// threads above the limit some chunks are read, which functions they call and what those do by themselves (sample.go);
// and only as many functions as it takes to come below the limit are switched off (choose.go).
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
}

// window is the default of Options.Window.
const window = 10 * time.Millisecond

// maxTasks bounds how many threads a window tells apart; more are left out of it.
const maxTasks = 1 << 16

// A Meter watches what programs record. It is not safe for concurrent use.
type Meter struct {
	o     Options
	start clock.Reading
	now   clock.Reading
	from  int64  // CLOCK_MONOTONIC when the window began
	since uint64 // counter when functions were last switched off

	tasks   map[pool.Task]load
	tallies tallies
	hot     int             // chunks of the window that cost more than the limit
	stride  int             // one in so many of them is read
	off     map[uint32]bool // all so far
}

// load is what a thread did in a window.
type load struct {
	span   uint64 // ticks
	events uint64
}

// New returns a meter that begins at a reading of the clock.
func New(o Options, now clock.Reading) *Meter {
	if o.Window == 0 {
		o.Window = window
	}
	return &Meter{o: o, start: now, now: now, from: now.Monotonic, tasks: make(map[pool.Task]load), stride: 1, off: make(map[uint32]bool)}
}

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
	span := uint64(last - uint32(begin))
	l, known := m.tasks[task]
	if !known && len(m.tasks) >= maxTasks {
		return
	}
	l.span += span
	l.events += events
	m.tasks[task] = l
	if m.excess(load{span, events}, m.o.Limit) <= 0 {
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

// excess returns how many events a load has above those that keep tracing at a part of the time that the thread
// takes without.
func (m *Meter) excess(l load, limit float64) float64 {
	event := m.o.Event * m.ticks()
	all := float64(l.events) * event
	// What an event costs is an estimate, which can be above what there is.
	without := max(float64(l.span)-all, float64(l.span)/8)
	return float64(l.events) - limit*without/event
}
