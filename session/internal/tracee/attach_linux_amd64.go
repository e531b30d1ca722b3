package tracee

import (
	"cmp"
	"errors"
	"fmt"
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
// that is there; then one thread starts the runtime, to which nothing leads yet, while the others run. Only the changes
// of code are made while all threads are stopped, in stops of a bounded length (sites_linux_amd64.go). Whatever fails, the
// process is as it was before.

// Attachment is a plan in a process that runs, and in the children that it forks.
type Attachment struct {
	// Stopped is the longest time for which a thread of the process was stopped, or all.
	Stopped time.Duration
	// Busy is how many functions were left alone because a thread was at their beginning.
	Busy int

	images []*image    // the program is the first
	edits  []arch.Edit // those that were written, of all images, sorted
	mapped []area

	started bool // the runtime, perhaps
}

// An image is a plan for a part of a process. Addresses of the plan's are link-time addresses.
type image struct {
	m       *patch.Memory
	bias    uint64
	library *Library // nil: the program itself
}

// mostStack bounds how much of a stack is looked at.
const mostStack = 16 << 20

// Attach puts plans into a process: m into the program, which is the home of the others, and each of libraries that has
// one. pool is a descriptor of the recorder's pool. An error says what stands against it; the process has not been changed
// then.
func Attach(pid int, m *patch.Memory, libraries []*Library, pool int) (*Attachment, error) {
	a := &Attachment{images: []*image{{m: m}}}
	for _, l := range libraries {
		if l.Memory != nil {
			a.images = append(a.images, &image{m: l.Memory, bias: l.lo, library: l})
		}
	}
	for _, im := range a.images {
		if im.m.Running == nil {
			return nil, errors.New("a plan for a process at its start")
		}
		if err := Check(im.m); err != nil {
			return nil, err
		}
	}
	if err := CheckAttach(pid); err != nil {
		return nil, err
	}
	ts, err := openThreads(pid)
	if err != nil {
		return nil, err
	}
	defer ts.close()
	entry := auxValue(ts.aux, atEntry)
	if a.images[0].bias = entry - m.OrigEntry; entry == 0 || a.images[0].bias%PageSize != 0 {
		return nil, ErrNotPlanned
	}
	ms, err := ts.maps()
	if err == nil {
		err = a.free(ms)
	}
	edits := a.planned()
	if err == nil {
		err = arch.Compare(ts.memory(), PageSize, arch.All(edits))
	}
	if err != nil {
		return nil, err
	}
	var stack remoteStack
	err = ts.within(true, func() error {
		if err := ts.filtered(); err != nil {
			return err
		}
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
	for _, im := range a.images {
		if err == nil {
			err = ts.memory().WriteAt(im.m.RX, im.bias+im.m.RXAddr)
		}
	}
	if err == nil {
		err = ownPages(ts.memory(), edits)
	}
	if err == nil {
		err = ts.within(true, func() error {
			return ts.calling(ms, func(r *remote) error { return a.start(r, ts.pid, stack, ts.aux, pool) })
		})
	}
	if err != nil {
		if uerr := a.undo(ts, ms, stack); uerr != nil && !errors.Is(uerr, ErrEnded) {
			err = fmt.Errorf("%w; what was added to the process is still there: %w", err, uerr)
		}
		return nil, err
	}
	if err = a.writeSites(ts, edits); err != nil {
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
	ms, err := readMaps(dir)
	if _, ended := liveThread(ts.pid); err != nil && ended != nil {
		err = ended
	}
	return ms, err
}

// within stops threads, all or one, and does something meanwhile. It tries again if one does not stop: those that have
// been asked to are let go when the thread that traces them ends, so each try has its own. The error is ErrEnded if the
// process runs another program by now.
func (ts *threads) within(one bool, do func() error) (err error) {
	for range stopTries {
		onThread(func() {
			if err = ts.stop(one); err == nil && !ts.same() {
				err = ErrEnded
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

// planned are the edits of all images, with addresses of the process.
func (a *Attachment) planned() []arch.Edit {
	var all []arch.Edit
	for _, im := range a.images {
		for _, e := range im.m.Edits {
			e.Addr += im.bias
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b arch.Edit) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

// free returns an error if something is where the plans' memory is to be.
func (a *Attachment) free(ms []mapping) error {
	for _, m := range ms {
		if m.lo <= homePage && homePage < m.hi {
			return errors.New("a tracer is in it: it is being recorded, or traces itself, or its recording ended without it")
		}
		for _, im := range a.images {
			if lo, hi := im.added(); m.lo < hi && lo < m.hi {
				return fmt.Errorf("it uses the memory where the tracer would be (%#x to %#x)", m.lo, m.hi)
			}
		}
	}
	return nil
}

// added is where the memory is that an image gets.
func (im *image) added() (lo, hi uint64) {
	return im.bias + im.m.RWAddr, im.bias + im.m.RXAddr + pageUp(uint64(len(im.m.RX)))
}

// An area is memory that was mapped in the process.
type area struct{ at, size uint64 }

// mapMemory maps the plans' memory, and a stack.
func (a *Attachment) mapMemory(r *remote) (s remoteStack, err error) {
	add := func(at, size uint64, prot int) {
		if err != nil || size == 0 {
			return
		}
		if _, err = r.mmap(at, size, prot); err == nil {
			a.mapped = append(a.mapped, area{at, size})
		}
	}
	for _, im := range a.images {
		add(im.bias+im.m.RWAddr, pageUp(im.m.RWSize), unix.PROT_READ|unix.PROT_WRITE)
		add(im.bias+im.m.RXAddr, pageUp(uint64(len(im.m.RX))), unix.PROT_READ|unix.PROT_EXEC)
	}
	if err == nil {
		s, err = r.mapStack()
	}
	return s, err
}

// unmapMemory gives the plans' memory back.
func (a *Attachment) unmapMemory(r *remote) error {
	for _, m := range a.mapped {
		if _, err := r.call(unix.SYS_MUNMAP, m.at, m.size); err != nil {
			return fmt.Errorf("unmap %#x in the process: %w", m.at, err)
		}
	}
	return nil
}

// ownPages makes the pages that will change the process's own, by writing what is there.
func ownPages(mem arch.Memory, edits []arch.Edit) error {
	b, last := make([]byte, 1), ^uint64(0)
	for i := range edits {
		e := &edits[i]
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

// start has a thread start the runtime, which the libraries' plans join. The others run: nothing leads there yet.
func (a *Attachment) start(r *remote, pid int, stack remoteStack, aux []byte, pool int) (err error) {
	// argc, no arguments, no environment, and the auxiliary vector.
	top := (stack.hi - 4*PageSize) &^ 15
	if len(aux) > mostAux {
		return fmt.Errorf("auxiliary vector of %d bytes", len(aux))
	}
	if err := r.t.WriteAt(append(make([]byte, 24), aux...), top); err != nil {
		return err
	}
	home := a.images[0]
	fd, err := r.hand(pid, pool, stack.lo+remoteRoom)
	if err != nil {
		return err
	}
	defer func() { // whatever happens: it would keep the buffer
		if _, e := r.call(unix.SYS_CLOSE, fd); err == nil && e == nil {
			err = r.unmapStack(stack)
		} else {
			err = errors.Join(err, e)
		}
	}()
	a.started = true
	path := make([]byte, format.ConfigNSession)
	copy(path, fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	if err := r.t.WriteAt(path, home.bias+home.m.Running.Session); err != nil {
		return err
	}
	for _, im := range a.images {
		run := im.m.Running
		traced, err := r.run(stack, im.bias+run.Remote, im.bias+run.Attach, top, top)
		switch {
		case err != nil:
			return err
		case traced == 0 && im == home:
			return errors.New("the runtime cannot open the recorder's buffer in it")
		case traced == 0:
			return fmt.Errorf("%s: the runtime does not accept the library", im.library.Path)
		}
		if err := r.keepThread(); err != nil {
			return err
		}
	}
	return nil
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
				_, err := a.leave(ts, ms, r, stack)
				return err
			}
			return errors.Join(a.unmapMemory(r), r.unmapStack(stack))
		})
	})
}
