package tracee

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
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

// Attachment is what was put into a process that runs, and so into the children that it forks. These go their own ways:
// each operation looks at what of it is in the process that it is about (view).
type Attachment struct {
	// Stopped is the longest time for which a thread of the process was stopped, or all.
	Stopped time.Duration
	// Busy are the changes that were not made, as a thread was in the middle of what they are of all the time, or it is in
	// two pages.
	Busy []arch.Edit
	// Changed are those that were not made, as the program has changed what was there itself.
	Changed []arch.Edit
	// NoLoader is why libraries that are loaded later are not seen, and NoExec why programs that are executed are not; nil:
	// they are.
	NoLoader, NoExec error

	mu     sync.Mutex
	images []*image        // the program is the first
	gone   map[*image]bool // of a view: those of libraries that are loaded no more, at whose place there can be others
	apart  []*image        // those that have only their memory in the process
	hooks  hooks
	seen   map[int][]*Library // those that were loaded when a process was looked at last

	edits  []arch.Edit // those that were written, of all images, sorted
	mapped []area
	stays  []area // what was added to a program when that began (withdraw_linux_amd64.go)

	started bool // the runtime, perhaps
}

// An image is a plan for a part of a process. Addresses of the plan's are link-time addresses.
type image struct {
	m       *patch.Memory
	bias    uint64
	library *Library // nil: the program itself
	beside  bool     // the process has had it before: these are more functions of it
	mapped  []area
	edits   []arch.Edit // those that were written
	failed  bool        // it could not be put into the process
	notes   []byte      // the journal, until it is written
	journal uint64      // where that is; 0: there is none
	size    uint64      // of the code of an image that was found again by that
	stack   area        // that was found, too
}

// home tells the plan of the program that others join.
func (im *image) home() bool { return im.library == nil && !im.beside }

const (
	// mostStack bounds how much of a stack is looked at.
	mostStack = 16 << 20
	// mostUnseen bounds how often a process that is attached to is looked at for libraries that nobody has seen come.
	mostUnseen = 20
)

// A Target is a process and what is to be put into it.
type Target struct {
	PID  int
	Plan *patch.Memory // of the program, which is the home of the others
	// Libraries plans libraries that are loaded, by setting their Memory; nil: they are left alone, now and later.
	Libraries func([]*Library)
	Execs     *ExecHooks // nil: programs that it executes are left alone
	Pool      int        // a descriptor of the recorder's pool
	// Undo is called if what was put in is taken out again. Who waits there for an answer to what Execs or libraries ask for
	// is to get one: it is waited for.
	Undo func()
	// Program is what the process ran when it was planned for; nil: that does not matter. If it runs another one, the error
	// is ErrExecuted.
	Program *Program
}

// Attach puts plans into a process: into the program, and into its libraries. An error says what stands against it; the
// process has not been changed then.
func Attach(t Target) (*Attachment, error) {
	if err := CheckAttach(t.PID); err != nil {
		return nil, err
	}
	ts, err := openThreads(t.PID)
	if err != nil {
		return nil, err
	}
	defer ts.close()
	if t.Program != nil && t.Program.Executed() { // else what was opened is the same
		return nil, ErrExecuted
	}
	if _, err := ts.retire(); err != nil {
		return nil, err
	}
	home := &image{m: t.Plan}
	entry := auxValue(ts.aux, atEntry)
	if home.bias = entry - t.Plan.OrigEntry; entry == 0 || home.bias%PageSize != 0 {
		return nil, ErrNotPlanned
	}
	a := &Attachment{seen: make(map[int][]*Library)}
	if a.hooks.finder, err = ts.findHook(); err != nil && t.Plan.Running != nil && t.Plan.Running.Known {
		return nil, err
	}
	images := append([]*image{home}, a.unseen(ts, t.Libraries)...)
	if err := a.add(ts, images, t.Pool); err != nil {
		return nil, unloaded(images, err)
	}
	err = a.hook(ts, &t)
	// What was loaded while nobody saw it. What comes even then has to wait for the loader to say so.
	for range mostUnseen {
		var more []*image
		if err == nil {
			more = a.unseen(ts, t.Libraries)
		}
		if len(more) == 0 {
			break
		}
		err = a.add(ts, more, t.Pool)
	}
	if err != nil {
		t.Undo()
		_, derr := a.Detach(t.PID)
		return nil, leftBy(err, derr)
	}
	a.Stopped = ts.longest
	return a, nil
}

