//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// Attach says which processes are recorded that run already, and what is put into them.
type Attach struct {
	// PIDs are the processes. If there is one, it is an error if it cannot be recorded; of several those are left out that
	// cannot, with a message, unless no one can.
	PIDs []int
	// Programs are what the processes ran when it was found out what Plan has to know of them; nil: nothing was. One that runs
	// another program by now cannot be recorded ([ErrExecuted]).
	Programs *Programs
	// Plan returns what is put into the process whose program is exe, at a path: made for a process that runs
	// (patch.Options.Running). at is where there is room for that, as an address of the program; 0: where most processes
	// have it. Nothing is put into any process if it is nil, as for [Options].SampleEvery.
	Plan func(path string, exe *os.File, at uint64) (*patch.Memory, error)
	// Library returns what is put into a shared library of such a process, which has it at a path, if that is to be
	// recorded. at is where there is room for that, as an address of the library; 0: nowhere. nil: the library is left alone.
	// If Library itself is nil, all are. It is called for several processes at once.
	Library func(path string, f *os.File, at uint64) *patch.Memory
	// Attached is called when all have been attached to, or that has failed; nil: nothing is.
	Attached func()
}

// ErrExecuted: a process runs another program than when it was looked at. It is as it was.
var ErrExecuted = tracee.ErrExecuted

// Programs are what some processes run, from when they are opened on.
type Programs struct{ of map[int]*tracee.Program }

// loadPatience is for how long the dynamic loader of a program that has just begun is waited for.
const loadPatience = time.Second

// OpenPrograms opens what processes run, and waits until the libraries of those that have just begun are there, which say how code
// is to be moved. Processes that cannot be looked at are left out. The caller must close it.
func OpenPrograms(pids []int) *Programs {
	ps := &Programs{make(map[int]*tracee.Program)}
	deadline := time.Now().Add(loadPatience)
	for _, pid := range pids {
		if ps.of[pid] != nil {
			continue
		}
		if p, err := tracee.OpenProgram(pid); err == nil {
			ps.of[pid] = p
			p.AwaitLoaded(time.Until(deadline))
		}
	}
	return ps
}

// Close closes them; once more, it does nothing.
func (ps *Programs) Close() {
	for _, p := range ps.of {
		p.Close()
	}
}

// CheckAttach returns an error for a process that cannot be attached to, as far as that can be known without touching
// it.
func CheckAttach(pid int) error { return tracee.CheckAttach(pid) }

// CanLeadUnwinders returns an error if nothing can lead unwinders of a process to what an attachment adds to it.
func CanLeadUnwinders(pid int) error { return tracee.CanLeadUnwinders(pid) }

// Release takes the tracer out of a process whose recorder was killed, and out of those that share its buffer, as they were forked
// from it. An error is about the process itself: it stays as it is if the recorder may live, or the process was started with the
// tracer.
func Release(pid int) error {
	buffer, shares := tracee.BufferOf(pid)
	if _, err := tracee.Release(pid); err != nil {
		return err
	}
	forsakenControl(pid)
	for shares {
		var err error
		left := buffer.Mappers(0)
		for _, p := range left {
			if _, err = tracee.Release(p.Pid); err == nil {
				break // others can have been forked meanwhile
			}
		}
		shares = len(left) > 0 && err == nil
	}
	return nil
}

// ProcessDir is where a process's files are in /proc, even if its first thread has ended.
func ProcessDir(pid int) string { return procfs.Dir(pid) }

// CommandLine is the arguments of a process, as far as it says them.
func CommandLine(pid int) []string {
	b, err := os.ReadFile(ProcessDir(pid) + "/cmdline")
	if err != nil || len(b) == 0 {
		return []string{fmt.Sprintf("process %d", pid)}
	}
	return format.Arguments(string(b), "\x00")
}

// ErrEnded: a process has ended.
var ErrEnded = procfs.ErrEnded

// Maps is the contents of a process's maps file (proc_pid_maps(5)), even if its first thread has ended. The error of one that has
// ended is [ErrEnded].
func Maps(pid int) (maps []byte, err error) {
	err = procfs.InLive(pid, func(dir string) error {
		if maps, err = os.ReadFile(dir + "/maps"); err == nil && len(maps) == 0 {
			err = fmt.Errorf("%s/maps: empty", dir)
		}
		return err
	})
	return maps, err
}

