package tracee

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// All threads of a process, stopped.
//
// Threads are seized one by one, while the others run and make more of them; only a thread that runs can. So the list is
// read again until it has nobody new. A thread that is stopped so goes on as if nothing had been: a system call that it
// waits in is made again by the kernel, but for some that tell the program of a signal that has not come
// (restartable). Threads by which the kernel works for the process (io_uring) are left alone: they run none of its code, and
// would not make the calls that they are made to make. The parent of a child of vfork does not stop before that executes a program or ends; nobody is held for
// as long as that takes, all are let go instead, and it is tried again.

// thread is a thread that has stopped.
type thread struct {
	Process
	regs    *registers
	changed bool // regs are to be written back
	turns   string
}

// threads are all of a process.
type threads struct {
	pid   int
	mem   *os.File
	aux   []byte // the program's auxiliary vector: its addresses are chosen when it is executed
	all   []*thread
	seen  map[int]bool // those that have been asked to stop
	isAll bool         // all others have stopped
	// workers are how many of seen the kernel has work for the process.
	workers int
	// runnable are how many wanted to run when they were looked at.
	runnable int
	asked    map[int]bool // those that have been asked to stop and have not yet
	// children are open files that tell whether threads have children: to open them takes longer than the look.
	children map[int]uintptr
	unfit    func(*thread) bool // tells those that no calls are made in the name of; nil: none
	since    time.Time
	longest  time.Duration // for which one was stopped, or all
	held     time.Duration // for which they were in all stops together
	alone    time.Duration // for which threads were waited for that nobody waited for
}

// errFiltered: seccomp stands against calls that threads are made to make.
var errFiltered = errors.New("its system calls are filtered (seccomp), which only root can put off")

// errBusy: a thread did not stop.
var errBusy = errors.New("a thread of it does not stop: it waits for a child of vfork, or for a device")

const (
	stopPatience  = 100 * time.Millisecond // for threads to stop that have been asked to
	morePatience  = 50 * time.Microsecond  // for each of them
	alonePatience = 10 * time.Second       // for those that nobody waits for, in all
	stopTries     = 50
	stopPause     = 20 * time.Millisecond // between two tries
	lateLimit     = 10 * time.Second      // for those that have not stopped by then
	latePause     = 5 * time.Millisecond
	runPatience   = 10 * time.Millisecond // for a thread to get a processor
	mostHeld      = 2 * time.Minute       // for all stops of an operation together
)

// errHeld: a process has more to be looked at than there is time for. Each look takes as long as its stacks say, and its routines
// take; so who looks asks whether it may go on (patient), or a process could keep the recorder for hours.
const errHeld = unchanged("it would have to be stopped for minutes")

// patient is errHeld if the threads, which are stopped, have been so for too long.
func (ts *threads) patient() error {
	if ts.held+time.Since(ts.since) > mostHeld {
		return errHeld
	}
	return nil
}

// openThreads prepares to stop a process.
func openThreads(pid int) (*threads, error) {
	aux, mem, err := openMemory(pid)
	if err != nil {
		return nil, err
	}
	return &threads{pid: pid, aux: aux, mem: mem}, nil
}

// threads are those of the process, as long as it runs the program that it ran when the tracer was found in it. The memory of
// that can still be there, with what another process has of it: the parent that waits in vfork.
func (r *Runtime) threads() (*threads, error) {
	ts, err := openThreads(r.t.pid)
	if err == nil && !bytes.Equal(ts.aux, r.aux) {
		ts.close()
		err = ErrEnded
	}
	return ts, err
}

// openTraced finds the tracer in a process, and its threads. The caller must close both.
func openTraced(pid int) (*Runtime, *threads, error) {
	r, err := OpenRuntime(pid)
	if err != nil {
		return nil, nil, err
	}
	ts, err := r.threads()
	if err != nil {
		r.Close()
	}
	return r, ts, err
}

// same tells whether the process, which is stopped, still runs the program that it ran.
func (ts *threads) same() bool {
	aux, err := readFile(fmt.Sprintf("/proc/%d/task/%d/auxv", ts.pid, ts.all[0].pid))
	return err == nil && bytes.Equal(aux, ts.aux)
}

// memory reads and writes the process's memory, whether it is stopped or not.
func (ts *threads) memory() *Process { return &Process{pid: ts.pid, mem: ts.mem} }

func (ts *threads) close() { ts.mem.Close() }

