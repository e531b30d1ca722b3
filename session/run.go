//go:build linux

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// session is one run.
type session struct {
	o     Options
	dir   *traceDir
	pool  *pool // nil in profile mode
	drain *drainer
	live  *liveness
	in    inherited
	info  trace.Info

	logMu sync.Mutex

	workers  sync.WaitGroup // drain and heartbeat
	stopBeat chan struct{}

	imageMu sync.Mutex
	imageOn *sync.Cond // a new one, or no more
	images  map[trace.ImageID]bool
	queue   []Image
	noMore  bool

	res Result
}

// Run runs a program and returns when the session is over: the program and all
// traced processes it left have ended, or it was ended by a second SIGINT or
// SIGTERM, or by ctx. Ending a session never ends a program.
//
// While it runs, Run takes SIGINT, SIGQUIT, SIGTERM, SIGHUP and SIGXFSZ of the
// whole process. There can be only one session at a time in a process.
//
// An error means that the program did not run; it wraps [ErrNotFound],
// [ErrNotExecutable] or [ErrRecording] where that is why. What goes wrong later is in the result.
func Run(ctx context.Context, o Options) (Result, error) {
	s := &session{o: o, images: make(map[trace.ImageID]bool)}
	s.imageOn = sync.NewCond(&s.imageMu)
	return s.run(ctx)
}

func (s *session) logf(format string, args ...any) {
	if s.o.Logf == nil {
		return
	}
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.o.Logf(format, args...)
}

func (s *session) run(ctx context.Context) (Result, error) {
	if len(s.o.Args) == 0 {
		s.o.Args = []string{s.o.Path}
	}
	if s.o.Env == nil {
		s.o.Env = inheritedEnviron()
	}
	if s.o.Buffer == 0 {
		s.o.Buffer = DefaultBuffer
	}
	s.in = readInherited()
	s.in.ignore()
	var err error
	emulator := ""
	if len(s.o.Emulator) > 0 {
		if emulator, err = LookPath(s.o.Emulator[0]); err != nil {
			return s.res, err
		}
	}
	if s.dir, err = createDir(s.o.Dir); err != nil {
		return s.res, err
	}
	path, err := s.buffers()
	if err != nil {
		s.dir.rollback()
		return s.res, err
	}
	if s.pool != nil {
		defer s.pool.close()
	}
	var mem *Memory
	if s.o.Prepare != nil {
		if mem, err = s.o.Prepare(path); err == nil && mem != nil {
			err = mem.check()
		}
		if err != nil {
			s.dir.rollback()
			return s.res, err
		}
	}
	signals, unwatch := watch(s.in)
	defer unwatch()

	s.beginInfo()
	began := time.Now()
	l := launcher{o: &s.o, emulator: emulator, args: s.o.Args, env: s.o.Env, in: s.in, mem: mem, pool: path, log: s.logf, ready: s.ready}
	st, err := l.launch()
	if err != nil {
		s.dir.rollback()
		return s.res, err
	}
	if st.copy != nil {
		defer st.copy.remove()
	}
	s.work()
	// Removing a large older trace takes its time.
	var late sync.WaitGroup
	late.Go(s.dir.commit)
	s.res.Started, s.res.Injected, s.res.Copied, s.res.Setup = true, st.injected, st.copied, st.setup
	s.info.PID = st.pid
	// A second pair, in case there will be no end: two give a frequency.
	s.pairClocks()
	if err := s.dir.writeInfo(&s.info); err != nil {
		s.logf("%v", err)
	}

	var symbols sync.WaitGroup
	symbols.Go(s.symbols)

	s.wait(ctx, st, began, signals)

	s.rest()
	s.finish()
	s.imageMu.Lock()
	s.noMore = true
	s.imageOn.Signal()
	s.imageMu.Unlock()
	symbols.Wait()
	late.Wait()
	s.endInfo()
	return s.res, nil
}

// foreign tells whether the program runs on a machine whose counter is not this
// one's: it is left to the program's runtime to tell how it goes.
func (s *session) foreign() bool { return len(s.o.Emulator) > 0 }

// pairClocks notes how the counter goes.
func (s *session) pairClocks() {
	if !s.foreign() {
		s.info.Clock.Pairs = append(s.info.Clock.Pairs, readClocks().pair())
	}
}

// copyFrequency puts the counter's frequency, which a runtime on a foreign machine
// has written to the pool's header, where the readers of the file look.
func (s *session) copyFrequency() {
	if !s.foreign() || s.pool == nil {
		return
	}
	if hz := s.pool.word64(format.HCounterHZ).Load(); hz != 0 {
		_, _ = s.dir.events.WriteAt(le.AppendUint64(nil, hz), format.HCounterHZ)
	}
}

