package tracee

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
)

// Changing the code of a process that runs.
//
// Code is changed only while all threads are stopped, but a large program has so much of it that this would be a long
// stop. A function's site depends on no other's, so they are written in several stops, each of which ends when it has
// lasted for long enough, and the program runs as long as it was stopped before the next one. Whatever was forked
// between two stops has some of the changes and not the others; so what is there is looked at, not what was done.
//
// Unwind tables and the jumps that sites lead to are changed first, and changed back last: rules that look behind
// thunks are right for functions that have none.
//
// A site is left alone if a thread stands in the middle of what is rewritten, or if a word of a thread's stack points
// there, which may be where a handler goes back to.
//
// If the recorder is killed, the threads go on at once, with what has been written until then: page by page, as the kernel
// looks for signals between two. So jumps lie in one page each: plans leave functions alone in which they would not.

const (
	// stopLimit is for how long changes are made in one stop, and threadLimit for how much longer for each thread, as a stop
	// of many takes longer than that anyway.
	stopLimit   = 2 * time.Millisecond
	threadLimit = 10 * time.Microsecond
	// writeTries is how often it is tried to write sites of a plan in the middle of which a thread is.
	writeTries = 5
	// stopStep is how many bytes of code are changed between two looks at the clock.
	stopStep = 64 << 10
)

// limit is for how long something is done in this stop.
func (ts *threads) limit() time.Duration {
	return stopLimit + time.Duration(len(ts.all))*threadLimit
}

// inStops gives edits, which are sorted, their new bytes. Those that have these are left as they are; others must have
// the old ones. skip is asked in each stop for the index of those that are left alone, of what is still to be written.
// written is what was changed.
func (a *Attachment) inStops(ts *threads, edits []arch.Edit, skip func([]arch.Edit) (map[int]bool, error)) (
	written []arch.Edit, err error) {
	w := &siteWriter{mem: ts.memory()}
	edits = slices.DeleteFunc(slices.Clone(edits), inTwoPages)
	if err := arch.Check(edits); err != nil {
		return nil, err
	}
	for rest := edits; len(rest) > 0; {
		w.prepare(rest)
		began := time.Now()
		err := ts.within(false, func() error {
			began = time.Now()
			left, err := a.loaded(ts, rest)
			if err != nil {
				return err
			}
			if len(left) < len(rest) {
				w.steps = nil // they are others
			}
			rest = left
			alone := map[int]bool(nil)
			if skip != nil {
				if alone, err = skip(rest); err != nil {
					return err
				}
			}
			n, err := w.write(rest, alone, time.Now().Add(ts.limit()))
			rest = rest[n:]
			return err
		})
		for _, e := range w.written {
			written = append(written, *e)
		}
		if err != nil {
			return written, err
		}
		if len(rest) > 0 {
			time.Sleep(time.Since(began))
		}
	}
	return written, nil
}

// A siteWriter writes edits of a stopped process. As long as that is stopped, it compares and copies whole pieces of code: what
// they are to become has been found out before, while the process ran.
type siteWriter struct {
	mem     *Process
	steps   []siteStep
	was     []byte       // what the steps have read
	to      []byte       // and what is to be written
	now     []byte       // what is there
	written []*arch.Edit // in the last stop
}

// A siteStep is edits that are written at once.
type siteStep struct {
	n       int // of the edits
	at      uint64
	was, to []byte       // nil: this could not be read
	left    []*arch.Edit // those that have their old bytes
}

// mostSteps is how much is prepared for a stop: more than is written in it.
const mostSteps = 64

// prepare finds out what is to be written first.
func (w *siteWriter) prepare(edits []arch.Edit) {
	w.steps, w.was, w.to, w.written = w.steps[:0], w.was[:0], w.to[:0], w.written[:0]
	room := 0
	for len(edits) > 0 && len(w.steps) < mostSteps {
		n := oneStep(edits)
		st, size := siteStep{n: n, at: edits[0].Addr}, int(endOf(&edits[n-1])-edits[0].Addr)
		w.was = slices.Grow(w.was, size)
		was := w.was[len(w.was):][:size]
		if left, err := pendingIn(edits[:n], was, w.mem.ReadAt(was, st.at)); err == nil {
			w.was, w.to = w.was[:len(w.was)+size], append(w.to, was...)
			st.was, st.to, st.left = was, w.to[len(w.to)-size:], left
			for _, e := range left {
				copy(st.to[e.Addr-st.at:], e.New)
			}
			w.now = slices.Grow(w.now[:0], size)
		}
		w.steps, edits, room = append(w.steps, st), edits[n:], room+n
	}
	w.written = slices.Grow(w.written, room)
}

