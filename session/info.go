//go:build linux

package session

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	i.Clock.Pairs = append(i.Clock.Pairs, readClocks().pair())
	i.Images = s.res.Images
	i.Totals.Events = s.res.Events
	i.Totals.Chunks = s.res.Chunks
	i.Totals.Bytes = uint64(s.res.Bytes)
	i.Totals.Processes = s.res.Processes
	i.Totals.Tasks = s.res.Tasks
	i.Lost = s.res.Lost
	for _, err := range []error{s.dir.writeInfo(i), s.dir.close()} {
		if err == nil {
			continue
		}
		s.logf("%v", pathError(err))
		if s.res.WriteError == nil {
			s.res.WriteError = pathError(err)
		}
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