// stop stops the threads: all, or the first that stops. The caller must be on a thread of its own.
//
// A signal that is ignored is not sent at all, unless it is sent to a thread that is traced: SIGCHLD to one that has made a
// child, signals for the process to its first one. Then it is one for all threads, and wakes one that is not stopped: a wait
// of that one would say EINTR, and nobody could see that it is not to. So who can get such signals is traced only while all
// the others are: stopped last, let go first, and not taken if one is enough.
func (ts *threads) stop(one bool) error {
	ts.since, ts.all, ts.asked = time.Now(), nil, make(map[int]bool)
	ts.children = make(map[int]uintptr)
	ts.seen, ts.workers, ts.runnable = make(map[int]bool), 0, 0
	var last []int // that were there at the last look
	for tries := 0; ; tries++ {
		others, left, err := ts.unseenSince(last)
		// What one is made to do takes two turns a call, so it is stopped for longer than all would be.
		one = one && !ts.crowded()
		if err != nil {
			return ErrEnded
		}
		last = left
		if len(ts.all)+len(ts.asked) == 0 {
			ts.since = time.Now() // until now nobody has waited
		}
		if len(others) > 0 && tries < lastTries {
			ts.releaseLast() // the others were made meanwhile
			err = ts.stopThose(others, one)
		} else {
			ts.isAll, last = true, nil
			err = ts.stopThose(append(others, left...), one)
			ts.isAll = false
		}
		if err != nil {
			return err
		}
		if len(others)+len(left) == 0 || one && len(ts.all) > 0 {
			break
		}
	}
	if len(ts.all) == 0 {
		return ErrEnded
	}
	return nil
}

const (
	// lastTries is how often threads are stopped last again, because there are more.
	lastTries = 10
	// mostAskedAgain is how many threads are asked once more, right before they are stopped, whether they have children:
	// of many that takes longer than the rest, and those that are stopped already wait for it.
	mostAskedAgain = 500
)

// unseen lists threads that were not asked to stop: others, and those that are to be stopped last.
func (ts *threads) unseen() (others, last []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", ts.pid))
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		switch {
		case err != nil || ts.seen[tid]:
		case ts.looked(tid):
			ts.seen[tid] = true
			ts.workers++
		case ts.isLast(tid):
			last = append(last, tid)
		default:
			others = append(others, tid)
		}
	}
	return others, last, err
}

// looked looks at a thread that has not been asked to stop, and tells whether the kernel has it work for the process.
func (ts *threads) looked(tid int) (worker bool) {
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", ts.pid, tid))
	if err == nil && s.State == 'R' {
		ts.runnable++
	}
	return err == nil && s.Worker && tid != ts.pid
}

// crowded tells whether so many threads want to run that one of them waits for the others whenever it is to go on.
func (ts *threads) crowded() bool {
	const most = 4
	return ts.runnable > most*runtime.NumCPU()
}

// unseenSince is unseen, where last are those that were to be stopped last at the look before. If the process has as many threads
// as have stopped, and these, there is nobody else: who has stopped cannot have ended, unless the process runs another program,
// which is looked at in the end (same). Workers can end, and where there are some all are listed. To count takes no longer if there
// are a thousand.
func (ts *threads) unseenSince(last []int) (others, left []int, err error) {
	if n := len(ts.all) + len(last); len(ts.all) > 0 && ts.workers == 0 && n == ts.count() {
		return nil, last, nil
	}
	return ts.unseen()
}

// count is how many threads the process has, by its directory in /proc, which has a link for each; 0: it is not known.
func (ts *threads) count() int {
	const itself = 2 // links of a directory without any
	var s unix.Stat_t
	path, at := []byte(fmt.Sprintf("/proc/%d/task\x00", ts.pid)), unix.AT_FDCWD
	_, _, errno := unix.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&s)), 0, 0, 0)
	if errno != 0 || s.Nlink < itself {
		return 0
	}
	return int(s.Nlink - itself)
}

// isLast tells whether a thread can get signals for the process.
func (ts *threads) isLast(tid int) bool {
	if tid == ts.pid {
		return true
	}
	fd, kept := ts.children[tid]
	if !kept {
		var err error
		if fd, err = openFile(fmt.Sprintf("/proc/%d/task/%d/children", ts.pid, tid)); err != nil {
			return false
		}
		if kept = len(ts.children) < mostAskedAgain; kept {
			ts.children[tid] = fd
		} else {
			defer closeFile(fd)
		}
	}
	var b [1]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, fd, uintptr(unsafe.Pointer(&b)), 1, 0, 0, 0)
	return errno == 0 && n > 0
}