// buffers makes what the program's runtime writes to and returns its path.
func (s *session) buffers() (string, error) {
	var head [format.HeaderSize]byte
	now, hz := readClocks(), uint64(0)
	if s.foreign() {
		now.counter = 0
	} else {
		hz = counterHz()
	}
	s.info.Clock.Hz = hz
	s.pairClocks()
	if s.o.Profile {
		// The runtime writes the file itself.
		putHeader(head[:], 0, format.HeaderSize, s.o.Policy, trace.LayoutSlots, 0, now, hz)
		if _, err := s.dir.events.WriteAt(head[:], 0); err != nil {
			return "", pathError(err)
		}
		path := filepath.Join(s.dir.path, trace.EventsFile)
		var st unix.Stat_t
		if err := unix.Fstat(int(s.dir.events.Fd()), &st); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		s.live = newLiveness(sharedFile{st.Ino, path})
		return path, nil
	}
	var err error
	if s.pool, err = newPool(s.o.Buffer, s.o.Policy, now, hz); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.pool.fd, &st); err != nil {
		return "", err
	}
	s.live = newLiveness(sharedFile{st.Ino, "/memfd:" + poolName + " (deleted)"})
	putHeader(head[:], 0, format.HeaderSize, s.o.Policy, trace.LayoutPacked, os.Getpid(), now, hz)
	w := &eventsFile{f: s.dir.events}
	if _, err := w.write([][]byte{head[:]}); err != nil {
		s.pool.close()
		return "", err
	}
	s.drain = newDrainer(s.pool, w, s.o.Policy, s.live)
	s.drain.onImage = s.sawImage
	s.drain.onWriteError = func(err error) {
		s.logf("%v: tracing stopped; what was recorded before is kept", err)
	}
	return s.pool.path(), nil
}

// ready tells the runtime, and readers of the trace, who the first process is.
func (s *session) ready(pid int) {
	start := s.live.start(pid)
	if s.pool != nil {
		s.pool.word64(format.HLeaderStart).Store(start)
		s.pool.word(format.HLeader).Store(uint32(pid))
	}
	b := le.AppendUint32(nil, uint32(pid))
	b = le.AppendUint64(b, start)
	// What depends on it has other ways to know.
	_, _ = s.dir.events.WriteAt(b, format.HLeader)
}

// work starts what runs beside the program.
func (s *session) work() {
	if s.pool == nil {
		return
	}
	s.stopBeat = make(chan struct{})
	s.drain.stop.Store(false)
	s.workers.Go(s.drain.run)
	stop := s.stopBeat
	s.workers.Go(func() { s.beat(stop) })
}

// rest stops it; afterwards nobody else uses the pool.
func (s *session) rest() {
	if s.stopBeat == nil {
		return
	}
	close(s.stopBeat)
	s.stopBeat = nil
	s.drain.finish()
	s.workers.Wait()
}

// over tells, when the program has ended, whether no traced process is left.
func (s *session) over() bool {
	if s.live.left() {
		return false
	}
	if s.pool == nil {
		return !s.live.mappedNow()
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
	alone, err := s.pool.abandoned()
	if err != nil {
		if s.pool.mem == nil {
			// Without the pool there is nothing left to do.
			s.drain.w.fail(err, nil, 0)
			return true
		}
		return !s.live.mappedNow()
	}
	return alone
}

// beat tells the runtimes that somebody drains.
func (s *session) beat(stop <-chan struct{}) {
	tick := time.NewTicker(idleWait)
	defer tick.Stop()
	for {
		s.pool.word(format.HHeartbeat).Add(1)
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// wait returns when the session is over.
func (s *session) wait(ctx context.Context, st started, began time.Time, signals <-chan os.Signal) {
	exited := make(chan syscall.WaitStatus, 1)
	if st.ended {
		exited <- st.status
	} else {
		go func() { exited <- waitFor(st.pid) }()
	}
	var intr interrupts
	var poll <-chan time.Time
	interval, told := time.Millisecond, false
	for {
		select {
		case status := <-exited:
			s.res.Status, s.res.Ended = status, true
			s.res.Duration = time.Since(began)
			intr.leaderGone = true
			poll = time.After(0)
		case <-poll:
			if s.over() {
				return
			}
			if interval > 100*time.Millisecond && !told {
				told = true
				s.logf("the program has ended, traced processes that it left behind are still running; ^C ends the recording")
			}
			interval = min(2*interval, 250*time.Millisecond)
			poll = time.After(interval)
		case sig := <-signals:
			num := sig.(syscall.Signal)
			forward, end := intr.got(num, num == syscall.SIGHUP && inForeground())
			if forward {
				syscall.Kill(st.pid, num)
			}
			if end {
				if !s.res.Ended {
					s.res.Signal = num
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// waitFor waits for the program to end.
func waitFor(pid int) syscall.WaitStatus {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			return ws
		}
	}
}
