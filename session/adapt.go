//go:build linux

package session

import (
	"github.com/fentry-dev/fentry/session/internal/adapt"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// adapt lets the drainer switch functions off. It needs chunks while they are new, and knows this machine's costs.
func (s *session) adapt(now clock.Reading) {
	if s.o.Overhead <= 0 || s.foreign() || s.o.Policy == trace.PolicyOverwrite {
		return
	}
	s.drain.Adapt = &drain.Adapt{
		Meter: adapt.New(adapt.Options{Limit: s.o.Overhead, Event: eventCost(), CPU: s.processorTime}, now),
		May:   s.maySwitchOff,
		Done:  func() { s.setting.costly.Store(true) },
	}
}

// processorTime is how long a task has had a processor. Of a process of another PID namespace only the first thread is known.
func (s *session) processorTime(t pool.Task) (ns uint64, ok bool) {
	pid, tid := int(t.PID), int(t.TID)
	host, ok := s.live.Host(pid)
	switch {
	case !ok:
		return 0, false
	case host == pid:
	case tid == pid:
		tid = host
	default:
		return 0, false
	}
	return procfs.ProcessorTime(host, tid)
}

// maySwitchOff tells whether functions of an image may be switched off. Without a clock nobody knows what they cost, and
// programs that are linked with the tracer have no switches.
func (s *session) maySwitchOff(id trace.ImageID) bool {
	s.imageMu.Lock()
	defer s.imageMu.Unlock()
	im, ok := s.images[id]
	return ok && im.Clock == "" && im.IDs == "" && (im.Plain || s.o.OverheadAll)
}
