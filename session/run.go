//go:build linux

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/samples"
	"github.com/fentry-dev/fentry/session/internal/switches"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/session/internal/tracee"
	"github.com/fentry-dev/fentry/trace"
)

// session is one run.
type session struct {
	atEnd func() // Live.AtEnd; with setting.mu

	o      Options
	dir    *tracedir.Dir
	pool   *pool.Pool // nil in profile mode
	drain  *drain.Drainer
	serve  *drain.Server
	exes   *exes     // nil: none are opened
	later  *later    // nil: no libraries are to be traced
	follow *follower // nil: executed programs are left alone

	control  control
	setting  setting
	injected *patch.Memory     // what was put into the program; nil: nothing
	shared   procfs.SharedFile // what traced processes map
	attached *attached         // nil: a program was started
	started  atomic.Pointer[launch.Started]
	door     door

	processes *processes                        // nil: nobody looks after them
	switches  atomic.Pointer[switches.Recorder] // nil: none are recorded
	samples   *samples.Recorder                 // nil: none are taken
	sampled   bool                              // and it has ended
	own       uint64                            // chunks in the trace that are no program's
	live      *drain.Liveness
	in        launch.Inherited
	info      trace.Info
	hz        func() float64 // the counter's frequency, measured if the machine does not say it; 0: it is another machine's

	log logger

	workers  sync.WaitGroup // drain and heartbeat
	stopBeat chan struct{}

	libraryMu sync.Mutex // held while Options.Library is called

	symbolMu sync.Mutex // held while Options.Symbols is called

	imageMu sync.Mutex
	imageOn *sync.Cond                    // a new one, or no more
	images  map[trace.ImageID]trace.Image // that have announced themselves
	queue   []Image
	noMore  bool
	named   atomic.Int64 // images whose symbols are written, or have none

	flight *flight // nil: it is none
	keeper keeper

	end     ending
	partial bool // what should be in the trace has been given up, and may still be at work

	res Result
}

// Run runs a program and returns when the session is over: when the program and all traced processes that it left
// behind have ended, or at a second SIGINT or SIGTERM, or when ctx is done. Ending a session never ends a program.
// Further signals leave out first symbols, then whatever the session still waits for ([ErrInterrupted]).
//
// While it runs, Run handles SIGINT, SIGQUIT, SIGTERM, SIGHUP and SIGXFSZ for the whole process. A process can have
// only one session at a time.
//
// An error means that the program did not run; it wraps [ErrNotFound], [ErrNotExecutable] or [ErrRecording] if that
// is the reason. Later errors are in the result.
func Run(ctx context.Context, o Options) (Result, error) {
	s := &session{o: o, images: make(map[trace.ImageID]trace.Image), log: logger{print: o.Logf}}
	s.setting.again, s.setting.limits = make(chan struct{}, 1), make(map[processID]limited)
	s.setting.told = make(map[processID]told)
	s.setting.without = make(map[processID]string)
	s.imageOn = sync.NewCond(&s.imageMu)
	s.end.giveUp, s.end.relay = make(chan struct{}), make(chan os.Signal, 16)
	res, err := s.run(ctx)
	if !errors.Is(err, ErrInterrupted) && !errors.Is(res.WriteError, ErrInterrupted) {
		s.log.close() // else it may be what the session waits for
	}
	return res, err
}

func (s *session) logf(format string, args ...any) { s.log.logf(format, args...) }

// defaults fills in the options that were left out.
func (s *session) defaults() error {
	if len(s.o.Args) == 0 {
		s.o.Args = []string{s.o.Path}
	}
	if s.o.Env == nil {
		s.o.Env = launch.Environ()
	}
	if s.o.Buffer == 0 {
		s.o.Buffer = DefaultBuffer
	}
	if s.o.Flight != nil && (s.o.Policy != trace.PolicyOverwrite || s.o.Profile) {
		return errors.New("a flight recorder keeps the newest events: it needs PolicyOverwrite, and a tracer of events")
	}
	if s.o.WorkDir != "" && !filepath.IsAbs(s.o.Path) {
		return fmt.Errorf("%s: a relative path to be run in %s", s.o.Path, s.o.WorkDir)
	}
	return nil
}

// launcher starts the program with its plan; pool is where its runtime finds the pool.
func (s *session) launcher(pool, emulator string) (*launch.Launcher, error) {
	l := &launch.Launcher{
		Path: s.o.Path, Args: s.o.Args, Env: s.o.Env, Dir: s.o.WorkDir, Files: s.o.Files, File: s.o.File,
		Inherited: s.in, NoPtrace: s.o.NoPtrace, Emulator: s.o.Emulator, EmulatorPath: emulator,
		Logf: s.logf, Ready: s.ready, Release: s.release, Pool: pool, Observed: s.o.SampleEvery > 0,
	}
	if s.o.PatchedCopy != nil {
		l.Copy = func(f *os.File) error { return s.o.PatchedCopy(pool, f) }
	}
	if !s.o.NoLoader {
		l.Library = s.giveLibrary()
	}
	if s.follow != nil {
		l.Other = func(pid int) *patch.Memory { return s.follow.plan(pid, s.o.Path) }
		l.Again = true
	}
	if s.o.Prepare == nil {
		return l, nil
	}
	var err error
	if l.Memory, err = s.o.Prepare(pool); err == nil && l.Memory != nil {
		return l, tracee.Check(l.Memory)
	}
	l.Copy = nil // nothing is planned
	return l, err
}

