//go:build linux

package session

import (
	"errors"
	"fmt"
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
	// Keep tells, when the program has ended, whether what there is then is to be kept. nil: it is. Of several processes that
	// are attached to it is enough if one ended so, and if the kernel does not say how one did.
	Keep func(status syscall.WaitStatus) bool
}

// conditional tells whether it depends on how the program ends that what there is then is kept.
func (s *session) conditional() bool { return s.keep() != nil }

// keep is Flight.Keep.
func (s *session) keep() func(syscall.WaitStatus) bool {
	if s.o.Flight == nil {
		return nil
	}
	return s.o.Flight.Keep
}

// A DumpRequest asks for a dump.
type DumpRequest struct {
	Cause string        // for people
	Last  time.Duration // what is to be in it, up to now; 0: all that there is
	Done  chan<- Dump   // gets the answer, and needs room for it; nil: nobody waits

	copied chan<- struct{} // closed when what is to be in it is copied, or will not be; nil: nobody waits
	call   uint32          // id, in the trace, of the function whose call asked; 0: none did
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
	calls chan DumpRequest // by calls: one can be waiting, while another is made
	last  time.Time        // when a call asked that was heard
	more  uint64           // calls that asked soon after another, and were not
	stop  chan struct{}
	ended chan struct{}
}

// newFlight makes what a session needs to be a flight recorder, if it is to be one.
func newFlight(o *Flight) *flight {
	if o == nil {
		return nil
	}
	return &flight{asked: make(chan DumpRequest), calls: make(chan DumpRequest, 1), stop: make(chan struct{}), ended: make(chan struct{})}
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
			case r := <-f.calls:
				s.dump(r)
			case <-signals:
				s.dump(DumpRequest{Cause: "SIGUSR2"})
			case <-f.stop:
				select {
				case r := <-f.calls: // it is made, or it is said that it is not
					s.dump(r)
				default:
				}
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
	if n := s.flight.more; n > 0 {
		s.logf("%d more dumps were asked for by calls within %v of another, or while one waited", n, dumpInterval)
	}
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
	release := sync.OnceFunc(func() {
		if r.copied != nil {
			close(r.copied)
		}
	})
	defer release()
	if d.Err = s.writeDump(&d, r.call, release); d.Err != nil {
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

// writeDump copies what there is, calls copied, and then writes it: programs do not wait for that. call is the function
// whose call asked, if one did.
func (s *session) writeDump(d *Dump, call uint32, copied func()) error {
	var snap *drain.Snapshot
	var loss losses
	var info trace.Info
	hz := s.hz()
	now := clock.Read()
	from := uint64(0)
	if d.Asked > 0 && hz != 0 {
		from = now.Counter - min(now.Counter, uint64(d.Asked.Seconds()*hz))
	}
	if !s.drain.Do(func() {
		snap, loss = s.snapshot(from)
		// While this runs nobody ends the recording, and writes to it.
		if info = s.info; info.Switches != nil {
			info.Switches = new(*info.Switches)
		}
		info.Clock.Pairs = append(slices.Clip(info.Clock.Pairs), pair(now))
		info.Duration = time.Since(info.Start)
	}) {
		return errors.New("the recording has ended")
	}
	copied()
	if snap.Complete != 0 && hz != 0 && snap.Newest > snap.Complete {
		d.Whole = time.Duration(float64(snap.Newest-snap.Complete) / hz * 1e9)
	}
	dir, err := tracedir.Create(d.Dir)
	if err != nil {
		return err
	}
	info.Dump = &trace.InfoDump{Asked: d.Asked, Whole: d.Whole}
	if err := s.fillDump(dir, d, call, snap, &loss, &info); err != nil {
		dir.Rollback()
		return tracedir.PathError(err)
	}
	dir.Commit()
	d.Events = snap.Events
	return dir.Close()
}

// snapshot copies what there is since a counter, and says what is missing in it. It is to be called by drain's Do.
func (s *session) snapshot(from uint64) (*drain.Snapshot, losses) {
	snap := s.drain.Snapshot(from)
	loss := lossesOf(s.pool)
	loss.counted(s.pool)
	loss.add(snap.Counts)
	return snap, loss
}

// fillDump writes the files.
func (s *session) fillDump(
	dir *tracedir.Dir, d *Dump, call uint32, snap *drain.Snapshot, loss *losses, info *trace.Info,
) error {
	size, err := snap.WriteTo(dir.Events)
	if err != nil {
		return err
	}
	loss.write(dir.Events)
	if info.Images, err = s.namedImages(); err != nil {
		return err
	}
	for _, im := range info.Images {
		if err := dir.CopyFile(s.dir, im.ID.String()+trace.SymExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if call != 0 {
		d.Cause = s.nameOf(call)
	}
	info.Dump.Cause = d.Cause
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

// Calls ask for dumps (triggers with snapshot), and their threads wait until what they did is copied, so that it is in
// the dump: a program at full speed uses the buffer again in milliseconds. A function can ask any number of times, so a
// dump that was asked for by calls is made once a dumpInterval at most. What is asked for is a program's word: it costs
// no more than that. While another dump is made, a thread does not wait until its own is, but that is made.
const (
	dumpInterval = time.Second
	copyPatience = 80 * time.Millisecond // less than programs wait for an answer
)

// atCall answers a program that asks for a dump at a call: Later says that none will be made for it.
func (f *flight) atCall(r *drain.Request) uint32 {
	if f == nil {
		return drain.Unsupported
	}
	copied := make(chan struct{})
	if !f.hear(DumpRequest{Cause: "a call", call: uint32(r.Argument), copied: copied}) {
		return drain.Later
	}
	select {
	case <-copied:
	case <-time.After(copyPatience):
	case <-f.stop:
	}
	return drain.Done
}

// hear takes a call's request, unless there was another a short time ago, or one that waits.
func (f *flight) hear(r DumpRequest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.IsZero() || time.Since(f.last) >= dumpInterval {
		select {
		case f.calls <- r:
			f.last = time.Now()
			return true
		default:
		}
	}
	f.more++
	return false
}

// nameOf is the name of a function by its id in events, for people.
func (s *session) nameOf(id uint32) string {
	if image, local, ok := s.pool.FunctionOf(id); ok {
		if name := trace.FunctionName(s.dir.Path, image, local); name != "" {
			return "a call of " + name
		}
	}
	return fmt.Sprintf("a call of function %d", id)
}

// dumpSignal listens to the signal that asks for a dump, as perf record's.
func dumpSignal() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	return c, func() { signal.Stop(c) }
}
