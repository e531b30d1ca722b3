//go:build linux

package session

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// A flight recorder keeps the newest events and writes them when something asks for that: a dump, a trace directory of
// its own, made while the program goes on, or what there is when it has ended.

// Flight makes a session a flight recorder: its Policy is trace.PolicyOverwrite.
type Flight struct {
	// Dumps are asked for here. The channel may be closed. nil: SIGUSR2 and the end are all that asks.
	Dumps <-chan DumpRequest
	// Keep tells, when the program has ended, whether what there is then is to be kept. nil: it is.
	Keep func(status syscall.WaitStatus) bool
}

// conditional tells whether it depends on how the program ends that what there is then is kept.
func (s *session) conditional() bool { return s.o.Flight != nil && s.o.Flight.Keep != nil }

// A DumpRequest asks for a dump.
type DumpRequest struct {
	Cause string        // for people
	Last  time.Duration // what is to be in it, up to now; 0: all that there is
	Done  chan<- Dump   // gets the answer, and needs room for it; nil: nobody waits
}

// A Dump is what a flight recorder wrote while the program ran.
type Dump struct {
	Dir    string // its trace directory: that of the session with a dot and a number
	Cause  string
	Events uint64
	Asked  time.Duration // as DumpRequest.Last
	// Whole is how much of the time before the dump is in it without gaps, less than Asked if the buffer had no more.
	// 0: all since the start; it is not known for programs of other machines.
	Whole time.Duration
	Err   error // why there is none
}

// flight makes the dumps of a session, one after the other.
type flight struct {
	mu    sync.Mutex
	made  []Dump
	asked chan DumpRequest // by control
	stop  chan struct{}
	ended chan struct{}
}

// newFlight makes what a session needs to be a flight recorder, if it is to be one.
func newFlight(o *Flight) *flight {
	if o == nil {
		return nil
	}
	return &flight{asked: make(chan DumpRequest), stop: make(chan struct{}), ended: make(chan struct{})}
}

// startFlight begins to listen to what asks for dumps.
func (s *session) startFlight() {
	f := s.flight
	if f == nil {
		return
	}
	signals, unwatch := dumpSignal()
	go func() {
		defer close(f.ended)
		defer unwatch()
		requests := s.o.Flight.Dumps
		for {
			select {
			case r, ok := <-requests:
				if !ok {
					requests = nil
					continue
				}
				s.dump(r)
			case r := <-f.asked:
				s.dump(r)
			case <-signals:
				s.dump(DumpRequest{Cause: "SIGUSR2"})
			case <-f.stop:
				return
			}
		}
	}()
}

// stopFlight has nobody wait for a dump any more.
func (s *session) stopFlight() {
	if s.flight != nil {
		close(s.flight.stop)
	}
}

// endFlight waits for the dump that is being made. What drains has ended, so no other can begin.
func (s *session) endFlight() {
	if s.flight == nil {
		return
	}
	s.interruptible(func() { <-s.flight.ended })
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	s.res.Dumps = s.flight.made
}

// askDump asks for a dump and waits for it.
func (f *flight) askDump(cause string, last time.Duration) (d Dump, err error) {
	ending := errors.New("the recording is ending")
	done := make(chan Dump, 1)
	select {
	case f.asked <- DumpRequest{Cause: cause, Last: last, Done: done}:
	case <-f.stop:
		return d, ending
	}
	select {
	case d = <-done:
		return d, d.Err
	case <-f.stop:
		return d, ending
	}
}

// dump makes one.
func (s *session) dump(r DumpRequest) {
	f := s.flight
	d := Dump{Cause: r.Cause, Asked: r.Last, Dir: s.dir.Name + "." + strconv.Itoa(len(f.made)+1)}
	if d.Err = s.writeDump(&d); d.Err != nil {
		s.logf("no dump for %s: %v", d.Cause, d.Err)
	} else {
		s.logf("%s: %d events -> %s", d.Cause, d.Events, d.Dir)
	}
	f.mu.Lock()
	f.made = append(f.made, d)
	f.mu.Unlock()
	if r.Done != nil {
		r.Done <- d
	}
}

// writeDump copies what there is, and then writes it: programs do not wait for that.
func (s *session) writeDump(d *Dump) error {
	var snap *drain.Snapshot
	var loss losses
	var info trace.Info
	now := clock.Read()
	from := uint64(0)
	if d.Asked > 0 && !s.foreign() {
		from = now.Counter - min(now.Counter, uint64(d.Asked.Seconds()*float64(s.info.Clock.Hz)))
	}
	if !s.drain.Do(func() {
		snap = s.drain.Snapshot(from)
		loss = lossesOf(s.pool)
		loss.counted(s.pool)
		loss.add(snap.Counts)
		// While this runs nobody ends the recording, and writes to it.
		if info = s.info; info.Switches != nil {
			info.Switches = new(*info.Switches)
		}
		info.Clock.Pairs = append(slices.Clip(info.Clock.Pairs), pair(now))
		info.Duration = time.Since(info.Start)
	}) {
		return errors.New("the recording has ended")
	}
	if snap.Complete != 0 && s.info.Clock.Hz != 0 && snap.Newest > snap.Complete {
		d.Whole = time.Duration(float64(snap.Newest-snap.Complete) / float64(s.info.Clock.Hz) * 1e9)
	}
	dir, err := tracedir.Create(d.Dir)
	if err != nil {
		return err
	}
	if err := s.fillDump(dir, d, snap, &loss, &info); err != nil {
		dir.Rollback()
		return tracedir.PathError(err)
	}
	dir.Commit()
	d.Events = snap.Events
	return dir.Close()
}

// fillDump writes the files.
func (s *session) fillDump(
	dir *tracedir.Dir, d *Dump, snap *drain.Snapshot, loss *losses, info *trace.Info,
) error {
	size, err := snap.WriteTo(dir.Events)
	if err != nil {
		return err
	}
	loss.write(dir.Events)
	info.Dump = &trace.InfoDump{Cause: d.Cause, Asked: d.Asked, Whole: d.Whole}
	if info.Images, err = s.namedImages(); err != nil {
		return err
	}
	for _, im := range info.Images {
		if err := dir.CopyFile(s.dir, im.ID.String()+trace.SymExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if s.processes != nil {
		info.Processes = s.processes.now(snap.PIDs)
	}
	info.Totals = trace.Totals{
		Events: snap.Events, Chunks: snap.Chunks + snap.Own, Bytes: uint64(size), Processes: snap.Processes, Tasks: snap.Tasks,
	}
	info.Lost = snap.Lost + loss.lost
	if err := dir.WriteInfo(info); err != nil {
		return err
	}
	_, err = dir.Events.WriteAt(le.AppendUint32(nil, 1), format.HClosed)
	return err
}

// namedImages waits until the symbols of all images that have been seen are written, and returns these.
func (s *session) namedImages() ([]trace.Image, error) {
	s.imageMu.Lock()
	images := s.res.Images
	s.imageMu.Unlock()
	for int(s.named.Load()) < len(images) {
		select {
		case <-s.end.giveUp:
			return nil, ErrInterrupted
		case <-time.After(5 * time.Millisecond):
		}
	}
	return images, nil
}

// dumpSignal listens to the signal that asks for a dump, as perf record's.
func dumpSignal() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	return c, func() { signal.Stop(c) }
}
