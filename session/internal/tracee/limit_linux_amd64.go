package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// Limits for a process that runs.
//
// What the runtime is told is its own to change, in all threads at once: so all are stopped, one of them is made to call the
// runtime's routine (stub/src/change.c), and the routines that thunks call begin with a jump to those that know of limits,
// one each and not one a function. None of the threads may be in the runtime then, nor be interrupted there by a handler. In
// a thunk they may be: an instruction of it is changed as a whole, and what has to be done for a call is done by what it calls.
// Of many threads that do nothing but call there always is one. So those that are outside stay stopped, and the others run until
// they are outside, too: for moments, as they come out after some instructions, and go in again. They are not led out step by
// step: if the recorder were killed, a step would end in a signal. Those that call nothing but empty functions are hardly ever
// outside, so if a few stops were not enough, all functions are off while one lasts: then who comes out goes in no more.
// If the recorder is killed in it, the program goes on untraced. Who waits in the tracer, for the recorder, say, keeps all from
// that; then all are let go, and looked at again.

// ErrLimits: the runtime cannot leave calls out by where they are.
const ErrLimits = unchanged("calls have no depth in this recording: it needs the tracer function_graph, with a clock")

// ErrFlat: the runtime cannot record calls without frames.
const ErrFlat = unchanged("the tracer cannot be changed in this recording: it needs the tracer function_graph at its beginning")

const (
	// insidePatience is for how long a thread may wait in the runtime. What a program waits for there can be a library that is
	// being planned.
	insidePatience = 5 * time.Second
	// insidePause is the longest time between two looks.
	insidePause = 20 * time.Millisecond
	// insideStop is how long the longest stops are in which threads come out: the first ones are stopLimit.
	insideStop = 50 * stopLimit
	// insideShort is how many short stops there are.
	insideShort = 20
	// insideFree is how many stops there are in which functions stay on.
	insideFree = 1
)

// detour is a routine of the runtime, and where it is led.
type detour struct{ from, to uint64 }

const (
	detourSize = 8 // an entry of the table
	jumpSize   = 5
)

// save are the instructions with which the routines begin: push %rax, push %rdx, push %rcx.
var save = [...]byte{0x50, 0x52, 0x51}

// detoursOf reads those of an image.
func (r *Runtime) detoursOf(im *RuntimeImage) (all []detour, err error) {
	if im.detours == 0 {
		return nil, nil
	}
	b := make([]byte, format.DetourCount*detourSize)
	if err := r.t.ReadAt(b, im.detours); err != nil {
		return nil, err
	}
	distance := func(i int) uint64 { return im.detours + uint64(int64(int32(le.Uint32(b[i:])))) }
	for i := 0; i < len(b); i += detourSize {
		all = append(all, detour{distance(i), distance(i + 4)})
	}
	return all, nil
}

// jump is the code that leads there.
func (d *detour) jump() []byte {
	return append([]byte{0xe9}, le.AppendUint32(nil, uint32(d.to-(d.from+jumpSize)))...)
}

// Limited tells whether the process has been told of limits, or is a child of one that has.
func (r *Runtime) Limited() bool { return r.led(format.DetourGraphExit) }

// Flat tells whether its calls are recorded without frames.
func (r *Runtime) Flat() bool {
	for i := range r.Images {
		im := &r.Images[i]
		if im.detours != 0 && im.flat {
			return !r.ledIn(im, format.DetourFlatGraph) && !r.ledIn(im, format.DetourFlatOpt)
		}
	}
	return r.led(format.DetourGraphFlat)
}

// led tells whether a routine of an image is led to another one.
func (r *Runtime) led(detour int) bool {
	for i := range r.Images {
		if r.ledIn(&r.Images[i], detour) {
			return true
		}
	}
	return false
}

func (r *Runtime) ledIn(im *RuntimeImage, detour int) bool {
	all, err := r.detoursOf(im)
	if err != nil || len(all) == 0 {
		return false
	}
	var b [jumpSize]byte
	d := &all[detour]
	return r.t.ReadAt(b[:], d.from) == nil && [jumpSize]byte(d.jump()) == b
}