// attached are the processes of a session that has attached to some. What it has put into them is in their children,
// too, that they fork: at the end it is taken out of every process that maps the pool.
type attached struct {
	shared procfs.SharedFile
	loads  loadings

	mu      sync.Mutex // held while a process is attached to
	all     []*attachedProcess
	undoing atomic.Int64 // the process that is let go, as attaching to it has failed
}

type attachedProcess struct {
	pid, fd int                // fd: of the process, -1: the kernel has no such descriptors
	start   uint64             // when it began, as procfs tells
	at      *tracee.Attachment // nil: nothing was put into it
}

// attachProgress is how often it is said how many processes have been attached to.
const attachProgress = 3 * time.Second

// attach attaches to all processes, or, if the recording is to end already, to some.
func (s *session) attach(over func() bool) (st launch.Started, err error) {
	s.attached.mu.Lock()
	defer s.attached.mu.Unlock()
	var ended []int
	said := time.Now()
	for i, pid := range s.o.Attach.PIDs {
		all := len(s.o.Attach.PIDs)
		if len(s.attached.all) > 0 && over() {
			s.logf("%d of %d processes are not recorded: the recording is to end before they were attached to", all-i, all)
			break
		}
		if time.Since(said) >= attachProgress {
			said = time.Now()
			s.logf("attached to %d of %d processes", i, all)
		}
		p, err := s.attachTo(pid)
		switch {
		case err == nil:
			s.attached.all = append(s.attached.all, p)
			if p.at != nil {
				st.Setup = max(st.Setup, p.at.Stopped)
			}
		case all == 1:
			return st, fmt.Errorf("process %d: %w", pid, err)
		case !tracee.Left(err) && hasEnded(pid):
			ended = append(ended, pid)
		default:
			s.leftOut(pid, err)
		}
	}
	s.sayEnded(ended)
	if len(s.attached.all) == 0 {
		return st, s.noneAttached()
	}
	st.PID, st.Injected, st.Way = s.attached.all[0].pid, true, "in its memory, from now on"
	return st, nil
}

// hasEnded tells whether there is no such process, or not any more.
func hasEnded(pid int) bool {
	st, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && st.Dead() {
		_, err = procfs.LiveThread(pid) // its first thread can have ended alone
	}
	return err != nil
}

