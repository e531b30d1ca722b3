//go:build linux

package session

import (
	"io"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/session/internal/tracee"
	"github.com/fentry-dev/fentry/trace"
)

// shutPatience is the time that programs which live on get to see that the trace is over.
const shutPatience = 20 * time.Millisecond

// giveBackTime bounds how long the recorder takes for programs that live on.
const giveBackTime = 3 * time.Second

// giveBack takes the tracer out of programs that live on: those that were started, and what these and processes that were attached to
// have executed. Where that cannot be done they keep it, and run their own code. Their libraries stay as they were loaded.
func (s *session) giveBack() {
	s.setting.mu.Lock()
	defer s.setting.mu.Unlock()
	deadline := time.Now().Add(giveBackTime)
	for _, p := range s.changeable() {
		if time.Now().After(deadline) {
			return
		}
		a := s.executedIn(p.Pid)
		if s.attached == nil && a == nil {
			a = s.settles(p)
		}
		if a == nil {
			continue
		}
		held, err := a.Withdraw(p.Pid)
		s.res.Held = max(s.res.Held, held)
		if err == nil || s.gone(p, err) {
			continue
		}
		s.stays(p.Pid, err)
		s.logf("process %d: %v", p.Pid, err)
		if err := a.Rest(p.Pid); err != nil && !s.gone(p, err) {
			s.logf("process %d goes on with the tracer's jumps: %v", p.Pid, err)
		}
	}
}

// executedIn is what was put into the program of a process, which another one has executed; nil: that is not known.
func (s *session) executedIn(pid int) *tracee.Attachment {
	if s.follow == nil || s.follow.o.Whole == nil {
		return nil
	}
	exe, err := safefile.Open(procfs.Dir(pid) + "/exe")
	if err != nil {
		return nil
	}
	defer exe.Close()
	m := s.follow.o.Whole(exe)
	if m == nil {
		return nil
	}
	a, err := tracee.Injected(pid, tracee.Plan{Memory: m})
	if err != nil {
		return nil
	}
	return a
}

// finish drains what is left.
func (s *session) finish() {
	if s.res.Duration == 0 {
		s.res.Duration = time.Since(s.info.Start)
	}
	if s.pool == nil {
		s.finishProfile()
		return
	}
	s.stopSwitches()
	s.stopSamples()
	alone, losses := s.deserted(), losses{}
	if s.pool.Mem != nil {
		// Before programs that live on are told that the trace is over: what they do then
		// is not lost.
		losses = lossesOf(s.pool)
		s.pool.Shut()
		if !alone {
			// Give them the time to see it, so that less is cut off in the middle.
			time.Sleep(shutPatience)
		}
		s.drain.Last(alone)
		if !alone {
			s.interruptible(s.giveBack)
		}
		losses.counted(s.pool)
		if s.follow != nil {
			s.res.Unfollowed = s.pool.Word(format.HUnfollowed).Load()
			if !s.o.OnlySwaps {
				s.res.Unloaded = s.pool.Word(format.HUnloaded).Load()
			}
		}
	} else {
		losses.say(0)
	}
	c := s.drain.Counts()
	losses.add(c)
	if losses.uncounted != 0 && !s.foreign() {
		losses.to = clock.Read().Counter
	}
	losses.write(s.dir.Events)
	s.res.Events, s.res.Chunks, s.res.BadChunks, s.res.Overwrote = c.Events, c.Chunks, c.Bad, losses.overwritten
	s.own, s.res.Compressed = c.Own, c.Compressed
	s.res.Tasks, s.res.Processes, s.res.Lost = c.Tasks, c.Processes, c.Lost+losses.lost
	s.res.Uncounted = losses.uncounted != 0
	s.res.WriteError, s.res.Bytes, s.res.SwitchedOff = c.Err, c.Bytes, c.SwitchedOff
	s.res.Overhead = s.overhead()
}

// nothing tells, at the end, that there is nothing to keep: no process was traced, and nothing went wrong.
func (s *session) nothing() bool {
	return s.res.Samples == 0 && s.res.Chunks == 0 && s.res.BadChunks == 0 && s.res.Lost == 0 && s.res.WriteError == nil
}

// finishProfile reads the chunks the runtimes wrote.
func (s *session) finishProfile() {
	if err := s.readProfile(); err != nil {
		s.res.WriteError = tracedir.PathError(err)
		s.logf("%v", s.res.WriteError)
	}
}

func (s *session) readProfile() error {
	f, chunk := s.dir.Events, int64(s.chunkSize())
	// Processes that live on stop.
	_, _ = f.WriteAt(le.AppendUint32(nil, 1), format.HClosed)
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	// The runtimes make the file longer in large steps.
	var head [format.HeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return err
	}
	s.res.Lost = le.Uint64(head[format.HLost:])
	used := fi.Size()
	if n := le.Uint64(head[format.HNext:]); n < uint64(used/chunk) {
		used = tablesHeader + int64(n)*chunk
	}
	if used < fi.Size() && !s.live.MappedNow() {
		if err := f.Truncate(used); err != nil {
			return err
		}
	}
	s.res.Bytes = used
	type task struct{ pid, tid uint32 }
	tasks := make(map[task]bool)
	pids := make(map[uint32]bool)
	b := make([]byte, chunk)
	for off := int64(tablesHeader); off < used; off += chunk {
		n, err := f.ReadAt(b, off)
		if n < format.ChunkHeader {
			if err != nil && err != io.EOF {
				return err
			}
			break
		}
		if le.Uint32(b[format.CMagic:]) != format.ChunkMagic {
			continue // never used
		}
		s.res.Chunks++
		pid := le.Uint32(b[format.CPID:])
		tasks[task{pid, le.Uint32(b[format.CTID:])}] = true
		pids[pid] = true
		s.res.Lost += le.Uint64(b[format.CLost:])
		if trace.ChunkKind(le.Uint16(b[format.CKind:])) == trace.ChunkImage {
			s.sawImage(trace.ImageID(le.Uint64(b[format.CImage:])), int(pid), b[format.ChunkHeader:n])
		}
		if size := int64(le.Uint32(b[format.CSize:])); size > chunk {
			off += (size - 1) / chunk * chunk // it spans several
		}
	}
	s.res.Tasks, s.res.Processes = len(tasks), len(pids)
	return nil
}

// besides is what an event costs beside reading the clock, in nanoseconds: a call and its return took 32 cycles at
// 2 GHz with the clock replaced by a constant.
const besides = 8

// numbered is what an event costs that has a sequence number and no time, in nanoseconds: 16 cycles for a call and its
// return, the same 2 GHz.
const numbered = 4

// overhead estimates what tracing has cost.
func (s *session) overhead() time.Duration {
	if s.o.Profile || s.foreign() {
		return 0
	}
	s.imageMu.Lock()
	clockless := slices.ContainsFunc(s.res.Images, func(im trace.Image) bool { return im.Clock == trace.ClockNone })
	s.imageMu.Unlock()
	each := eventCost()
	if clockless { // it holds for a whole trace (Trace.Clockless)
		each = numbered
	}
	return time.Duration(float64(s.res.Events+s.res.Lost+s.res.Overwrote) * each)
}

// eventCost is what recording an event costs, in nanoseconds.
func eventCost() float64 { return clock.ReadCost() + besides }