func (s *session) run(ctx context.Context) (Result, error) {
	err := s.defaults()
	if err != nil {
		return s.res, err
	}
	s.in = launch.ReadInherited()
	s.in.Ignore()
	emulator := ""
	if len(s.o.Emulator) > 0 {
		if emulator, err = launch.LookPath(s.o.Emulator[0]); err != nil {
			return s.res, err
		}
	}
	if s.dir, err = tracedir.Create(s.o.Dir); err != nil {
		return s.res, err
	}
	path, err := s.buffers()
	if err != nil {
		s.dir.Rollback()
		return s.res, err
	}
	l, err := s.launcher(path, emulator)
	if err != nil {
		s.dir.Rollback()
		s.close()
		return s.res, err
	}
	signals, unwatch := watch(s.in, s.o.Attach != nil)
	defer unwatch()

	s.beginInfo()
	s.tellFrequency()
	s.openDoor()
	s.flight = newFlight(s.o.Flight)
	began := time.Now()
	st, err := s.begin(ctx, l, signals)
	if err == nil {
		if st.Injected && s.attached == nil {
			s.injected = l.Memory
		}
		s.started.Store(&st)
		s.openControl(s.pids(&st))
	}
	if err != nil {
		s.closeDoor()
		s.dir.Rollback()
		if !errors.Is(err, ErrInterrupted) {
			s.close()
		}
		return s.res, err
	}
	s.res.Started, s.res.Injected, s.res.Copied, s.res.Setup = true, st.Injected, st.Copied, st.Setup
	s.res.Way = st.Way
	if s.o.Live != nil && s.pool != nil {
		s.o.Live(&Live{s})
	}
	left := s.res
	planned := l.Memory != nil || l.Copy != nil || s.attached != nil
	if sig := s.forced(signals, func() { s.record(ctx, st, began, planned) }); sig != 0 {
		s.keeper.stop()
		left.Signal, left.Dir, left.WriteError = sig, s.dir.Name, ErrInterrupted
		return left, nil
	}
	return s.res, nil
}

// begin starts the program, or attaches to those that run.
func (s *session) begin(ctx context.Context, l *launch.Launcher, signals <-chan os.Signal) (launch.Started, error) {
	if s.attached == nil {
		return s.launch(l, signals)
	}
	s.release()
	s.work() // those that are attached to run on, and ask
	st, err := s.attach(func() bool { return ctx.Err() != nil || len(signals) > 0 })
	if s.o.Attach.Attached != nil {
		s.o.Attach.Attached()
	}
	if err != nil {
		s.rest()
	}
	return st, err
}

// close gives back what the session has, but for its directory.
func (s *session) close() {
	s.later.end()
	if s.pool == nil {
		return
	}
	s.stopSwitches()
	s.stopSamples()
	s.processes.close()
	s.exes.close()
	s.drain.Close()
	s.pool.Close()
}

// record does what is done while the program runs, and afterwards.
func (s *session) record(ctx context.Context, st launch.Started, began time.Time, planned bool) {
	defer s.close()
	defer st.Close()
	if s.attached == nil {
		if err := launch.TellManager(s.o.Env, st.PID); err != nil {
			s.logf("%v", err)
		}
	}
	s.work()
	index := s.index()
	if s.processes != nil {
		go s.processes.watch()
		go s.processes.watchTitles()
		go s.processes.watchTasks()
	}
	// Removing a large older trace takes its time.
	var late sync.WaitGroup
	kept := planned && !s.conditional()
	if kept {
		late.Go(s.dir.Commit)
	}
	s.info.PID = st.PID
	// A second pair, in case there will be no end: two give a frequency.
	s.pairClocks()
	if err := s.dir.WriteInfo(&s.info); err != nil {
		s.logf("%v", err)
	}
	late.Go(s.symbols)
	s.startFlight()
	s.startKeeper()

	limit, usual := s.timeLimit()
	defer usual()
	s.wait(ctx, st, began, limit)
	if s.o.Hurry {
		defer osthread.Hurry()()
	}
	s.lookLast()
	s.end.winding.Store(true)
	s.follow.end()
	s.closeDoor()
	s.stopFlight()
	s.closeControl() // nobody switches what is being taken out
	s.interruptible(s.detach)
	s.interruptible(s.follow.wait)

	s.rest()
	s.finish()
	s.tellEnd()
	s.endFlight()
	index.end()
	if s.processes != nil {
		s.info.Processes = s.processes.end(s.drain.PIDs(), st.PID, s.res.Status, s.res.Ended && s.attached == nil)
		s.info.Tasks = s.processes.named()
	}
	s.imageMu.Lock()
	s.noMore = true
	s.imageOn.Signal()
	s.imageMu.Unlock()
	if s.partial = !s.interruptible(late.Wait); s.partial {
		s.logf("interrupted: symbols of the traced programs are left out")
	}
	s.interruptible(index.wait)
	s.keeper.stop() // it holds the lock of the trace, too
	s.res.Empty = !planned && s.nothing()
	s.res.Unwanted = !s.res.Empty && s.conditional() && s.res.Ended && !s.o.Flight.Keep(s.res.Status)
	if s.res.Empty || s.res.Unwanted {
		s.dir.Rollback()
		return
	}
	if !kept {
		s.dir.Commit() // a program that it started was traced, or it is to be kept after all
	}
	s.endInfo()
}

