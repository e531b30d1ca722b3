package tracee

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/stub"
)

// What is done at calls of functions of a process that runs.
//
// Which functions have actions says a table of their image. It is made anew, in memory that is mapped in the process, with
// what the image came with. Functions that have actions call other routines of the runtime: their thunks are changed, one
// instruction for calls and one for returns, and those of functions that have none any more get back what they had.
//
// Of many functions that takes long, so it is done in several stops of a bounded length. First the new table is written beside
// the old one, while the process runs, and the thunks of functions that are to have actions are led to the routines that look for
// some: they find the old ones, or none. Then all threads are stopped, and none is in a thunk or in the runtime: that stop changes
// the table, with how often each action was done, so a set has its effect at once and as a whole. Then the thunks that nothing is
// done for any more are led back. If the table is not changed, those are that were led there before.

// ErrActs: the runtime cannot do anything at calls of functions while it runs.
const ErrActs = unchanged("what is done at calls cannot be changed in this recording: it needs the tracer function_graph, with a clock")

// acting are the new tables of a process.
type acting struct {
	placed []*placedActs
	read   int // actions that the process has, as far as they have been read
}

// mostActions bounds what a process can say that it has in all of its tables.
const mostActions = 1 << 22

// placedActs is that of an image.
type placedActs struct {
	im     *RuntimeImage
	table  patch.RunningTable
	at     uint64 // 0: it has none
	size   uint64
	counts uint64
	all    []stub.Action
	from   []int32         // for each of these the one that it was, plus 1; nil: none was counted
	room   [2][]byte       // for counts of what it had, and of all
	exits  map[uint32]bool // functions at whose returns something is done; in it: they have actions
	ids    []uint32        // functions that have actions, or had some, in their order

	was      actingTable
	had      []stub.Action // in that
	exitsWas map[uint32]bool

	taken bool // the process has it
}

// An actingTable is where the actions of an image are; zero: it has none.
type actingTable struct {
	actions, counts uint64
	n               uint32
}

// key is the image, as it is loaded.
func (im *RuntimeImage) key() routesKey { return routesKey{im.ID, im.Loaded, im.thunks, im.thunkSize} }

// newActs finds out what an image is to get; nil: what it has stays.
func (r *Runtime) newActs(im *RuntimeImage, acts map[uint32][]patch.Act, a *acting) (*placedActs, error) {
	was, err := r.tableOf(im)
	if err != nil {
		return nil, err
	}
	had, err := r.readActions(was.actions, was.n, a)
	if err != nil {
		return nil, err
	}
	planned, err := r.plannedActions(im, a)
	if err != nil {
		return nil, err
	}
	if len(acts) == 0 && slices.Equal(had, planned) {
		return nil, nil // as ever
	}
	if im.detours == 0 || im.thunks == 0 {
		return nil, ErrActs
	}
	p := &placedActs{im: im, was: was, had: had, exitsWas: exitsOf(had)}
	p.table = patch.RunningTable{Image: im.at, Sites: im.Sites, Planned: planned, Acts: acts}
	if err := p.table.Check(); err != nil {
		return nil, unchanged(err.Error())
	}
	b, all := p.table.Encode()
	if len(all) > 0 {
		p.counts = uint64(len(b))
		p.size = pageUp(p.counts + uint64(len(all))*stub.ActionCountSize)
	}
	p.all, p.exits = all, exitsOf(all)
	p.ids = functionsOf(im, all, had)
	return p, nil
}

// exitsOf are the functions that have actions, and whether some are done at their returns.
func exitsOf(all []stub.Action) map[uint32]bool {
	exits := make(map[uint32]bool)
	for _, a := range all {
		exits[a.ID] = exits[a.ID] || a.Kind.AtExit(a.Value)
	}
	return exits
}

// place maps memory for the table.
func (p *placedActs) place(rem *remote) (err error) {
	if p.size != 0 && p.at == 0 {
		p.at, err = rem.mmap(0, p.size, unix.PROT_READ|unix.PROT_WRITE)
	}
	return err
}

// write writes the table there, for nobody yet.
func (p *placedActs) write(r *Runtime) error {
	if p.at == 0 {
		return nil
	}
	p.counts, p.table.At = p.at+p.counts, p.at
	b, all := p.table.Encode() // it says where it is
	p.all = all
	left := make(map[stub.Action][]int32)
	for i, a := range p.had {
		if a.Limit != 0 {
			left[a] = append(left[a], int32(i)+1)
		}
	}
	for i, a := range all {
		if old := left[a]; len(old) > 0 {
			if p.from == nil {
				p.from = make([]int32, len(all))
				p.room = [...][]byte{make([]byte, len(p.had)*stub.ActionCountSize), make([]byte, len(all)*stub.ActionCountSize)}
			}
			p.from[i], left[a] = old[0], old[1:]
		}
	}
	return r.t.WriteAt(b, p.at)
}

