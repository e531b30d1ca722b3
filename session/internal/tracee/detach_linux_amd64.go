package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Detaching from a process that goes on.
//
// The sites get their old bytes back, in stops of a bounded length (sites_linux_amd64.go). Then, with all threads
// stopped, every return address that leads to a thunk becomes what the thunk's shadow says. Those are on the threads' stacks, and on others that the runtime has seen: coroutines'.
// Words that nobody reads any more are changed like all others. From then on nothing new comes to what was added, but a
// thread can still be there: in a thunk, in the runtime, waiting for room for its events; or a handler has interrupted it
// there, as the kernel's frame on its stack says. Such threads are let go and looked at again. Other words that point
// there mean nothing: frames have holes, in which what thunks have pushed stays for as long as the frames do.
//
// Once nobody is there, no return address can lead to a thunk any more, and the unwind tables become what they were, in
// such stops, too. An unwinder may still be reading entries that were added, or return addresses in a shadow, which its
// registers say, or its stack; that is waited for, but not for ever, as the same words may be left there. How long is counted by
// what its thread has run for (headway_linux_amd64.go). So it is before a word that looks like a return address is changed on the
// stack of a thread that runs: an unwinder's copy can lie where the shadow has a call that has returned since. Then all is
// unmapped: what the runtime has mapped by the runtime itself, and then the runtime, by one thread while the others run.
// Children that are forked meanwhile do not get it.
//
// What leads unwinders to what was added stays until then: one can have a return address in its hands that was a thunk's. Once it is
// gone, nobody must be in the routine that they were led to either, which calls glibc's.
//
// What stays, if that takes too long, is harmless: nobody comes there any more, and who is there comes out.

// ErrStays: what was added to a process is still there, but nothing leads there any more.
var ErrStays = errors.New("the tracer's code stays in the process, switched off")

// ErrOther: the process runs another program by now, of which the attachment knows nothing.
var ErrOther = errors.New("it runs another program")

const (
	leaveTries = 200
	leavePause = time.Millisecond
	// unwindTries is for how many of a thread's looks a word of its stack counts that points to unwind information: some were
	// forgotten there.
	unwindTries = 100
	// returnTries is for how many one counts that is a thunk's return address: those are forgotten more often, and who has one in
	// its hands soon has not.
	returnTries = 10
	mostAreas   = remoteRoomSize / 16
	// mostStacks bounds how much of the process's memory are stacks, and stackPart is what of them is looked at together. A process
	// can say what it likes, and map far more than can be looked at.
	mostStacks = 64 << 30
	stackPart  = 4 << 20
)

// Detach takes the plan out of the process, or out of a child that it has forked since, and returns how long that was
// stopped at most. It can be called for several processes, one after the other. The error is ErrStays if part of it stays.
func (a *Attachment) Detach(pid int) (time.Duration, error) {
	held, err := a.detach(pid)
	if _, ended := procfs.LiveThread(pid); err != nil && ended != nil {
		err = ended
	}
	return held, err
}

func (a *Attachment) detach(pid int) (time.Duration, error) {
	ts, err := openThreads(pid)
	if err != nil {
		return 0, err
	}
	defer ts.close()
	ms, err := ts.maps()
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a = a.view(pid, ms); a == nil {
		return 0, ErrOther
	}
	return a.leaveBy(ts, ms)
}

// leaveBy takes what a view has out of its process.
func (a *Attachment) leaveBy(ts *threads, ms []mapping) (time.Duration, error) {
	if err := a.restoreSites(ts); err != nil {
		return ts.longest, err
	}
	d := &detaching{a: a, ts: ts, ms: ms, headways: map[int]*headway{}}
	err := ts.within(true, d.prepare)
	for began := time.Now(); err == nil && !d.gone; {
		if d.tries >= leaveTries {
			if d.empty && !d.owed || time.Since(began) > insidePatience {
				break
			}
			time.Sleep(insidePause)
		} else if d.tries > 0 {
			time.Sleep(leavePause)
		}
		err = d.try()
	}
	if err == nil && !d.gone {
		err = fmt.Errorf("%w: %s", ErrStays, d.why)
	}
	if errors.Is(err, ErrStays) && d.stack.lo != 0 {
		err = errors.Join(err, ts.within(true, func() error {
			return ts.calling(d.ms, func(r *remote) error { return r.unmapStack(d.stack) })
		}))
	}
	return ts.longest, err
}