// unseen are the images of libraries that have come since a process was looked at last, as far as they are planned.
func (a *Attachment) unseen(ts *threads, plan func([]*Library)) (images []*image) {
	if plan == nil {
		return nil
	}
	ms, err := ts.maps()
	if err != nil {
		return nil
	}
	come := a.newcomers(ts, ms)
	planIn(ms, come, plan)
	for _, l := range come {
		if l.Memory != nil {
			images = append(images, l.image())
		}
	}
	return images
}

// image is the plan's, of a library that has one.
func (l *Library) image() *image {
	if r := l.Memory.Running; r != nil { // else it is refused
		l.parts = r.Parts
	}
	return &image{m: l.Memory, bias: l.lo, library: l}
}

// newcomers are libraries that have come since a process was looked at last.
func (a *Attachment) newcomers(ts *threads, ms []mapping) (come []*Library) {
	all := libraries(ms, auxValue(ts.aux, atEntry))
	for _, l := range all {
		l.pid = ts.pid
		if !slices.ContainsFunc(a.seen[ts.pid], func(o *Library) bool { return o.lo == l.lo && o.key == l.key }) {
			come = append(come, l)
		}
	}
	a.seen[ts.pid] = all
	return come
}

// add puts images into a process that runs: those with the program, which is the first, or more.
func (a *Attachment) add(ts *threads, images []*image, pool int) error {
	b := &Attachment{images: images}
	home := images[0].home()
	ms, err := ts.maps()
	if err == nil && home {
		err = ts.unrecorded(ms)
	}
	for _, im := range images {
		if err == nil && im.m.Running == nil {
			err = errors.New("a plan for a process at its start")
		}
		if err == nil {
			err = Check(im.m)
		}
		if err == nil {
			err = im.note(a.images)
		}
		if err == nil {
			err = ts.free(ms, im)
		}
	}
	var edits []arch.Edit
	if err == nil {
		edits, err = b.compared(ts)
	}
	if changed := images[0].leaveChanged(ts.memory(), err); len(changed) > 0 {
		if err = images[0].note(a.images); err == nil {
			edits, err = b.compared(ts)
		}
		a.Changed = changed
	}
	if len(b.images) < len(images) {
		a.seen[ts.pid] = slices.DeleteFunc(a.seen[ts.pid], func(l *Library) bool { // those that were left out can come again
			is := func(im *image) bool { return im.library == l }
			return slices.ContainsFunc(images, is) && !slices.ContainsFunc(b.images, is)
		})
	}
	if err != nil || len(b.images) == 0 {
		return err
	}
	images = b.images
	if err := ts.roomFor(images, edits); err != nil {
		return err
	}
	var stack remoteStack
	err = ts.within(true, func() error {
		if err := ts.filtered(); err != nil {
			return err
		}
		return ts.calling(ms, func(r *remote) (err error) {
			if stack, err = b.mapMemory(r); err != nil {
				err = errors.Join(err, b.unmapMemory(r))
			}
			return err
		})
	})
	if errors.Is(err, unix.EEXIST) {
		err = ts.takenSince(images, err)
	}
	if err != nil {
		return err
	}
	for _, im := range images {
		if err == nil {
			err = ts.memory().WriteAt(im.m.RX, im.bias+im.m.RXAddr)
		}
		if err == nil {
			err = im.complete(ts.memory())
		}
	}
	if err == nil {
		err = b.ownPages(ts.memory(), edits)
	}
	if err == nil {
		// Children are found by the pool, which the program's runtime maps: they get all that is mapped, or nothing.
		start := func(ms []mapping) error {
			return ts.calling(ms, func(r *remote) error { return b.start(r, stack, ts.aux, pool) })
		}
		if images[0].beside {
			err = ts.outside(a.asleep, start)
		} else {
			err = ts.within(!home, func() error { return start(ms) })
		}
	}
	if errors.Is(err, errNoAnswer) {
		return err
	}
	if errors.Is(err, errRefused) && b.withdraw(ts) == nil {
		return err
	}
	if err != nil && (home || images[0].beside && !b.started) {
		return leftBy(err, b.undo(ts, ms, stack))
	}
	if err == nil && home {
		err = a.leadUnwinders(ts, images[0])
	}
	if err == nil {
		err = b.writeSites(ts, edits)
	}
	b.divide()
	a.keep(images)
	a.Busy = append(a.Busy, b.Busy...)
	if err != nil && home {
		_, derr := a.Detach(ts.pid)
		err = leftBy(err, derr)
	}
	return err
}

