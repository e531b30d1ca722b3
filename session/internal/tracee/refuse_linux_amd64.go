package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Refusals: what is left undisturbed, and why, in words.

// endedThread tells whether a thread executes nothing any more.
func endedThread(pid, tid int) bool {
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	return err != nil || s.Dead()
}

// uninterruptible tells whether a thread is in a wait that no signal ends.
func uninterruptible(pid, tid int) bool {
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	return err == nil && s.State == 'D'
}

// seizeError says why a thread cannot be traced.
func seizeError(pid, tid int, err error) error {
	if traced := tracedBy(fmt.Sprintf("/proc/%d/task/%d", pid, tid)); traced != nil {
		return traced
	}
	if err != syscall.EPERM {
		return fmt.Errorf("PTRACE_SEIZE: %w", err)
	}
	if uid := strings.Fields(statusField(fmt.Sprintf("/proc/%d", pid), "Uid")); len(uid) > 1 && os.Geteuid() != 0 &&
		uid[1] != strconv.Itoa(os.Geteuid()) {
		return errors.New("it is another user's")
	}
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && !bytes.HasPrefix(scope, []byte("0")) {
		return fmt.Errorf("not permitted: kernel.yama.ptrace_scope is %s, which lets only root, or a process's parents, trace it",
			bytes.TrimSpace(scope))
	}
	return errors.New("not permitted (ptrace(2))")
}

// tracedBy returns an error for a thread that somebody traces.
func tracedBy(dir string) error {
	tracer := tracerOf(dir)
	if tracer == 0 {
		return nil
	}
	if statusField(fmt.Sprintf("/proc/%d", tracer), "Tgid") == strconv.Itoa(os.Getpid()) { // it is a thread's
		return errBusy // an earlier try that ends
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tracer))
	return &tracedError{tracer, string(bytes.TrimSpace(name))}
}

// tracedError is for a thread that another process traces.
type tracedError struct {
	tracer int
	name   string
}

func (e *tracedError) Error() string {
	return fmt.Sprintf("process %d (%s) traces it: only one can", e.tracer, e.name)
}

// endPatience is for how long others are waited for whose end is certain: recorders that were killed a moment ago.
const endPatience = 10 * time.Second

// passes waits for the end of the thread that traces, if it is certain, until a deadline. It returns whether that has ended.
func (e *tracedError) passes(deadline time.Time) bool { return procfs.AwaitTask(e.tracer, deadline) }

// stillTraced is tracedBy, if the thread that traces is not about to end.
func stillTraced(dir string) error {
	for deadline := time.Now().Add(endPatience); ; {
		var traced *tracedError
		err := tracedBy(dir)
		if !errors.As(err, &traced) || !traced.passes(deadline) || time.Now().After(deadline) {
			return err
		}
	}
}

// unrecorded returns an error if a tracer is in a process.
func (ts *threads) unrecorded(ms []mapping) error {
	if !slices.ContainsFunc(ms, func(m mapping) bool { return m.lo <= homePage && homePage < m.hi }) {
		return nil
	}
	for _, m := range ms {
		var header [format.HRecorderNs + 8]byte
		if m.perms != "rw-s" || ts.memory().ReadAt(header[:], m.lo) != nil || string(header[:len(format.FileMagic)]) != format.FileMagic {
			continue
		}
		if recorder := int(le.Uint32(header[format.HRecorder:])); recorder != 0 {
			return recordedBy(recorder, le.Uint64(header[format.HRecorderNs:]), endPatience)
		}
		return fmt.Errorf("it traces itself, to %s", filepath.Dir(m.path))
	}
	return errors.New("a tracer is in it that is off: its recording has ended without it, or nobody has recorded it")
}

// recordedBy says who records a process: the recorder's id, in a PID namespace. If that is about to end it is waited for.
func recordedBy(recorder int, namespace uint64, patience time.Duration) error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil || namespace != 0 && namespace != st.Ino {
		return fmt.Errorf("process %d of another PID namespace records it: only one can", recorder)
	}
	dir := fmt.Sprintf("/proc/%d", recorder)
	stat, err := procfs.ReadStat(dir + "/stat")
	name, nerr := os.ReadFile(dir + "/comm")
	if err != nil || nerr != nil || procfs.AwaitEnd(recorder, stat.Start, time.Now().Add(patience)) {
		return fmt.Errorf("process %d has started it with a tracer, and has ended: the tracer is off, and stays in it until it is started anew", recorder)
	}
	to := ""
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		if path, _ := os.Readlink(dir + "/fd/" + fd.Name()); filepath.Base(path) == "events" {
			to = ", to " + filepath.Dir(path)
			break
		}
	}
	return fmt.Errorf("process %d (%s) records it%s: only one can", recorder, bytes.TrimSpace(name), to)
}

// CheckAttach returns an error for a process that cannot be attached to, as far as that can be known without
// touching it.
func CheckAttach(pid int) error {
	dir := fmt.Sprintf("/proc/%d", pid)
	s, err := procfs.ReadStat(dir + "/stat")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no such process")
	case err != nil:
		return err
	case pid == os.Getpid():
		return errors.New("it is this one")
	case s.Kernel:
		return errors.New("it is a thread of the kernel")
	}
	if tgid := statusField(dir, "Tgid"); tgid != "" && tgid != strconv.Itoa(pid) {
		return fmt.Errorf("it is a thread of process %s", tgid)
	}
	if err := stillTraced(dir); err != nil {
		return err
	}
	if other := sharer(pid); other != 0 {
		return fmt.Errorf("process %d shares its memory, and is no thread of it (clone(2), CLONE_VM)", other)
	}
	if statusField(procfs.Dir(pid), "Seccomp") == "1" {
		return errors.New("it may make no system calls but read and write (seccomp's strict mode)")
	}
	_, err = procfs.LiveThread(pid)
	if err == ErrEnded && !s.Dead() {
		return seizeError(pid, pid, syscall.EPERM)
	}
	return err
}

// sharePatience is for how long a process may share its parent's memory: until it executes a program (vfork, posix_spawn).
const sharePatience = 50 * time.Millisecond

// sharer returns which of a process's parent and children has the same memory, and runs beside it; 0: none, or it is not known. It
// would run code while that is changed, as it is not stopped with the process's threads. One for which a thread waits does not
// (vfork).
func sharer(pid int) int {
	for deadline := time.Now().Add(sharePatience); ; time.Sleep(sharePatience / 10) {
		other := besides(pid)
		if other == 0 || time.Now().After(deadline) {
			return other
		}
	}
}

func besides(pid int) int {
	var near []int
	if s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		near = append(near, s.Parent)
	}
	for _, other := range append(near, children(pid)...) {
		const vm = 1 // KCMP_VM
		same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(other), vm, 0, 0, 0)
		if errno == 0 && same == 0 && !waitsUninterruptible(pid) && !waitsUninterruptible(other) {
			return other
		}
	}
	return 0
}

// waitsUninterruptible tells whether a thread of a process is in a wait that no signal ends.
func waitsUninterruptible(pid int) bool {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return slices.ContainsFunc(tasks, func(t os.DirEntry) bool {
		tid, err := strconv.Atoi(t.Name())
		return err == nil && uninterruptible(pid, tid)
	})
}