// unwinds tells whether an address is in unwind information that was added.
func (a *Attachment) unwinds(v uint64) bool {
	return slices.ContainsFunc(a.images, func(im *image) bool {
		_, hi := im.added()
		return im.bias+im.m.Running.Unwind <= v && v < hi
	})
}

// detaching is a plan on its way out of a process.
type detaching struct {
	a      *Attachment
	ts     *threads
	ms     []mapping
	stack  remoteStack
	areas  []area
	added  spans // what was added
	goes   spans // what of that is unmapped
	stacks spans // areas
	tries  int

	headways map[int]*headway // by thread id
	owed     bool             // a thread has not run for long enough to be done with what it had in its hands, as was seen last

	why      string // it stays, as was seen last
	empty    bool   // nobody is in what was added, and nobody comes there any more
	restored bool   // the images are as they were
	unread   bool   // nobody reads what was added either
	unled    bool   // unwinders are led nowhere
	gone     bool
}

// prepare asks the runtime where stacks are. No more come, since nothing leads to it any more but what is on them.
func (d *detaching) prepare() error {
	return d.ts.calling(d.ms, func(r *remote) (err error) {
		if d.stack, err = r.mapStack(); err != nil {
			return err
		}
		if journal := d.a.images[0].journal; journal != 0 {
			if err := noteStack(&r.t.Process, journal, &d.stack); err != nil {
				return err
			}
		}
		err = d.findAreas(r)
		d.added, d.goes = newSpans(slices.Concat(d.a.mapped, d.a.stays)), newSpans(d.a.mapped)
		d.stacks = newSpans(d.areas)
		return err
	})
}

// try looks once, and goes on as far as that says. The error is ErrStays if the process makes that take too long.
func (d *detaching) try() error {
	err := d.ts.within(false, d.look)
	switch {
	case err != nil:
	case d.empty && !d.restored:
		if err = d.a.restoreLate(d.ts, d.ms); err == nil {
			_ = d.a.giveBack(d.ts, d.a.edits)
		}
		d.restored = true
	case d.unread && !d.unled:
		err, d.unled = d.a.restoreFinder(d.ts), true
	case d.unread:
		if err = d.shed(); err == nil {
			err = d.ts.within(false, d.leave)
		}
		if err == nil && d.gone {
			err = d.unmap()
		}
	}
	if errors.Is(err, errHeld) {
		err = fmt.Errorf("%w: %w", ErrStays, err)
	}
	return err
}

