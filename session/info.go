//go:build linux

package session

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// beginInfo fills in what is known before the program runs.
func (s *session) beginInfo() {
	i := &s.info
	clock := i.Clock
	*i = s.o.Info
	i.Clock = clock
	i.Command = s.o.Args
	if i.Dir = s.o.WorkDir; i.Dir == "" {
		i.Dir, _ = os.Getwd()
	}
	i.Start = time.Now()
	i.ExitStatus = -1
	i.Host, _ = os.Hostname()
	i.CPUs = runtime.NumCPU()
	i.CPU = cpuModel()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		i.Machine = unix.ByteSliceToString(u.Machine[:])
		i.Kernel = unix.ByteSliceToString(u.Release[:])
	}
}

// endInfo fills in how it went and writes the file.
func (s *session) endInfo() {
	i := &s.info
	i.Duration = s.res.Duration
	if s.res.Ended {
		if s.res.Status.Signaled() {
			i.Signal = int(s.res.Status.Signal())
		} else {
			i.ExitStatus = s.res.Status.ExitStatus()
		}
	}
	s.pairClocks()
	s.whereDir()
	i.Images = s.res.Images
	i.Totals.Events = s.res.Events
	i.Totals.Chunks = s.res.Chunks + s.own
	i.Totals.Bytes = uint64(s.res.Bytes)
	i.Totals.Processes = s.res.Processes
	i.Totals.Tasks = s.res.Tasks
	i.Lost = s.res.Lost
	if s.res.Dir == "" {
		s.closeDir()
		s.failed(fmt.Errorf("%s: was removed while it was being recorded; the trace is gone", s.dir.Name))
		return
	}
	if err := s.dir.WriteInfo(i); err != nil {
		s.failed(err)
	}
	// Last, so that a reader who sees it sees the rest.
	if _, err := s.dir.Events.WriteAt(le.AppendUint32(nil, 1), format.HClosed); err != nil {
		s.failed(tracedir.PathError(err))
	}
	if err := s.closeDir(); err != nil {
		s.failed(tracedir.PathError(err))
	}
}

// closeDir closes the trace directory, unless something that has been given up may still write to it.
func (s *session) closeDir() error {
	if s.partial {
		return nil
	}
	return s.dir.Close()
}

// whereDir finds the directory again: while it was written it can have been
// renamed, or removed.
func (s *session) whereDir() {
	name, moved := s.dir.Where()
	s.res.Dir = name
	if name != "" && moved {
		s.logf("%s: was renamed while it was being recorded; the trace is in %s", s.dir.Name, name)
	}
}

// failed notes an error that came at the end.
func (s *session) failed(err error) {
	s.logf("%v", err)
	if s.res.WriteError == nil {
		s.res.WriteError = err
	}
}

// cpuModel is the processor's name, "" where /proc/cpuinfo does not tell.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4096) // the first processor; there can be hundreds
	n, _ := f.Read(b)
	b = b[:n]
	for line := range strings.Lines(string(b)) {
		if name, val, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(val)
		}
	}
	return ""
}

// pair is a reading as info.json has it.
func pair(r clock.Reading) trace.ClockPair {
	return trace.ClockPair{Counter: r.Counter, Monotonic: uint64(r.Monotonic)}
}
