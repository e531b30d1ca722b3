package tracee

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
// that is there. Then all threads are stopped, one of them starts the runtime, and the sites are written. A site is left
// alone if a thread stands in the middle of what is rewritten, or if a word of a thread's stack points there, which may be
// where a handler goes back to. Whatever fails, the process is as it was before.

// Attachment is a plan in a process that runs, and in the children that it forks.
type Attachment struct {
	// Stopped is the longest time for which all of the process's threads were stopped.
	Stopped time.Duration
	// Busy is how many functions were left alone because a thread was at their beginning.
	Busy int

	m      *patch.Memory
	bias   uint64
	edits  []arch.Edit // those that were written
	mapped []area
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
	aux, err := os.ReadFile(ts.dir + "/auxv")
	if err != nil {
		return nil, err
	}
	entry := auxValue(aux, atEntry)
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
			stack, err = a.mapMemory(r)
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
		err = ts.within(false, func() error { return a.start(ts, ms, stack, aux, pool) })
	}
	if err != nil {
		if uerr := a.undo(ts, ms, stack); uerr != nil && !errors.Is(uerr, errEnded) {
			err = fmt.Errorf("%w; what was added to the process is still there: %w", err, uerr)
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
// been asked to are let go when the thread that traces them ends, so each try has its own.
func (ts *threads) within(one bool, do func() error) (err error) {
	for range stopTries {
		onThread(func() {
			if err = ts.stop(one); err == nil {
				err = do()
			}
			if held := ts.letGo(); !one {
				ts.longest = max(ts.longest, held)
			}
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

// start starts the runtime and writes the sites, while all threads are stopped.
func (a *Attachment) start(ts *threads, ms []mapping, stack remoteStack, aux []byte, pool int) error {
	edits, err := a.notBusy(ts, ms)
	if err != nil {
		return err
	}
	return ts.calling(ms, func(r *remote) error {
		// argc, no arguments, no environment, and the auxiliary vector.
		top := (stack.hi - 4*PageSize) &^ 15
		if len(aux) > mostAux {
			return fmt.Errorf("auxiliary vector of %d bytes", len(aux))
		}
		if err := r.t.WriteAt(append(make([]byte, 24), aux...), top); err != nil {
			return err
		}
		run := a.m.Running
		fd, err := r.hand(ts.pid, pool, stack.lo+remoteRoom)
		if err != nil {
			return err
		}
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
		if err := arch.Write(a.image(ts), PageSize, edits); err != nil {
			return err
		}
		a.edits = edits
		return r.unmapStack(stack)
	})
}

// notBusy returns the edits whose bytes no thread is in the middle of.
func (a *Attachment) notBusy(ts *threads, ms []mapping) ([]arch.Edit, error) {
	edits := a.m.Edits
	busy := map[int]bool{}
	window := func(v uint64) int { // -1: it is in the middle of none
		v -= a.bias
		i := sort.Search(len(edits), func(i int) bool { return edits[i].Addr >= v }) - 1
		if i >= 0 && v < edits[i].Addr+uint64(len(edits[i].Old)) && !isTable(&edits[i]) {
			return i
		}
		return -1
	}
	look := func(v uint64) {
		if i := window(v); i >= 0 {
			busy[i] = true
		}
	}
	moved := map[*thread]uint64{}
	for _, t := range ts.all {
		if to, ok := a.m.Running.InCopy(t.regs.pc() - a.bias); ok {
			moved[t] = a.bias + to
		} else {
			look(t.regs.pc())
		}
		if err := t.liveStack(ms, func(_, v uint64) { look(v) }); err != nil {
			return nil, err
		}
	}
	for t, to := range moved {
		if i := window(t.regs.pc()); i >= 0 && !busy[i] {
			t.regs.setPC(to)
			t.changed = true
		}
	}
	a.Busy = len(busy)
	if len(busy) == 0 {
		return edits, nil
	}
	edits = slices.Clone(edits)
	for i := len(edits) - 1; i >= 0; i-- {
		if busy[i] {
			edits = slices.Delete(edits, i, i+1)
		}
	}
	return edits, nil
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

// undo takes out what a failed attempt has added: no thread has come there.
func (a *Attachment) undo(ts *threads, ms []mapping, stack remoteStack) error {
	return ts.within(false, func() error {
		if err := a.restoreSites(ts); err != nil {
			return err
		}
		return ts.calling(ms, func(r *remote) error {
			if stack.lo == 0 {
				return a.unmapMemory(r)
			}
			_, err := a.leave(ts, r, stack)
			return err
		})
	})
}