// look leads all threads out of what was added, as far as that can be done, and looks whether one is left.
func (d *detaching) look() error {
	d.tries++
	d.owed = false
	a, ts := d.a, d.ts
	var err error
	if d.ms, err = ts.maps(); err != nil { // libraries can have been unloaded until now
		return err
	}
	for _, t := range ts.all {
		if to, ok := a.fromCopy(t.regs.pc()); ok {
			if err := t.move(to); err != nil {
				return err
			}
		}
		if t.halted {
			if err := d.stepOut(t); err != nil {
				return err
			}
		}
	}
	running := d.running()
	for _, s := range d.areas {
		if err := ts.patient(); err != nil {
			return err
		}
		for _, s := range d.shadowed(s) {
			// An error: nobody has that stack any more.
			_ = ts.memory().words(s.at, s.at+s.size, func(at, v uint64) {
				if d.added.has(v) && !running.has(at) {
					d.lead(at, v)
				}
			})
		}
	}
	inside, reading := false, false
	d.why = "other images than those that were brought have joined it" // unless a thread stands against it
	for _, t := range ts.all {
		if err := ts.patient(); err != nil {
			return err
		}
		if d.occupied(t) {
			inside, d.why = true, fmt.Sprintf("thread %d is in it", t.pid)
		}
		err := t.liveStack(d.ms, mostStack, func(at, v uint64) {
			added := d.added.has(v)
			held := func(looks int) bool { return d.headwayOf(t).held(at, v, looks) }
			switch {
			case added && at >= t.regs.sp() && d.leadBack(at, v):
			case added && a.returns(v) && !t.rests() && held(returnTries):
				inside, d.why = true, fmt.Sprintf("thread %d may return to it", t.pid)
			case added && !d.lead(at, v):
				if at >= t.regs.sp() && interrupted(ts.memory(), at) {
					inside, d.why = true, fmt.Sprintf("a signal handler has interrupted thread %d in it", t.pid)
				}
				if at >= t.regs.sp() && a.hooks.finder.in(v) && held(unwindTries) {
					inside, d.why = true, fmt.Sprintf("thread %d unwinds its stack", t.pid)
				}
				// Whether it is held is asked of each, as that counts from when it was asked first.
				reading = d.goes.has(v) && a.unwinds(v) && held(unwindTries) || a.returns(v) && held(returnTries) || reading
			case d.isShadow(v):
				reading = held(unwindTries) || reading
			}
		})
		if err != nil {
			return err
		}
		reading = d.reads(t) || reading
	}
	d.empty = !inside
	// There may be new threads at each look.
	d.unread = d.empty && d.restored && (!reading || d.tries >= unwindTries && !d.owed)
	if d.unread {
		ts.forgetBlocks()
		ts.forgetNone(a.stays)
	}
	return nil
}

// forgetBlocks takes the runtime's blocks from threads that have one in their control base.
func (ts *threads) forgetBlocks() {
	const self = 88 // CB_SELF of stub/src/layout.h
	word := make([]byte, 8)
	for _, t := range ts.all {
		if gs := t.regs.Gs_base; gs != 0 && t.ReadAt(word, gs+self) == nil && le.Uint64(word) == gs {
			t.regs.Gs_base, t.changed = 0, true
		}
	}
}

const (
	// shedStep is how many pieces of the pool are given back between two looks at the clock, at first: more if that takes no time.
	shedStep = 8
	// mostShed is more than there can be, as each has a page.
	mostShed = 1 << (47 - 12)
)