// lead leads an image's routines to those that know of limits, if there are or were some, or that know of no frames, or back.
// All threads are stopped.
func (r *Runtime) lead(im *RuntimeImage, limits, flat bool) error {
	all, err := r.detoursOf(im)
	if len(all) == 0 {
		return err
	}
	// All begin with the same instructions.
	own, never := make([]byte, jumpSize), all[format.DetourGraphFlat].to // what is not led anywhere
	if im.flat {
		never = all[format.DetourFlatOpt].to
	}
	if err := r.t.ReadAt(own, never); err != nil {
		return err
	}
	if !bytes.HasPrefix(own, save[:]) {
		return ErrNoRuntime
	}
	if limits {
		err = r.write(&all[format.DetourGraphExit], all[format.DetourGraphExit].jump())
	}
	if im.flat {
		return errors.Join(err, r.leadFlat(all, own, limits, flat))
	}
	for i := range 2 { // sites before and behind the prologue
		order, orderCode := &all[format.DetourOrderFlat+i], own
		if flat {
			orderCode = order.jump()
		}
		err = errors.Join(err, r.write(order, orderCode))
		graph, opt := &all[format.DetourGraphEnter+i], &all[format.DetourOptFlat+i]
		code, optCode := own, own
		switch {
		case flat:
			code, optCode = all[format.DetourGraphFlat+i].jump(), opt.jump()
		case limits:
			code = graph.jump()
		}
		err = errors.Join(err, r.write(graph, code), r.write(opt, optCode))
	}
	return err
}

// leadFlat is lead for the calls of an image that begins without frames.
func (r *Runtime) leadFlat(all []detour, own []byte, limits, flat bool) (err error) {
	for i := range 2 { // sites before and behind the prologue
		d, code := &all[format.DetourFlatGraph+i], own
		switch {
		case flat:
		case limits:
			code = all[format.DetourFlatOpt+i].jump()
		default:
			code = d.jump()
		}
		err = errors.Join(err, r.write(d, code))
	}
	return err
}

// write writes the beginning of a routine, if that is another one.
func (r *Runtime) write(d *detour, code []byte) error {
	var b [jumpSize]byte
	if err := r.t.ReadAt(b[:], d.from); err != nil || bytes.Equal(b[:], code) {
		return err
	}
	if b[0] != d.jump()[0] && [len(save)]byte(b[:]) != save {
		return ErrNoRuntime
	}
	return r.t.WriteAt(code, d.from)
}

// inside tells whether an address is in a runtime's code. It is asked of each word of stacks.
func (r *Runtime) inside(v uint64) bool {
	if r.codes == nil {
		codes := make([]area, 0, len(r.Images))
		for i := range r.Images {
			im := &r.Images[i]
			codes = append(codes, area{im.code, min(im.codeSize, ^im.code)})
		}
		r.codes = newSpans(codes)
	}
	return r.codes.has(v)
}

// shut has all functions off, or as their switches and the process say. All threads are stopped, or none of its images can be
// unloaded.
func (r *Runtime) shut(is bool) error {
	armed, err := r.word32(r.at(format.MeetingOArmed))
	if is {
		armed = format.ArmedOff
	}
	for i := range r.Images {
		im := &r.Images[i]
		if err != nil {
			return err
		}
		if !r.same(im) {
			continue
		}
		var calls uint32 // stay as they are
		if calls, err = r.word32(im.words + wSyscalls); err == nil {
			err = r.turn(&turn{im, flip{armed: armed}, calls}, r.put)
		}
	}
	return err
}

// reopen has the functions on again of children that were forked while those of a process were shut: who makes changes looks for
// them later.
func reopen(pid int, open func(pid int) (*Runtime, error)) {
	seen := map[int]bool{pid: true}
	for all := []int{pid}; len(all) > 0; all = all[1:] {
		for _, child := range children(all[0]) {
			if seen[child] {
				continue
			}
			seen[child] = true
			r, err := open(child)
			if err != nil {
				continue // it has none, or ends
			}
			r.Images = slices.DeleteFunc(r.Images, func(im RuntimeImage) bool { return im.leaves }) // perhaps just now
			_ = r.shut(false)
			r.Close()
			all = append(all, child)
		}
	}
}

