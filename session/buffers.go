//go:build linux

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/limits"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// foreign tells whether the program runs on a machine whose counter is not this
// one's: it is left to the program's runtime to tell how it goes.
func (s *session) foreign() bool { return len(s.o.Emulator) > 0 }

// follows tells whether programs that traced ones execute are to be traced.
func (s *session) follows() bool {
	return CanFollow() && s.o.Follow != nil && !s.o.Profile && !s.o.NoPtrace && !s.foreign()
}

// pairClocks notes how the counter goes.
func (s *session) pairClocks() {
	if !s.foreign() {
		s.info.Clock.Pairs = append(s.info.Clock.Pairs, pair(clock.Read()))
	}
}

// tellFrequency puts the counter's frequency where runtimes and readers look, before the first runtime begins.
func (s *session) tellFrequency() {
	if s.foreign() {
		s.hz = func() float64 { return 0 }
		return
	}
	hz, first := clock.Hz(), s.info.Clock.Pairs[0]
	s.info.Clock.Hz = hz
	s.hz = sync.OnceValue(func() float64 { return frequency(hz, first) })
	if s.pool != nil {
		s.pool.Word64(format.HCounterHZ).Store(hz)
	}
	_, _ = s.dir.Events.WriteAt(le.AppendUint64(nil, hz), format.HCounterHZ)
}

// copyFrequency puts the counter's frequency, which a runtime on a foreign machine
// has written to the pool's header, where the readers of the file look.
func (s *session) copyFrequency() {
	if !s.foreign() || s.pool == nil {
		return
	}
	if hz := s.pool.Word64(format.HCounterHZ).Load(); hz != 0 {
		_, _ = s.dir.Events.WriteAt(le.AppendUint64(nil, hz), format.HCounterHZ)
	}
}

// bufferSize is how large the pool is to be: as the user asked for, unless memory is
// limited, or the size of files, of which the pool is one. Programs use all of it in turn,
// and whoever reaches the limit of a control group is killed. What a process writes to first
// counts for its own group, not the recorder's.
func (s *session) bufferSize() int64 {
	root := os.DirFS("/")
	size, by := s.o.Buffer, limits.Limit{}
	use := func(l limits.Limit, part int64) {
		if l.Bytes/part < size {
			size, by = l.Bytes/part, l
		}
	}
	use(limits.Memory(root), 4)
	if s.o.Attach != nil {
		for _, pid := range s.o.Attach.PIDs {
			use(limits.Room(root, pid), 4)
		}
	}
	use(limits.AddressSpace(root), 4)
	use(limits.FileSize(), 2)
	if by.From == "" {
		return size
	}
	s.logf("limited to %d KiB by %s: the buffer has %d KiB, not %d", by.Bytes>>10, by.From, size>>10, s.o.Buffer>>10)
	return size
}

// tablesHeader is the size of the header of a file that runtimes write to, in bytes: a page, and the table of id ranges,
// which has room for more images than a process can have tables of.
const tablesHeader = format.HeaderSize + 8<<10