// shed has the runtime give back what it has mapped of the pool's chunks, in stops of a bounded length. All threads are
// stopped, as children that are forked meanwhile would not know what they have of it.
func (d *detaching) shed() error {
	home := d.a.images[0]
	run, step, shed := home.m.Running, uint64(shedStep), uint64(0)
	for more := true; more; {
		began := time.Now()
		err := d.ts.within(false, func() error {
			return d.ts.calling(d.ms, func(r *remote) error {
				began = time.Now()
				limit := d.ts.limit()
				for last := time.Duration(0); more && time.Since(began)+last < limit; {
					from := time.Now()
					n, err := r.run(d.stack, home.bias+run.Remote, home.bias+run.Shed, d.stack.hi-PageSize,
						uint64(len(d.a.images)), step)
					if err == nil {
						err = d.ts.patient()
					}
					if err != nil {
						return err
					}
					if more = n == step; more {
						shed += n
					}
					if shed > mostShed {
						return fmt.Errorf("%w: its runtime gives back more than it can have", ErrStays)
					}
					if last = time.Since(from); last < limit/8 {
						step *= 2
					} else if last > limit/2 {
						step = max(step/2, shedStep)
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if more {
			time.Sleep(time.Since(began))
		}
	}
	return nil
}

// leave has the runtime give back what it has mapped. Children that are forked from then on do not map the pool, by which
// they would be found, so they do not get the rest either.
func (d *detaching) leave() error {
	return d.ts.calling(d.ms, func(r *remote) (err error) {
		if d.gone, err = d.a.quit(r, d.stack); err == nil && d.gone {
			err = r.advise(unix.MADV_DONTFORK, d.a.mapped...)
		}
		return err
	})
}

// isTable tells edits of unwind tables.
func isTable(e *arch.Edit) bool { return e.Reason == patch.ReasonUnwind }

// isLate tells edits that stay until nobody can come to a thunk any more: those of unwind tables, jumps that lead from a
// site to its thunk, where a thread can be, and those of functions that swap pieces of their stack, where thunks have returns.
func isLate(e *arch.Edit) bool {
	return isTable(e) || strings.Contains(e.Reason, patch.ToLanding.String()) || isSwap(*e)
}

// isSwap tells edits of functions that swap pieces of their stack.
func isSwap(e arch.Edit) bool { return strings.Contains(e.Reason, patch.ToSwap.String()) }

// findAreas asks the runtime where stacks are.
func (d *detaching) findAreas(r *remote) error {
	home := d.a.images[0]
	run := home.m.Running
	room := d.stack.lo + remoteRoom
	n, err := r.run(d.stack, home.bias+run.Remote, home.bias+run.Areas, d.stack.hi-PageSize, room, mostAreas)
	if err != nil {
		return err
	}
	b := make([]byte, min(n, mostAreas)*16)
	if err := r.t.ReadAt(b, room); err != nil {
		return err
	}
	var said []area
	for ; len(b) > 0; b = b[16:] {
		if lo, hi := le.Uint64(b), le.Uint64(b[8:]); lo < hi {
			said = append(said, area{lo, hi - lo})
		}
	}
	d.areas, err = mappedStacks(d.ms, said)
	return err
}

// mappedStacks is what of areas is mapped: stacks, and perhaps their neighbours. It is in parts between which the clock is looked at.
func mappedStacks(ms []mapping, said []area) (all []area, err error) {
	size := uint64(0)
	for _, s := range newSpans(said) {
		i := sort.Search(len(ms), func(i int) bool { return ms[i].hi > s.at })
		for ; i < len(ms) && ms[i].lo < s.at+s.size; i++ {
			if m := ms[i]; len(m.perms) < 2 || m.perms[:2] != "rw" {
				continue
			}
			lo, hi := max(s.at, ms[i].lo), min(s.at+s.size, ms[i].hi)
			if size += hi - lo; size > mostStacks {
				return nil, fmt.Errorf("%w: its runtime says that it has more than %d GiB of stacks", ErrStays, mostStacks>>30)
			}
			for ; lo < hi; lo += stackPart {
				all = append(all, area{lo, min(hi-lo, stackPart)})
			}
		}
	}
	return all, nil
}

// shadowed returns the parts of a stack whose shadow is in memory: only there anything is known of return addresses. What
// has never been touched is not read, as that would take far longer, and memory.
func (d *detaching) shadowed(s area) (parts []area) {
	const entry, present, swapped = 8, 1 << 63, 1 << 62 // of /proc/PID/pagemap
	pagemap, err := os.Open(procfs.Dir(d.ts.pid) + "/pagemap")
	if err != nil {
		return []area{s}
	}
	defer pagemap.Close()
	lo, hi := s.at&^(PageSize-1), s.at+s.size
	for ; lo < hi; lo += PageSize << 10 {
		// Shadows flip bits far above those of a thousand pages, so what is close stays so.
		n := min(PageSize<<10, hi-lo+PageSize-1) / PageSize
		b := make([]byte, n*entry)
		if _, err := pagemap.ReadAt(b, int64((lo^d.a.images[0].m.Running.Shadow)/PageSize*entry)); err != nil {
			return []area{s}
		}
		for i := range n {
			if le.Uint64(b[i*entry:])&(present|swapped) == 0 {
				continue
			}
			from, to := max(lo+i*PageSize, s.at), min(lo+(i+1)*PageSize, hi)
			if k := len(parts) - 1; k >= 0 && parts[k].at+parts[k].size == from {
				parts[k].size += to - from
			} else {
				parts = append(parts, area{from, to - from})
			}
		}
	}
	return parts
}

// inside tells whether an address is in what was added.
func (a *Attachment) inside(v uint64) bool { return within(a.mapped, v) || within(a.stays, v) }

func within(areas []area, v uint64) bool {
	return slices.ContainsFunc(areas, func(m area) bool { return v-m.at < m.size })
}

// occupied tells whether a thread is inside of what was added, or on the way there.
func (d *detaching) occupied(t *thread) bool {
	a, pc := d.a, t.regs.pc()
	if a.inside(pc) || a.inside(t.regs.sp()) { // it can be on a stack that routines ran on
		return true
	}
	i := sort.Search(len(a.edits), func(i int) bool { return a.edits[i].Addr > pc }) - 1
	return i >= 0 && isLate(&a.edits[i]) && pc < a.edits[i].Addr+uint64(len(a.edits[i].Old))
}

// stepOut has a thread come out of what was added whose process is stopped by a signal, and so would stay there: instruction
// by instruction, as the program is to do nothing meanwhile. If it waits there, or a handler begins, it stays.
func (d *detaching) stepOut(t *thread) error {
	const mostSteps, patience = 1 << 16, 50 * time.Millisecond
	deadline := time.Now().Add(patience)
	for signal, steps := 0, 0; d.occupied(t) && steps < mostSteps && time.Now().Before(deadline); steps++ {
		ws, err := t.onward(signal, deadline)
		if err != nil {
			return err
		}
		signal = signalOf(ws)
		if t.regs, err = t.registers(); err != nil {
			return err
		}
	}
	return nil
}

// signalOf is the signal that a stopped thread is to get when it goes on; 0: none.
func signalOf(ws syscall.WaitStatus) int {
	s := ws.StopSignal()
	if ws>>16 != 0 || s == syscall.SIGTRAP || s == syscallTrap {
		return 0
	}
	return int(s)
}

// onward has a thread execute an instruction. One that calls the kernel can take long: it goes to its beginning, or its
// end, and is interrupted at a deadline. A single step would leave a SIGTRAP behind then.
func (t *thread) onward(signal int, deadline time.Time) (ws syscall.WaitStatus, err error) {
	request := func(nr, signal int) error {
		if ptrace(uintptr(nr), t.pid, signal) != nil {
			return ErrEnded
		}
		return nil
	}
	code := make([]byte, len(syscallInsn))
	err = t.ReadAt(code, t.regs.pc())
	if err == nil && !t.regs.again() && !bytes.Equal(code, syscallInsn) {
		for {
			if err := request(unix.PTRACE_SINGLESTEP, signal); err != nil {
				return ws, err
			}
			// A stop that is no signal's comes before the SIGTRAP of a step that has been made, which would end the program if
			// the thread were let go then.
			if ws, err = t.awaitAny(time.Now().Add(remoteLimit)); err != nil || ws>>16 == 0 || !t.stepped() {
				return ws, err
			}
			signal = 0
		}
	}
	if err := request(unix.PTRACE_SYSCALL, signal); err != nil {
		return ws, err
	}
	if ws, err = t.awaitAny(time.Now().Add(remoteLimit)); err != nil || ws.StopSignal() != syscallTrap {
		return ws, err
	}
	if err := request(unix.PTRACE_SYSCALL, 0); err != nil {
		return ws, err
	}
	if ws, err = t.awaitAny(deadline); err != errBusy {
		return ws, err
	}
	if err := request(unix.PTRACE_INTERRUPT, 0); err != nil {
		return ws, err
	}
	return t.awaitAny(time.Now().Add(remoteLimit))
}

// stepped tells whether the SIGTRAP of a single step is pending in a stopped thread.
func (t *thread) stepped() bool {
	const (
		peekSiginfo = 0x4209 // PTRACE_PEEKSIGINFO
		trace       = 2      // TRAP_TRACE
		infoSize    = 128    // of a siginfo_t: its number is first, its code the third word
		at          = 8
	)
	var infos [16 * infoSize]byte
	arguments := struct {
		from  uint64
		flags uint32
		most  int32
	}{most: int32(len(infos) / infoSize)}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_PTRACE, peekSiginfo, uintptr(t.pid), uintptr(unsafe.Pointer(&arguments)),
			uintptr(unsafe.Pointer(&infos)), 0, 0)
		if errno != 0 || n == 0 {
			return false
		}
		for b := infos[:n*infoSize]; len(b) > 0; b = b[infoSize:] {
			if le.Uint32(b) == uint32(syscall.SIGTRAP) && le.Uint32(b[at:]) == trace {
				return true
			}
		}
		arguments.from += uint64(n)
	}
}

// reads tells whether a thread may use an address in a register of what goes, or to which a thunk's function returns.
func (d *detaching) reads(t *thread) (reads bool) {
	r := t.regs
	for i, v := range [...]uint64{
		r.Rax, r.Rbx, r.Rcx, r.Rdx, r.Rsi, r.Rdi, r.Rbp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
	} {
		if d.goes.has(v) || d.isShadow(v) || d.added.has(v) && d.a.returns(v) {
			reads = d.headwayOf(t).held(uint64(i), v, unwindTries) || reads
		}
	}
	return reads
}

// isShadow tells whether an address is in the shadow of a stack.
func (d *detaching) isShadow(v uint64) bool {
	return d.stacks.has(v ^ d.a.images[0].m.Running.Shadow)
}

// lead puts a return address back that is in the word at an address, if v, which is there, leads to a thunk. It
// reports whether nothing is left that leads there.
func (d *detaching) lead(at, v uint64) bool {
	a := d.a
	if !a.returns(v) {
		return false
	}
	b := make([]byte, 8)
	if interrupted(d.ts.memory(), at) || d.ts.memory().ReadAt(b, at^a.images[0].m.Running.Shadow) != nil {
		return false
	}
	// A call that has moved returns to what stays.
	if to := le.Uint64(b); to == 0 || a.returns(to) || within(a.mapped, to) {
		return false
	}
	return d.ts.memory().WriteAt(b, at) == nil
}

// leadBack has a handler go back to the image that has interrupted a system call which was moved: v is in the word at an
// address. It reports whether that is so.
func (d *detaching) leadBack(at, v uint64) bool {
	to, ok := d.a.fromCopy(v)
	return ok && interrupted(d.ts.memory(), at) && d.ts.memory().WriteAt(le.AppendUint64(nil, to), at) == nil
}

// returns tells whether an address is one that functions return to in a thunk.
func (a *Attachment) returns(v uint64) bool {
	return slices.ContainsFunc(a.images, func(im *image) bool { return im.returns(v) })
}

// returns tells whether an address is the one that functions return to in a thunk.
func (im *image) returns(v uint64) bool {
	off := v - (im.bias + im.m.RXAddr)
	size := im.m.Running.Thunk
	return off < uint64(im.m.Running.Traced)*size && off%size == im.m.Running.Return
}

// interrupted tells whether the word at an address is not a return address but the program counter of a thread that a
// signal handler has interrupted, in the kernel's frame.
func interrupted(mem *Process, at uint64) bool {
	const length = 9
	frame := make([]byte, 8)
	if mem.ReadAt(frame, at-framePC) != nil {
		return false
	}
	code := make([]byte, length)
	// mov $__NR_rt_sigreturn, %rax; syscall: all restorers are that, as unwinders know them by it
	return mem.ReadAt(code, le.Uint64(frame)) == nil &&
		bytes.Equal(code, []byte{0x48, 0xc7, 0xc0, unix.SYS_RT_SIGRETURN, 0, 0, 0, 0x0f, 0x05})
}

// framePC and frameStack are where struct rt_sigframe has the program counter and the stack of signal handlers: behind
// pretcode, behind uc up to its registers and 16 of these, and in uc.
const (
	framePC    = 8 + 40 + 16*8
	frameStack = 8 + 16
)

// quit has the runtime unmap what it has mapped. It returns false if it must stay. All threads are stopped.
func (a *Attachment) quit(r *remote, stack remoteStack) (bool, error) {
	home := a.images[0]
	run := home.m.Running
	if err := r.connected(stack); err != nil {
		return false, err
	}
	left, err := r.run(stack, home.bias+run.Remote, home.bias+run.Leave, stack.hi-PageSize, uint64(len(a.images)))
	if err == nil {
		err = r.hangUp()
	}
	return err == nil && left != 0, err
}

// leave does so, and then unmaps it.
func (a *Attachment) leave(r *remote, stack remoteStack) error {
	gone, err := a.quit(r, stack)
	if err != nil || !gone {
		return err
	}
	return errors.Join(r.unmapStack(stack), a.unmapMemory(r)) // a journal names the stack
}