// sayEnded says that processes have ended before they could be attached to: of those of a server that makes one for each request
// these are many.
func (s *session) sayEnded(pids []int) {
	const most = 5
	var names []string
	for _, pid := range pids[:min(most, len(pids))] {
		names = append(names, strconv.Itoa(pid))
	}
	if more := len(pids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch len(pids) {
	case 0:
	case 1:
		s.logf("process %s is not recorded: it is not there, or has ended", names[0])
	default:
		s.logf("%d processes are not recorded: they are not there, or have ended: %s", len(pids), strings.Join(names, ", "))
	}
}

// leftOut says why one of several processes is not recorded. If something was left in it, so does the result.
func (s *session) leftOut(pid int, err error) {
	s.logf("process %d is not recorded: %v", pid, err)
	if tracee.Left(err) {
		s.stays(pid, fmt.Errorf("it is not recorded: %w", err))
	}
}

// noneAttached is the error if there is no process left. There is no result then.
func (s *session) noneAttached() error {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	return errors.New(strings.Join(append([]string{"none of these processes can be recorded"}, s.control.stay...), "; "))
}

// attachTo attaches to one process.
func (s *session) attachTo(pid int) (*attachedProcess, error) {
	if err := tracee.CheckAttach(pid); err != nil {
		return nil, err
	}
	var path string
	var exe *os.File
	err := procfs.InLive(pid, func(dir string) (err error) {
		if path, err = os.Readlink(dir + "/exe"); err == nil {
			exe, err = safefile.Open(dir + "/exe")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	p := &attachedProcess{pid: pid}
	if st, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		p.start = st.Start
	}
	if p.fd, err = unix.PidfdOpen(pid, 0); err != nil {
		p.fd = -1
	}
	if s.o.Attach.Plan == nil {
		s.ready(pid)
		return p, nil
	}
	program := s.o.Attach.Programs.program(pid)
	if err := s.putInto(p, program, strings.TrimSuffix(path, " (deleted)"), exe); err != nil {
		if p.fd >= 0 {
			unix.Close(p.fd)
		}
		if program != nil && !tracee.Left(err) && program.ExecutedBy(err) {
			err = ErrExecuted
		}
		return nil, err
	}
	if len(p.at.Busy) > 0 {
		s.logf("process %d: %s", pid, left(p.at.Busy, "a thread was in the middle of it", "threads were in the middle of them"))
	}
	if len(p.at.Changed) > 0 {
		s.logf("process %d: %s", pid, left(p.at.Changed, "the program has changed it itself", "the program has changed them itself"))
	}
	if err := p.at.NoLoader; err != nil {
		s.logf("process %d: libraries that it loads later are not recorded: %v", pid, err)
	}
	if err := p.at.NoExec; err != nil {
		s.logf("process %d: programs that it executes are not recorded: %v", pid, err)
	}
	return p, nil
}

// left says which places were left as they are, and why.
func left(edits []arch.Edit, one, several string) string {
	if len(edits) == 1 {
		return "1 place was left as it is, and calls there are not recorded: " + one + ": " + places(edits)
	}
	return fmt.Sprintf("%d places were left as they are, and calls there are not recorded: %s: %s", len(edits), several, places(edits))
}

// places names a few of the functions that edits are of.
func places(edits []arch.Edit) string {
	const most = 5
	var names []string
	for _, e := range edits[:min(most, len(edits))] {
		names = append(names, e.Func)
	}
	if len(edits) > most {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// placeTries is how often a plan is put into a process that takes the memory where it was to be.
const placeTries = 5

// program is that of a process; nil: it is not known.
func (ps *Programs) program(pid int) *tracee.Program {
	if ps == nil {
		return nil
	}
	return ps.of[pid]
}

// putInto puts a plan into a process that runs a program.
func (s *session) putInto(p *attachedProcess, program *tracee.Program, path string, exe *os.File) error {
	m, err := s.o.Attach.Plan(path, exe, 0)
	if err != nil {
		return err
	}
	s.ready(p.pid) // the runtime may want to know
	if inner, below := procfs.InnerPID(p.pid); below {
		s.live.Join(inner, p.pid)
	}
	t := tracee.Target{PID: p.pid, Plan: m, Libraries: s.planLibraries(), Pool: s.pool.FD,
		Undo: func() { s.attached.undoing.Store(int64(p.pid)) }, Program: program}
	defer s.attached.undoing.Store(0)
	if s.follow != nil {
		t.Execs = &s.follow.hooks
	}
	for tries := 1; ; tries++ {
		var taken *tracee.TakenError
		if p.at, err = tracee.Attach(t); !errors.As(err, &taken) || tries == placeTries {
			return err
		}
		if taken.Room == 0 {
			continue // where the program is planned for it is free
		}
		if t.Plan, err = s.o.Attach.Plan(path, exe, taken.Room); err != nil {
			return err
		}
	}
}

// loadedPause is between two looks whether a process has been attached to, or will not be.
const loadedPause = time.Millisecond

// loaded is for a process whose libraries have changed: one that was attached to, or descends from it.
func (s *session) loaded(pid int, do tracee.Steps) error {
	for !s.attached.mu.TryLock() {
		// Attaching waits for the thread that asks.
		if from := int(s.attached.undoing.Load()); from != 0 && (pid == from || procfs.Descends(pid, from)) {
			return nil
		}
		time.Sleep(loadedPause)
	}
	p := s.attached.of(pid)
	s.attached.mu.Unlock()
	if p == nil {
		return errors.New("its parent is not known any more")
	}
	err := p.at.Loaded(pid, s.planLibraries(), do)
	s.come() // functions can have been added to one that was loaded elsewhere
	return err
}

// openLibrary opens the file of a library of a process.
func openLibrary(l *tracee.Library) (f *os.File, err error) {
	for _, path := range l.Files() {
		if f, err = safefile.Open(path); err == nil {
			break
		}
	}
	return f, err
}

// planLibraries plans libraries of a process; nil: they are left alone.
func (s *session) planLibraries() func([]*tracee.Library) {
	if s.o.Attach.Library == nil {
		return nil
	}
	return func(all []*tracee.Library) {
		for _, l := range all {
			f, err := openLibrary(l)
			if err != nil {
				s.logf("%s: not traced: %v", l.Path, err)
				continue
			}
			l.Memory = s.o.Attach.Library(l.Path, f, l.At)
			f.Close()
		}
	}
}

// wait returns when all of them have ended, or stop, a descriptor, can be read: how the first one did for which keep, if it is
// not nil, is true, or else the first one. ok is false if the kernel does not tell of all.
func (a *attached) wait(keep func(syscall.WaitStatus) bool, stop int) (status syscall.WaitStatus, ok bool) {
	if !a.ended(stop) {
		return 0, false
	}
	for i, p := range a.all {
		st, told := p.status()
		if !told {
			return 0, false
		}
		if i == 0 {
			status = st
		}
		if keep != nil && keep(st) {
			return st, true
		}
	}
	return status, true
}

// status returns how a process has ended: its parent can have waited for it, or not, or be about to.
func (p *attachedProcess) status() (syscall.WaitStatus, bool) {
	const tries, pause = 20, time.Millisecond
	for range tries {
		if st, ok := zombieStatus(p.pid, p.start); ok {
			return st, true
		}
		if st, ok := pidfdStatus(p.fd); ok {
			return st, true
		}
		time.Sleep(pause)
	}
	return 0, false
}

// ended returns true when all of them have ended, or false when stop can be read.
func (a *attached) ended(stop int) bool {
	for _, p := range a.all {
		fds := []unix.PollFd{{Fd: int32(stop), Events: unix.POLLIN}, {Fd: int32(p.fd), Events: unix.POLLIN}} // -1 is none
		tick := -1
		if p.fd < 0 {
			tick = int(findTick / time.Millisecond)
		}
		for p.fd >= 0 || unix.Kill(p.pid, 0) != unix.ESRCH {
			n, err := unix.Poll(fds, tick)
			if n > 0 && fds[0].Revents != 0 {
				return false
			}
			if n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
	}
	return true
}

// detach takes out of all processes what was put into them: events that they make meanwhile are still collected.
func (s *session) detach() {
	if s.attached == nil {
		return
	}
	s.attached.loads.end()
	failed := map[int]bool{}
	for {
		var left []procfs.Process
		for _, p := range s.shared.Mappers(0) {
			if !failed[p.Pid] {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			break
		}
		for _, p := range left {
			err := s.detachFrom(p)
			if err != nil {
				failed[p.Pid] = true
			}
			if err != nil && !errors.Is(err, tracee.ErrEnded) && !errors.Is(err, tracee.ErrOther) {
				s.stays(p.Pid, err)
				s.logf("process %d: %v", p.Pid, err)
			}
		}
	}
	for _, p := range s.attached.all {
		if p.fd >= 0 {
			unix.Close(p.fd)
		}
	}
}

// detachFrom takes what is there out of a process: it is one that was attached to, or descends from it.
func (s *session) detachFrom(p procfs.Process) error {
	of := s.attached.of(p.Pid)
	if of == nil && procfs.Descends(p.Pid, os.Getpid()) && ownProgram(p.Pid) {
		return tracee.ErrOther // a child of the recorder's, which has its memory until it executes a program
	}
	if of == nil && s.executedIn(p.Pid) != nil {
		return tracee.ErrOther // giveBack is for programs that were executed, whoever has done so
	}
	if of == nil {
		return unknown(p, "its parent is not known any more: the tracer stays in it, and does nothing")
	}
	held, err := of.at.Detach(p.Pid)
	s.res.Held = max(s.res.Held, held)
	return err
}

// ownProgram tells whether a process runs the same file as this one.
func ownProgram(pid int) bool {
	own, err := os.Stat("/proc/self/exe")
	other, oerr := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && oerr == nil && os.SameFile(own, other)
}

// unknown is why nothing can be done with a process of which it is not known to whom it belongs: it has ended, or why.
func unknown(p procfs.Process, why string) error {
	if !procfs.ProcessAlive(p.Pid, p.Start) {
		return tracee.ErrEnded
	}
	return errors.New(why)
}

// of returns the process that was attached to which another one is, or else the nearest of those that it descends from: of
// a server and its children each has its own place for what was added. nil: that is not known.
func (a *attached) of(pid int) (of *attachedProcess) {
	if len(a.all) == 1 && a.all[0].at != nil {
		return a.all[0]
	}
	for id := range procfs.Line(pid) {
		for _, p := range a.all {
			if p.pid == id && p.at != nil { // another one has ended before it was attached to
				return p
			}
		}
	}
	most := 0
	for _, p := range a.all { // those between have ended
		if p.at == nil {
			continue
		}
		if n := p.at.In(pid); n > most {
			of, most = p, n
		}
	}
	return of
}

// pids are the processes that the session began with.
func (s *session) pids(st *launch.Started) []int {
	if s.attached == nil {
		return []int{st.PID}
	}
	var pids []int
	for _, p := range s.attached.all {
		pids = append(pids, p.pid)
	}
	return pids
}
