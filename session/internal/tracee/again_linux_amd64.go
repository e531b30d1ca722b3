package tracee

import (
	"errors"
	"slices"

	"github.com/fentry-dev/fentry/arch"
)

// Libraries that were unloaded and are loaded again, and more functions of which had been put into a process.
//
// The memory that came with these is behind the library, and stays where it is. What is loaded again at the same place needs its
// sites changed once more, and at another place all of it anew. Who is told of libraries changes those that were planned before
// anything of them is executed (Loaded); of functions that were added to others nobody is told, so it is looked for.

// Lacks tells whether a process has a library, with a key, and not what was added to it as an image. again is the one of the
// plans whose memory is still there, at the same place; nil: none.
func (r *Runtime) Lacks(image uint64, key string, plans []Plan) (lacks bool, again *Plan) {
	ms, err := mapsOf(r.t.pid)
	if err != nil {
		return false, nil
	}
	if !slices.ContainsFunc(libraries(ms, auxValue(r.aux, atEntry)), func(l *Library) bool { return l.Key() == key }) {
		return false, nil
	}
	for i := range plans {
		p := &plans[i]
		if p.In != key || p.Running == nil || p.Running.Image != image {
			continue
		}
		im, err := p.image(ms, r.aux)
		if err != nil || !slices.ContainsFunc(r.Images, im.is) {
			continue
		}
		if r.untouched(im) {
			return true, p
		}
		return false, nil
	}
	return true, nil
}

// untouched tells whether nothing of an image has been changed since it was loaded. Functions that are off can have what they had.
func (r *Runtime) untouched(im *image) bool {
	one := &Attachment{images: []*image{im}, edits: im.planned()}
	is := chosen(one.edits, false, isLate)
	if len(is) == 0 {
		on, err := one.switches(r)
		if err != nil {
			return false
		}
		is = chosen(one.edits, false, func(e *arch.Edit) bool { return on[e.Addr] })
	}
	left, err := pending(r.t, is)
	return err == nil && len(is) > 0 && len(left) == len(is)
}

// awaits tells whether the library of an image that is beside another one has just been loaded, and what was planned of it is not
// there yet: the thread that has loaded it waits for that (Loaded).
func (a *Attachment) awaits(ts *threads, im *image) bool {
	planned, there := false, false
	for _, o := range a.images {
		if im.library == nil || o.library == nil || o.beside || o.library.Key() != im.library.Key() {
			continue
		}
		planned = true
		if o.library.lo == im.library.lo {
			late := slices.ContainsFunc(o.edits, func(e arch.Edit) bool { return isLate(&e) })
			there = there || o.failed || !late || o.changed(ts.memory())
		}
	}
	return planned && !there
}

// Again changes a library once more that is loaded again where a plan of more functions was put into it.
func (a *Attachment) Again(pid int, p Plan) error {
	ts, err := openThreads(pid)
	if err != nil {
		return err
	}
	defer ts.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	ms, err := ts.maps()
	if err != nil {
		return err
	}
	im, err := p.image(ms, ts.aux)
	if err != nil {
		return err
	}
	if a.awaits(ts, im) {
		return ErrNotPlanned
	}
	b := &Attachment{images: []*image{im}}
	edits := leftAlone(ts.memory(), b.planned())
	if edits, err = pending(ts.memory(), edits); err == nil {
		err = b.ownPages(ts.memory(), edits)
	}
	if err == nil {
		err = b.writeSites(ts, edits)
	}
	b.divide()
	a.keep(b.images)
	return im.unlessGone(ts, err)
}

// unlessGone is an error; ErrNotPlanned if there was one, and the library is not there any more.
func (im *image) unlessGone(ts *threads, err error) error {
	if err == nil || im.library == nil || errors.Is(err, ErrEnded) {
		return err
	}
	if ms, merr := ts.maps(); merr == nil && !im.library.in(ms) {
		return ErrNotPlanned
	}
	return err
}
