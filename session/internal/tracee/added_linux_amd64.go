package tracee

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// More functions of a program that is traced already.
//
// They are put into a process as libraries are: with memory and a runtime of their own, which joins the one that is there. That
// one is at work now. So the thread that is made to start it must not be in the middle of the runtime's code.

// A Plan is one of an image of a process: of its program, or of a library, by its key.
type Plan struct {
	*patch.Memory
	In string
}

// Add puts a plan of more functions of an image into a process, which has a library with that key. If something is where it is
// to be, the error is a TakenError, and the process is as it was. foreign are sites that are left alone, as somebody else has
// changed them. It is ErrNotPlanned, too, if the library's own plan is about to come, which is first.
func (a *Attachment) Add(pid int, p Plan) (foreign []arch.Edit, err error) {
	ts, err := openThreads(pid)
	if err != nil {
		return nil, err
	}
	defer ts.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	ms, err := ts.maps()
	if err != nil {
		return nil, err
	}
	im, err := p.image(ms, ts.aux)
	if err != nil {
		return nil, err
	}
	if a.awaits(ts, im) {
		return nil, ErrNotPlanned
	}
	b := &Attachment{images: []*image{im}}
	all := b.planned()
	foreign = without(all, leftAlone(ts.memory(), all))
	return foreign, im.unlessGone(ts, a.add(ts, b.images, -1))
}

// asleep lets time pass in which others have the lock: a thread can wait in the tracer until the libraries are changed that it has
// loaded.
func (a *Attachment) asleep(long time.Duration) {
	a.mu.Unlock()
	defer a.mu.Lock()
	time.Sleep(long)
}

// otherRuntime tells whether the tracer in a process is certainly not the one that came with an image: programs that are not
// relocated can have theirs at the same address.
func otherRuntime(pid int, home *image) bool {
	r, err := OpenRuntime(pid)
	if err != nil {
		return false
	}
	defer r.Close()
	return !r.Has(home.m.Running.Image)
}

// In tells how many of the images that were attached to are in a process: none if it has executed another program.
func (a *Attachment) In(pid int) int {
	ms, err := mapsOf(pid)
	if err != nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a = a.view(pid, ms); a == nil {
		return 0
	}
	return len(a.images)
}

// errRefused: an image has not joined, and nothing knows of it any more.
var errRefused = errors.New("the runtime does not accept more functions")

// withdraw takes the memory of an image out again that was refused. Somebody may just have met it in the list of images: so all are
// outside of the runtime then.
func (a *Attachment) withdraw(ts *threads) error {
	r, err := OpenRuntime(ts.pid)
	if err != nil {
		return err
	}
	defer r.Close()
	for tries := 1; ; tries++ {
		err = ts.within(false, func() error {
			ms, err := r.vacant(ts, stopLimit)
			if err != nil {
				return err
			}
			return ts.calling(ms, a.unmapMemory)
		})
		if !errors.Is(err, ErrInside) || tries == leaveTries {
			return err
		}
		time.Sleep(leavePause)
	}
}

// image is the plan in a process.
func (p *Plan) image(ms []mapping, aux []byte) (*image, error) {
	im := &image{m: p.Memory, bias: auxValue(aux, atEntry) - p.OrigEntry, beside: true}
	if p.In == "" {
		return im, nil
	}
	for _, l := range libraries(ms, auxValue(aux, atEntry)) {
		if l.Key() == p.In {
			im.library, im.bias = l, l.lo
			return im, nil
		}
	}
	return nil, ErrNotPlanned
}

// leftAlone are edits without those of sites that somebody else has changed: who follows what the process executes.
func leftAlone(mem arch.Memory, edits []arch.Edit) []arch.Edit {
	if _, err := pending(mem, edits); err == nil {
		return edits
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e arch.Edit) bool {
		_, err := pending(mem, []arch.Edit{e})
		return err != nil && isEarly(&e)
	})
}

// Libraries are the keys of libraries that plans were put into, by image.
func (a *Attachment) Libraries() map[uint64]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := make(map[uint64]string)
	for _, im := range a.images {
		if im.library != nil && im.m.Running != nil {
			keys[im.m.Running.Image] = im.library.Key()
		}
	}
	return keys
}

// Within are the images that came with libraries, as patched copies do, by key of the library.
func (r *Runtime) Within(all []*Library) map[uint64]string {
	keys := make(map[uint64]string)
	ms, err := mapsOf(r.t.pid)
	if err != nil {
		return keys
	}
	fileOf := func(key string) string {
		_, file, _ := strings.Cut(key, " ")
		return file
	}
	for i := range r.Images {
		for _, m := range ms {
			if at := r.Images[i].at; at < m.lo || m.hi <= at || !path.IsAbs(m.path) {
				continue
			}
			for _, l := range all { // by address
				if l.lo <= m.lo && fileOf(l.key) == fileOf(m.key) {
					keys[r.Images[i].ID] = l.Key()
				}
			}
		}
	}
	return keys
}

// MappedLibraries are the libraries of a process.
func MappedLibraries(pid int) ([]*Library, error) {
	aux, err := auxOf(pid)
	if err != nil {
		return nil, err
	}
	ms, err := mapsOf(pid)
	if err != nil {
		return nil, err
	}
	all := libraries(ms, auxValue(aux, atEntry))
	for _, l := range all {
		l.pid = pid
	}
	makeRoom(ms, nil, all)
	return all, nil
}

// Has tells whether a process has an image.
func (r *Runtime) Has(image uint64) bool {
	for i := range r.Images {
		if r.Images[i].ID == image {
			return true
		}
	}
	return false
}

// outside does something while a thread is stopped that is not in the runtime, and is the one that calls are made in the name
// of. If one that is stopped alone is always there, all are stopped, and one of them that is not is taken. sleep lets time pass
// between two tries.
func (ts *threads) outside(sleep func(time.Duration), do func(ms []mapping) error) error {
	const alone = 5 // tries with one thread
	r, err := OpenRuntime(ts.pid)
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() { ts.unfit = nil }()
	began, pause := time.Now(), leavePause
	for tries := 1; ; tries++ {
		err := ts.within(tries <= alone, func() error {
			ms, err := ts.maps()
			if err != nil {
				return err
			}
			ts.unfit = func(t *thread) bool {
				in, err := r.occupies(t, ms)
				return in || err != nil
			}
			if !slices.ContainsFunc(ts.all, func(t *thread) bool { return !ts.unfit(t) }) {
				if _, err := r.vacate(ts, ms, time.Now().Add(stopLimit)); err != nil {
					return err
				}
			}
			return do(ms)
		})
		if !errors.Is(err, ErrInside) || tries >= leaveTries && time.Since(began) > insidePatience {
			return err
		}
		sleep(pause)
		pause = min(2*pause, insidePause)
	}
}

// layered has edits of the same place, which are in the order in which they were made, be one.
func layered(edits []arch.Edit) []arch.Edit {
	out := edits[:0]
	for _, e := range edits {
		if n := len(out); n > 0 && out[n-1].Addr == e.Addr && bytes.Equal(out[n-1].New, e.Old) {
			out[n-1].New, out[n-1].Reason = e.New, e.Reason
			continue
		}
		out = append(out, e)
	}
	return out
}
