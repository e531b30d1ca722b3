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
	r := s.switches.Load()
	if !s.o.Switches || s.pool == nil || r != nil && s.o.Attach == nil {
		return
	}
	if r != nil {
		if err := r.Add(pid); err != nil {
			s.logf("process %d: when its threads wait is not recorded: %v", pid, err)
		}
		return
	}
	err := errors.New("the program runs under an emulator, which has the threads")
	switch {
	case s.o.Attach != nil:
		r, err = switches.FollowRunning(pid)
	case !s.foreign():
		r, err = switches.Follow(pid)
	}
	s.info.Switches = &trace.InfoSwitches{Source: trace.SwitchesPerf}
	if err != nil {
		s.info.Switches = &trace.InfoSwitches{Reason: err.Error()}
		return
	}
	s.switches.Store(r)
	s.drain.AddOwn(r.Take)
}

// saw notes that a process which sees itself as pid, and is host here, records something.
func (s *session) saw(pid, host int) {
	s.processes.saw(pid, host)
	if r := s.switches.Load(); r != nil && pid != host {
		r.Inside(host, pid)
	}
}

// stopSwitches ends that. What was recorded can still be taken.
func (s *session) stopSwitches() {
	if r := s.switches.Swap(nil); r != nil {
		s.info.Switches.Lost = r.Stop()
	}
}
