//go:build linux

package session

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/trace"
)

// What the program that runs a session can do with it meanwhile: switch functions, and look at what there is in the
// buffer. It is what a tracefs is made of. The commands of [Control] are for other processes, and do the same: the last one
// who sets something has it his way.

// Live is a session while it runs. Its methods are safe for
// concurrent use. When the session ends they return errors.
type Live struct {
	s *session
}

// Hz is the frequency of the counter, for trace.Options.CounterHz: that which the session knows, or else one that is
// measured when it is asked for first, and does not change then.
func (l *Live) Hz() float64 { return l.s.hz() }

// frequency is the counter's, if stated is 0 by how far it has come since a moment.
func frequency(stated uint64, since trace.ClockPair) float64 {
	const enough = 20 * time.Millisecond // clocks are read to within 100 ns
	if stated != 0 {
		return float64(stated)
	}
	now := clock.Read()
	if passed := time.Duration(now.Monotonic) - time.Duration(since.Monotonic); passed < enough {
		time.Sleep(enough - passed)
		now = clock.Read()
	}
	return float64(now.Counter-since.Counter) / float64(uint64(now.Monotonic)-since.Monotonic) * 1e9
}

// ErrOver is returned by methods of Live when the session has ended.
var ErrOver = errors.New("the recording has ended")

// AtEnd has a function called when the processes have ended, or the recording is to: before that does, so that whoever looks at it
// can come for the last. It is called once, and the recording waits for it.
func (l *Live) AtEnd(do func()) {
	l.s.setting.mu.Lock()
	defer l.s.setting.mu.Unlock()
	l.s.atEnd = do
}

// Images are those whose functions can be switched, by id.
func (l *Live) Images() []trace.ImageID { return slices.Sorted(maps.Keys(l.s.switchable())) }

// Control does what [Control] asks a recorder for. An error about the line is a *[ControlError].
func (l *Live) Control(line string) (answer string, err error) {
	answer, cerr := l.s.obey(line)
	if cerr != nil {
		return "", cerr
	}
	return answer, nil
}

// Switch switches each function on or off, in all processes and those that come: by image, and its local id. It is a
// set_ftrace_filter, and tracing_on.
func (l *Live) Switch(on func(image trace.ImageID, id uint32) bool) error {
	s := l.s
	s.setting.mu.Lock()
	defer s.setting.mu.Unlock()
	if s.end.winding.Load() {
		return ErrOver
	}
	to := s.setting.now
	to.paused, to.filter = false, choice{of: on}
	return s.apply(to, true, true, false)
}

// Snapshot writes what the buffer of a session with [trace.PolicyOverwrite] has, to a directory that is there and that
// nobody else uses, in place of what Snapshot has written there before: all that is newer than a counter, and some that is
// older. It is a trace without symbols. Times in traces of one session compare exactly if they are opened with
// trace.Options.HeaderClock.
func (l *Live) Snapshot(dir string, from uint64) error {
	s := l.s
	var snap *drain.Snapshot
	var loss losses
	var info trace.Info
	if s.end.winding.Load() || !s.drain.Do(func() {
		snap, loss = s.snapshot(from)
		info = s.info
		info.Clock.Pairs = slices.Clone(info.Clock.Pairs)
		s.imageMu.Lock()
		info.Images = slices.Clone(s.res.Images)
		s.imageMu.Unlock()
	}) {
		return ErrOver
	}
	info.Duration, info.Switches = time.Since(info.Start), nil
	info.Lost = snap.Lost + loss.lost
	if s.processes != nil {
		info.Processes = s.processes.now(snap.PIDs)
	}
	f, err := os.OpenFile(filepath.Join(dir, trace.EventsFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := snap.WriteTo(f); err != nil {
		if errors.Is(err, os.ErrClosed) && s.end.winding.Load() { // by the end of the session
			return ErrOver
		}
		return err
	}
	loss.write(f)
	if _, err := f.WriteAt(le.AppendUint32(nil, 1), format.HClosed); err != nil {
		return err
	}
	return trace.WriteInfo(dir, &info)
}

// A Mark is how far the buffer of a session has been written. The zero value is none.
type Mark struct{ at drain.Mark }

// Move moves a mark to where the buffer ends now, and tells whether that is another place: whether anything has been
// recorded since it was moved last. That costs much less than to look at what there is. A mark belongs to one goroutine.
func (l *Live) Move(m *Mark) (moved bool, err error) {
	if l.s.end.winding.Load() || !l.s.drain.Do(func() { moved = l.s.drain.Move(&m.at) }) {
		return false, ErrOver
	}
	return moved, nil
}

// Now is the counter, of which times in the traces are made (trace.Clock.Time).
func (l *Live) Now() uint64 { return clock.Read().Counter }

// End ends the session: the processes go on as they were.
func (l *Live) End() { l.s.control.once.Do(func() { close(l.s.control.detach) }) }
