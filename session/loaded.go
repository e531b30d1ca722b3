//go:build linux

package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// Libraries that processes load after they were attached to.
//
// The dynamic loader of such a process comes to the runtime when it has mapped some (stub/src/attach.c), and waits, holding
// its locks. A library is planned in a goroutine, which can take seconds; the process asks again and again meanwhile, and
// is told to come back. What only the process itself can do, mapping memory and calling a routine, it does for the
// goroutine, step by step. What it says is believed only if it maps the pool; what it says of a step becomes a number.

// loadings answers such processes.
type loadings struct {
	shared procfs.SharedFile
	host   func(pid int, namespace uint64) (host int, ok bool)
	// work does what is to be done about a process; steps are done by that.
	work func(pid int, do tracee.Steps) error
	logf func(format string, args ...any)

	mu    sync.Mutex
	under map[int]*loading // by process
	over  bool
	idle  sync.WaitGroup
}

// loading is a process that waits.
type loading struct {
	next   chan step  // from the goroutine
	result chan int64 // to it
	done   chan struct{}
	made   uint32 // how many steps the goroutine has made
	number uint32 // of the last step that was given
	waits  bool   // its result is awaited
}

// step is struct step of stub/src/attach.c.
type step struct {
	number, kind uint32
	args         [3]uint64
}

// Kinds of steps.
const (
	stepNone = iota
	stepMap
	stepCall
	stepNothing
)

const (
	stepSize   = 40
	stepResult = 32
	// stepLimit bounds how long a process may take for a step; afterwards it is taken for gone.
	stepLimit = 10 * time.Second
)

// handle answers a process whose libraries have changed: its argument is the address of a step.
func (l *loadings) handle(r *drain.Request) uint32 {
	pid, ok := l.host(r.PID, r.NS)
	if mapped, _ := l.shared.MappedBy(pid); !ok || !mapped {
		return drain.Failed
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return drain.Failed
	}
	defer mem.Close()
	b := make([]byte, stepSize)
	if _, err := mem.ReadAt(b, int64(r.Argument)); err != nil {
		return drain.Failed
	}
	order := binary.LittleEndian
	w := l.of(pid, order.Uint32(b))
	if w == nil {
		return drain.Failed
	}
	if w.waits && order.Uint32(b[4:]) != stepNone {
		return drain.Done // the answer came too late: the step is still to be done
	}
	if w.waits {
		w.waits = false
		w.result <- int64(order.Uint64(b[stepResult:]))
	}
	var s step
	select {
	case s = <-w.next:
		w.number, w.waits = s.number, true
	case <-w.done:
		l.mu.Lock()
		if l.under[pid] == w {
			delete(l.under, pid)
		}
		l.mu.Unlock()
	case <-time.After(laterLimit):
		return drain.Later
	}
	b = order.AppendUint32(order.AppendUint32(nil, s.number), s.kind)
	for _, a := range s.args {
		b = order.AppendUint64(b, a)
	}
	if _, err := mem.WriteAt(b, int64(r.Argument)); err != nil {
		return drain.Failed
	}
	return drain.Done
}

// of returns what is under way for a process that has done a step; 0: it comes for the first time. The result is nil if
// nothing is to be done for it any more.
func (l *loadings) of(pid int, number uint32) *loading {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.under[pid]
	if w != nil && w.number == number {
		return w
	}
	for pid, o := range l.under { // those that were killed while they waited
		select {
		case <-o.done:
			if len(l.under) >= mostLater {
				delete(l.under, pid)
			}
		default:
		}
	}
	if l.over || w != nil && !w.waits || number != 0 || len(l.under) >= mostLater {
		return nil // or it has gone on without an answer, which the goroutine finds out
	}
	w = &loading{next: make(chan step), result: make(chan int64, 1), done: make(chan struct{})}
	l.under[pid] = w
	l.idle.Add(1)
	go func() {
		defer l.idle.Done()
		defer close(w.done)
		if err := l.work(pid, w); err != nil && !errors.Is(err, tracee.ErrEnded) && !errors.Is(err, tracee.ErrOther) {
			l.logf("process %d: a library that it has loaded is not recorded: %v", pid, err)
		}
	}()
	return w
}

// end begins no more, and waits for what is under way.
func (l *loadings) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.idle.Wait()
}

// do has the process do a step.
func (w *loading) do(kind uint32, args ...uint64) (int64, error) {
	w.made++
	s := step{number: w.made, kind: kind}
	copy(s.args[:], args)
	limit := time.NewTimer(stepLimit)
	defer limit.Stop()
	select {
	case w.next <- s:
	case <-limit.C:
		return 0, errors.New("it has not waited")
	}
	select {
	case r := <-w.result:
		return r, nil
	case <-limit.C:
		return 0, errors.New("it does not come back")
	}
}

// Map maps memory in the process.
func (w *loading) Map(at, size uint64, prot int) error {
	const mostErrno = 4095
	r, err := w.do(stepMap, at, size, uint64(prot))
	if err == nil && r < 0 && r >= -mostErrno {
		err = syscall.Errno(-r)
	}
	if err == nil && uint64(r) != at {
		err = syscall.EEXIST
	}
	return err
}

// Call has the process call a routine.
func (w *loading) Call(routine uint64) (uint64, error) {
	r, err := w.do(stepCall, routine)
	return uint64(r), err
}

// Wait has the process say that it waits.
func (w *loading) Wait() error {
	_, err := w.do(stepNothing)
	return err
}
