package tracee

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/stub"
)

// What is done at calls of functions of a process that runs.
//
// Which functions have actions says a table of their image. It is made anew, in memory that is mapped in the process, with
// what the image came with, and how often that was done, while all threads are stopped and none is in a thunk or in the
// runtime. Functions that have actions call other routines of the runtime: their thunks are changed, one instruction for
// calls and one for returns, and those of functions that have none any more get back what they had.

// ErrActs: the runtime cannot do anything at calls of functions while it runs.
const ErrActs = unchanged("what is done at calls cannot be changed in this recording: it needs the tracer function_graph, with a clock")

// acting are the new tables of a process.
type acting struct {
	placed []placedActs
	read   int // actions that the process has, as far as they have been read
}

// mostActions bounds what a process can say that it has in all of its tables.
const mostActions = 1 << 22

// placedActs is that of an image.
type placedActs struct {
	im     *RuntimeImage
	at     uint64 // 0: it has none
	size   uint64
	counts uint64
	all    []stub.Action
	exits  map[uint32]bool // functions at whose returns something is done; in it: they have actions
	ids    []uint32        // functions that have actions, or had some, in their order
}

// placeActs makes new tables for all images that have other actions now.
func (r *Runtime) placeActs(rem *remote, l *Limits, to *acting) error {
	for i := range r.Images {
		im := &r.Images[i]
		acts := l.Acts(im.ID)
		was, counts, err := r.actionsOf(im, to)
		if err != nil {
			return err
		}
		planned, err := r.plannedActions(im, to)
		if err != nil {
			return err
		}
		if len(acts) == 0 && len(was) == len(planned) {
			continue // as ever
		}
		if im.detours == 0 || im.thunks == 0 {
			return ErrActs
		}
		p := placedActs{im: im, exits: make(map[uint32]bool)}
		t := patch.RunningTable{Image: im.at, Sites: im.Sites, Planned: planned, Acts: acts}
		b, all := t.Encode()
		if len(all) > 0 {
			p.counts = uint64(len(b))
			p.size = pageUp(p.counts + uint64(len(all))*stub.ActionCountSize)
			if p.at, err = rem.mmap(0, p.size, unix.PROT_READ|unix.PROT_WRITE); err != nil {
				return err
			}
			p.counts += p.at
			t.At = p.at
			b, all = t.Encode() // it says where it is
		}
		p.all = all
		for _, a := range all {
			p.exits[a.ID] = p.exits[a.ID] || a.Kind.AtExit(a.Value)
		}
		p.ids = functionsOf(im, all, was)
		to.placed = append(to.placed, p)
		if p.at == 0 {
			continue
		}
		b = appendCounts(b, all, was, counts)
		if err := r.t.WriteAt(b, p.at); err != nil {
			return err
		}
	}
	return nil
}

