//go:build linux

package tracee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// The tracer in a process, as whoever controls the recorder finds it: at the page where the images of a process meet,
// whichever way they have come there. All that is read is the process's word. It leads nowhere but to its own memory.

// homePage is where the runtime of a process is found (stub/src/MACHINE/machine.h, HOME_PAGE).
const homePage = 0x1f0000

// ErrNoRuntime: there is no tracer in the process, or one of another fentry.
var ErrNoRuntime = errors.New("no tracer that can be changed is in it")

// A Runtime is the tracer in a process.
type Runtime struct {
	Images []RuntimeImage // newest first

	switches []byte // room for turn
	codes    spans  // of all images; nil: not known yet
	routes   map[routesKey]*routes

	put func(b []byte, addr uint64) error // into the memory of images

	t    *Process
	aux  []byte // of the program that it runs
	page [format.MeetingSize]byte
}

// routes are what thunks of an image call: what leads to actions, by what does not, and the other way round.
type routes struct {
	there, back map[uint64]uint64
}

// A routesKey is an image, as it was loaded.
type routesKey struct {
	id, loaded, thunks uint64
	thunkSize          int
}

// A RuntimeImage is an image that it traces. Addresses are the process's.
type RuntimeImage struct {
	ID    uint64
	Sites int // functions that can be switched: local ids are 1 to this

	Loaded uint64 // the process's counter when it registered

	state, words, thunks, switches uint64
	thunkSize                      int // in bytes
	code, codeSize, detours        uint64
	at, acting                     uint64

	flat   bool // its thunks call the routine that knows of no frames, unless that is led to another one
	leaves bool // it can be unloaded at any moment, and its memory be another's
}

const (
	mostImages = 10_000
	mostSites  = 1 << 24 // of all images: what is allocated grows with them
	switchStep = 1 << 20 // bytes of switches that are looked at together
	wSyscalls  = 124     // W_SYSCALLS of stub/src/layout.h
)

