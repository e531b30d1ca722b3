//go:build linux

package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/patch"
)

// A program that a process executes which nobody traces.
//
// The thread that is about to make the call asks (stub/src/exec.c). It is seized and held while it waits for the
// answer, and goes on from system call to system call until it has executed the program: the call begins, there is the
// event, and the call ends, at which the registers are the new program's for good. A call that fails ends without the
// event; then, or if the thread does something else, nothing has happened that it could notice. Up to that event a
// tracer that dies leaves a process that goes on; a signal that comes meanwhile is delivered.

// ErrNotExecuted: the call has failed, or was not made, as if another thread of the process has executed a program first.
var ErrNotExecuted = errors.New("no program was executed")

// Seize makes the calling thread the tracer of a thread, and holds that. Both are system threads; the caller must stay
// on its one until Detach. The error is ErrNotExecuted if the thread has ended, and an EndedError if its process has.
func Seize(pid, tid int) (*Process, error) {
	t := &Process{pid: tid, group: pid}
	if err := t.seize(); err != nil {
		return nil, notExecuted(err)
	}
	return t, nil
}

// notExecuted is the error of a tracer whose thread can be gone.
func notExecuted(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ECHILD) {
		return ErrNotExecuted
	}
	return err
}

// ended is the error for a thread that has ended with a status, which is that of its process if it was the first one.
func (t *Process) ended(ws syscall.WaitStatus) error {
	if t.pid != t.group {
		return ErrNotExecuted
	}
	return &EndedError{ws}
}

func (t *Process) seize() error {
	const options = unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESYSGOOD
	request := func(what string, nr, data uintptr) error {
		if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, nr, uintptr(t.pid), 0, data, 0, 0); errno != 0 {
			return &RefusedError{fmt.Errorf("%s: %w", what, errno)}
		}
		return nil
	}
	if err := request("PTRACE_SEIZE", unix.PTRACE_SEIZE, options); err != nil {
		return err
	}
	if err := request("PTRACE_INTERRUPT", unix.PTRACE_INTERRUPT, 0); err != nil {
		return err // it has ended
	}
	for {
		ws, err := t.waitAny()
		if err != nil {
			return err
		}
		if !ws.Stopped() {
			return t.ended(ws)
		}
		if ws.TrapCause() == unix.PTRACE_EVENT_STOP || groupStopped(ws) {
			return nil
		}
		// A signal was quicker.
		if err := unix.PtraceCont(t.pid, int(ws.StopSignal())); err != nil {
			return &RefusedError{fmt.Errorf("ptrace: %w", err)}
		}
	}
}

// groupStopped tells whether a seized thread has been stopped together with its process.
func groupStopped(ws syscall.WaitStatus) bool {
	return ws.Stopped() && ws>>16 == unix.PTRACE_EVENT_STOP && ws.StopSignal() != syscall.SIGTRAP
}