// lookLast lets whoever looks at a recording come for the last of it.
func (s *session) lookLast() {
	s.setting.mu.Lock()
	do := s.atEnd
	s.setting.mu.Unlock()
	if do == nil || s.pool == nil || s.pool.Mem == nil {
		return
	}
	s.work() // it was stopped to see whether anybody was left
	s.interruptible(do)
}

// work starts what runs beside the program.
func (s *session) work() {
	if s.pool == nil || s.stopBeat != nil {
		return
	}
	s.stopBeat = make(chan struct{})
	s.workers.Go(s.drain.Run)
	s.workers.Go(s.serve.Run)
	stop := s.stopBeat
	s.workers.Go(func() { s.beat(stop) })
	if s.processes != nil {
		s.workers.Go(func() { s.findProcesses(stop) })
	}
}

// rest stops it; afterwards nobody else uses the pool.
func (s *session) rest() {
	if s.stopBeat == nil {
		return
	}
	close(s.stopBeat)
	s.stopBeat = nil
	s.drain.Stop()
	s.serve.Stop()
	s.workers.Wait()
}

// over tells, when the program has ended, whether no traced process is left.
func (s *session) over() bool {
	begun, busy := s.follow.state()
	if busy || s.live.Left() {
		return false
	}
	if now, busy := s.follow.state(); busy || now != begun {
		return false // what was looked at may have been between two programs
	}
	if s.pool == nil {
		return !s.live.MappedNow()
	}
	s.rest()
	if s.deserted() {
		return true
	}
	s.work()
	return false
}

// deserted tells whether no process uses the pool. Nothing else may do so now.
func (s *session) deserted() bool {
	alone, err := s.pool.Abandoned()
	if err != nil {
		if s.pool.Mem == nil {
			// Without the pool there is nothing left to do.
			s.drain.Fail(err)
			return true
		}
		return !s.live.MappedNow()
	}
	return alone
}

// beat tells the runtimes that somebody drains.
func (s *session) beat(stop <-chan struct{}) {
	tick := time.NewTicker(drain.IdleWait)
	defer tick.Stop()
	for {
		s.pool.Word(format.HHeartbeat).Add(1)
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// timeLimit is when the session is over in any case; nil: never. end is for when nobody waits for that any more.
func (s *session) timeLimit() (over <-chan struct{}, end func()) {
	switch {
	case s.o.For <= 0:
		return nil, func() {}
	case s.o.Hurry:
		return osthread.HurryIn(s.o.For)
	}
	c := make(chan struct{})
	t := time.AfterFunc(s.o.For, func() { close(c) })
	return c, func() { t.Stop() }
}

// wait returns when the session is over: at limit at the latest.
func (s *session) wait(ctx context.Context, st launch.Started, began time.Time, limit <-chan struct{}) {
	type end struct {
		status syscall.WaitStatus
		known  bool // else it is not this process's to know
	}
	exited := make(chan end, 1)
	switch {
	case st.Ended:
		exited <- end{st.Status, true}
	case s.attached != nil:
		stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			stop = -1 // it waits for the processes' end then
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			status, known := s.attached.wait(s.keep(), stop)
			exited <- end{status, known}
		}()
		if stop >= 0 {
			defer func() {
				_, _ = unix.Write(stop, le.AppendUint64(nil, 1))
				<-over
				unix.Close(stop)
			}()
		}
	default:
		go func() { exited <- end{st.Wait(), true} }()
	}
	intr := interrupts{attached: s.attached != nil}
	var poll <-chan time.Time
	interval, told := time.Millisecond, false
	for {
		select {
		case e := <-exited:
			s.res.Status, s.res.Ended = e.status, e.known
			s.res.Duration = time.Since(began)
			intr.leaderGone = true
			poll = time.After(0)
		case <-poll:
			if s.over() {
				return
			}
			if interval > 100*time.Millisecond && !told {
				told = true
				s.logf("the program has ended; traced processes that it left behind are still running; ^C ends the recording")
			}
			interval = min(2*interval, 250*time.Millisecond)
			poll = time.After(interval)
		case sig := <-s.end.relay:
			num := sig.(syscall.Signal)
			forward, end := intr.got(num, num == syscall.SIGHUP && inForeground())
			if forward {
				syscall.Kill(st.PID, num)
			}
			if end {
				if !s.res.Ended {
					s.res.Signal = num
				}
				return
			}
		case <-limit:
			return
		case <-s.control.detach:
			return
		case <-ctx.Done():
			return
		}
	}
}