// compared are the edits of all images, for which the process has the bytes that are to be replaced. Libraries that have been
// unloaded since they were planned are left out.
func (a *Attachment) compared(ts *threads) ([]arch.Edit, error) {
	var left []*image
	var all []arch.Edit
	for _, im := range a.images {
		edits := im.planned()
		if im.beside {
			edits = leftAlone(ts.memory(), edits)
		}
		err := im.compare(ts, edits)
		if err != nil && (im.beside || !errors.Is(err, ErrNotPlanned)) {
			return nil, err
		}
		if err == nil {
			left, all = append(left, im), append(all, edits...)
		}
	}
	a.images = left
	slices.SortStableFunc(all, byAddress)
	return all, nil
}

// A program may have changed fewChanged sites itself, and one more of somePlanned: of another file more would be other ones.
const fewChanged, somePlanned = 2, 20

// leaveChanged leaves sites of a program alone, if their bytes are others than were planned for, as an error of comparing them says:
// whoever has changed them may do so again. It returns which; none: it is something else.
func (im *image) leaveChanged(mem arch.Memory, err error) (changed []arch.Edit) {
	if bug := (*arch.Bug)(nil); !im.home() || !errors.As(err, &bug) || bug.Class != arch.Mismatch {
		return nil
	}
	left := *im.m
	left.Edits = nil
	for i, e := range im.planned() {
		if isEarly(&e) && arch.Compare(mem, PageSize, arch.All([]arch.Edit{e})) != nil {
			changed = append(changed, e)
		} else {
			left.Edits = append(left.Edits, im.m.Edits[i])
		}
	}
	if len(changed) > fewChanged+len(im.m.Edits)/somePlanned {
		return nil
	}
	im.m = &left
	return changed
}