// goOn has what is counted go on in the new table. All threads are stopped.
func (p *placedActs) goOn(r *Runtime) error {
	if p.from == nil {
		return nil
	}
	was, b := p.room[0], p.room[1]
	if err := r.t.ReadAt(was, p.was.counts); err != nil {
		return err
	}
	for i, from := range p.from {
		if from != 0 {
			copy(b[i*stub.ActionCountSize:][:stub.ActionCountSize], was[int(from-1)*stub.ActionCountSize:])
		}
	}
	return r.t.WriteAt(b, p.counts)
}

// prepareActs places new tables for all images that have other actions now, and leads thunks there. The process runs meanwhile. What
// it returns is to be finished, also with an error.
func (r *Runtime) prepareActs(ts *threads, l *Limits) (*acting, error) {
	to := &acting{}
	place := false
	for i := range r.Images {
		p, err := r.newActs(&r.Images[i], l.Acts(r.Images[i].ID), to)
		if err != nil {
			return to, err
		}
		if p != nil {
			im := r.Images[i] // the list is another one soon
			p.im = &im
			to.placed, place = append(to.placed, p), place || p.size > 0
		}
	}
	if place {
		if err := ts.calls(func(rem *remote) error { return to.each((*placedActs).place, rem) }); err != nil {
			return to, err
		}
	}
	for _, p := range to.placed {
		if err := p.write(r); err != nil {
			return to, err
		}
	}
	return to, r.leadInStops(ts, to, func(p *placedActs, id uint32) (acts, exit bool) {
		exit, acts = p.exits[id]
		exitWas, actsWas := p.exitsWas[id]
		return acts || actsWas, exit || exitWas
	})
}

// calls has a thread make calls, while the others go on.
func (ts *threads) calls(do func(*remote) error) error {
	return ts.within(true, func() error {
		ms, err := ts.maps()
		if err != nil {
			return err
		}
		return ts.calling(ms, do)
	})
}

// each does something with each table.
func (a *acting) each(do func(*placedActs, *remote) error, rem *remote) error {
	for _, p := range a.placed {
		if err := do(p, rem); err != nil {
			return err
		}
	}
	return nil
}

// finishActs leads thunks back that nothing is done for any more, and gives the memory back that the process has not taken.
func (r *Runtime) finishActs(ts *threads, a *acting) error {
	err := r.leadInStops(ts, a, func(p *placedActs, id uint32) (acts, exit bool) {
		if p.taken {
			exit, acts = p.exits[id]
		} else {
			exit, acts = p.exitsWas[id]
		}
		return acts, exit
	})
	if !slices.ContainsFunc(a.placed, (*placedActs).left) {
		return err
	}
	return errors.Join(err, ts.calls(func(rem *remote) error { return a.each((*placedActs).drop, rem) }))
}

// left tells whether there is memory that the process has not taken.
func (p *placedActs) left() bool { return p.at != 0 && !p.taken }

// drop gives that back.
func (p *placedActs) drop(rem *remote) error {
	if !p.left() {
		return nil
	}
	_, err := rem.call(unix.SYS_MUNMAP, p.at, p.size)
	p.at = 0
	return err
}

// settleActs has the tables be those for the images that there are now, in whose process all threads are stopped: some can have come
// since, or be others. Whoever comes is led to, and what is no more needs nothing.
func (r *Runtime) settleActs(rem *remote, l *Limits, to *acting) (now *acting, err error) {
	now = &acting{read: to.read}
	for i := range r.Images {
		im := &r.Images[i]
		if err := r.tellErrno(im, l.Errno(im.ID)); err != nil {
			return now, err
		}
		was, err := r.tableOf(im)
		if err != nil {
			return now, err
		}
		at := slices.IndexFunc(to.placed, func(p *placedActs) bool { return p.im.key() == im.key() && p.was == was })
		if at >= 0 {
			to.placed[at].im = im
			now.placed = append(now.placed, to.placed[at])
			continue
		}
		p, err := r.newActs(im, l.Acts(im.ID), now)
		if err != nil {
			return now, err
		}
		if p == nil {
			continue
		}
		to.placed, now.placed = append(to.placed, p), append(now.placed, p)
		if err := errors.Join(p.place(rem), p.write(r), r.leadThunksOf(p)); err != nil {
			return now, err
		}
	}
	return now, nil
}

