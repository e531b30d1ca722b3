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
)

// beginInfo fills in what is known before the program runs.
func (s *session) beginInfo() {
	i := &s.info
	clock := i.Clock
	*i = s.o.Info
	i.Clock = clock
	i.Command = s.o.Args
	i.Dir, _ = os.Getwd()
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
	i.Totals.Chunks = s.res.Chunks
	i.Totals.Bytes = uint64(s.res.Bytes)
	i.Totals.Processes = s.res.Processes
	i.Totals.Tasks = s.res.Tasks
	i.Lost = s.res.Lost
	if s.res.Dir == "" {
		s.dir.close()
		s.failed(fmt.Errorf("%s: was removed while it was being recorded; the trace is gone", s.dir.name))
		return
	}
	if err := s.dir.writeInfo(i); err != nil {
		s.failed(err)
	}
	// Last, so that a reader who sees it sees the rest.
	if _, err := s.dir.events.WriteAt(le.AppendUint32(nil, 1), format.HClosed); err != nil {
		s.failed(pathError(err))
	}
	if err := s.dir.close(); err != nil {
		s.failed(pathError(err))
	}
}

// whereDir finds the directory again: while it was written it can have been
// renamed, or removed.
func (s *session) whereDir() {
	name, moved := s.dir.where()
	s.res.Dir = name
	if name != "" && moved {
		s.logf("%s: was renamed while it was being recorded; the trace is in %s", s.dir.name, name)
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
