package tracee

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
)

// Attaching to a process that runs.
//
// What takes long is done while it runs: the memory for thunks and runtime is mapped in a short stop of one thread, and
// filled in when that goes on; the pages of code that will change are made the process's own by writing a byte of each
// that is there; then one thread starts the runtime, to which nothing leads yet, while the others run. Only the changes
// of code are made while all threads are stopped, in stops of a bounded length (sites_linux_amd64.go). Whatever fails, the
// process is as it was before.

// Attachment is a plan in a process that runs, and in the children that it forks.
type Attachment struct {
	// Stopped is the longest time for which a thread of the process was stopped, or all.
	Stopped time.Duration
	// Busy is how many functions were left alone because a thread was at their beginning.
	Busy int

	m      *patch.Memory
	bias   uint64
	edits  []arch.Edit // those that were written
	mapped []area

	started bool // the runtime, perhaps
}

// mostStack bounds how much of a stack is looked at.
const mostStack = 16 << 20

// Attach puts a plan into a process. pool is a descriptor of the recorder's pool. An error says what stands against it; the process has not been changed then.
func Attach(pid int, m *patch.Memory, pool int) (*Attachment, error) {
	if m.Running == nil {
		return nil, errors.New("a plan for a process at its start")
	}
	if err := Check(m); err != nil {
		return nil, err
	}
	if err := CheckAttach(pid); err != nil {
		return nil, err
	}
	ts, err := openThreads(pid)
	if err != nil {
		return nil, err
	}
	defer ts.close()
	a := &Attachment{m: m}
	entry := auxValue(ts.aux, atEntry)
	if a.bias = entry - m.OrigEntry; entry == 0 || a.bias%PageSize != 0 {
		return nil, ErrNotPlanned
	}
	ms, err := ts.maps()
	if err == nil {
		err = a.free(ms)
	}
	if err == nil {
		err = arch.Compare(a.image(ts), PageSize, arch.All(m.Edits))
	}
	if err != nil {
		return nil, err
	}
	var stack remoteStack
	err = ts.within(true, func() error {
		return ts.calling(ms, func(r *remote) (err error) {
			if stack, err = a.mapMemory(r); err != nil {
				err = errors.Join(err, a.unmapMemory(r))
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if err = ts.memory().WriteAt(m.RX, a.bias+m.RXAddr); err == nil {
		err = a.ownPages(ts)
	}
	if err == nil {
		err = ts.within(true, func() error {
			return ts.calling(ms, func(r *remote) error { return a.start(r, ts.pid, stack, ts.aux, pool) })
		})
	}
	if err != nil {
		if uerr := a.undo(ts, ms, stack); uerr != nil && !errors.Is(uerr, errEnded) {
			err = fmt.Errorf("%w; what was added to the process is still there: %w", err, uerr)
		}
		return nil, err
	}
	if err = a.writeSites(ts); err != nil {
		if _, derr := a.Detach(pid); derr != nil {
			err = fmt.Errorf("%w; what was added to the process is still there: %w", err, derr)
		}
		return nil, err
	}
	a.Stopped = ts.longest
	return a, nil
}

// maps are the process's mappings.
func (ts *threads) maps() ([]mapping, error) {
	dir, err := liveThread(ts.pid)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir + "/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readAtMost(f, mostMaps)
	return parseMaps(b), err
}

// within stops threads, all or one, and does something meanwhile. It tries again if one does not stop: those that have
// been asked to are let go when the thread that traces them ends, so each try has its own. The error is errEnded if the
// process runs another program by now.
func (ts *threads) within(one bool, do func() error) (err error) {
	for range stopTries {
		onThread(func() {
			if err = ts.stop(one); err == nil && !ts.same() {
				err = errEnded
			}
			if err == nil {
				err = do()
			}
			ts.longest = max(ts.longest, ts.letGo())
		})
		if !errors.Is(err, errBusy) {
			return err
		}
		time.Sleep(stopPause)
	}
	return err
}

// calling has a thread make calls, and puts it back.
func (ts *threads) calling(ms []mapping, do func(*remote) error) error {
	r, err := ts.remote(ms)
	if err != nil {
		return err
	}
	err = do(r)
	if eerr := r.end(); err == nil {
		err = eerr
	}
	return err
}

// image is the memory of the image.
func (a *Attachment) image(ts *threads) arch.Moved {
	return arch.Moved{Memory: ts.memory(), Bias: a.bias}
}

// auxValue returns a value of an auxiliary vector, 0 if there is none.
func auxValue(aux []byte, key uint64) uint64 {
	for ; len(aux) >= 16; aux = aux[16:] {
		if le.Uint64(aux) == key {
			return le.Uint64(aux[8:])
		}
	}
	return 0
}

// homePage is where the runtime of a process is found (stub/src/amd64/machine.h, HOME_PAGE).
const homePage = 0x1f0000

// free returns an error if something is where the plan's memory is to be.
func (a *Attachment) free(ms []mapping) error {
	lo, hi := a.bias+a.m.RWAddr, a.bias+a.m.RXAddr+pageUp(uint64(len(a.m.RX)))
	for _, m := range ms {
		switch {
		case m.lo <= homePage && homePage < m.hi:
			return errors.New("a tracer is in it: it is being recorded, or traces itself, or its recording ended without it")
		case m.lo < hi && lo < m.hi:
			return fmt.Errorf("it uses the memory where the tracer would be (%#x to %#x)", m.lo, m.hi)
		}
	}
	return nil
}

// An area is memory that was mapped in the process.
type area struct{ at, size uint64 }

// mapMemory maps the plan's memory, and a stack.
func (a *Attachment) mapMemory(r *remote) (s remoteStack, err error) {
	add := func(at, size uint64, prot int) {
		if err != nil || size == 0 {
			return
		}
		if _, err = r.mmap(at, size, prot); err == nil {
			a.mapped = append(a.mapped, area{at, size})
		}
	}
	add(a.bias+a.m.RWAddr, pageUp(a.m.RWSize), unix.PROT_READ|unix.PROT_WRITE)
	add(a.bias+a.m.RXAddr, pageUp(uint64(len(a.m.RX))), unix.PROT_READ|unix.PROT_EXEC)
	if err == nil {
		s, err = r.mapStack()
	}
	return s, err
}

// unmapMemory gives the plan's memory back.
func (a *Attachment) unmapMemory(r *remote) error {
	for _, m := range a.mapped {
		if _, err := r.call(unix.SYS_MUNMAP, m.at, m.size); err != nil {
			return fmt.Errorf("unmap %#x in the process: %w", m.at, err)
		}
	}
	return nil
}

// ownPages makes the pages that will change the process's own, by writing what is there.
func (a *Attachment) ownPages(ts *threads) error {
	b, last, mem := make([]byte, 1), ^uint64(0), a.image(ts)
	for i := range a.m.Edits {
		e := &a.m.Edits[i]
		for at := e.Addr &^ (PageSize - 1); at < e.Addr+uint64(len(e.Old)); at += PageSize {
			if at == last {
				continue
			}
			last = at
			addr := max(at, e.Addr)
			if err := mem.ReadAt(b, addr); err != nil {
				return err
			}
			if err := mem.WriteAt(b, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// start has a thread start the runtime. The others run: nothing leads there yet.
func (a *Attachment) start(r *remote, pid int, stack remoteStack, aux []byte, pool int) error {
	// argc, no arguments, no environment, and the auxiliary vector.
	top := (stack.hi - 4*PageSize) &^ 15
	if len(aux) > mostAux {
		return fmt.Errorf("auxiliary vector of %d bytes", len(aux))
	}
	if err := r.t.WriteAt(append(make([]byte, 24), aux...), top); err != nil {
		return err
	}
	run := a.m.Running
	fd, err := r.hand(pid, pool, stack.lo+remoteRoom)
	if err != nil {
		return err
	}
	a.started = true
	path := make([]byte, format.ConfigNSession)
	copy(path, fmt.Sprintf("/proc/self/fd/%d", fd))
	if err := r.t.WriteAt(path, a.bias+run.Session); err != nil {
		return err
	}
	traced, err := r.run(stack, a.bias+run.Remote, a.bias+run.Attach, top, top)
	if err != nil {
		return err
	}
	if err := r.keepThread(); err != nil {
		return err
	}
	if _, err := r.call(unix.SYS_CLOSE, fd); err != nil {
		return err
	}
	if traced == 0 {
		return errors.New("the runtime cannot open the recorder's buffer in it")
	}
	return r.unmapStack(stack)
}

// redZone is how far below its stack pointer a function may keep something.
const redZone = 128

// liveStack calls a function for each word of a thread's stack that can be in use, with its address.
func (t *thread) liveStack(ms []mapping, word func(at, v uint64)) error {
	from := (t.regs.sp() - redZone) &^ 7
	i := sort.Search(len(ms), func(i int) bool { return ms[i].hi > from })
	if i == len(ms) || ms[i].lo > t.regs.sp() {
		return nil // no stack at all
	}
	from = max(from, ms[i].lo)
	return t.words(from, min(ms[i].hi, from+mostStack), word)
}

// words calls a function for each word from one address to another.
func (t *Process) words(from, to uint64, word func(at, v uint64)) error {
	const step = 1 << 20
	for from < to {
		b := make([]byte, min(to-from, step))
		if err := t.ReadAt(b, from); err != nil {
			return err
		}
		for i := 0; i+8 <= len(b); i += 8 {
			word(from+uint64(i), le.Uint64(b[i:]))
		}
		from += uint64(len(b))
	}
	return nil
}

// undo takes out what a failed attempt has added before anything has led there.
func (a *Attachment) undo(ts *threads, ms []mapping, stack remoteStack) error {
	return ts.within(false, func() error {
		return ts.calling(ms, func(r *remote) error {
			if a.started {
				_, err := a.leave(ts, r, stack)
				return err
			}
			return errors.Join(a.unmapMemory(r), r.unmapStack(stack))
		})
	})
}
