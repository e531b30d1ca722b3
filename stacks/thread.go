//go:build linux

package stacks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/osthread"
)

// A Mode says which registers a walk began with.
type Mode uint8

// Modes.
const (
	Partial Mode = iota + 1 // stack pointer and program counter
	Full                    // all of them
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Partial:
		return "partial"
	case Full:
		return "full"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// NoSyscall is the Syscall of a thread that is not in one.
const NoSyscall = -1

// A Thread is where a thread is.
type Thread struct {
	TID     int
	Name    string // bytes as the program gave them
	Mode    Mode
	Syscall int // number of the system call that it is blocked in, or NoSyscall
	Running bool
	Frames  []Frame       // innermost first
	End     string        // why there are no more: one of the End constants
	Stopped time.Duration // how long it was stopped
}

// tries is how often a blocked thread is read again that has moved meanwhile.
const tries = 4

// Thread reads a thread's stack. exact stops it even if it is blocked, to have all its registers; a system call that it
// is in can then end with EINTR. The error wraps that of the system: the thread has ended, or this user may not look.
func (p *Process) Thread(tid int, exact bool) (*Thread, error) {
	t := &Thread{TID: tid, Syscall: NoSyscall}
	name, err := os.ReadFile(p.proc(fmt.Sprintf("task/%d/comm", tid)))
	if err != nil {
		return nil, err
	}
	t.Name = strings.TrimSuffix(string(name), "\n")
	for range tries {
		before, err := p.where(tid)
		if err != nil {
			return nil, err
		}
		if t.Running = before.running; t.Running || exact {
			break
		}
		t.Mode, t.Syscall = Partial, before.syscall
		p.blocked(t, before)
		after, err := p.where(tid)
		if err != nil {
			return nil, err
		}
		if after == before {
			return t, nil
		}
	}
	t.Mode = Full
	return t, p.stopped(t)
}

// A place is what the kernel tells of a thread, and how often it has been off a processor.
type place struct {
	running  bool
	syscall  int
	sp, pc   uint64
	switches string
}

// where asks the kernel where a thread is.
func (p *Process) where(tid int) (place, error) {
	w := place{syscall: NoSyscall}
	text, err := os.ReadFile(p.proc(fmt.Sprintf("task/%d/syscall", tid)))
	if err != nil {
		return w, err
	}
	status, err := os.ReadFile(p.proc(fmt.Sprintf("task/%d/status", tid)))
	if err != nil {
		return w, err
	}
	_, w.switches, _ = strings.Cut(string(status), "\nvoluntary_ctxt_switches")
	f := bytes.Fields(text)
	if len(f) < 3 { // running, or a kernel that does not tell
		w.running = true
		return w, nil
	}
	nr, err1 := strconv.Atoi(string(f[0]))
	sp, err2 := strconv.ParseUint(string(f[len(f)-2]), 0, 64)
	pc, err3 := strconv.ParseUint(string(f[len(f)-1]), 0, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return w, fmt.Errorf("task %d: syscall: %w", tid, err)
	}
	w.syscall, w.sp, w.pc = max(nr, NoSyscall), sp, pc
	w.running = pc == 0
	return w, nil
}

// view is a process with a thread's own memory.
type view struct {
	*Process
	stack *pages
}

// read reads a thread's memory. What nobody can write to is the same when the thread has gone on: unwind tables of traced
// programs look at code.
func (v *view) read(addr uint64, size int) (uint64, error) {
	if m := v.mapping(addr); v.stack.closed && m != nil && !m.writable {
		return v.mem.number(addr, size)
	}
	return v.stack.number(addr, size)
}

// blocked walks the stack of a thread that is somewhere.
func (p *Process) blocked(t *Thread, w place) {
	r := registers{pc: w.pc}
	r.set(host.sp, w.sp)
	p.follow(t, r, newPages(p.PID))
}

// follow walks a stack, and looks at what is mapped again if something is not known.
func (p *Process) follow(t *Thread, r registers, stack *pages) {
	for again := range 2 {
		w := walker{m: host, s: &view{p, stack}, r: r}
		if t.Frames, t.End = w.walk(); t.End != EndNoTable && t.End != EndBadCFA || again == 1 || p.refresh() != nil {
			return
		}
	}
}

// How much of a running thread's stack is read, and how long is waited for it to stop.
const (
	snapshot = 256 << 10
	patience = 2 * time.Second
)

// stopped stops a thread, reads its registers and a part of its stack, lets it go on, and walks what was read.
func (p *Process) stopped(t *Thread) error {
	type answer struct {
		r     registers
		stack *pages
		held  time.Duration
		err   error
	}
	c := make(chan answer, 1)
	// The kernel knows the tracer by its thread.
	osthread.Go(func() {
		hurry()
		var a answer
		a.stack = newPages(p.PID)
		a.held, a.err = stop(t.TID, func() error {
			var err error
			if a.r, err = stoppedRegisters(t.TID); err != nil {
				return err
			}
			p.snap(a.stack, a.r.value[host.sp])
			return nil
		})
		c <- a
	})
	var a answer
	select {
	case a = <-c:
	case <-time.After(patience): // it goes on as soon as it stops
		a.err = fmt.Errorf("it does not stop within %v", patience)
	}
	if a.err != nil {
		return fmt.Errorf("task %d: %w", t.TID, a.err)
	}
	a.stack.closed = true
	t.Stopped = a.held
	p.follow(t, a.r, a.stack)
	return nil
}

// snap reads the stack above sp, and what is kept beside it. What cannot be read is missing.
func (p *Process) snap(to *pages, sp uint64) {
	hi := sp + snapshot
	if m := p.mapping(sp); m != nil {
		hi = min(hi, m.hi)
	}
	if to.load(sp, hi) == nil {
		shadow := host.shadow(sp)
		_ = to.load(shadow, shadow+hi-sp)
	}
}

// hurry has the calling thread run before others, where that is allowed: on a busy machine a stopped thread would wait for
// this one to get a processor.
func hurry() {
	const first = 1
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: first}
	if unix.SchedSetAttr(0, &a, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
}

// stop stops a thread while f runs, and returns for how long.
func stop(tid int, f func() error) (held time.Duration, err error) {
	if err := unix.PtraceSeize(tid); err != nil {
		return 0, fmt.Errorf("PTRACE_SEIZE: %w", err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return 0, fmt.Errorf("PTRACE_INTERRUPT: %w", err)
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(tid, &ws, unix.WALL, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait: %w", err)
		}
	}
	begin := time.Now() // until now it ran, or waited for a processor
	if !ws.Stopped() {
		return 0, unix.ESRCH
	}
	err = f()
	var signal uintptr
	if event := int(ws) >> 16; event == 0 { // it was about to get a signal, and still is
		signal = uintptr(ws.StopSignal())
	}
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, signal, 0, 0)
	held = time.Since(begin)
	if err == nil && e != 0 {
		err = fmt.Errorf("PTRACE_DETACH: %w", e)
	}
	return held, err
}