// waitAny waits for a stop of the thread, which has the id of its process when it has executed a program.
func (t *Process) waitAny() (ws syscall.WaitStatus, err error) {
	if t.pid == t.group && t.alone() {
		return t.wait()
	}
	// The kernel lets nobody wait for either of two ids, and does not wake who waits for a thread whose id another one gets.
	// The thread that has begun the process is told of stops of all of its threads, whoever traces them, and would take them
	// from who does. So it is asked first whose they are.
	for {
		gone := true
		for _, id := range []int{t.pid, t.group} {
			info, err := peek(id)
			if err != nil || tracerOf(fmt.Sprintf("/proc/%d", id)) != unix.Gettid() {
				continue
			}
			if gone = false; info.Code == 0 {
				continue
			}
			// A thread that gets the other id just now is found by the old one and returned by the new one.
			if got, err := syscall.Wait4(id, &ws, waitOwn|unix.WNOHANG, nil); got > 0 && err == nil {
				t.pid = got
				return ws, nil
			}
		}
		if gone {
			return ws, &RefusedError{fmt.Errorf("wait: %w", syscall.ECHILD)}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// peek returns what there is to be told of a thread, and leaves it to be told; its code is 0 if there is nothing.
func peek(id int) (info unix.Siginfo, err error) {
	const what = waitOwn | unix.WNOHANG | unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(id), uintptr(unsafe.Pointer(&info)), what, 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// tracerOf returns the thread that traces the one whose directory in /proc is given; 0: none does, or it is gone.
func tracerOf(dir string) int {
	tracer, _ := strconv.Atoi(statusField(dir, "TracerPid"))
	return tracer
}

// alone tells whether a seized thread was its process's only one when this was asked first: then it stays so.
func (t *Process) alone() bool {
	if t.threads == 0 {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
		t.threads = max(len(tasks), 1) // none: it has ended
	}
	return t.threads == 1
}

// mostCalls is more system calls than there are between the question and the program, even if a signal is handled.
const mostCalls = 64

// Execute lets a seized process go on until it has executed the program. Its error is ErrNotExecuted if it has not, and
// can be let go.
func (t *Process) Execute() error { return notExecuted(t.execute()) }

func (t *Process) execute() error {
	executes, executed := false, false
	for signal, calls := syscall.Signal(0), 0; calls < 2*mostCalls; {
		if err := unix.PtraceSyscall(t.pid, int(signal)); err != nil {
			return &RefusedError{fmt.Errorf("ptrace: %w", err)}
		}
		ws, err := t.waitAny()
		if err != nil {
			return err
		}
		signal = 0
		switch {
		case !ws.Stopped():
			return t.ended(ws)
		case ws.StopSignal() == syscallTrap:
			calls++
			s, err := t.syscallStop()
			if err != nil {
				return err
			}
			switch {
			case s.op == unix.PTRACE_SYSCALL_INFO_ENTRY:
				executes = s.word == unix.SYS_EXECVE || s.word == unix.SYS_EXECVEAT
			case executed:
				return t.begun()
			case executes:
				return ErrNotExecuted // it has failed
			}
		case ws.StopSignal() == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXEC:
			executed = true
		case groupStopped(ws):
			return ErrNotExecuted // it stays stopped, and executes the program some other time
		case ws>>16 == unix.PTRACE_EVENT_STOP:
		default:
			signal = ws.StopSignal()
		}
	}
	return ErrNotExecuted
}

// begun prepares a process that has just executed a program.
func (t *Process) begun() (err error) {
	t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0)
	if err != nil {
		return &RefusedError{err}
	}
	_, aux, err := t.start()
	if err != nil {
		return err
	}
	if aux[atSecure].val != 0 {
		return &RefusedError{ErrPrivileged}
	}
	return nil
}

// InjectExecuted writes the plan's memory into a process that Execute has left at the beginning of the program. pool is
// the recorder's buffer if the process cannot open that by its path, being in a PID namespace or without /proc; -1: it can.
// If the error is one of type RefusedError, the program has not been changed in any way that it could notice. If this process
// is killed meanwhile, the program begins once more, without the tracer; where that is not possible, it is killed, too.
func (t *Process) InjectExecuted(m *patch.Memory, pool int) error {
	options := unix.PTRACE_O_TRACESYSGOOD
	parked := t.park()
	if parked != nil {
		options |= unix.PTRACE_O_EXITKILL
	}
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		err = &RefusedError{fmt.Errorf("PTRACE_SETOPTIONS: %w", err)}
		if parked == nil {
			err = errors.Join(err, t.unpark())
		}
		return err
	}
	if parked != nil {
		return t.withoutSignals(func() error { return t.injectGiven(m, pool) })
	}
	err := t.injectGiven(m, pool)
	if uerr := t.unpark(); err == nil {
		err = uerr
	}
	return err
}

// injectGiven is Inject, with a descriptor of the pool that the process is given.
func (t *Process) injectGiven(m *patch.Memory, pool int) error {
	if pool < 0 {
		return t.Inject(m, true)
	}
	t.inside = true
	fd, err := t.give(pool)
	if err != nil {
		return err
	}
	given := *m
	if err = given.SetSession(strconv.FormatUint(fd, 10)); err == nil {
		err = t.Inject(&given, true)
	}
	if err != nil {
		_, _ = t.syscall(unix.SYS_CLOSE, fd) // else the runtime does
	}
	return err
}

// statusField returns a field of a status file, "" if there is none.
func statusField(dir, key string) string {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return ""
	}
	_, rest, ok := bytes.Cut(b, []byte("\n"+key+":"))
	if !ok {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strings.TrimSpace(string(line))
}
