//go:build linux

package clock

// A Line turns times of CLOCK_MONOTONIC into counters: between two readings, or close to them.
type Line struct {
	Now          Reading // the newest one
	newer, older segment
	olderUntil   int64
}

// NewLine begins with a reading.
func NewLine() Line { return Line{Now: Read()} }

// Read adds a reading.
func (l *Line) Read() { l.add(Read()) }

func (l *Line) add(now Reading) {
	l.older, l.olderUntil = l.newer, l.Now.Monotonic
	l.newer = newSegment(l.Now, now)
	l.Now = now
}

// Counter is the counter at a time in ns.
func (l *Line) Counter(ns uint64) uint64 {
	if ns < uint64(l.olderUntil) && l.older.slope != 0 {
		return l.older.at(ns)
	}
	return l.newer.at(ns)
}

// A segment is the line between two readings.
type segment struct {
	from  Reading
	slope float64 // ticks a nanosecond
}

func newSegment(a, b Reading) segment {
	s := segment{from: a}
	if b.Monotonic > a.Monotonic && b.Counter > a.Counter {
		s.slope = float64(b.Counter-a.Counter) / float64(b.Monotonic-a.Monotonic)
	}
	return s
}

func (s segment) at(ns uint64) uint64 {
	return uint64(max(0, int64(s.from.Counter)+int64(float64(int64(ns)-s.from.Monotonic)*s.slope)))
}
