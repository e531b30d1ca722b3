//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// What is in the buffer is not in the trace yet, and the buffer is memory: if the recorder is killed, the program may map it
// for a while, but nobody writes it any more, and when the program ends it is gone. So another process has it open: the
// keeper, which does nothing but wait for the end of the recorder. If that was killed, the keeper writes what is left, and
// tells programs that the recording is over, so that none waits for room.
//
// It does not map the buffer before, so that the kernel goes on to tell the recorder when no program does. It is in a
// session of its own, where neither ^C nor a signal to the recorder's process group reaches it. A recording that ends soon
// has none: a process is not for nothing.
//
// Considered and rejected: a buffer in a file, which survives everybody, but without the seals that keep programs from
// truncating it, and with memory that nobody frees; programs that write their chunks themselves, which notice only when they
// need room, and write where nothing says that they may.

// KeeperName is the argument vector's first word of a process that has to call [Keep], see [Options].Keeper.
const KeeperName = "fentry-keeper"

// Descriptors of a keeper.
const (
	keeperPool = 3 + iota
	keeperEvents
	keeperDir
	keeperEnd
	keeperFiles
)

// keeperAfter is when a recording is worth a keeper.
const keeperAfter = 100 * time.Millisecond

// keeper is a session's.
type keeper struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
	cmd   *exec.Cmd
	end   *os.File // which the keeper sees the end of
}

// startKeeper has one start soon.
func (s *session) startKeeper() {
	if s.o.Keeper == "" || s.pool == nil || s.foreign() {
		return
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.keeper.timer = time.AfterFunc(keeperAfter, func() {
		s.keeper.mu.Lock()
		defer s.keeper.mu.Unlock()
		if s.keeper.over {
			return
		}
		if err := s.keeper.start(s); err != nil {
			s.logf("if fentry is killed, what is in the buffer is lost: %v", err)
		}
	})
}

// start starts it.
func (k *keeper) start(s *session) error {
	dir, err := s.dir.File()
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.FcntlInt(uintptr(s.pool.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	memory := os.NewFile(uintptr(fd), pool.Name)
	defer memory.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := &exec.Cmd{
		Path: s.o.Keeper, Args: []string{KeeperName, strconv.Itoa(s.pool.N), strconv.Itoa(s.pool.Small), strconv.Itoa(int(s.o.Policy))},
		ExtraFiles:  []*os.File{memory, s.dir.Events, dir, r},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return err
	}
	k.cmd, k.end = cmd, w
	return nil
}

// stop ends it: the trace is written, or will not be.
func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.over = true; k.cmd == nil {
		return
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	k.end.Close()
	k.cmd = nil
}

// Keep is all that a keeper does. args are its arguments, the first of which is [KeeperName].
func Keep(args []string) error {
	_ = unix.CloseRange(keeperFiles, ^uint(0), 0) // what else the recorder has inherited
	var numbers [3]int
	if len(args) != 1+len(numbers) {
		return errors.New("a keeper is started by a recorder")
	}
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(args[1+i]); err != nil {
			return err
		}
	}
	var b [1]byte
	for {
		if _, err := unix.Read(keeperEnd, b[:]); err != unix.EINTR {
			break
		}
	}
	// Nobody has killed this process: so the recorder has not ended as it should.
	events := os.NewFile(keeperEvents, trace.EventsFile)
	w, has, err := drain.Resume(events)
	if err != nil {
		return err
	}
	p, err := pool.Open(keeperPool, numbers[0], numbers[1])
	if err != nil {
		return err
	}
	s := &salvage{pool: p, file: w, events: events, policy: trace.Policy(numbers[2])}
	return s.write(has)
}

// A salvage is of what a recorder has left.
type salvage struct {
	pool   *pool.Pool
	file   *drain.File
	events *os.File
	policy trace.Policy
}

// write writes it.
func (s *salvage) write(has drain.Stored) error {
	losses := lossesOf(s.pool)
	s.pool.Shut()
	var st unix.Stat_t
	if err := unix.Fstat(s.pool.FD, &st); err != nil {
		return err
	}
	live := drain.NewLiveness(procfs.SharedFile{Inode: st.Ino, Path: "/memfd:" + pool.Name + " (deleted)"})
	live.Start(int(s.pool.Word(format.HLeader).Load()))
	alone, err := s.pool.Abandoned()
	if err != nil {
		alone = s.pool.Mem != nil && !live.MappedNow()
	}
	if s.pool.Mem == nil {
		return err
	}
	if !alone {
		time.Sleep(shutPatience)
	}
	var failed error
	d := drain.New(s.pool, s.file, s.policy, live)
	d.OnWriteError = func(err error) { failed = err }
	d.Salvage(has)
	d.Last(alone)
	losses.counted(s.pool)
	c := d.Counts()
	losses.add(c)
	if losses.uncounted != 0 {
		losses.to = clock.Read().Counter
	}
	losses.write(s.events)
	return errors.Join(failed, s.end(c, losses.lost+c.Lost))
}

// end says in the trace how it ended.
func (s *salvage) end(c drain.Counts, lost uint64) error {
	name := fmt.Sprintf("/proc/self/fd/%d", keeperDir)
	info, err := trace.ReadInfo(name)
	if err == nil {
		info.Killed = true
		info.Duration = time.Since(info.Start)
		info.Clock.Pairs = append(info.Clock.Pairs, pair(clock.Read()))
		info.Totals.Bytes = uint64(c.Bytes)
		info.Lost = lost
		err = tracedir.RewriteInfo(name, info)
	}
	_, werr := s.events.WriteAt(le.AppendUint32(nil, 1), format.HClosed)
	return errors.Join(err, werr)
}
