//go:build linux

package session

import (
	"errors"

	"github.com/fentry-dev/fentry/session/internal/switches"
	"github.com/fentry-dev/fentry/trace"
)

// followSwitches begins to record when the threads of a process, and of what it starts, are off a processor. Where that
// is not possible, the trace says why.
func (s *session) followSwitches(pid int) {
	if !s.o.Switches || s.pool == nil || s.switches != nil && s.o.Attach == nil {
		return
	}
	if s.switches != nil {
		if err := s.switches.Add(pid); err != nil {
			s.logf("process %d: when its threads wait is not recorded: %v", pid, err)
		}
		return
	}
	err := errors.New("the program runs under an emulator, which has the threads")
	switch {
	case s.o.Attach != nil:
		s.switches, err = switches.FollowRunning(pid)
	case !s.foreign():
		s.switches, err = switches.Follow(pid)
	}
	s.info.Switches = &trace.InfoSwitches{Source: trace.SwitchesPerf}
	if err != nil {
		s.info.Switches = &trace.InfoSwitches{Reason: err.Error()}
		return
	}
	s.drain.AddOwn(s.switches.Take)
}

// stopSwitches ends that. What was recorded can still be taken.
func (s *session) stopSwitches() {
	if s.switches != nil {
		s.info.Switches.Lost = s.switches.Stop()
		s.switches = nil
	}
}