func endOf(e *arch.Edit) uint64 { return e.Addr + uint64(len(e.Old)) }

// oneStep is how many of edits are written at once: what is closer to each other than a page lies in pages that are there.
func oneStep(edits []arch.Edit) int {
	n, end := 1, endOf(&edits[0])
	for ; n < len(edits) && edits[n].Addr < end+PageSize && endOf(&edits[n])-edits[0].Addr <= stopStep; n++ {
		end = endOf(&edits[n])
	}
	return n
}

// write writes edits, which are those that were prepared, until a time. It returns how many it has dealt with.
func (w *siteWriter) write(edits []arch.Edit, alone map[int]bool, limit time.Time) (n int, err error) {
	prepared := len(w.steps) > 0
	for err == nil && n < len(edits) && prepared == (len(w.steps) > 0) && time.Now().Before(limit) {
		st := siteStep{n: oneStep(edits[n:])}
		if prepared {
			st, w.steps = w.steps[0], w.steps[1:]
		}
		asked := false
		for k := range alone {
			asked = asked || n <= k && k < n+st.n
		}
		if asked || !w.asPrepared(&st) {
			err = w.oneByOne(edits[n:n+st.n], func(i int) bool { return alone[n+i] })
		}
		n += st.n
	}
	return n, err
}

// asPrepared writes what was prepared, if that which was read then is still there.
func (w *siteWriter) asPrepared(st *siteStep) bool {
	now := w.now[:len(st.was)]
	if st.was == nil || (stopped{w.mem}).ReadAt(now, st.at) != nil || !bytes.Equal(now, st.was) {
		return false
	}
	if len(st.left) > 0 && w.mem.WriteAt(st.to, st.at) != nil {
		return false
	}
	w.written = append(w.written, st.left...)
	return true
}

// oneByOne writes edits by what is there now.
func (w *siteWriter) oneByOne(edits []arch.Edit, alone func(i int) bool) error {
	var now []arch.Edit
	for i := range edits {
		if !alone(i) {
			now = append(now, edits[i])
		}
	}
	now, err := pending(w.mem, now)
	if err != nil {
		return err
	}
	for i := range now {
		w.written = append(w.written, &now[i])
	}
	return arch.Write(w.mem, PageSize, now) // what could not be taken back is known
}

// inTwoPages tells sites that are not written at once.
func inTwoPages(e arch.Edit) bool {
	return isEarly(&e) && e.Addr/PageSize != (e.Addr+uint64(len(e.New))-1)/PageSize
}

// pending returns those of edits that have their old bytes. It is an error if one has neither these nor the new ones.
func pending(mem arch.Memory, edits []arch.Edit) (left []arch.Edit, err error) {
	var b []byte
	for len(edits) > 0 {
		n := oneStep(edits)
		size := int(endOf(&edits[n-1]) - edits[0].Addr)
		b = slices.Grow(b[:0], size)[:size]
		has, err := pendingIn(edits[:n], b, mem.ReadAt(b, edits[0].Addr))
		if err != nil {
			return nil, err
		}
		for _, e := range has {
			left = append(left, *e)
		}
		edits = edits[n:]
	}
	return left, nil
}

// pendingIn returns those of edits that have their old bytes in b, which was read where the first one is, or could not be.
func pendingIn(edits []arch.Edit, b []byte, failed error) (left []*arch.Edit, err error) {
	if failed != nil {
		return nil, edits[0].Bug(arch.Fault, nil, failed)
	}
	for i := range edits {
		e := &edits[i]
		switch have := b[e.Addr-edits[0].Addr:][:len(e.Old)]; {
		case bytes.Equal(have, e.Old):
			left = append(left, e)
		case !bytes.Equal(have, e.New):
			return nil, e.Bug(arch.Mismatch, bytes.Clone(have), nil)
		}
	}
	return left, nil
}

// chosen returns edits for which a condition holds; back exchanges their bytes.
func chosen(edits []arch.Edit, back bool, which func(*arch.Edit) bool) []arch.Edit {
	var out []arch.Edit
	for i := range edits {
		if !which(&edits[i]) {
			continue
		}
		e := edits[i]
		if back {
			e.Old, e.New = e.New, e.Old
		}
		out = append(out, e)
	}
	return out
}

func isEarly(e *arch.Edit) bool { return !isLate(e) }