// stopThose stops threads: all, or the first that stops.
func (ts *threads) stopThose(tids []int, one bool) error {
	var seized, asked []int
	var failed error
	again := !ts.isAll && len(tids) <= mostAskedAgain
	for _, tid := range tids {
		if one && len(seized) > 0 {
			break
		}
		if again && ts.isLast(tid) {
			continue // it has made a child meanwhile
		}
		ts.seen[tid] = true
		var ok bool
		if ok, failed = ts.seize(tid); failed != nil {
			break // those before are asked, and let go like all
		}
		if ok {
			seized = append(seized, tid)
		}
	}
	// All of them run until here, so they stop within the time that asking takes.
	for _, tid := range seized {
		ok, err := ts.interrupt(tid)
		if ok {
			ts.asked[tid] = true
			asked = append(asked, tid)
		}
		failed = cmp.Or(failed, err)
	}
	if failed != nil {
		return failed
	}
	// The last one has been asked only now.
	deadline := time.Now().Add(stopPatience + time.Duration(len(asked))*morePatience)
	for _, tid := range asked {
		err := ts.await(tid, deadline)
		if err == errBusy {
			err = ts.awaitAlone(tid)
		}
		if err == errBusy {
			return ts.busy(tid)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// awaitAlone waits on for a thread that nobody waits for: it waits itself, as for a child of vfork, and stops when that is over.
// Another try would have to come at the right moment.
func (ts *threads) awaitAlone(tid int) error {
	if len(ts.all) > 0 || len(ts.asked) > 1 {
		return errBusy
	}
	began := time.Now()
	err := ts.await(tid, began.Add(alonePatience-ts.alone))
	ts.since = time.Now()
	ts.alone += ts.since.Sub(began)
	return err
}

// busy says which thread does not stop.
func (ts *threads) busy(tid int) error {
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", ts.pid, tid))
	if err != nil {
		return errBusy // it has ended meanwhile
	}
	return fmt.Errorf("%w (thread %d, %q, in state %c)", errBusy, tid, s.Name, s.State)
}

// releaseLast lets those go on that are to be stopped last.
func (ts *threads) releaseLast() {
	ts.all = slices.DeleteFunc(ts.all, func(t *thread) bool {
		last := ts.isLast(t.pid)
		if last {
			t.release()
			delete(ts.seen, t.pid)
		}
		return last
	})
}

// seize begins to trace a thread, which goes on. ok is false for one that has ended.
func (ts *threads) seize(tid int) (ok bool, err error) {
	dir := fmt.Sprintf("/proc/%d/task/%d", ts.pid, tid)
	for range 2 { // who traced it can have ended before anybody knew
		err = ptrace(unix.PTRACE_SEIZE, tid, unix.PTRACE_O_TRACESYSGOOD)
		if err != unix.EPERM || tracedBy(dir) != nil {
			break
		}
	}
	return ts.accepted(tid, err)
}

// interrupt asks a seized thread to stop. ok is false for one that has ended.
func (ts *threads) interrupt(tid int) (ok bool, err error) {
	return ts.accepted(tid, ptrace(unix.PTRACE_INTERRUPT, tid, 0))
}

// accepted tells what has come of a request to a thread: ok is false for one that has ended.
func (ts *threads) accepted(tid int, err error) (ok bool, _ error) {
	switch {
	case err == nil:
		return true, nil
	case err == unix.ESRCH || endedThread(ts.pid, tid):
		return false, nil
	}
	return false, seizeError(ts.pid, tid, err)
}

// await waits for a seized thread to stop.
func (ts *threads) await(tid int, deadline time.Time) error {
	t := &thread{Process: Process{pid: tid, mem: ts.mem}}
	err := t.stopped(deadline)
	if err == errBusy {
		return err
	}
	delete(ts.asked, tid)
	switch {
	case err == nil:
		ts.all = append(ts.all, t)
	case errors.Is(err, ErrEnded):
		err = nil
	}
	return err
}

// ptrace makes a request. It is short, so the scheduler of Go need not know (transfer).
func ptrace(request uintptr, tid, data int) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, request, uintptr(tid), 0, uintptr(data), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// awaitStop waits for the stop that PTRACE_INTERRUPT has asked for. Signals that were quicker are delivered.
func (t *Process) awaitStop(deadline time.Time) error {
	for {
		ws, err := t.awaitAny(deadline)
		if err != nil {
			return err
		}
		if ws>>16 == unix.PTRACE_EVENT_STOP {
			t.halted = ws.StopSignal() != syscall.SIGTRAP
			return nil
		}
		signal := int(ws.StopSignal())
		if ws>>8 == syscall.WaitStatus(syscallTrap) || ws>>16 != 0 {
			signal = 0
		}
		// A signal that is ignored comes here only because the thread is traced, and must not end its call.
		if regs, err := t.registers(); err == nil && signal != 0 && restart(regs) {
			_ = t.setRegisters(regs)
		}
		if err := ptrace(unix.PTRACE_CONT, t.pid, signal); err != nil {
			return ErrEnded
		}
	}
}

// awaitAny waits for any stop, until a deadline: then the error is errBusy.
func (t *Process) awaitAny(deadline time.Time) (ws syscall.WaitStatus, err error) {
	return t.awaitOr(deadline, rest)
}

// awaitOr waits for any stop, until a deadline, or until pause says that there is no more to wait for: then ws is 0.
func (t *Process) awaitOr(deadline time.Time, pause func(looks int) bool) (ws syscall.WaitStatus, err error) {
	for looks := 0; ; looks++ {
		ws, err := t.look()
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return ws, ErrEnded
		case ws == 0:
			late := time.Now().After(deadline) // whoever waits here can have been stopped for long
			if pause(looks) {
				return 0, nil
			}
			if late {
				return ws, errBusy
			}
		case !ws.Stopped():
			return ws, ErrEnded
		default:
			return ws, nil
		}
	}
}

// look returns what has become of a thread; 0: it runs. A stop is left to be told again: the kernel forgets a signal that it
// has told of, and the program would lose it if this process were killed before it lets the thread go on.
func (t *Process) look() (ws syscall.WaitStatus, err error) {
	info, err := peek(t.pid)
	if err != nil || info.Code == 0 {
		return 0, err
	}
	const trapped, stopped = 4, 5 // CLD_TRAPPED, CLD_STOPPED
	if info.Code != trapped && info.Code != stopped {
		_, err = syscall.Wait4(t.pid, &ws, waitOwn|unix.WNOHANG, nil)
		return ws, err
	}
	status := *(*int32)(unsafe.Add(unsafe.Pointer(&info), 24)) // si_status
	return syscall.WaitStatus(status)<<8 | 0x7f, nil
}

// rest lets time pass between two looks: a look costs less than a sleep, at first. Nothing is yielded: the kernel, and the
// scheduler of Go, would let others run for milliseconds while a process is stopped.
func rest(looks int) (end bool) {
	const atOnce, short = 100, 500
	switch pause := (unix.Timespec{Nsec: 20_000}); {
	case looks < atOnce:
	case looks < short:
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	default: // this takes long anyway
		_ = unix.Nanosleep(&pause, nil)
	}
	return false
}

// runOn lets some of the threads go on for a moment, while the others stay stopped. It returns those that have not ended.
func (ts *threads) runOn(some []*thread) (left []*thread, err error) {
	drop := func(t *thread) { ts.all = slices.DeleteFunc(ts.all, func(o *thread) bool { return o == t }) }
	var run []*thread
	for _, t := range some {
		if t.halted {
			left = append(left, t)
			continue
		}
		if t.changed {
			_ = t.setRegisters(t.regs)
			t.changed = false
		}
		t.turns = ts.turnsOf(t.pid)
		if ptrace(unix.PTRACE_CONT, t.pid, 0) == nil {
			run = append(run, t)
		} else {
			drop(t) // killed
		}
	}
	begun := time.Now().Add(runPatience)
	for _, t := range run {
		for looks := 0; ts.turnsOf(t.pid) == t.turns && time.Now().Before(begun); looks++ {
			rest(looks)
		}
	}
	for _, t := range run {
		ts.asked[t.pid] = true
		_ = ptrace(unix.PTRACE_INTERRUPT, t.pid, 0)
	}
	deadline := time.Now().Add(stopPatience + time.Duration(len(run))*morePatience)
	for i, t := range run {
		switch err := t.stopped(deadline); {
		case err == errBusy:
			for _, t := range run[i:] {
				drop(t) // letGo waits for them
			}
			return nil, ts.busy(t.pid)
		case errors.Is(err, ErrEnded):
			drop(t)
		case err != nil:
			return nil, err
		default:
			left = append(left, t)
		}
		delete(ts.asked, t.pid)
	}
	return left, nil
}

// stopped waits for a thread to stop that has been asked to, and has it make a system call again that would say so. The error
// is ErrEnded if it has ended.
func (t *thread) stopped(deadline time.Time) error {
	err := t.awaitStop(deadline)
	if err != nil {
		return err
	}
	if t.regs, err = t.registers(); errors.Is(err, unix.ESRCH) {
		return ErrEnded // killed
	} else if err != nil {
		return err
	}
	if restart(t.regs) { // at once, so that it goes on rightly if this process is killed
		_ = t.setRegisters(t.regs)
	}
	return nil
}

// complete returns an error if there are threads that have not stopped: one has made more since.
func (ts *threads) complete() error {
	others, last, err := ts.unseen()
	if err != nil {
		return ErrEnded
	}
	if n := len(others) + len(last); n > 0 {
		return fmt.Errorf("%w: it has made %d threads meanwhile", errBusy, n)
	}
	return nil
}

// letGo lets all threads go on, and returns how long they were stopped.
//
// A thread that has been asked to stop, and waits for a processor, has been told of an interrupted call already, so it
// is waited for: just letting it go would tell the program. What does not stop for long is in a wait that nothing
// interrupts; for a moment, threads wait so for memory.
func (ts *threads) letGo() time.Duration {
	const mostWaits = 20 // looks in a row
	held, waiting := ts.release(), make(map[int]int)
	for _, fd := range ts.children {
		closeFile(fd)
	}
	clear(ts.children)
	for deadline := time.Now().Add(lateLimit); len(ts.asked) > 0 && time.Now().Before(deadline); {
		for tid := range ts.asked {
			if waiting[tid]++; !uninterruptible(ts.pid, tid) {
				waiting[tid] = 0
			}
			if ts.await(tid, time.Now().Add(latePause)) == errBusy && waiting[tid] >= mostWaits {
				delete(ts.asked, tid)
			}
			ts.release()
		}
	}
	return held
}

// release lets the threads go on that have stopped, those first that have stopped last. It returns how long the last one was
// stopped: when it goes on, this process may have to wait for a processor.
func (ts *threads) release() (held time.Duration) {
	for _, t := range slices.Backward(ts.all) {
		held = time.Since(ts.since)
		t.release()
	}
	ts.all = nil
	return held
}

func (t *thread) release() {
	if t.changed {
		_ = t.setRegisters(t.regs)
	}
	_ = ptrace(unix.PTRACE_DETACH, t.pid, 0)
}

// restartable are system calls that say EINTR when they are interrupted, even if no signal is handled, and have done nothing then.
var restartable = []uint64{
	unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS, unix.SYS_RECVFROM, unix.SYS_RECVMSG,
	unix.SYS_RECVMMSG, unix.SYS_READ, unix.SYS_READV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_WRITE,
	unix.SYS_WRITEV, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_SENDMMSG, unix.SYS_PREADV2,
	unix.SYS_PWRITEV2, unix.SYS_SENDFILE, unix.SYS_SPLICE, unix.SYS_IO_URING_ENTER,
}

// restart has a system call made again that would say EINTR because of the stop: the kernel does so at ERESTARTNOHAND,
// unless a signal is handled. It reports whether registers have changed.
func restart(r *registers) bool {
	const restartNoHand = 514
	if int64(r.Orig_rax) < 0 || int64(r.Rax) != -int64(unix.EINTR) || !slices.Contains(restartable, r.Orig_rax) {
		return false
	}
	r.Rax = ^uint64(restartNoHand - 1)
	return true
}

// critical tells whether a thread is in a restartable sequence (rseq(2)): a call made in its name would end that, and the
// kernel would not know when it goes on there.
func (t *thread) critical() bool {
	const getConfiguration = 0x420f
	var c struct {
		addr                   uint64
		size, sign, flags, pad uint32
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, getConfiguration, uintptr(t.pid), unsafe.Sizeof(c),
		uintptr(unsafe.Pointer(&c)), 0, 0)
	if errno != 0 || n == 0 || c.addr == 0 {
		return false // before Linux 5.13 nobody tells
	}
	const section = 8 // of struct rseq: rseq_cs
	b := make([]byte, 8)
	return t.ReadAt(b, c.addr+section) != nil || le.Uint64(b) != 0
}

// move has a thread go on elsewhere. It does so at once: what is changed afterwards can count on it, even if this process is
// killed. A thread that has been killed meanwhile goes on nowhere.
func (t *thread) move(to uint64) error {
	t.regs.setPC(to)
	if err := t.setRegisters(t.regs); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// onThread calls a function on a system thread of its own, which ends then: whatever is still traced is let go.
func onThread(do func()) {
	done := make(chan struct{})
	osthread.Go(func() {
		defer close(done)
		defer osthread.Urgent()()
		do()
	})
	<-done
}