// children are those of a process, whichever of its threads has made them.
func children(pid int) (all []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		b, _ := readFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, word := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// occupies tells whether a thread is there, or has been interrupted there.
func (r *Runtime) occupies(t *thread, ms []mapping) (found bool, err error) {
	if r.inside(t.regs.pc()) {
		return true, nil
	}
	err = t.liveStack(ms, mostStack, func(at, v uint64) { found = found || at >= t.regs.sp() && r.inside(v) && interrupted(&t.Process, at) })
	return found, err
}

// vacate has those of the stopped threads run that are there, until they are outside. ran is false if none was there. The error
// is ErrInside if that takes too long for one stop.
func (r *Runtime) vacate(ts *threads, ms []mapping, limit time.Time) (ran bool, err error) {
	for all := ts.all; ; ran = true {
		var in []*thread
		wait := true // all of them are in system calls that take long, or stopped by a signal
		for _, t := range all {
			if err := ts.patient(); err != nil {
				return ran, err
			}
			is, err := r.occupies(t, ms)
			if err != nil {
				return ran, err
			}
			if is {
				in, wait = append(in, t), wait && (t.halted || t.regs.again())
			}
		}
		switch {
		case len(in) == 0:
			return ran, nil
		case wait || time.Now().After(limit):
			return ran, fmt.Errorf("%w (thread %d)", ErrInside, in[0].pid)
		}
		if all, err = ts.runOn(in); err != nil {
			return ran, err
		}
	}
}

// vacant has all of the stopped threads be outside within a time, and returns the process's mappings then.
func (r *Runtime) vacant(ts *threads, within time.Duration) (ms []mapping, err error) {
	limit := time.Now().Add(within)
	for ran := true; ran; {
		if err := r.find(); err != nil { // there can be one more
			return nil, err
		}
		if ms, err = ts.maps(); err != nil {
			return nil, err
		}
		if ran, err = r.vacate(ts, ms, limit); err != nil {
			return nil, err
		}
	}
	return ms, ts.complete()
}

// Limit limits what is recorded of the process.
func (r *Runtime) Limit(l Limits) error {
	for i := range r.Images {
		if im := &r.Images[i]; im.codeSize == 0 {
			return ErrNoRuntime
		}
	}
	if r.at(format.MeetingORemote) == 0 {
		return ErrNoRuntime
	}
	for i := range r.Images {
		if _, err := l.rootsOf(&r.Images[i]); err != nil {
			return err
		}
		if l.SetActs && len(l.Acts(r.Images[i].ID)) > 0 {
			_, _ = r.routesOf(&r.Images[i]) // an error comes again
		}
	}
	ts, err := r.threads()
	if err != nil {
		return err
	}
	defer ts.close()
	acts := &acting{}
	if l.SetActs {
		acts, err = r.prepareActs(ts, &l)
	}
	if err == nil {
		err = r.limit(ts, &l, acts)
	}
	return errors.Join(err, r.finishActs(ts, acts))
}

// limit does so in a process whose tables of actions are prepared.
func (r *Runtime) limit(ts *threads, l *Limits, acts *acting) error {
	began, pause, limit := time.Now(), leavePause, stopLimit
	for tries := 1; ; tries++ {
		err := ts.within(false, func() (err error) {
			if tries > insideFree {
				defer func() { err = errors.Join(err, r.shut(false)) }()
				if err := r.shut(true); err != nil {
					return err
				}
			}
			ms, err := r.vacant(ts, limit)
			if err != nil {
				return err
			}
			return ts.calling(ms, func(rem *remote) error { return r.change(rem, l, acts) })
		})
		if tries > insideFree {
			reopen(r.t.pid, OpenRuntime)
		}
		if !errors.Is(err, ErrInside) || tries >= leaveTries && time.Since(began) > insidePatience {
			return err
		}
		time.Sleep(pause)
		if pause = min(2*pause, insidePause); tries >= insideShort {
			limit = min(2*limit, insideStop)
		}
	}
}

// whileStopped does something that needs no thread to be made to do anything, while all are stopped.
func (r *Runtime) whileStopped(do func() error) error {
	ts, err := r.threads()
	if err != nil {
		return err
	}
	defer ts.close()
	return ts.within(false, do)
}

// change has the runtime make a change.
func (r *Runtime) change(rem *remote, l *Limits, prepared *acting) error {
	var flags uint32
	if l.SetRoots {
		flags |= format.ChangeRoots
	}
	if l.Forget {
		flags |= format.ChangeForget
	}
	if l.Frames {
		flags |= format.ChangeFrames
	}
	if l.Flat {
		flags |= format.ChangeFlat
	}
	order := make([]byte, format.ChangeSize)
	le.PutUint32(order[format.ChangeODepth:], l.Depth)
	le.PutUint64(order[format.ChangeOThreshold:], uint64(l.Threshold))
	le.PutUint32(order[format.ChangeOFlags:], flags)
	var bitmaps []byte
	if l.Roots != nil {
		le.PutUint32(order[format.ChangeORoots:], uint32(len(r.Images)))
		for i := range r.Images {
			im := &r.Images[i]
			bits, err := l.rootsOf(im)
			if err != nil {
				return err
			}
			var e [format.ChangedRootsSize]byte
			le.PutUint64(e[format.ChangedRootsOImage:], im.state)
			le.PutUint64(e[format.ChangedRootsOBitmap:], uint64(len(bitmaps))) // from where they begin, for now
			order = append(order, e[:]...)
			bitmaps = append(bitmaps, bits...)
		}
	}
	acts := prepared
	if l.SetActs {
		var err error
		if acts, err = r.settleActs(rem, l, prepared); err != nil {
			return err
		}
	}
	roots := len(order)
	le.PutUint32(order[format.ChangeOActed:], uint32(len(acts.placed)))
	order = append(order, acts.order()...)
	size := pageUp(uint64(len(order) + len(bitmaps)))
	room, err := rem.mmap(0, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	for i := format.ChangeSize; i < roots; i += format.ChangedRootsSize {
		at := order[i+format.ChangedRootsOBitmap:]
		le.PutUint64(at, le.Uint64(at)+room+uint64(len(order)))
	}
	err = r.order(rem, room, append(order, bitmaps...), acts, l)
	_, uerr := rem.call(unix.SYS_MUNMAP, room, size)
	return errors.Join(err, uerr)
}

// order has the runtime do what is written to room. It takes over the tables of actions, unless it says that it has changed
// nothing.
func (r *Runtime) order(rem *remote, room uint64, what []byte, acts *acting, l *Limits) error {
	stack, err := rem.mapStack()
	if err != nil {
		return err
	}
	for _, p := range acts.placed {
		if err == nil {
			err = p.goOn(r)
		}
	}
	if err == nil {
		err = r.t.WriteAt(what, room)
	}
	if err != nil {
		return errors.Join(err, rem.unmapStack(stack))
	}
	changed, err := rem.run(stack, r.at(format.MeetingORemote), r.at(format.MeetingOChange), stack.hi-PageSize, room)
	took := err != nil // nobody knows how far it has come
	switch {
	case took:
	case changed != format.ChangedMade:
		err = l.refused(changed)
	default:
		took, err = true, r.leadRoutines(l)
	}
	for _, p := range acts.placed {
		p.taken = p.taken || took
	}
	return errors.Join(err, rem.unmapStack(stack))
}

// refused is why the runtime has changed nothing.
func (l *Limits) refused(changed uint64) error {
	switch {
	case changed == format.ChangedNoMemory:
		return fmt.Errorf("%w: %w", unchanged("its runtime cannot change what is recorded"), unix.ENOMEM)
	case l.Frames:
		return ErrLimits
	case l.Flat:
		return ErrFlat
	}
	return ErrActs
}

// leadRoutines leads the routines of all images to those for limits, or back.
func (r *Runtime) leadRoutines(l *Limits) error {
	limits := l.Frames || r.Limited()
	for i := range r.Images {
		if err := r.lead(&r.Images[i], limits, l.Flat); err != nil {
			return fmt.Errorf("its routines: %w", err)
		}
	}
	return nil
}

// rootsOf is which functions of an image are roots, as a bitmap: of a large program it takes long to make, so that is done before
// anybody is stopped, but for images that have come since.
func (l *Limits) rootsOf(im *RuntimeImage) ([]byte, error) {
	if l.Roots == nil {
		return nil, nil
	}
	if b := l.bitmaps[im.ID]; len(b) == im.Sites/8+1 {
		return b, nil
	}
	is, err := l.Roots(im.ID)
	if err != nil {
		return nil, err
	}
	if l.bitmaps == nil {
		l.bitmaps = make(map[uint64][]byte)
	}
	l.bitmaps[im.ID] = bitmap(im.Sites, is)
	return l.bitmaps[im.ID], nil
}

// bitmap has a bit for each function of an image, by local id, that is chosen.
func bitmap(sites int, is func(id uint32) bool) []byte {
	b := make([]byte, sites/8+1)
	for id := 1; id <= sites; id++ {
		if is(uint32(id)) {
			b[id/8] |= 1 << (id % 8)
		}
	}
	return b
}