// writeSites changes the images' code and unwind tables.
func (a *Attachment) writeSites(ts *threads, edits []arch.Edit) error {
	for _, which := range []func(*arch.Edit) bool{isLate, isEarly} {
		left := chosen(edits, false, which)
		for tries := 1; ; tries++ {
			written, err := a.inStops(ts, left, func(edits []arch.Edit) (map[int]bool, error) { return a.busy(ts, edits) })
			a.edits = append(a.edits, written...)
			if serr := arch.Sort(a.edits); err != nil || serr != nil {
				return cmp.Or(err, serr)
			}
			if left = without(left, written); len(left) == 0 || tries == writeTries {
				break
			}
			time.Sleep(leavePause)
		}
		left, err := a.loaded(ts, left)
		if err == nil {
			a.Busy = append(a.Busy, left...)
		}
		if i := slices.IndexFunc(left, isSwap); i >= 0 {
			return fmt.Errorf("%s swaps pieces of its stack, and a thread is in the middle of its first instructions", left[i].Func)
		}
	}
	return nil
}

// without are those of edits that are not among others.
func without(edits, others []arch.Edit) []arch.Edit {
	are := make(map[uint64]bool, len(others))
	for i := range others {
		are[others[i].Addr] = true
	}
	return slices.DeleteFunc(edits, func(e arch.Edit) bool { return are[e.Addr] })
}

// restoreSites switches everything off and gives the images' sites their bytes back.
func (a *Attachment) restoreSites(ts *threads) error {
	if len(a.edits) == 0 {
		return nil
	}
	mem, home := ts.memory(), a.images[0]
	if err := mem.WriteAt(make([]byte, 4), home.bias+home.m.Running.Armed); err != nil {
		return err
	}
	for _, im := range a.images {
		if err := mem.WriteAt(make([]byte, im.m.Running.Traced), im.bias+im.m.Running.Switches); err != nil {
			return err
		}
	}
	_, err := a.inStops(ts, chosen(a.edits, true, isEarly), nil)
	return err
}

// loaded are those of edits that are in images which are still there: libraries can be unloaded as long as threads run.
// All are stopped.
func (a *Attachment) loaded(ts *threads, edits []arch.Edit) ([]arch.Edit, error) {
	if len(a.images) == 1 && a.images[0].library == nil {
		return edits, nil
	}
	ms, err := ts.maps()
	if err != nil {
		return nil, err
	}
	return a.present(ms, edits), nil
}

// present are those of edits that are in images which are among a process's mappings. Edits of a view are of none that had gone
// before.
func (a *Attachment) present(ms []mapping, edits []arch.Edit) []arch.Edit {
	var gone []*Library
	for im := range a.there {
		if l := im.library; l != nil && !l.in(ms) {
			gone = append(gone, l)
		}
	}
	if len(gone) == 0 {
		return edits
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e arch.Edit) bool {
		return slices.ContainsFunc(gone, func(l *Library) bool { return l.lo <= e.Addr && e.Addr < l.hi })
	})
}

// restoreLate gives the images the rest of their bytes back, when nobody can come to a thunk any more: what unwinders find
// is right before and after. Unwinders are still led to what was added.
func (a *Attachment) restoreLate(ts *threads, ms []mapping) error {
	_, err := a.inStops(ts, chosen(a.present(ms, a.edits), true, func(e *arch.Edit) bool { return isLate(e) && !a.hooks.finder.is(e) }), nil)
	return err
}

// restoreFinder has unwinders be led there no more.
func (a *Attachment) restoreFinder(ts *threads) error {
	_, err := a.inStops(ts, chosen(a.edits, true, a.hooks.finder.is), nil)
	return err
}

// inCopy returns where a thread goes on that is in the middle of a site.
func (a *Attachment) inCopy(pc uint64) (uint64, bool) {
	for im := range a.there {
		if to, ok := im.m.InCopy(pc - im.bias); ok {
			return im.bias + to, true
		}
	}
	return 0, false
}

// fromCopy returns where a thread goes on, when the sites are restored, that waits in a system call.
func (a *Attachment) fromCopy(pc uint64) (uint64, bool) {
	for _, im := range a.images {
		if to, ok := im.m.Running.FromCopy(pc - im.bias); ok {
			return im.bias + to, true
		}
	}
	return 0, false
}