// tellErrno tells an image how to find errno, if it does not know. That changes nothing for those who do not ask for it.
func (r *Runtime) tellErrno(im *RuntimeImage, distance int64) error {
	at := im.at + format.ImageOErrnoAt
	is, err := r.word(at)
	if err != nil || is != 0 || distance == 0 {
		return err
	}
	return r.t.WriteAt(le.AppendUint64(nil, uint64(distance)), at)
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

// tableOf says where the actions of an image are.
func (r *Runtime) tableOf(im *RuntimeImage) (t actingTable, err error) {
	if im.acting == 0 {
		return t, nil
	}
	var b [format.ActingSize]byte
	if err := r.t.ReadAt(b[:], im.acting); err != nil {
		return t, err
	}
	return actingTable{le.Uint64(b[format.ActingOActions:]), le.Uint64(b[format.ActingOCounts:]), le.Uint32(b[format.ActingOCount:])}, nil
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
	if n == 0 {
		return nil, nil
	}
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

// routesOf finds them. An image was planned with limits or without, which its thunks tell that have no actions. Of a large program
// these are many, so they are looked at before anybody is stopped, but for images that have come since.
func (r *Runtime) routesOf(im *RuntimeImage) (*routes, error) {
	key := im.key()
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

// A led is thunks that are to be written.
type led struct {
	im   *RuntimeImage
	at   uint64
	code []byte
}

// ledStep is how many bytes of thunks are written between two looks at the clock.
const ledStep = 64 << 10

// leadInStops has functions call the routines that look for actions, or not any more, as a function says. Threads may be in their
// thunks meanwhile: an instruction is changed as a whole.
func (r *Runtime) leadInStops(ts *threads, a *acting, want func(p *placedActs, id uint32) (acts, exit bool)) error {
	var rest []led
	for _, p := range a.placed {
		some, err := r.ledOf(p, func(id uint32) (bool, bool) { return want(p, id) })
		if err != nil && !r.gone(p.im) {
			return fmt.Errorf("its thunks: %w", err)
		}
		rest = append(rest, some...)
	}
	return ts.inStops(false, func() bool { return len(rest) > 0 }, func(began time.Time) error {
		for ; len(rest) > 0 && time.Since(began) < stopLimit; rest = rest[1:] {
			if !r.same(rest[0].im) {
				continue
			}
			if err := r.t.WriteAt(rest[0].code, rest[0].at); err != nil {
				return fmt.Errorf("its thunks: %w", err)
			}
		}
		return nil
	})
}

// leadThunksOf has those functions of an image that have actions call the routines that look for them, and others not. All threads are
// stopped.
func (r *Runtime) leadThunksOf(p *placedActs) error {
	all, err := r.ledOf(p, func(id uint32) (acts, exit bool) {
		exit, acts = p.exits[id]
		return acts, exit
	})
	for _, l := range all {
		err = errors.Join(err, r.t.WriteAt(l.code, l.at))
	}
	return err
}

// ledOf returns the thunks of an image that have to be written so that functions with actions call other routines.
func (r *Runtime) ledOf(p *placedActs, want func(id uint32) (acts, exit bool)) (all []led, err error) {
	w, err := r.routesOf(p.im)
	if err != nil {
		return nil, err
	}
	if p.im.thunkSize < amd64.ThunkExitEnd {
		return nil, errThunks
	}
	const gap = 64 // thunks: closer ones are read together, but not too many
	most := uint32(ledStep / p.im.thunkSize)
	for ids := p.ids; len(ids) > 0; {
		n := 1
		for n < len(ids) && ids[n]-ids[n-1] < gap && ids[n]-ids[0] < most {
			n++
		}
		l, err := r.ledSome(p.im, w, ids[:n], want)
		if err != nil {
			return nil, err
		}
		if l.code != nil {
			all = append(all, l)
		}
		ids = ids[n:]
	}
	return all, nil
}

// ledSome does so for functions that are close to each other.
func (r *Runtime) ledSome(im *RuntimeImage, w *routes, ids []uint32, want func(id uint32) (acts, exit bool)) (l led, err error) {
	size := uint64(im.thunkSize)
	first := im.thunks + uint64(ids[0]-1)*size
	thunks := make([]byte, uint64(ids[len(ids)-1]-ids[0]+1)*size)
	if err := r.t.ReadAt(thunks, first); err != nil {
		return l, err
	}
	from, to := uint64(len(thunks)), uint64(0) // what is another one
	for _, id := range ids {
		at := uint64(id-ids[0]) * size
		if acts, exit := want(id); w.lead(thunks[at:at+size], first+at, acts, exit) {
			from, to = min(from, at), at+size
		}
	}
	if from >= to {
		return l, nil
	}
	return led{im, first + from, thunks[from:to]}, nil
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
