//go:build linux

package session

import (
	"time"

	"github.com/fentry-dev/fentry/session/internal/samples"
	"github.com/fentry-dev/fentry/trace"
)

// CanSample says why the stacks of programs cannot be taken from outside; nil: they can ([Options].SampleEvery).
func CanSample(every time.Duration) error {
	_, err := samples.Try(every)
	return err
}

// followSamples begins to take stacks of a process, and of what it starts.
func (s *session) followSamples(pid int) {
	if s.o.SampleEvery == 0 || s.pool == nil || s.samples != nil && s.o.Attach == nil {
		return
	}
	if s.samples != nil {
		if err := s.samples.Add(pid); err != nil {
			s.logf("process %d: stacks are not taken: %v", pid, err)
		}
		return
	}
	var err error
	s.info.Samples = &trace.InfoSamples{Every: s.o.SampleEvery, Source: trace.SwitchesPerf}
	o := samples.Options{
		Every: s.o.SampleEvery, Partial: s.o.SamplePartial, Alone: s.o.Untouched, Running: s.o.Attach != nil,
	}
	if s.samples, err = samples.Follow(pid, o); err != nil {
		s.info.Samples = &trace.InfoSamples{Every: s.o.SampleEvery, Reason: err.Error()}
		s.logf("stacks are not taken: %v", err)
		return
	}
	s.drain.AddOwn(func(func(_, _ uint32) bool) [][]byte { return s.samples.Take(func(_, _ uint32) bool { return true }) })
}

// stopSamples ends that. What was taken can still be written.
func (s *session) stopSamples() {
	if s.samples != nil && !s.sampled {
		s.sampled = true
		st := s.samples.Stop()
		s.info.Samples.Taken, s.info.Samples.Lost, s.res.Samples = st.Samples, st.Lost, st.Samples
	}
}