// busy returns which of edits, by index, have bytes that a thread is in the middle of. Threads that are in a site that
// has a copy are led there instead.
func (a *Attachment) busy(ts *threads, edits []arch.Edit) (map[int]bool, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	ms, err := ts.maps()
	if err != nil {
		return nil, err
	}
	busy := map[int]bool{}
	window := func(v uint64) int { // -1: it is in the middle of none
		if v <= edits[0].Addr || v >= endOf(&edits[len(edits)-1]) {
			return -1 // most words of stacks are
		}
		i := sort.Search(len(edits), func(i int) bool { return edits[i].Addr >= v }) - 1
		if i >= 0 && v < edits[i].Addr+uint64(len(edits[i].Old)) && !isTable(&edits[i]) {
			return i
		}
		return -1
	}
	moved := map[*thread]uint64{}
	for _, t := range ts.all {
		if err := ts.patient(); err != nil {
			return nil, err
		}
		if to, ok := a.inCopy(t.regs.pc()); ok {
			moved[t] = to
		} else if i := window(t.regs.pc()); i >= 0 {
			busy[i] = true
		}
		if err := t.liveStack(ms, a.mostStack(t), func(at, v uint64) {
			if i := window(v); i >= 0 && a.goesBack(t, at, v) {
				busy[i] = true
			}
		}); err != nil {
			return nil, err
		}
	}
	for t, to := range moved {
		if i := window(t.regs.pc()); i >= 0 && !busy[i] {
			if err := t.move(to); err != nil {
				return nil, err
			}
		}
	}
	return busy, nil
}

// Sites that are nops again.
//
// A function that is switched off costs its jumps, and where many are, the processor's predictor and caches, which pay for
// jumps that lead nowhere. So what is off for long gets back what it was; and when it is switched on again, its jump. What a
// function's switch says is followed, whoever has set it.

// Injected are those of plans that a process has which were put into its program when that began, or were added to it since.
func Injected(pid int, plans ...Plan) (*Attachment, error) {
	r, err := OpenRuntime(pid)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ms, err := mapsOf(pid)
	if err != nil {
		return nil, err
	}
	a := &Attachment{}
	for i := range plans {
		p := &plans[i]
		im, err := p.image(ms, r.aux)
		if err != nil || im.bias%PageSize != 0 || !slices.ContainsFunc(r.Images, im.is) {
			continue
		}
		edits, sites := im.planned(), make(map[uint64]bool)
		if tables := chosen(edits, false, isLate); im.library != nil && len(tables) > 0 {
			if left, err := pending(r.t, tables); err != nil || len(left) > 0 {
				continue // it has been loaded again
			}
		}
		a.images = append(a.images, im)
		_, at := p.Sites()
		for _, site := range at {
			sites[im.bias+site] = true
		}
		own := slices.DeleteFunc(edits, func(e arch.Edit) bool { return isLate(&e) || !sites[e.Addr] })
		if im.beside = i > 0; im.beside {
			own = leftAlone(r.t, own)
		}
		a.edits = append(a.edits, own...)
	}
	slices.SortFunc(a.edits, byAddress)
	if len(a.edits) == 0 {
		return nil, ErrNotPlanned
	}
	return a, nil
}

// is reports whether it is an image of the runtime's.
func (im *image) is(r RuntimeImage) bool { return r.switches == im.bias+im.m.Switches }