// functionsOf are those of an image that actions are of, in their order.
func functionsOf(im *RuntimeImage, actions ...[]stub.Action) (ids []uint32) {
	for _, all := range actions {
		for _, a := range all {
			if a.ID != 0 && int(a.ID) <= im.Sites {
				ids = append(ids, a.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// appendCounts appends how often actions were done, which are the same as before.
func appendCounts(b []byte, all, was []stub.Action, counts []byte) []byte {
	left := make(map[stub.Action][]uint32)
	for i, a := range was {
		left[a] = append(left[a], le.Uint32(counts[i*stub.ActionCountSize:]))
	}
	for _, a := range all {
		n := uint32(0)
		if old := left[a]; len(old) > 0 {
			n, left[a] = old[0], old[1:]
		}
		b = le.AppendUint32(b, n)
	}
	return b
}

// actionsOf reads the table that an image has, and how often each was done.
func (r *Runtime) actionsOf(im *RuntimeImage, a *acting) (all []stub.Action, counts []byte, err error) {
	if im.acting == 0 {
		return nil, nil, nil
	}
	var b [format.ActingSize]byte
	if err := r.t.ReadAt(b[:], im.acting); err != nil {
		return nil, nil, err
	}
	if all, err = r.readActions(le.Uint64(b[format.ActingOActions:]), le.Uint32(b[format.ActingOCount:]), a); err != nil {
		return nil, nil, err
	}
	counts = make([]byte, len(all)*stub.ActionCountSize)
	return all, counts, r.t.ReadAt(counts, le.Uint64(b[format.ActingOCounts:]))
}

// plannedActions reads the one that it came with.
func (r *Runtime) plannedActions(im *RuntimeImage, a *acting) ([]stub.Action, error) {
	b := make([]byte, format.ImageSize)
	if err := r.t.ReadAt(b, im.at); err != nil {
		return nil, err
	}
	distance := le.Uint64(b[format.ImageOActions:])
	if distance == 0 {
		return nil, nil
	}
	return r.readActions(im.at+distance, le.Uint32(b[format.ImageOActionsCount:]), a)
}

// readActions reads n actions, which are to be counted.
func (r *Runtime) readActions(at uint64, n uint32, a *acting) ([]stub.Action, error) {
	if n > mostActions || a.read+int(n) > mostActions {
		return nil, errors.New("its table of actions makes no sense")
	}
	a.read += int(n)
	b := make([]byte, int(n)*stub.ActionSize)
	if err := r.t.ReadAt(b, at); err != nil {
		return nil, err
	}
	return stub.ParseActions(b), nil
}

// order is what the runtime is told of the tables.
func (a *acting) order() (b []byte) {
	for _, p := range a.placed {
		var e [format.ChangedActionsSize]byte
		le.PutUint64(e[format.ChangedActionsOImage:], p.im.state)
		le.PutUint64(e[format.ChangedActionsOMemory:], p.at)
		le.PutUint64(e[format.ChangedActionsOSize:], p.size)
		le.PutUint64(e[format.ChangedActionsOCounts:], p.counts)
		le.PutUint32(e[format.ChangedActionsOCount:], uint32(len(p.all)))
		b = append(b, e[:]...)
	}
	return b
}

// drop gives the memory of tables back that the runtime has not taken.
func (a *acting) drop(rem *remote) (err error) {
	for _, p := range a.placed {
		if p.at != 0 {
			_, uerr := rem.call(unix.SYS_MUNMAP, p.at, p.size)
			err = errors.Join(err, uerr)
		}
	}
	return err
}

// leadThunks has functions that have actions call the routines that look for them, and others not.
func (r *Runtime) leadThunks(a *acting) error {
	for i := range a.placed {
		if err := r.leadThunksOf(&a.placed[i]); err != nil {
			return fmt.Errorf("its thunks: %w", err)
		}
	}
	return nil
}

// routesOf finds them. An image was planned with limits or without, which its thunks tell that have no actions. Of a large program
// these are many, so they are looked at before anybody is stopped, but for images that have come since.
func (r *Runtime) routesOf(im *RuntimeImage) (*routes, error) {
	key := routesKey{im.ID, im.Loaded, im.thunks, im.thunkSize}
	if w := r.routes[key]; w != nil {
		return w, nil
	}
	w, err := r.findRoutes(im)
	if err == nil && r.routes == nil {
		r.routes = make(map[routesKey]*routes)
	}
	if err == nil {
		r.routes[key] = w
	}
	return w, err
}

func (r *Runtime) findRoutes(im *RuntimeImage) (*routes, error) {
	all, err := r.detoursOf(im)
	if err == nil && len(all) == 0 {
		err = ErrActs
	}
	if err != nil {
		return nil, err
	}
	first := format.DetourGraphAct
	err = r.eachThunks(im, func(thunks []byte, addr uint64) error {
		for at := 0; at < len(thunks) && first == format.DetourGraphAct; at += im.thunkSize {
			switch addr + uint64(at) + target(thunks[at:at+im.thunkSize], amd64.ThunkEnterCall, amd64.ThunkEnterEnd) {
			case all[format.DetourOptAct].from, all[format.DetourMcountOptAct].from:
				first = format.DetourOptAct
			case all[format.DetourOrderAct].from, all[format.DetourMcountOrderAct].from:
				first = format.DetourOrderAct
			case all[format.DetourFlatAct].from, all[format.DetourMcountFlatAct].from:
				first = format.DetourFlatAct
			}
		}
		return nil
	})
	w := routes{make(map[uint64]uint64), make(map[uint64]uint64)}
	for _, d := range all[first : first+3] {
		w.there[d.from], w.back[d.to] = d.to, d.from
	}
	return &w, err
}

var errThunks = errors.New("they make no sense")

// eachThunks reads the thunks of an image, many at once, in their order.
func (r *Runtime) eachThunks(im *RuntimeImage, do func(thunks []byte, addr uint64) error) error {
	const step = 1 << 14
	if im.thunkSize < amd64.ThunkExitEnd {
		return errThunks
	}
	thunks := make([]byte, min(im.Sites, step)*im.thunkSize)
	for first := 0; first < im.Sites; first += step {
		part, at := thunks[:min(im.Sites-first, step)*im.thunkSize], im.thunks+uint64(first*im.thunkSize)
		if err := r.t.ReadAt(part, at); err != nil {
			return err
		}
		if err := do(part, at); err != nil {
			return err
		}
	}
	return nil
}

// target is where an instruction of a thunk leads, from its beginning.
func target(t []byte, at, end int) uint64 {
	return uint64(end) + uint64(int64(int32(le.Uint32(t[at+1:]))))
}

// leadThunksOf is leadThunks for an image.
func (r *Runtime) leadThunksOf(p *placedActs) error {
	w, err := r.routesOf(p.im)
	if err != nil {
		return err
	}
	if p.im.thunkSize < amd64.ThunkExitEnd {
		return errThunks
	}
	const gap, most = 64, 1 << 14 // thunks: closer ones are read together, but not too many
	for ids := p.ids; len(ids) > 0; {
		n := 1
		for n < len(ids) && ids[n]-ids[n-1] < gap && ids[n]-ids[0] < most {
			n++
		}
		if err := r.leadSome(p, w, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// leadSome does so for functions that are close to each other.
func (r *Runtime) leadSome(p *placedActs, w *routes, ids []uint32) error {
	size := uint64(p.im.thunkSize)
	first := p.im.thunks + uint64(ids[0]-1)*size
	thunks := make([]byte, uint64(ids[len(ids)-1]-ids[0]+1)*size)
	if err := r.t.ReadAt(thunks, first); err != nil {
		return err
	}
	changed := false
	for _, id := range ids {
		at := uint64(id-ids[0]) * size
		exit, acts := p.exits[id]
		changed = w.lead(thunks[at:at+size], first+at, acts, exit) || changed
	}
	if !changed {
		return nil
	}
	return r.t.WriteAt(thunks, first)
}

// lead changes a thunk, and reports whether that is another one now.
func (w *routes) lead(t []byte, at uint64, acts, exit bool) bool {
	if !amd64.RecordsExit(t) {
		return false // it counts, or only looks
	}
	turn := func(i, end int, there bool) bool {
		of := w.back
		if there {
			of = w.there
		}
		to, ok := of[at+target(t, i, end)]
		if ok {
			le.PutUint32(t[i+1:], uint32(to-(at+uint64(end))))
		}
		return ok
	}
	enter := turn(amd64.ThunkEnterCall, amd64.ThunkEnterEnd, acts)
	return turn(amd64.ThunkExitCall, amd64.ThunkExitEnd, exit) || enter
}