// compare compares the bytes that an image's edits are for with those of the process. The error is ErrNotPlanned if that is a
// library which is not there, or not yet again. One that has come again meanwhile is compared again.
func (im *image) compare(ts *threads, edits []arch.Edit) error {
	for tries := 1; ; tries++ {
		err := im.unlessGone(ts, arch.Compare(ts.memory(), PageSize, arch.All(edits)))
		if err == nil || im.library == nil || errors.Is(err, ErrNotPlanned) || errors.Is(err, ErrEnded) || tries == writeTries {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// leftBy is the error of an attachment that has failed, of which undoing says whether something was left: nothing is in a process
// that has ended or runs another program, and that is why.
func leftBy(err, undoing error) error {
	switch {
	case undoing == nil:
		return err
	case errors.Is(undoing, ErrEnded):
		return ErrEnded
	case errors.Is(undoing, ErrOther):
		return ErrOther
	}
	return fmt.Errorf("%w; %w: %w", err, errLeft, undoing)
}

// errLeft: an attachment has failed, and so has undoing it.
var errLeft = errors.New("what was added to the process is still there")

// Left tells whether an error of Attach says that something of a tracer can be in the process still: of this one, or of one that was
// to be taken out first.
func Left(err error) bool {
	return slices.ContainsFunc([]error{errLeft, errNoAnswer, errStuck, ErrStays}, func(is error) bool { return errors.Is(err, is) })
}

// unloaded is the error of an attachment that has failed. If what is read or written is not there any more, a library has been
// unloaded since the process was looked at, which another try finds.
func unloaded(images []*image, err error) error {
	if len(images) > 1 && errors.Is(err, unix.EIO) && !errors.Is(err, errLeft) {
		return &TakenError{0, err}
	}
	return err
}

// keep adds images to those of an attachment. More functions are put into each process on their own that was forked before: what is
// at the same place in several is one image.
func (a *Attachment) keep(images []*image) {
	for _, im := range images {
		i := slices.IndexFunc(a.images, im.same)
		if !im.beside || i < 0 {
			a.images = append(a.images, im)
			continue
		}
		o := a.images[i]
		o.edits = append(o.edits, without(im.edits, o.edits)...)
		slices.SortStableFunc(o.edits, byAddress)
	}
}

// same tells whether another image is the same plan, at the same place.
func (im *image) same(o *image) bool {
	return o.m.Running != nil && o.m.Running.Image == im.m.Running.Image && o.bias+o.m.RXAddr == im.bias+im.m.RXAddr
}

// divide notes which edits were written in which image.
func (a *Attachment) divide() {
	for _, e := range a.edits {
		in := a.images[0]
		for _, im := range a.images {
			if l := im.library; l != nil && l.lo <= e.Addr && e.Addr < l.hi {
				in = im
			}
		}
		in.edits = append(in.edits, e)
	}
}

// view is what of an attachment is in a process, by its mappings; nil: it runs another program by now.
func (a *Attachment) view(pid int, ms []mapping) *Attachment {
	v := &Attachment{started: true, hooks: a.hooks, gone: make(map[*image]bool)}
	joined := joinedIn(pid)
	for i, im := range a.images {
		at := im.bias + im.m.RXAddr
		there := slices.ContainsFunc(ms, func(m mapping) bool { return m.lo <= at && at < m.hi && m.perms == "r-xp" && m.path == "" })
		if i == 0 && (!there || otherRuntime(pid, im)) {
			return nil
		}
		if !there {
			continue
		}
		if im.beside && !joined(im) {
			v.mapped, v.apart = append(v.mapped, im.mapped...), append(v.apart, im)
			continue
		}
		v.images = append(v.images, im)
		v.mapped = append(v.mapped, im.mapped...)
		if im.library != nil && !im.library.in(ms) {
			v.gone[im] = true
			continue
		}
		v.edits = append(v.edits, im.edits...)
	}
	v.mapped = append(v.mapped, a.hooks.pages()...)
	v.edits = append(v.edits, a.hooks.edits...)
	slices.SortStableFunc(v.edits, byAddress)
	v.edits = layered(v.edits)
	return v
}

// there yields the images whose code is there: of a view, not those of libraries that were gone when it was taken.
func (a *Attachment) there(yield func(*image) bool) {
	for _, im := range a.images {
		if !a.gone[im] && !yield(im) {
			return
		}
	}
}

// joinedIn tells which images have joined the runtime of a process: one that was forked before that has their memory alone.
func joinedIn(pid int) func(*image) bool {
	runtime := sync.OnceValues(func() (*Runtime, error) {
		r, err := OpenRuntime(pid)
		if err == nil {
			r.Close()
		}
		return r, err
	})
	return func(im *image) bool {
		r, err := runtime()
		return err != nil || slices.ContainsFunc(r.Images, im.is)
	}
}

func byAddress(a, b arch.Edit) int { return cmp.Compare(a.Addr, b.Addr) }

// maps are the process's mappings.
func (ts *threads) maps() ([]mapping, error) { return mapsOf(ts.pid) }

// inStops does something in stops of a bounded length, of all threads or one, as long as there is more to do, and lets the
// process run between them for as long as a stop took. do is told when its stop began.
func (ts *threads) inStops(one bool, more func() bool, do func(began time.Time) error) error {
	for more() {
		began := time.Now()
		err := ts.within(one, func() error {
			began = time.Now()
			return do(began)
		})
		if err != nil {
			return err
		}
		if more() {
			time.Sleep(time.Since(began))
		}
	}
	return nil
}

// within stops threads, all or one, and does something meanwhile. It tries again if one does not stop, or somebody else traces
// one: those that have been asked to are let go when the thread that traces them ends, so each try has its own. The error is
// ErrEnded if the process runs another program by now.
func (ts *threads) within(one bool, do func() error) (err error) {
	deadline := time.Now().Add(endPatience)
	for range stopTries {
		onThread(func() {
			if err = ts.stop(one); err == nil && !ts.same() {
				err = ErrEnded
			}
			if err == nil {
				err = do()
			}
			held := ts.letGo()
			ts.longest, ts.held = max(ts.longest, held), ts.held+held
		})
		var traced *tracedError // perhaps for a moment: others look at stacks
		if !errors.Is(err, errBusy) && !errors.As(err, &traced) {
			return err
		}
		if traced == nil || !traced.passes(deadline) {
			time.Sleep(stopPause)
		}
	}
	return err
}

// calling has a thread make calls, and puts it back.
func (ts *threads) calling(ms []mapping, do func(*remote) error) error {
	r, err := ts.remote(ms)
	if err != nil {
		return err
	}
	if err = do(r); errors.Is(err, errNoAnswer) {
		r.forsake()
		return err
	}
	if eerr := r.end(); err == nil {
		err = eerr
	}
	return err
}

// planned are the edits of all images, with addresses of the process.
func (a *Attachment) planned() []arch.Edit {
	var all []arch.Edit
	for _, im := range a.images {
		all = append(all, im.planned()...)
	}
	slices.SortStableFunc(all, byAddress)
	return all
}

// planned are the edits of an image.
func (im *image) planned() []arch.Edit {
	all := slices.Clone(im.m.Edits)
	for i := range all {
		all[i].Addr += im.bias
	}
	return all
}

// added is where the memory is that an image gets.
func (im *image) added() (lo, hi uint64) {
	_, hi = im.code()
	return im.bias + im.m.RWAddr, hi + uint64(len(im.notes))
}

// mapMemory maps the plans' memory, and a stack. What is the home's is not for children until that is started. If the recorder is
// killed before the first journal has begun, what has been mapped until then stays, for nobody: to be named before it is there it
// would need a name that could be another's by then, as the process maps memory itself.
func (a *Attachment) mapMemory(r *remote) (s remoteStack, err error) {
	for _, im := range a.images {
		if err == nil {
			err = im.mapAt(func(at, size uint64, prot int) error { _, err := r.mmap(at, size, prot); return err })
		}
		a.mapped = append(a.mapped, im.mapped...)
	}
	if err == nil && a.images[0].home() {
		err = r.advise(unix.MADV_DONTFORK, a.mapped...)
	}
	if err == nil {
		s, err = r.mapStack()
	}
	stack := &s // which the first one's journal names
	for _, im := range a.images {
		if err == nil {
			err = im.begin(&r.t.Process, stack)
		}
		stack = nil
	}
	return s, err
}

// mapAt maps an image's memory, by whoever can.
func (im *image) mapAt(mmap func(at, size uint64, prot int) error) error {
	for _, p := range []struct {
		area
		prot int
	}{
		{area{im.bias + im.m.RWAddr, pageUp(im.m.RWSize)}, unix.PROT_READ | unix.PROT_WRITE},
		{area{im.bias + im.m.RXAddr, pageUp(im.m.Size())}, unix.PROT_READ | unix.PROT_EXEC},
		{area{im.journal, uint64(len(im.notes))}, unix.PROT_READ},
	} {
		if p.size == 0 {
			continue
		}
		if err := mmap(p.at, p.size, p.prot); err != nil {
			return err
		}
		im.mapped = append(im.mapped, p.area)
	}
	return nil
}

// ownPages makes the pages that will change the process's own, by writing what is there. Not those of libraries: between reading and
// writing, another one can come to the place of one that is unloaded.
func (a *Attachment) ownPages(mem arch.Memory, edits []arch.Edit) error {
	return ownPages(mem, edits, func(addr uint64) bool {
		return slices.ContainsFunc(a.images, func(im *image) bool { return im.library != nil && im.library.lo <= addr && addr < im.library.hi })
	})
}

// ownPages does it for all pages but those that are to be left.
func ownPages(mem arch.Memory, edits []arch.Edit, leave func(addr uint64) bool) error {
	b, last := make([]byte, 1), ^uint64(0)
	for i := range edits {
		e := &edits[i]
		for at := e.Addr &^ (PageSize - 1); at < e.Addr+uint64(len(e.Old)); at += PageSize {
			if at == last {
				continue
			}
			last = at
			addr := max(at, e.Addr)
			if leave(addr) {
				continue
			}
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

// start has a thread start the runtime, which the libraries' plans join. Nothing leads there yet.
func (a *Attachment) start(r *remote, stack remoteStack, aux []byte, pool int) (err error) {
	// argc, no arguments, no environment, and the auxiliary vector.
	top := (stack.hi - 4*PageSize) &^ 15
	if len(aux) > mostAux {
		return fmt.Errorf("auxiliary vector of %d bytes", len(aux))
	}
	if err := r.t.WriteAt(append(make([]byte, 24), aux...), top); err != nil {
		return err
	}
	home := a.images[0]
	if home.home() {
		if err := r.connect(stack.lo + remoteRoom); err != nil {
			return err
		}
		fd, err := r.hand(pool)
		if err != nil {
			return err
		}
		path := make([]byte, format.ConfigNSession)
		copy(path, fmt.Sprintf("+%d", fd)) // the line closes it; there may be no /proc
		if err := r.t.WriteAt(path, home.bias+home.m.Session); err != nil {
			return err
		}
	}
	a.started = true
	defer func() {
		if err != nil && !errors.Is(err, errRefused) {
			return
		}
		herr := r.hangUp()
		if herr == nil {
			herr = r.unmapStack(stack)
		}
		err = errors.Join(err, herr)
	}()
	for _, im := range a.images {
		run := im.m.Running
		traced, err := r.run(stack, im.bias+run.Remote, im.bias+run.Attach, top, top)
		switch {
		case err != nil:
			return err
		case traced == 0 && im.home():
			return errors.New("the runtime cannot open the recorder's buffer in it")
		case traced == 0 && im.beside:
			return errRefused
		case traced == 0:
			return fmt.Errorf("%s: the runtime does not accept the library", im.library.Path)
		}
		if err := r.keepThread(); err != nil {
			return err
		}
	}
	if home.home() {
		return r.advise(unix.MADV_DOFORK, a.mapped...)
	}
	return nil
}

// redZone is how far below its stack pointer a function may keep something.
const redZone = 128

// liveStack calls a function for each word of a thread's stack that can be in use, of so many bytes, with its address.
func (t *thread) liveStack(ms []mapping, most uint64, word func(at, v uint64)) error {
	lo, hi := t.liveRange(ms, most)
	return t.words(lo, hi, word)
}

// liveRange is where these words are; empty: it has no stack at all.
func (t *thread) liveRange(ms []mapping, most uint64) (lo, hi uint64) {
	lo = (t.regs.sp() - redZone) &^ 7
	i := sort.Search(len(ms), func(i int) bool { return ms[i].hi > lo })
	if i == len(ms) || ms[i].lo > t.regs.sp() {
		return 0, 0
	}
	lo = max(lo, ms[i].lo)
	return lo, min(ms[i].hi, lo+most)
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
				ts.forgetBlocks()
				return a.leave(r, stack)
			}
			return errors.Join(r.unmapStack(stack), a.unmapMemory(r)) // a journal names the stack
		})
	})
}