// OpenRuntime finds the tracer in a process. The caller must close it.
func OpenRuntime(pid int) (*Runtime, error) {
	aux, mem, err := openMemory(pid)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("its memory is not for this user to change: %w", err)
	}
	if err != nil {
		return nil, err
	}
	r := newRuntime(&Process{pid: pid, mem: mem}, aux)
	if err := r.find(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Untraced tells processes that certainly have no tracer, by one look.
func Untraced(pid int) bool {
	var b [len(format.MeetingMagic)]byte
	local, remote := unix.Iovec{Base: &b[0], Len: uint64(len(b))}, unix.RemoteIovec{Base: homePage + format.MeetingOMagic, Len: len(b)}
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	switch err {
	case nil:
		return string(b[:]) != format.MeetingMagic
	case unix.EFAULT:
		return true
	case unix.ESRCH: // a thread of the kernel, or the first thread has ended, and others go on
		s, err := procfs.ReadProcess(pid)
		return err == nil && !s.Dead()
	}
	return false // nobody knows
}

func newRuntime(t *Process, aux []byte) *Runtime { return &Runtime{t: t, aux: aux, put: t.WriteAt} }

// Close gives up what OpenRuntime has opened.
func (r *Runtime) Close() { r.t.mem.Close() }

// find reads what there is.
func (r *Runtime) find() error {
	r.Images, r.codes = nil, nil
	if r.t.ReadAt(r.page[:], homePage) != nil || string(r.page[format.MeetingOMagic:][:8]) != format.MeetingMagic ||
		le.Uint32(r.page[format.MeetingOVersion:]) != homeVersion || le.Uint32(r.page[format.MeetingOSize:]) < format.MeetingSize {
		return ErrNoRuntime
	}
	at, err := r.word(r.at(format.MeetingOImages))
	for seen, sites := 0, 0; at != 0 && err == nil; seen++ {
		n := len(r.Images)
		if at = r.next(at, &err); len(r.Images) > n {
			sites += r.Images[n].Sites
		}
		if seen == mostImages || sites > mostSites {
			return errors.New("it says that it has more images and functions than a program has")
		}
	}
	return err
}

// Again looks once more what there is.
func (r *Runtime) Again() error { return r.find() }

// homeVersion is HOME_VERSION of stub/src/home.h.
const homeVersion = 15

// next reads the image at an address, and returns where the next one is.
func (r *Runtime) next(at uint64, err *error) uint64 {
	var b [format.StateSize]byte
	if *err = r.t.ReadAt(b[:], at); *err != nil {
		return 0
	}
	word := func(o int) uint64 { return le.Uint64(b[o:]) }
	if !r.there(le.Uint32(b[format.StateOStage:]), word(format.StateOAt), word(format.StateOID)) {
		return word(format.StateONext)
	}
	r.Images = append(r.Images, RuntimeImage{
		ID: word(format.StateOID), Sites: int(min(le.Uint32(b[format.StateOSites:]), format.IDMax)), state: at,
		Loaded: word(format.StateOLoaded),
		words:  word(format.StateOWords), thunks: word(format.StateOThunks), switches: word(format.StateOSwitches),
		at: word(format.StateOAt), acting: word(format.StateOActing),
		code: word(format.StateOCode), codeSize: word(format.StateOCodeSize), detours: word(format.StateODetours),
		thunkSize: int(min(le.Uint32(b[format.StateOThunkSize:]), arch.ThunkSize)),
		flat:      r.flat(word(format.StateOAt)),
		leaves:    r.leaves(word(format.StateOAt)),
	})
	return word(format.StateONext)
}

// there tells whether the memory of an image can be changed. Loading one that comes can have failed: then something else
// can be where it was, or nothing.
func (r *Runtime) there(stage uint32, at, id uint64) bool {
	if stage != format.StageComes {
		return stage == format.StageHere
	}
	var b [format.ImageOID + 8]byte
	return r.t.ReadAt(b[:], at) == nil && string(b[format.ImageOMagic:][:len(format.ImageMagic)]) == format.ImageMagic &&
		le.Uint64(b[format.ImageOID:]) == id
}

// flat tells whether an image, whose image_info is at an address, begins without frames.
func (r *Runtime) flat(at uint64) bool {
	options, err := r.word32(at + format.ImageOOptions)
	return err == nil && options&format.OptionsFlat != 0
}

// leaves tells whether an image, whose image_info is at an address, can be unloaded: then it says so itself.
func (r *Runtime) leaves(at uint64) bool {
	stages, err := r.word32(at + format.ImageOStages)
	return err == nil && stages != 0
}

// same tells whether an image is where it was found. If it can be unloaded, that stays so only as long as all threads are
// stopped.
func (r *Runtime) same(im *RuntimeImage) bool {
	var b [format.StateSize]byte
	if r.t.ReadAt(b[:], im.state) != nil {
		return false
	}
	word := func(o int) uint64 { return le.Uint64(b[o:]) }
	return r.there(le.Uint32(b[format.StateOStage:]), word(format.StateOAt), im.ID) && word(format.StateOID) == im.ID &&
		word(format.StateOLoaded) == im.Loaded && word(format.StateOSwitches) == im.switches && word(format.StateOWords) == im.words
}

// gone tells whether an image is no longer there, so that it does not matter what could not be changed of it.
func (r *Runtime) gone(im *RuntimeImage) bool {
	var b [format.StateSize]byte
	return r.t.ReadAt(b[:], im.state) == nil &&
		!r.there(le.Uint32(b[format.StateOStage:]), le.Uint64(b[format.StateOAt:]), im.ID)
}

// at is a word of the page.
func (r *Runtime) at(offset int) uint64 { return le.Uint64(r.page[offset:]) }

func (r *Runtime) word(at uint64) (uint64, error) {
	var b [8]byte
	err := r.t.ReadAt(b[:], at)
	return le.Uint64(b[:]), err
}

func (r *Runtime) word32(at uint64) (uint32, error) {
	var b [4]byte
	err := r.t.ReadAt(b[:], at)
	return le.Uint32(b[:]), err
}

func (r *Runtime) setWord32(at uint64, v uint32) error {
	return r.t.WriteAt(binary.LittleEndian.AppendUint32(nil, v), at)
}

// Traced tells whether calls are recorded; it is false while that pauses, and when it has ended.
func (r *Runtime) Traced() (bool, error) {
	armed, err := r.word32(r.at(format.MeetingOArmed))
	return armed == format.ArmedOn, err
}

// A Switching says which functions a process's calls are recorded of.
type Switching struct {
	// Pause has nothing recorded; otherwise recording goes on, if it has not ended. Leave leaves it as it is: triggers change
	// it, too.
	Pause, Leave bool
	// Same: what is recorded of which function is as it was told before.
	Same bool
	// On tells of the functions of an image, by local id, which are recorded. nil, or if it returns nil: all are.
	On func(image uint64) (func(id uint32) bool, error)
	// Costly also switches those on that the recorder has switched off because they cost too much.
	Costly bool
	// Silent leaves system calls out.
	Silent bool
}

// Switch switches functions. Nobody is stopped: a call that is open ends as ever. Only where switches are in a library that can be
// unloaded at any moment, all threads are stopped while they are written, or what has come to its place would be changed.
func (r *Runtime) Switch(to Switching) error {
	armed, err := r.word32(r.at(format.MeetingOArmed))
	if err != nil {
		return err
	}
	// What the process does with its switches meanwhile it does by this word.
	if want := map[bool]uint32{true: format.ArmedPaused, false: format.ArmedOn}[to.Pause]; !to.Leave && armed != format.ArmedOff && armed != want {
		armed = want
		if err := r.setWord32(r.at(format.MeetingOArmed), armed); err != nil {
			return err
		}
	}
	if err := r.setWord32(r.at(format.MeetingOSwitched), 1); err != nil {
		return err
	}
	var silent uint32
	if to.Silent {
		silent = 1
	}
	if err := r.setWord32(r.at(format.MeetingOSilent), silent); err != nil {
		return err
	}
	var leaving []*turn
	for i := range r.Images {
		im := &r.Images[i]
		f := flip{armed: armed, clear: format.SwitchFiltered}
		if to.Costly {
			f.clear |= format.SwitchCostly
		}
		switch {
		case to.Same:
			f.clear = 0
		case to.On != nil:
			if f.on, err = to.On(im.ID); err != nil {
				return err
			}
		}
		t := &turn{im, f, recordedCalls(to.Silent, armed)}
		if im.leaves {
			leaving = append(leaving, t.ready())
		} else if !r.same(im) {
			continue
		} else if err := r.turn(t, r.put); err != nil && !r.gone(im) {
			return err
		}
	}
	return r.turnLeaving(leaving)
}

// recordedCalls is which parts of system calls are recorded: those that are open when they cease to be end as ever.
func recordedCalls(silent bool, armed uint32) (recorded uint32) {
	if armed != format.ArmedOff {
		recorded = format.SyscallsEnds
	}
	if armed == format.ArmedOn && !silent {
		recorded |= format.SyscallsBegins
	}
	return recorded
}

// turnLeaving switches functions of images that can be unloaded, if there is something to be switched.
func (r *Runtime) turnLeaving(all []*turn) error {
	differs := false
	for _, t := range all {
		err := r.turn(t, func([]byte, uint64) error { differs = true; return nil })
		if err != nil && !r.gone(t.im) {
			return err
		}
	}
	if !differs {
		return nil
	}
	return r.whileStopped(func() error {
		for _, t := range all {
			if !r.same(t.im) {
				continue
			}
			if err := r.turn(t, r.put); err != nil {
				return err
			}
		}
		return nil
	})
}

// allSwitches are the switches of all images; acts: functions have actions, which can have tracing go on.
func (r *Runtime) allSwitches() (all [][]byte, acts bool, err error) {
	for i := range r.Images {
		im := &r.Images[i]
		var b []byte
		if im.switches != 0 {
			b = make([]byte, im.Sites)
			if err := r.t.ReadAt(b, im.switches); err != nil {
				if !r.gone(im) {
					return nil, false, err
				}
				b = nil
			}
		}
		all = append(all, b)
		acts = acts || slices.ContainsFunc(b, func(b byte) bool { return b&format.SwitchActs != 0 })
	}
	return all, acts, nil
}

// A turn is what an image's switches are to become.
type turn struct {
	im    *RuntimeImage
	f     flip
	calls uint32 // which parts of system calls are recorded
}

// ready has it known what becomes of each function: while threads are stopped there is no time for that.
func (t *turn) ready() *turn {
	if is := t.f.on; is != nil {
		on := make([]bool, t.im.Sites+1)
		for id := range t.im.Sites {
			on[id+1] = is(uint32(id + 1))
		}
		t.f.on = func(id uint32) bool { return on[id] }
	}
	return t
}

// turn switches functions of an image, and its system calls, by put.
func (r *Runtime) turn(t *turn, put func(b []byte, addr uint64) error) error {
	im := t.im
	if is, err := r.word32(im.words + wSyscalls); err != nil {
		return err
	} else if is != t.calls {
		if err := put(le.AppendUint32(nil, t.calls), im.words+wSyscalls); err != nil {
			return err
		}
	}
	if im.switches == 0 {
		return nil
	}
	for first := 0; first < im.Sites; first += switchStep {
		n := min(switchStep, im.Sites-first)
		at := im.switches + uint64(first)
		var now []byte
		r.switches, now = likeAddress(r.switches, n, at)
		if err := r.t.readQuickly(now, at); err != nil {
			return err
		}
		err := t.f.all(now, uint32(first)+1, func(begin, end int) error { return put(now[begin:end], at+uint64(begin)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Settled is what sites of functions have become (Attachment.Settle).
type Settled struct {
	Off, All int         // functions that are off, of those that have a site
	Without  []arch.Edit // functions that are on, and have no jump: a thread was in the middle of where that is to be
}

// SettleTries is how often it is tried to write a site in the middle of which a thread is, if somebody waits for that.
const SettleTries = 20

// Limits are what a process's runtime is told about which calls are recorded, and what is done at calls.
type Limits struct {
	// Frames has it know depths and times of calls, which the next five, and some actions, need.
	Frames    bool
	Depth     uint32        // deeper ones are not; 0: no limit
	Threshold time.Duration // shorter ones are not; 0: no limit
	// SetRoots: from now on those inside of some functions are alone. Forget: calls that are open are taken for outside.
	SetRoots, Forget bool
	Roots            func(image uint64) (func(id uint32) bool, error) // nil: everything is
	// Flat has calls recorded without frames: the tracer function. It is set by each change.
	Flat bool
	// SetActs: from now on this is done at calls of functions, by local id, besides what was planned.
	SetActs bool
	Acts    func(image uint64) map[uint32][]patch.Act
	// Errno is where the runtime finds errno in an image, from what that says of itself; 0: nowhere, or as ever.
	Errno func(image uint64) int64

	bitmaps map[uint64][]byte // of Roots, by image
}

// ErrInside: there was always a thread in the runtime, which it does not leave, so nothing was changed.
const ErrInside = unchanged("a thread of it waits in the tracer")

// unchanged is why nothing was changed in a process.
type unchanged string

func (e unchanged) Error() string { return string(e) }

// Unchanged tells whether an error of Limit says that nothing was changed.
func Unchanged(err error) bool {
	var is unchanged
	return errors.As(err, &is)
}

// ErrEnded: the process is gone, or runs another program.
var ErrEnded = procfs.ErrEnded