// buffers makes what the program's runtime writes to and returns its path.
func (s *session) buffers() (string, error) {
	var head [format.HeaderSize]byte
	now, hz := clock.Read(), uint64(0) // the frequency is not known yet
	if s.foreign() {
		now.Counter = 0
	}
	s.pairClocks()
	if s.o.Profile {
		// The runtime writes the file itself. The table of id ranges is written, too, so that it has its blocks.
		head := make([]byte, tablesHeader)
		pool.PutHeader(head, 0, len(head), s.o.Policy, trace.LayoutSlots, 0, now, hz)
		le.PutUint32(head[format.HChunkSize:], uint32(s.chunkSize()))
		le.PutUint32(head[format.HRanges:], format.HeaderSize)
		le.PutUint32(head[format.HRangesRoom:], (tablesHeader-format.HeaderSize)/format.RangeEntry)
		if _, err := s.dir.Events.WriteAt(head, 0); err != nil {
			return "", tracedir.PathError(err)
		}
		path := filepath.Join(s.dir.Path, trace.EventsFile)
		var st unix.Stat_t
		if err := unix.Fstat(int(s.dir.Events.Fd()), &st); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		s.shared = procfs.SharedFile{Inode: st.Ino, Path: path}
		s.live = drain.NewLiveness(s.shared)
		if s.o.Library != nil && !s.foreign() {
			s.later = s.newLater(s.shared)
			if err := s.later.serve(s.dir.Events); err != nil {
				s.logf("libraries that are loaded later are not traced: %v", err)
			}
		}
		return path, nil
	}
	var err error
	if s.pool, err = pool.New(s.bufferSize(), s.o.Policy, now, hz); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.pool.FD, &st); err != nil {
		return "", err
	}
	shared := procfs.SharedFile{Inode: st.Ino, Path: "/memfd:" + pool.Name + " (deleted)"}
	s.shared, s.live = shared, drain.NewLiveness(shared)
	if !s.foreign() { // else processes are the emulator's, and so are their arguments
		s.processes = newProcesses()
		s.live.OnProcess = s.saw
	}
	if s.o.Attach != nil {
		s.attached = &attached{shared: shared}
		s.attached.loads = loadings{
			shared: shared, host: s.live.Asks, work: s.loaded, logf: s.logf, under: make(map[int]*loading),
		}
	}
	s.exes = newExes(shared, s.live.Asks, s.saw)
	if s.o.Library != nil {
		s.later = s.newLater(shared)
	}
	if s.follows() {
		s.follow = &follower{
			o: s.o.Follow, shared: shared, pool: s.pool.FD, asks: s.live.Asks, join: s.live.Join, logf: s.logf,
			library: s.giveLibrary(), onlySwaps: s.o.OnlySwaps,
			reaped: func(pid int, status syscall.WaitStatus) {
				if st := s.started.Load(); st != nil { // else a process that is attached to executes it already
					st.Reaped(pid, status)
				}
			},
		}
		if s.o.Follow.Loader != "" {
			go s.follow.hooks.Ahead(s.o.Follow.Loader)
		}
	}
	s.serve = drain.NewServer(s.pool, s.request)
	pool.PutHeader(head[:], 0, format.HeaderSize, s.o.Policy, trace.LayoutPacked, os.Getpid(), now, hz)
	list, err := s.dir.CreateChunks()
	if err != nil {
		s.pool.Close()
		return "", err
	}
	w := drain.NewFile(s.dir.Events, list)
	if err := w.Header(head[:]); err != nil {
		list.Close()
		s.pool.Close()
		return "", err
	}
	s.drain = drain.New(s.pool, w, s.o.Policy, s.live)
	s.drain.OnImage = s.sawImage
	if s.processes != nil {
		s.drain.Looked = s.processes.look
	}
	s.adapt(now)
	if err := s.compress(); err != nil {
		s.pool.Close()
		return "", err
	}
	s.drain.OnWriteError = func(err error) {
		s.logf("%v: tracing stopped; what was recorded before is kept", err)
	}
	return s.pool.Path(), nil
}

// chunkSize is the chunk size of a file that the runtime writes itself.
func (s *session) chunkSize() int {
	if s.o.ChunkSize > 0 {
		return s.o.ChunkSize
	}
	return format.ChunkSize
}

// release waits for what programs that run find without being told.
func (s *session) release() {
	if s.pool != nil {
		s.pool.WaitKnown()
	}
}

// ready tells the runtime, and readers of the trace, who the first process is.
func (s *session) ready(pid int) {
	start := s.live.Start(pid)
	s.processes.saw(pid, pid)
	s.followSwitches(pid)
	s.followSamples(pid)
	if s.pool != nil {
		s.pool.Word64(format.HLeaderStart).Store(start)
		s.pool.Word(format.HLeader).Store(uint32(pid))
	}
	b := le.AppendUint32(nil, uint32(pid))
	b = le.AppendUint64(b, start)
	// What depends on it has other ways to know.
	_, _ = s.dir.Events.WriteAt(b, format.HLeader)
}