// Settle has the sites of a process be what its functions' switches say: jumps of those that are on, and what they were of
// those that are off. Sites in the middle of which a thread is are tried so often.
func (a *Attachment) Settle(pid, tries int) (s Settled, err error) {
	r, ts, err := openTraced(pid)
	if err != nil {
		return s, err
	}
	defer r.Close()
	defer ts.close()
	if a.seen != nil { // libraries come and go, and children go their own ways
		ms, err := ts.maps()
		if err != nil {
			return s, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a = a.view(pid, ms); a == nil {
			return s, ErrOther
		}
	}
	isOn, err := a.switches(r)
	if err != nil {
		return s, err
	}
	var on, nops []arch.Edit
	for i := range a.edits {
		if is, ok := isOn[a.edits[i].Addr]; ok && is {
			on = append(on, a.edits[i])
		} else if ok {
			nops = append(nops, a.edits[i])
		}
	}
	mem := ts.memory()
	// What is as it is to be needs no stop.
	if on, err = pending(mem, a.here(ts, on)); err == nil && len(on) > 0 {
		if err = a.ownPages(mem, on); err == nil { // they may be the file's again
			s.Without, err = a.jumps(ts, on, tries)
		}
	}
	if err == nil {
		nops = a.here(ts, chosen(nops, true, isEarly))
		err = a.clear(ts, nops)
	}
	s.Off, s.All = a.functions(nops, isOn)
	return s, err
}

// clear writes what sites were, as far as that is not there.
func (a *Attachment) clear(ts *threads, nops []arch.Edit) error {
	left, err := pending(ts.memory(), nops)
	if err != nil || len(left) == 0 {
		return err
	}
	if _, err = a.inStops(ts, left, nil); err == nil {
		_ = a.giveBack(ts, left)
	}
	return err
}

// Rest has a process that keeps what was put into its program run its own code from now on.
func (a *Attachment) Rest(pid int) error {
	r, ts, err := openTraced(pid)
	if err != nil {
		return err
	}
	defer r.Close()
	defer ts.close()
	return a.clear(ts, a.here(ts, chosen(a.edits, true, isEarly)))
}

// functions counts those of which there are edits, and all that have sites. A function can have several, in a row.
func (a *Attachment) functions(edits []arch.Edit, sites map[uint64]bool) (n, all int) {
	are := make(map[uint64]bool, len(edits))
	for i := range edits {
		are[edits[i].Addr] = true
	}
	for im := range a.there {
		ids, at := im.m.Sites()
		for i := 0; i < len(ids); {
			any, has := false, false
			for id := ids[i]; i < len(ids) && ids[i] == id; i++ {
				site := im.bias + at[i]
				_, is := sites[site]
				any, has = any || is, has || are[site]
			}
			if any {
				all++
			}
			if has {
				n++
			}
		}
	}
	return n, all
}

// here are those of edits that are in images which are loaded, and have been changed since.
func (a *Attachment) here(ts *threads, edits []arch.Edit) []arch.Edit {
	left, err := a.loaded(ts, edits)
	if err != nil {
		return nil
	}
	fresh := a.fresh(ts.memory())
	return slices.DeleteFunc(slices.Clone(left), func(e arch.Edit) bool { return fresh(e.Addr) })
}

// fresh tells addresses of libraries that were closed and loaded again, and wait to be changed: what sites lead to is not
// there yet.
func (a *Attachment) fresh(mem arch.Memory) func(addr uint64) bool {
	var in []*Library
	for im := range a.there {
		if im.library != nil && (!im.beside || slices.ContainsFunc(im.edits, func(e arch.Edit) bool { return isLate(&e) })) && !im.changed(mem) {
			in = append(in, im.library)
		}
	}
	return func(addr uint64) bool {
		return slices.ContainsFunc(in, func(l *Library) bool { return l.lo <= addr && addr < l.hi })
	}
}

// jumps writes sites, also those in the middle of which a thread is now. It returns those in the middle of which one always was.
func (a *Attachment) jumps(ts *threads, edits []arch.Edit, tries int) ([]arch.Edit, error) {
	for {
		_, err := a.inStops(ts, edits, func(edits []arch.Edit) (map[int]bool, error) {
			alone, err := a.busy(ts, edits)
			fresh := a.fresh(ts.memory())
			for i := range edits {
				if err == nil && fresh(edits[i].Addr) {
					alone[i] = true
				}
			}
			return alone, err
		})
		if err != nil {
			return nil, err
		}
		edits, err = pending(ts.memory(), a.here(ts, edits))
		if tries--; err != nil || len(edits) == 0 || tries <= 0 {
			return edits, err
		}
		time.Sleep(leavePause)
	}
}

// switches are whether functions are on, by the addresses of their sites, of those that have a site of this plan.
func (a *Attachment) switches(r *Runtime) (map[uint64]bool, error) {
	out := make(map[uint64]bool, len(a.edits))
	written := make(map[uint64]bool, len(a.edits))
	for i := range a.edits {
		if isEarly(&a.edits[i]) {
			written[a.edits[i].Addr] = true
		}
	}
	bytes, acts, err := r.allSwitches()
	if err != nil {
		return nil, err
	}
	for im := range a.there {
		ids, at := im.m.Sites()
		for i := range r.Images {
			if !im.is(r.Images[i]) {
				continue
			}
			b := bytes[i]
			for k, id := range ids {
				if site := im.bias + at[k]; int(id) <= len(b) && written[site] {
					// What the program itself can switch on, by an action, keeps its jump.
					const off = format.SwitchFiltered | format.SwitchCostly
					out[site] = b[id-1]&format.SwitchOn != 0 || acts && b[id-1]&off == 0
				}
			}
		}
	}
	return out, nil
}
