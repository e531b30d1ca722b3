//go:build linux

package fentry

import (
	"time"

	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A Stream visits what a recording has in its buffer while it goes on, each event once. It reads the buffer again and
// again: programs never wait for it, and what is gone before it comes round is skipped, and counted.
type Stream struct {
	l      *Live
	dir    string
	o      trace.Options
	stream trace.Stream
	from   uint64 // counter: events before are not wanted any more
	mark   session.Mark
	moved  time.Time // when it was seen that the mark had moved
	looked time.Time // when the last look began
	// Skipped is how many events were not visited, exactly, behind End.
	Skipped uint64
}

// hold is how long the newest event of a thread waits for the one behind it, without which it is not known whether a call
// has calls inside.
const hold = 10 * time.Millisecond

// Stream returns a Stream of a recording. dir is a directory that nobody else uses. o says how names of functions are shown;
// what else is in it is not used.
func (l *Live) Stream(dir string, o trace.Options) *Stream {
	return &Stream{l: l, dir: dir, o: trace.Options{Name: o.Name, Images: o.Images, Threads: true}}
}

// OpenSince is [Live.Open] for what is newer than a counter, and some that is older.
func (l *Live) OpenSince(dir string, from uint64) (*trace.Trace, error) {
	return l.open(dir, from, trace.Options{})
}

// Waiting tells whether there may be something that Next would visit. It is much cheaper than Next, where nothing happens.
// The error is [session.ErrOver] when the recording has ended.
func (s *Stream) Waiting() (bool, error) {
	moved, err := s.l.Move(&s.mark)
	if err != nil {
		return false, err
	}
	if moved {
		s.moved = time.Now()
	}
	// The newest events wait until they are old enough.
	return moved || s.looked.Sub(s.moved) < 2*hold, nil
}

// Next visits what has happened since the last time, until about now. begin gets the trace, which is only good meanwhile,
// and that time. The error is
// [session.ErrOver] when the recording has ended: then there is still End.
func (s *Stream) Next(begin func(t *trace.Trace, until int64), event func(*trace.Event) error) error {
	s.looked = time.Now()
	now := s.l.Now()
	t, err := s.l.open(s.dir, s.from, s.o)
	if err != nil {
		return err
	}
	defer t.Close()
	until := t.Clock.Time(now)
	begin(t, until)
	s.from = t.Clock.Counter(max(0, until-int64(2*hold)))
	return s.stream.Walk(t, trace.StreamOptions{Until: until, Hold: int64(hold)}, event)
}

// End visits what was left when the recording had ended, with what result.
func (s *Stream) End(res *Result, begin func(t *trace.Trace, until int64), event func(*trace.Event) error) error {
	all := res.Events + res.Lost + res.Overwrote
	defer func() { s.Skipped = all - min(all, s.stream.Seen) }()
	t, err := s.l.openTrace(res.Dir, s.o)
	if err != nil {
		return err
	}
	defer t.Close()
	begin(t, trace.NoEnd)
	return s.stream.Walk(t, trace.StreamOptions{End: true}, event)
}
