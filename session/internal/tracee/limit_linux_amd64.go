package tracee

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
)

// Limits for a process that runs.
//
// What the runtime is told is its own to change, in all threads at once: so all are stopped, one of them is made to call the
// runtime's routine (stub/src/change.c), and the routines that thunks call begin with a jump to those that know of limits,
// one each and not one a function. None of the threads may be in a thunk or in the runtime then, nor be interrupted there
// by a handler: they are let go and looked at again.

// ErrLimits: the runtime cannot leave calls out by where they are.
var ErrLimits = errors.New("calls have no depth in this recording: it needs the tracer function_graph, with a clock")

// ErrInside: there was always a thread in the runtime.
var ErrInside = errors.New("a thread of it is always in the tracer")

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
func (r *Runtime) Limited() bool {
	for i := range r.Images {
		all, err := r.detoursOf(&r.Images[i])
		for _, d := range all[:min(len(all), format.DetourAct)] {
			var b [1]byte
			if err == nil && r.t.ReadAt(b[:], d.from) == nil && b[0] == d.jump()[0] {
				return true
			}
		}
	}
	return false
}

// lead leads an image's routines to those that know of limits. All threads are stopped.
func (r *Runtime) lead(im *RuntimeImage) error {
	all, err := r.detoursOf(im)
	for _, d := range all[:min(len(all), format.DetourAct)] {
		var b [jumpSize]byte
		if err == nil {
			err = r.t.ReadAt(b[:], d.from)
		}
		switch {
		case err != nil:
			return err
		case b[0] == d.jump()[0]:
		case [len(save)]byte(b[:]) != save:
			return ErrNoRuntime
		default:
			err = r.t.WriteAt(d.jump(), d.from)
		}
	}
	return err
}

// inside tells whether an address is in a thunk or in a runtime's code.
func (r *Runtime) inside(v uint64) bool {
	for i := range r.Images {
		im := &r.Images[i]
		if v-im.thunks < uint64(im.Sites)*arch.ThunkSize || v-im.code < im.codeSize {
			return true
		}
	}
	return false
}

// occupied tells whether a thread is there, or has been interrupted there.
func (r *Runtime) occupied(ts *threads, ms []mapping) (bool, error) {
	mem := ts.memory()
	for _, t := range ts.all {
		if r.inside(t.regs.pc()) {
			return true, nil
		}
		found := false
		err := t.liveStack(ms, func(at, v uint64) { found = found || at >= t.regs.sp() && r.inside(v) && interrupted(mem, at) })
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
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
	ts, err := openThreads(r.t.pid)
	if err != nil {
		return err
	}
	defer ts.close()
	for range leaveTries {
		done := false
		err := ts.within(false, func() error {
			if err := r.find(); err != nil { // there can be one more
				return err
			}
			ms, err := ts.maps()
			if err != nil {
				return err
			}
			if is, err := r.occupied(ts, ms); is || err != nil {
				return err
			}
			done = true
			return ts.calling(ms, func(rem *remote) error { return r.change(rem, &l) })
		})
		if err != nil || done {
			return err
		}
		time.Sleep(leavePause)
	}
	return ErrInside
}

// change has the runtime make a change.
func (r *Runtime) change(rem *remote, l *Limits) error {
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
	var acts acting
	if l.SetActs {
		if err := r.placeActs(rem, l, &acts); err != nil {
			return errors.Join(err, acts.drop(rem))
		}
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
			is, err := l.Roots(im.ID)
			if err != nil {
				return err
			}
			var e [format.ChangedRootsSize]byte
			le.PutUint64(e[format.ChangedRootsOImage:], im.state)
			le.PutUint64(e[format.ChangedRootsOBitmap:], uint64(len(bitmaps))) // from where they begin, for now
			order = append(order, e[:]...)
			bitmaps = append(bitmaps, bitmap(im.Sites, is)...)
		}
	}
	roots := len(order)
	le.PutUint32(order[format.ChangeOActed:], uint32(len(acts.placed)))
	order = append(order, acts.order()...)
	size := pageUp(uint64(len(order) + len(bitmaps)))
	room, err := rem.mmap(0, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return errors.Join(err, acts.drop(rem))
	}
	for i := format.ChangeSize; i < roots; i += format.ChangedRootsSize {
		at := order[i+format.ChangedRootsOBitmap:]
		le.PutUint64(at, le.Uint64(at)+room+uint64(len(order)))
	}
	stack, err := rem.mapStack()
	if err == nil {
		err = r.order(rem, stack, room, append(order, bitmaps...), l.Frames)
		if err != nil {
			err = errors.Join(err, acts.drop(rem))
		} else {
			err = r.leadThunks(&acts)
		}
		err = errors.Join(err, rem.unmapStack(stack))
	}
	_, uerr := rem.call(unix.SYS_MUNMAP, room, size)
	return errors.Join(err, uerr)
}

// order has the runtime do what is written to room.
func (r *Runtime) order(rem *remote, stack remoteStack, room uint64, what []byte, frames bool) error {
	if err := r.t.WriteAt(what, room); err != nil {
		return err
	}
	done, err := rem.run(stack, r.at(format.MeetingORemote), r.at(format.MeetingOChange), stack.hi-PageSize, room)
	if err != nil {
		return err
	}
	if done == 0 && frames {
		return ErrLimits
	}
	if done == 0 {
		return ErrActs
	}
	for i := range r.Images {
		if !frames {
			break
		}
		if err := r.lead(&r.Images[i]); err != nil {
			return fmt.Errorf("its routines: %w", err)
		}
	}
	return nil
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
